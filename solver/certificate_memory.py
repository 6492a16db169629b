"""What a plan may choose, and what that stores at the moments of a certificate of a memory budget (docs/memory.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from solver.certificate_choices import Choices, Ints, Link, Name
from solver.certificate_model import Model
from solver.choice_tables import block_bytes
from solver.cost.moments import NEVER, OUTPUT, Moments
from solver.cost.reshard import INF
from solver.graph import Use
from solver.problem import Problem


class StoringModel(Model):
    """The variables and edges of a problem, with the bytes that they store at some moments.

    Parameters
    ----------
    problem : Problem
    moments : sequence of str
        Ops.
    """

    def __init__(self, problem: Problem, moments: Sequence[str]) -> None:
        super().__init__(problem)
        self.moments = Moments(problem.graph, problem.bound, moments)

    def _has_variable(self, tensor: str) -> bool:
        return super()._has_variable(tensor) or self.moments.crosses(tensor)

    def _relayed(self, tensor: str) -> bool:
        return super()._relayed(tensor) and not self.moments.crosses(tensor)

    # ---------------------------------------------------------------------------------------------------- variables

    def _op(self, node: str) -> Choices:
        found = super()._op(node)
        rows = self._joint(node)
        results = zip(self.graph.nodes[node].results, rows.results, strict=True)
        made = [block_bytes(self.problem, tensor)[column] for tensor, column in results]
        return replace(found, stored=self.moments.of_results(node, made))

    def _tensor(self, tensor: str) -> Choices:
        if self._relayed(tensor):
            return super()._tensor(tensor)
        found = super()._tensor(tensor)
        if self.moments.crosses(tensor):
            found = self._spelled(tensor, found)
        made, held = found.keys[:, 0], found.keys[:, 1]
        stored = self.moments.of_tensor(
            tensor, made, held, *self._spells(tensor, found.keys), block_bytes(self.problem, tensor)
        )
        return replace(found, stored=stored)

    def _spells(self, tensor: str, keys: Ints) -> tuple[Ints, Ints]:
        """Return the spells of values: the last two numbers of their keys, or, where nothing crosses, all alike."""
        if self.moments.crosses(tensor):
            return keys[:, -2], keys[:, -1]
        last = max(self.moments.classes(tensor).values(), default=NEVER)
        source = self.graph.tensors[tensor].producer is None
        return np.full(len(keys), NEVER if source else last), np.full(len(keys), last)

    def _spelled(self, tensor: str, found: Choices) -> Choices:
        """Return the values of a tensor whose copy matters: its copies may be smaller too, and each has its spells."""
        fact, price = self.graph.tensors[tensor], self._price(tensor)[0]
        pairs = {tuple(pair) for pair in found.keys[:, :2].tolist()}
        pinned = tensor in self.problem.spoken_of
        if fact.producer is not None and not pinned and self.problem.communication != "frozen":
            local = block_bytes(self.problem, tensor)
            for m in np.unique(self._joint(fact.producer).results[fact.slot]).tolist():
                pairs |= {(m, int(h)) for h in np.flatnonzero((local < local[m]) & (price[m] < INF))}
        spells = self.moments.spells(tensor, unread=pinned and fact.producer is not None)
        alone = self.moments.alone(tensor)
        keys = np.array([(m, h, *spell) for m, h in sorted(pairs) for spell in (spells if m != h else [alone])])
        keys = keys.reshape(-1, 4)
        made, held, first, second = keys.T
        own = price[made, held]
        delivery, tied = self._delivery(tensor), self._tied_output(tensor)
        if delivery is not None or tied:
            from_made, from_held = self.moments.reads(tensor, OUTPUT, first, second)
            from_held = from_held & (made != held)
        if delivery is not None:
            leaving = np.where(from_made, delivery[made], INF), np.where(from_held, delivery[held], INF)
            own = np.minimum(INF, own + np.minimum(*leaving))
        if tied:
            each = np.concatenate([np.flatnonzero(from_made), np.flatnonzero(from_held)])
            left = np.concatenate([made[from_made], held[from_held]])
            keys, own = np.stack([made[each], held[each], left, first[each], second[each]], axis=1), own[each]
        return Choices(own, keys)

    # -------------------------------------------------------------------------------------------------------- edges

    def _use(self, use: Use) -> Link:
        link = super()._use(use)
        crossing = self.moments.crosses(use.tensor)
        if crossing:
            link = replace(link, offers=self._offers(use, self.choices["tensor", use.tensor].keys))
        if use.op not in self.moments.number:
            return link
        local = block_bytes(self.problem, use.tensor)
        free = self._free(link.tail, use)
        price, allowed = link.price, link.allowed
        return replace(
            link,
            price=np.concatenate([price, price]),
            allowed=None if allowed is None else np.concatenate([allowed, allowed]),
            offers=link.offers + len(local) * free,
            stored=self.moments.of_use(use, local),
        )

    def _offers(self, use: Use, keys: Ints) -> Ints:
        made, held = self.moments.reads(use.tensor, use.name, keys[:, -2], keys[:, -1])
        held = held & (keys[:, 0] != keys[:, 1])
        first = np.where(made, keys[:, 0], keys[:, 1])
        return np.stack([first, np.where(held, keys[:, 1], first)], axis=1)

    def _free(self, tail: Name, use: Use) -> Ints:
        """Tell for what each value of the tail offers whether reading it as it is adds no bytes."""
        if tail[0] == "op":
            last = max(self.moments.classes(use.tensor).values())
            count = len(self.choices[tail].price)
            made, _ = self.moments.free(use, np.full(count, last), np.full(count, NEVER))
            return np.stack([made, made], axis=1)
        keys = self.choices[tail].keys
        first, second = self._spells(use.tensor, keys)
        made, held = self.moments.free(use, first, second)
        if self._relayed(use.tensor):
            return np.stack([made | held] * 2, axis=1)
        copied = keys[:, 0] != keys[:, 1]
        held = np.where(copied, held, made)
        if self.moments.crosses(use.tensor):
            reads_made, reads_held = self.moments.reads(use.tensor, use.name, first, second)
            one = np.where(reads_made, made, held)
            return np.stack([one, np.where(reads_held & copied, held, one)], axis=1)
        return np.stack([made, held], axis=1)
