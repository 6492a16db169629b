"""Certificates drawn at random around a proof: blocks, splits, values taken out, and numbers near a plan."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from solver.certificate_choices import Alive, Choices, Link, Name
from solver.certificate_consistency import consistent
from solver.certificate_tree import Scope, Written
from solver.search.certify import certificate
from solver.search.network import INF, Edge, Network
from solver.search.tree import Tree

LARGE = 1, 2**20, 2**45, 2**59, 2**61 - 1, 2**62, 2**70


class NetworkModel:
    """What the checker reads of a model, of a network of any kind: its best assignment can be enumerated."""

    def __init__(self, network: Network) -> None:
        self.problem = SimpleNamespace(memory=None)
        self.choices = {(v.kind, v.name): Choices(v.cost, np.arange(len(v))[:, None]) for v in network.variables}
        names: list[Name] = list(self.choices)
        self.links = [_link(edge, names) for edge in network.edges]
        self._at: dict[Name, list[int]] = {name: [] for name in names}
        for number, link in enumerate(self.links):
            for end in link.ends:
                self._at[end].append(number)
        self.consistent_values = self.consistent({name: one.allowed for name, one in self.choices.items()})

    def consistent(self, alive: Alive, changed: Name | None = None) -> Alive | None:
        """As that of a model."""
        return consistent(self.links, self._at, alive, changed)


def _link(edge: Edge, names: list[Name]) -> Link:
    allowed = edge.table < INF
    ends = names[edge.tail], names[edge.head]
    return Link(edge.name, *ends, edge.table, None if allowed.all() else allowed, edge.tail_index, edge.head_index)


def written(network: Network, tree: Tree, bits: int) -> Any:
    """Return what a search proved of a network as a certificate, read from its text."""
    rows = {variable.name: np.arange(len(variable)) for variable in network.variables}
    built = SimpleNamespace(
        network=network, kept=rows, joint={name: SimpleNamespace(rows=one[:, None]) for name, one in rows.items()}
    )
    return json.loads(json.dumps(certificate(built, tree, bits)))  # type: ignore[arg-type]


def nodes(tree: Any) -> Iterator[Any]:
    """Every node of a tree, those of blocks too."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [node[side] for side in ("left", "right", "rest") if side in node]
        waiting += [block["tree"] for block in node.get("blocks", ())]


class Drawer:
    """Draws certificates whose messages are mostly those of a proof, so that what they prove is near the optimum.

    Parameters
    ----------
    model : Model
    proof : mapping
        A certificate.
    cost : int
        What a plan costs.
    rng : random.Random
    """

    def __init__(self, model: Any, proof: Any, cost: int, rng: random.Random) -> None:
        self.model, self.rng = model, rng
        self.bits, self.units = proof["bits"], cost << proof["bits"]
        self.arrays: list[list[int]] = [list(array) for array in proof["arrays"]]
        leaves = [node["messages"] for node in nodes(proof["tree"]) if node.get("messages")]
        self.known = rng.choice(leaves) if leaves else {}

    def certificate(self, depth: int) -> Any:
        """Draw a certificate whose tree is so deep."""
        tree = self._tree(list(self.model.choices), self.model.links, depth, self.known, None)
        return {"bits": self.bits, "arrays": self.arrays, "tree": tree}

    def _tree(self, names: list[Name], links: Sequence[Link], depth: int, known: Any, around: Any) -> Any:
        """Draw a tree of all variables, or, with messages around it, of those of a block."""
        kind = self.rng.random()
        if depth and kind < 0.3:
            name = self.rng.choice(names)
            keys = self.model.choices[name].keys.tolist()
            sides = [self._tree(names, links, depth - 1, known, around) for _ in range(2)]
            left = self.rng.sample(keys, self.rng.randint(0, len(keys)))
            return {name[0]: name[1], "left_values": left, "left": sides[0], "right": sides[1]}
        if kind < 0.35:
            return {"infeasible": True}
        leaf: dict[str, Any] = {"messages": self._messages(links, known)}
        if around is None and depth and self.rng.random() < 0.6:
            leaf["blocks"] = list(self._blocks(leaf["messages"]))
        if depth and self.rng.random() < 0.6:
            near = self.units if around is None else self._least(names, leaf["messages"], around)
            within = near + self.rng.choice([0, 0, 1, -1, self.rng.randint(0, self.units), -(10**30), 10**30])
            return {**leaf, "within": within, "rest": self._tree(names, links, depth - 1, known, around)}
        return leaf

    def _blocks(self, around: Any) -> Iterator[Any]:
        left = self.rng.sample(list(self.model.choices), len(self.model.choices))
        while left and self.rng.random() < 0.8:
            size = self.rng.randint(1, 6)
            names, left = left[:size], left[size:]
            inner = [link for link in self.model.links if set(link.ends) <= set(names)]
            tree = self._tree(names, inner, self.rng.randint(0, 3), around, around)
            yield {"variables": [list(name) for name in names], "tree": tree}

    def _least(self, names: list[Name], messages: Any, around: Any) -> int:
        """Return what a block pays at least by messages."""
        read = Written({"bits": self.bits, "arrays": self.arrays, "tree": None})
        found, _ = Scope(self.model, read, names, around).sums({"messages": messages}, self.model.consistent_values)
        return found.total

    def _messages(self, links: Sequence[Link], known: Any) -> dict[str, list[int]]:
        scale = self.rng.choice([0, 0, 0, 1, 1 << self.bits, max(1, self.units // 50)])
        kept = self.rng.choice([1, 1, 0.9])
        return {link.name: self._pair(link, known.get(link.name), scale) for link in links if self.rng.random() < kept}

    def _pair(self, link: Link, pair: Any, scale: int) -> list[int]:
        """Draw the messages of an edge near known ones; what one end gains and the other loses may be large."""
        one, other = ([0] * n for n in link.price.shape) if pair is None else (self.arrays[number] for number in pair)
        moved = self.rng.choice([-1, 1]) * self.rng.choice(LARGE) if self.rng.random() < 0.2 else 0
        self.arrays.append([v + moved + self.rng.randint(-scale, scale) for v in one])
        self.arrays.append([v - moved + self.rng.randint(-scale, scale) for v in other])
        return [len(self.arrays) - 2, len(self.arrays) - 1]
