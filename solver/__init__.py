"""shardproof: the provably best placement of a network's tensors on a mesh of devices.

Examples
--------
>>> from solver import Mesh
>>> Mesh({"dp": 2, "tp": 4}, hardware="h100").sizes
(2, 4)
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from solver.advice import explain
    from solver.constraints.expression import partial, sharded
    from solver.graph import Graph
    from solver.importers import from_jax, from_paddle, from_paddle_layer, from_torch, load, paddle_pins
    from solver.infer import infer
    from solver.mesh import Mesh
    from solver.plan import Plan
    from solver.planner import plan

__version__ = "0.1.0"
__all__ = [
    "Graph",
    "Mesh",
    "plan",
    "Plan",
    "explain",
    "infer",
    "sharded",
    "partial",
    "load",
    "from_torch",
    "from_jax",
    "from_paddle",
    "from_paddle_layer",
    "paddle_pins",
]

_HOME = {
    "Graph": "graph",
    "Mesh": "mesh",
    "plan": "planner",
    "Plan": "plan",
    "explain": "advice",
    "infer": "infer",
    "sharded": "constraints.expression",
    "partial": "constraints.expression",
    **dict.fromkeys(("load", "from_torch", "from_jax", "from_paddle", "from_paddle_layer", "paddle_pins"), "importers"),
}
"""The module of each public name. They are imported at first use: the checkers run where z3 is not installed."""


def _foreign_ops(error: ImportError) -> str | None:
    """Say what is wrong where `ops` is not the package that was shipped beside this one; None where it is."""
    found = importlib.util.find_spec("ops")
    ours = Path(__file__).resolve().parent.parent / "ops" / "__init__.py"
    remedy = "install shardproof in an environment of its own (python3 -m venv NEW; NEW/bin/pip install shardproof)"
    if found is None:
        return f"shardproof needs its package `ops`, which should be {ours} and is missing: {remedy}"
    where = found.origin or ", ".join(found.submodule_search_locations or ())
    if found.origin is None or Path(found.origin).resolve() != ours:
        return (
            f"shardproof needs its own package `ops` ({ours}), but Python finds a foreign `ops` first: {where}. If "
            f"that is a file of yours, rename it or start Python elsewhere; if it is another distribution, {remedy}"
        )
    if error.name == "ops":
        return f"another distribution has overwritten shardproof's package `ops` in {where}: {remedy}"
    return None


try:
    from ops import Partial, Replicate, Shard, names, rows  # noqa: F401
except ImportError as error:
    if message := _foreign_ops(error):
        raise ImportError(message, name="ops") from None
    raise


class _Package(ModuleType):
    """The package keeps its functions where a submodule has the same name.

    Importing ``solver.plan`` or ``solver.explain.core`` would bind the module to that name and so hide the function.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOME or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
