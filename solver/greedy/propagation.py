"""Factor propagation of shardings over flows, as Shardy does it.

A mesh axis is written as units, its prime factors, so that a sub-axis is some of them and every question about axes is
one about lists: what two tensors agree on is a common beginning, a conflict is a unit in common.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from solver.greedy.flows import Dims, Flow, Flows

Axes: TypeAlias = tuple[int, ...]
"""Units, major first."""
Direction: TypeAlias = Literal["backward", "both"]
LEVELS = 5


class Units:
    """The prime factors of mesh axes, numbered axis by axis, major first.

    Parameters
    ----------
    axes : sequence of int
        The sizes of the mesh axes.
    """

    def __init__(self, axes: Sequence[int]) -> None:
        self.sizes: list[int] = []
        self._of: list[Axes] = []
        for size in axes:
            primes = list(_primes(size))
            self._of.append(tuple(range(len(self.sizes), len(self.sizes) + len(primes))))
            self.sizes += primes

    def of(self, axis: int) -> Axes:
        """Return the units of a mesh axis; none for one of size 1."""
        return self._of[axis]

    def size(self, axes: Axes) -> int:
        """Return into how many blocks units cut."""
        return math.prod(self.sizes[unit] for unit in axes)


def _primes(size: int) -> Iterator[int]:
    prime = 2
    while size > 1:
        while size % prime == 0:
            yield prime
            size //= prime
        prime += 1


@dataclass(frozen=True, slots=True)
class _Cut:
    """How one factor of one tensor is cut.

    Parameters
    ----------
    axes : Axes
    overflow : Axes
        What cuts the dim further and neither fills this factor nor starts the next.
    closed : bool
        Whether nothing can be added, since the factor before it is not filled.
    minor : bool
        Whether it is the last of its dim, and so need not be divided by what cuts it.
    """

    axes: Axes
    overflow: Axes
    closed: bool
    minor: bool


class Propagation:
    """The shardings of all values of some flows, per dim, as far as they are known.

    Parameters
    ----------
    flows : Flows
    units : Units
    alike : sequence of sequence of int
        Values that lie alike.
    """

    def __init__(self, flows: Flows, units: Units, alike: Sequence[Sequence[int]]) -> None:
        self.flows, self.units, self.sizes = flows.flows, units, units.sizes
        self.placed: list[list[Axes]] = [[()] * len(value.shape) for value in flows.values]
        self.whole: list[set[int]] = [set() for _ in flows.values]
        """Units that may not cut a value."""
        self.outputs: list[tuple[int, list[Axes]]] = []
        """Values that leave in a sharding that is asked for, and which that is."""
        self._alike = {value: group for group in alike for value in group}
        self._maker: dict[int, int] = {}
        self._users: list[list[int]] = [[] for _ in flows.values]
        for index, flow in enumerate(self.flows):
            self._maker[flow.result] = index
            for value in flow.operands:
                self._users[value].insert(0, index)
        leaving = flows.problem.graph.outputs
        uses = [len(users) + (value in self._alike) for value, users in enumerate(self._users)]
        for tensor in leaving:
            if tensor in flows.of:
                uses[flows.of[tensor]] += 1
        self._shared = [
            any(uses[value] > 1 and math.prod(flows.values[value].shape) > 1 for value in flow.operands)
            for flow in self.flows
        ]

    def run(self) -> None:
        """Propagate to a fixed point, level by level."""
        for group in set(map(tuple, self._alike.values())):
            self._join(group)
        for level in range(LEVELS):
            self._through_outputs()
            while self._sweep(level):
                pass
            self._through_outputs()

    def _join(self, group: Sequence[int]) -> None:
        """Let values that lie alike share what is known of them: that of the first that is cut."""
        placed = next((self.placed[value] for value in group if any(self.placed[value])), self.placed[group[0]])
        for value in group:
            self.placed[value] = placed

    def _sweep(self, level: int) -> bool:
        """Go through all flows in order; a change puts the flows around it on top of what is to be done."""
        todo = list(range(len(self.flows) - 1, -1, -1))
        waiting, changed = set(todo), False
        while todo:
            index = todo.pop()
            waiting.discard(index)
            for value in self._through(index, level):
                changed = True
                for one in self._alike.get(value, (value,)):
                    for near in (self._maker.get(one, index), *self._users[one]):
                        if near != index and near not in waiting:
                            waiting.add(near)
                            todo.append(near)
        return changed

    def _directions(self, index: int, level: int) -> Mapping[str, Direction]:
        """Return the factors of a flow that are propagated along on a level, and in which direction."""
        flow = self.flows[index]
        passes = flow.kind in ("pointwise", "reshape", "transpose")
        if (passes and (level >= 1 or not self._shared[index])) or level == 4:
            return dict.fromkeys(flow.sizes, "both")
        if level < 2:
            return {}
        along: Direction = "backward" if flow.kind == "broadcast" else "both"
        return {name: along for name in flow.sizes if level == 3 or flow.types[name] == "pass"}

    def _through(self, index: int, level: int) -> Iterator[int]:
        """Carry what the values of a flow have to its other values; yield those that it changed."""
        flow = self.flows[index]
        if not any(axes for value in flow.values for axes in self.placed[value]):
            return
        directions = self._directions(index, level)
        if not directions:
            return
        spread = zip(flow.values, flow.dims, strict=True)
        cuts = [self._cuts(self.placed[value], dims, flow.sizes) for value, dims in spread]
        agreed = {name: _agreed(cuts, name, directions.get(name)) for name in flow.sizes}
        if not any(_begins(cut, agreed[name]) for of in cuts for name, cut in of.items()):
            return
        for slot in self._spread(flow, cuts, agreed):
            value = flow.values[slot]
            new = self._dims(cuts[slot], flow.dims[slot], flow.sizes)
            if new != self.placed[value]:
                self.placed[value][:] = new
                yield value

    def _spread(self, flow: Flow, cuts: Sequence[dict[str, _Cut]], agreed: Mapping[str, Axes]) -> list[int]:
        """Let the tensors of a flow, the result first, take what was agreed on; return which of them took any."""
        order, made = self._order(flow, cuts, agreed), len(cuts) - 1
        grown: dict[int, None] = {}
        for slot in (made, *range(made)):
            of = cuts[slot]
            for name in order:
                axes = self._fitting(of, name, agreed[name], flow.sizes[name], self.whole[flow.values[slot]])
                if slot != made and flow.kind == "pointwise" and _begins(cuts[made].get(name), axes):
                    axes = cuts[made][name].axes
                if _begins(of.get(name), axes):
                    of[name] = replace(of[name], axes=axes)
                    grown[slot] = None
        return sorted(grown)

    def _cuts(self, placed: Sequence[Axes], dims: Dims, sizes: Mapping[str, int]) -> dict[str, _Cut]:
        """Spread the axes of each dim over its factors, the major one first."""
        found: dict[str, _Cut] = {}
        for axes, names in zip(placed, dims, strict=True):
            left, closed = axes, False
            for name in names[:-1]:
                taken, rest = 0, sizes[name]
                while taken < len(left) and rest % self.sizes[left[taken]] == 0:
                    rest //= self.sizes[left[taken]]
                    taken += 1
                over = left[taken:] if rest > 1 else ()
                found[name] = _Cut(left[:taken], over, closed, False)
                left, closed = (() if over else left[taken:]), closed or bool(over)
            found[names[-1]] = _Cut(left, (), closed, True)
        return found

    def _dims(self, cuts: Mapping[str, _Cut], dims: Dims, sizes: Mapping[str, int]) -> list[Axes]:
        """Put the axes of the factors of each dim together, up to the first factor that they do not fill."""
        found = []
        for names in dims:
            axes: Axes = ()
            for name in names:
                axes += cuts[name].axes + cuts[name].overflow
                if cuts[name].overflow or self.units.size(cuts[name].axes) < sizes[name]:
                    break
            found.append(axes)
        return found

    def _order(self, flow: Flow, cuts: Sequence[Mapping[str, _Cut]], agreed: Mapping[str, Axes]) -> list[str]:
        """Order factors for a conflict: the one with the largest source first."""
        source = dict.fromkeys(flow.sizes, (1, -1))
        for slot, of in enumerate(cuts):
            size = math.prod(flow.sizes[name] for name in of)
            for name, cut in of.items():
                if agreed[name] and cut.axes[: len(agreed[name])] == agreed[name] and -size < source[name][0]:
                    source[name] = -size, slot
        cut_more = {name: -self.units.size(agreed[name]) if flow.kind == "pointwise" else 0 for name in flow.sizes}
        numbers = {name: number for number, name in enumerate(flow.sizes)}
        return sorted(flow.sizes, key=lambda name: (source[name][0], cut_more[name], source[name][1], numbers[name]))

    def _fitting(self, cuts: Mapping[str, _Cut], name: str, agreed: Axes, size: int, whole: set[int]) -> Axes:
        """Return as many of the agreed axes as a tensor can take along a factor."""
        if name not in cuts:
            return ()
        cut, before, taken = cuts[name], 1, 0
        for unit in agreed:
            fits = cut.minor or (size % before == 0 and size // before % self.sizes[unit] == 0)
            if unit in whole or not (unit in cut.axes or (fits and not cut.closed and not cut.overflow)):
                break
            before *= self.sizes[unit]
            taken += 1
        elsewhere = {unit for other, one in cuts.items() if other != name for unit in one.axes + one.overflow}
        free = next((k for k in range(taken) if agreed[k] in elsewhere), taken)
        return agreed[:free]

    def _through_outputs(self) -> None:
        """Carry shardings between values that leave and what is asked of them there."""
        for value, asked in self.outputs:
            for dim, axes in enumerate(self.placed[value]):
                others = {unit for k, one in enumerate(self.placed[value]) if k != dim for unit in one}
                wanted = asked[dim]
                if len(wanted) > len(axes) and wanted[: len(axes)] == axes and not others & set(wanted):
                    self.placed[value][dim] = tuple(unit for unit in wanted if unit not in self.whole[value])


def _agreed(cuts: Sequence[Mapping[str, _Cut]], name: str, direction: Direction | None) -> Axes:
    """Return the axes that the tensors of a factor agree on, from the major one on; those that come first lead."""
    if direction is None:
        return ()
    found: Axes = ()
    open_ended = True
    order = cuts if direction == "both" else (cuts[-1], *cuts[:-1])
    for position, of in enumerate(order):
        if direction == "backward" and position == 1:
            open_ended = False
        if name not in of:
            continue
        axes = of[name].axes
        same = next(
            (k for k, (a, b) in enumerate(zip(found, axes, strict=False)) if a != b), min(len(found), len(axes))
        )
        if same < min(len(found), len(axes)):
            found, open_ended = found[:same], False
        elif open_ended and len(axes) > len(found):
            found = axes
    return found


def _begins(cut: _Cut | None, axes: Axes) -> bool:
    return cut is not None and len(cut.axes) < len(axes) and axes[: len(cut.axes)] == cut.axes
