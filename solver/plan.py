"""A plan: what was asked, what was chosen, what follows, and what is proved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from ops.placement import DimsMapping, Layout, Placement, to_dims_mapping
from solver.choice import Choice, Evaluation, Reshard
from solver.cost.kernel_steps import KernelStep
from solver.cost.memory import Memory
from solver.explanation import Explanation
from solver.garbage import collecting_later
from solver.graph import Use
from solver.problem import Problem, ProblemError

if TYPE_CHECKING:
    from solver.program import Program
    from solver.simulate import Run
    from solver.verify import Check

Status = Literal["optimal", "feasible", "infeasible", "unknown"]
UNPROVED: Mapping[str, Any] = {"bits": 0, "arrays": [], "tree": {"unproved": True}}
"""A certificate that claims nothing."""
SECONDS = 10**12
"""Picoseconds in a second."""


@dataclass(frozen=True)
class Closest:
    """What a search within a memory budget knew when it ended without a plan.

    Parameters
    ----------
    least : int
        Bytes that every plan fills at its peak at least; 0 where nothing is known.
    smallest : Choice or None
        The plan of least peak that was found; it fills more than the budget.
    late : bool
        Whether time ran out.
    """

    least: int
    smallest: Choice | None
    late: bool


@dataclass(frozen=True)
class Plan:
    """The answer to one planning question.

    Parameters
    ----------
    problem : Problem
        What was asked.
    status : str
        ``optimal``, ``feasible`` (a plan with a gap), ``infeasible`` (proved), ``unknown`` (neither a plan
        nor a proof that there is none was found: mostly out of time).
    choice : Choice or None
        What was chosen.
    certificate : mapping or None
        The proof of the bound: a branch tree whose leaves hold integer messages (docs/certificate.md).
    bound_ps, solver_bound_ps : int
        What the certificate proves, and what Z3's word adds, in picoseconds.
    proof : str
        ``certificate``, ``certificate+z3`` or ``none``.
    explanation : Explanation or None
        Why there is no plan.
    stages : mapping
        Seconds per stage of the planning.
    compute_bound_ps : int
        Under the objective ``communication``: what the compute of every plan takes at least that communicates as
        little as this one.
    losses : mapping
        Where a plan with a gap pays above the bound that was found before branching, in picoseconds: by op, by tensor
        and by use. Empty without a gap, and where a budget was searched for.
    closest : Closest or None
        Where a search found no plan within a memory budget: what is known.
    """

    problem: Problem
    status: Status
    choice: Choice | None = None
    certificate: Mapping[str, Any] | None = None
    bound_ps: int = 0
    solver_bound_ps: int = 0
    proof: str = "none"
    explanation: Explanation | None = None
    stages: Mapping[str, float] = field(default_factory=dict)
    compute_bound_ps: int = 0
    losses: Mapping[str, int] = field(default_factory=dict)
    closest: Closest | None = None

    @cached_property
    def evaluation(self) -> Evaluation:
        """What follows from the choice.

        Raises
        ------
        ProblemError
            Where there is no plan.
        """
        if self.choice is None:
            raise ProblemError(f"there is no plan to ask: the status is {self.status}")
        return Evaluation(self.problem, self.choice)

    # ------------------------------------------------------------------------------------------------------- figures

    @property
    def cost_ps(self) -> int | None:
        """What was to be least in picoseconds, the price or communication alone; None where there is no plan."""
        return None if self.choice is None else self.evaluation.cost

    @property
    def cost(self) -> float | None:
        """What was to be least in seconds, None where there is no plan."""
        return None if self.cost_ps is None else self.cost_ps / SECONDS

    @property
    def bound(self) -> float:
        """What every plan costs at least, in seconds, by the certificate."""
        return self.bound_ps / SECONDS

    @property
    def solver_bound(self) -> float:
        """What every plan costs at least, in seconds, by the certificate and Z3's word."""
        return self.solver_bound_ps / SECONDS

    @property
    def gap(self) -> float | None:
        """How far the certified bound stays below the cost, as a fraction of it; None where there is no plan."""
        if self.cost_ps is None:
            return None
        return (self.cost_ps - self.bound_ps) / self.cost_ps if self.cost_ps else 0.0

    @cached_property
    def memory(self) -> Memory:
        """Peak bytes per device, and its parts."""
        return self.evaluation.memory

    # ------------------------------------------------------------------------------------------------------- layouts

    def layout(self, tensor: str) -> dict[str, Placement]:
        """Return what a pin on a tensor speaks of: the storage of a source, ``held`` of a result."""
        self._known(tensor)
        source = self.problem.graph.tensors[tensor].producer is None
        return self._named(self.evaluation.made(tensor) if source else self.evaluation.held(tensor))

    def made(self, tensor: str) -> dict[str, Placement]:
        """Return the layout in which a tensor is produced, or stored."""
        self._known(tensor)
        return self._named(self.evaluation.made(tensor))

    def held(self, tensor: str) -> dict[str, Placement]:
        """Return the layout in which a tensor is kept for its uses."""
        self._known(tensor)
        return self._named(self.evaluation.held(tensor))

    def needed(self, use: str) -> dict[str, Placement]:
        """Return the layout that a use, written ``op/operand``, reads."""
        found = self._uses.get(use) if isinstance(use, str) else None
        if found is None:
            raise ProblemError(f"there is no use {use!r} in graph {self.problem.graph.name!r}: write op/operand")
        return self._named(self.evaluation.needed(found))

    def dims_mapping(self, tensor: str) -> DimsMapping:
        """Return Paddle's dims_mapping of `layout`; an error for a layout on parts."""
        return self._mapped(tensor)[0]

    def partial(self, tensor: str) -> dict[int, str]:
        """Return Paddle's partial state of `layout`: mesh axis index -> kind."""
        return self._mapped(tensor)[1]

    @property
    def reshards(self) -> tuple[Reshard, ...]:
        """Every reshard: tensor, uses, source, target and its moves."""
        return self.evaluation.reshards

    # ---------------------------------------------------------------------------------------------------- its reasons

    def why(self, tensor: str, timeout: float = 60.0) -> Explanation:
        """Return what keeps a tensor in its layout: what the next best costs, or the facts that leave no other.

        Parameters
        ----------
        tensor : str
        timeout : float, optional
            Seconds: this plans anew with the tensor elsewhere.

        Raises
        ------
        ValueError
            Where there is no plan or no such tensor.
        """
        from solver.why import why

        return why(self, tensor, timeout)

    def why_not(self, tensor: str, wish: Mapping[str, Any] | str, timeout: float = 60.0) -> Explanation:
        """Return what it would take for a tensor, or a use as ``op/operand``, to lie otherwise.

        Parameters
        ----------
        tensor : str
        wish : mapping or str
            Placements, as in a pin: ``{"tp": Shard(1)}`` or ``"tp=S(1)"``.
        timeout : float, optional
            Seconds: this plans anew.

        Returns
        -------
        Explanation
            Where it is impossible with the core of facts against it; else with `cost_delta` and what would change.

        Raises
        ------
        ValueError
            Where there is no plan, or the wish names nothing or cannot be read.
        """
        from solver.why import why_not

        return why_not(self, tensor, wish, timeout)

    @property
    def kernels(self) -> Mapping[str, tuple[KernelStep, ...]]:
        """What kernels send themselves: op -> its all_reduces and exchanges of borders, in order."""
        return self.evaluation.kernels

    # --------------------------------------------------------------------------------------------------- what it runs

    @cached_property
    def program(self) -> Program:
        """The SPMD program that the plan lowers to."""
        from solver.program import lower

        return lower(self.evaluation)

    def check(self) -> Check:
        """Compute every layout, collective, price and the bound again, without the solver.

        Raises
        ------
        ValueError
            Where the choice does not fit the question, so that nothing follows from it.
        """
        from solver.plan_json import reading, write
        from solver.verify import verify

        with reading("the choice"), collecting_later():
            data = write(self)
        return verify(data)

    def simulate(
        self,
        seed: int = 0,
        values: Mapping[str, NDArray[Any]] | None = None,
        memory: int | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> Run:
        """Run the program on simulated devices and compare every output with the unsharded run.

        Parameters
        ----------
        seed : int, optional
            Of the values drawn for inputs, parameters and states.
        values : mapping, optional
            Input, parameter, state or constant -> array, instead of drawn ones.
        memory : int, optional
            Bytes that the run may fill, by default what is free.
        tell : callable, optional
            Called with how many ops have run, of all, as a text.

        Raises
        ------
        ValueError
            Where there is no plan, or the values do not fit the graph.
        MemoryError
            Before anything runs, where it would fill more memory than it may.
        """
        from solver.simulate import simulate

        return simulate(self.program, seed, values, memory, tell)

    def to_json(self) -> str:
        """Return the plan as JSON text, with everything that a check needs."""
        from solver.plan_json import dumps

        return dumps(self)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read what `to_json` wrote.

        Raises
        ------
        ValueError
            Where the text is no such JSON.
        """
        from solver.plan_json import loads

        return loads(text)

    def text(self, *, whole: bool = False) -> str:
        """Return the plan as text; with `whole` every op, reshard and remark, none left out of its table."""
        from solver.report.text import plan_text

        return plan_text(self, whole=whole)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        cost = "" if self.cost is None else f", {self.cost:.4g} s"
        return f"Plan({self.problem.graph.name!r}: {self.status}{cost})"

    # ------------------------------------------------------------------------------------------------------ the parts

    def _named(self, layout: Layout) -> dict[str, Placement]:
        return dict(zip(self.problem.mesh.axes, layout, strict=True))

    def _mapped(self, tensor: str) -> tuple[DimsMapping, dict[int, str]]:
        placements: Sequence[Placement] = list(self.layout(tensor).values())
        return to_dims_mapping(placements, len(self.problem.graph.tensors[tensor].shape))

    def _known(self, tensor: str) -> None:
        if not isinstance(tensor, str) or tensor not in self.problem.graph.tensors:
            raise ProblemError(f"there is no tensor {tensor!r} in graph {self.problem.graph.name!r}")

    @cached_property
    def _uses(self) -> dict[str, Use]:
        return {use.name: use for uses in self.problem.uses.values() for use in uses}
