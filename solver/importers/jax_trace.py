"""A jaxpr, equation by equation: calls are inlined, loops written out, the rest translated by the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jax.extend.core import ClosedJaxpr, Literal

from solver.importers.errors import UnsupportedNodeError
from solver.importers.jax_elementwise import ELEMENTWISE
from solver.importers.jax_fold import evaluate, known
from solver.importers.jax_indexing import INDEXING
from solver.importers.jax_loops import LOOPS
from solver.importers.jax_products import PRODUCTS
from solver.importers.jax_random import RANDOM, drawing_call, key_results
from solver.importers.jax_site import Drawing, Site, Translation, module_of
from solver.importers.jax_views import VIEWS
from solver.importers.jax_windows import WINDOWS
from solver.importers.sketch import Sketch, Step, Value

TABLE: dict[str, Translation] = {**ELEMENTWISE, **VIEWS, **PRODUCTS, **INDEXING, **WINDOWS, **RANDOM}
"""Every primitive that becomes ops. ``TABLE["name"] = lambda site: site.emit("op", *site.operands)`` declares one."""

CALLS = {
    "jit": "jaxpr",
    "call": "call_jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Primitives whose body takes their place, and the parameter that holds it."""

_ON_DEVICES = frozenset(
    {"shard_map", "psum", "pmax", "pmin", "ppermute", "all_gather", "all_to_all", "reduce_scatter", "axis_index"}
)
"""Primitives that say what each device does."""
_UNKNOWN = "?"
"""How the op of a step begins whose primitive nobody translates."""


@dataclass
class Tracing:
    """A jaxpr on its way into a sketch.

    Parameters
    ----------
    drawing : Drawing
    unknown : dict
        A primitive that nobody translates, as the op of a step -> where it stands.
    """

    drawing: Drawing
    unknown: dict[int, str] = field(default_factory=dict)

    def run(self, jaxpr: Any, operands: Sequence[Value], module: str = "", caller: str = "") -> list[Value]:
        """Translate a jaxpr at given operands.

        Parameters
        ----------
        jaxpr : ClosedJaxpr or Jaxpr
        operands : sequence of Value
        module : str
            What the names of its ops begin with.
        caller : str
            The line that calls it.

        Returns
        -------
        list of Value
        """
        consts: Sequence[Any] = ()
        if isinstance(jaxpr, ClosedJaxpr):
            jaxpr, consts = jaxpr.jaxpr, jaxpr.consts
        scope: dict[Any, Value] = dict(zip(jaxpr.invars, operands, strict=True))
        scope.update(
            (variable, known(const, str(variable.aval.dtype.name)))
            for variable, const in zip(jaxpr.constvars, consts, strict=True)
        )
        for equation in jaxpr.eqns:
            read = [_value(scope, atom) for atom in equation.invars]
            inner = module_of(equation.source_info.name_stack)
            path = ".".join(part for part in (module, inner) if part)
            site = Site(self.drawing, equation, read, path, caller)
            scope.update(zip(equation.outvars, self._checked(site, self._results(site)), strict=True))
        return [_value(scope, atom) for atom in jaxpr.outvars]

    def _results(self, site: Site) -> Sequence[Value]:
        if site.name in CALLS:
            draws = drawing_call(site)
            if draws is not None:
                return [draws(site)]
            return self.run(site.params[CALLS[site.name]], site.operands, site.module, site.line)
        if site.name in LOOPS:
            return LOOPS[site.name](site, self.run)
        if site.name in _ON_DEVICES:
            raise site.refuse("it says what each device does, which is for a plan to say: give the function without it")
        if site.name not in TABLE or site.name in RANDOM:
            found = evaluate(site.equation.primitive, site.operands, site.params, site.results)
            if found is not None:
                return found  # type: ignore[no-any-return]
        keys = key_results(site)
        if keys is not None:
            return keys
        if site.name not in TABLE:
            return self._placeholders(site)
        made = TABLE[site.name](site)
        return [made] if isinstance(made, Value) else made

    def _placeholders(self, site: Site) -> list[Value]:
        """Go on without a translation, so that all that is missing can be said at once."""
        made = [Value(tuple(aval.shape), str(aval.dtype.name), "result") for aval in site.results]
        step = Step(_UNKNOWN, tuple(site.operands), tuple(made), {}, site.name, site.module)
        self.drawing.sketch.steps.append(step)
        self.unknown[id(step)] = site.line
        return made

    def _checked(self, site: Site, made: Sequence[Value]) -> Sequence[Value]:
        """Hold what a translation made against what JAX says."""
        for value, aval in zip(made, site.results, strict=True):
            said = tuple(aval.shape), str(aval.dtype.name)
            if (value.shape, value.dtype) != said and not value.dtype.startswith("key<"):
                raise site.refuse(
                    f"it was translated to {value.dtype}{list(value.shape)}, and JAX makes {said[1]}{list(said[0])}"
                )
        return made

    def check_unknown(self, steps: Sequence[Step]) -> None:
        """Refuse primitives that nobody translates and that an output needs, all of them at once."""
        found: dict[str, list[str]] = {}
        for step in steps:
            if step.op == _UNKNOWN:
                found.setdefault(step.name, []).append(self.unknown[id(step)])
        if not found:
            return
        told = "; ".join(
            f"{name} at {places[0]}" + (f" and {len(places) - 1} more" if places[1:] else "")
            for name, places in found.items()
        )
        first = next(iter(found))
        raise UnsupportedNodeError(
            f"there is no op here for {'these primitives' if found.keys() - {first} else 'the primitive'} {told}: "
            f'declare it with solver.importers.jax_trace.TABLE["{first}"] = '
            f'lambda site: site.emit("OP", *site.operands)'
        )


def tracing(name: str) -> Tracing:
    """Return a new sketch to trace into."""
    return Tracing(Drawing(Sketch(name)))


def _value(scope: dict[Any, Value], atom: Any) -> Value:
    if isinstance(atom, Literal):
        return known(atom.val, str(atom.aval.dtype.name))
    return scope[atom]
