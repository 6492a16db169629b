"""The checker of bounds: its enumeration against plain ones, and no certificate, however altered, proves too much."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from ops.bind import composes
from ops.placement import Partial
from solver import plan, reference
from solver.certificate import CertificateError, certified_bound, proved
from solver.certificate_choices import Link
from solver.certificate_model import Model, Name
from solver.certificate_rows import joint_rows, offered
from solver.choice_tables import table
from solver.cost.compute import compute_time
from solver.cost.reshard import INF
from solver.plan import Plan
from solver.problem import Problem, problem
from solver.reference_task import Task
from tests.graphs import HAND_MADE, Case, random_graphs
from tests.plans import CUBE, blocked_plan, communicating, every_plan, split_plans

FEW = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


def asked(case: Case) -> Problem:
    return problem(
        case.graph, case.mesh, pins=case.pins, communication=case.communication, capabilities=case.capabilities
    )


# ------------------------------------------------------------------------------------------- what may be chosen


@FEW
@given(random_graphs())
def test_joint_rows_are_those_that_compose(case: Case) -> None:
    question = asked(case)
    sizes = question.mesh.sizes
    for bound in question.bound.values():
        allowed = [
            k
            for k, row in enumerate(bound.rows)
            if all(p.kind in question.kinds for p in row.operands + row.results if isinstance(p, Partial))
        ]
        plain = [
            rows
            for rows in product(*(allowed if size > 1 else [0] for size in sizes))
            if composes(bound, [bound.rows[k] for k in rows], sizes)
        ]
        assert list(map(tuple, joint_rows(bound, sizes, offered(bound, question)).tolist())) == plain


@FEW
@given(random_graphs())
def test_every_value_is_what_the_problem_says(case: Case) -> None:
    """Prices and layouts of each value, looked up one by one."""
    question = asked(case)
    model, graph = Model(question), question.graph
    for (kind, name), choices in model.choices.items():
        if kind == "op":
            rows = [[question.bound[name].rows[k] for k in key] for key in choices.keys.tolist()]
            dtypes = {use.operand: graph.tensors[use.tensor].dtype for use in graph.operand_uses(name)}
            for row, price in zip(rows, choices.price.tolist(), strict=True):
                wanted = compute_time(graph.nodes[name], question.bound[name], row, dtypes, question.mesh)
                assert price >= wanted
    for link in model.links:
        tensor = link.tail[1] if link.tail[0] == "tensor" else link.name.removeprefix("made:")
        if link.name.startswith(("made:", "tie:")) or link.tail[0] != "tensor":
            continue
        use = next(use for use in question.uses[tensor] if use.name == link.name)
        layouts = question.layouts(tensor)
        for key, layout in zip(model.choices[link.head].keys.tolist(), link.asks.tolist(), strict=True):
            placed = [question.bound[use.op].rows[k].operands[use.slot] for k in key]
            assert layouts[layout] == question.canonical(tensor, placed)  # type: ignore[arg-type]


@FEW
@given(random_graphs())
def test_consistency_is_what_a_plain_sweep_leaves(case: Case) -> None:
    model = Model(asked(case))
    found = model.consistent(model.everything())
    wanted = plain_consistency(model)
    if found is None:
        assert any(not mask.any() for mask in wanted.values())
        assert certified_bound(asked(case), NOTHING) == INF
    else:
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted)


def plain_consistency(model: Model) -> dict[Name, np.ndarray]:
    alive = {name: choices.price < INF for name, choices in model.choices.items()}
    while True:
        before = sum(int(mask.sum()) for mask in alive.values())
        for link in model.links:
            price = np.minimum(link.price[link.offers[:, 0]][:, link.asks], link.price[link.offers[:, 1]][:, link.asks])
            both = (price < INF) & alive[link.tail][:, None] & alive[link.head][None, :]
            alive[link.tail], alive[link.head] = both.any(axis=1), both.any(axis=0)
        if sum(int(mask.sum()) for mask in alive.values()) == before:
            return alive


@FEW
@given(random_graphs())
def test_copies_left_out_cannot_pay(case: Case) -> None:
    """The definition of docs/certificate.md, written out."""
    question = asked(case)
    model = Model(question)
    for tensor, fact in question.graph.tensors.items():
        pinned = fact.producer is not None and question.pinned(tensor, tensor) is not None
        if ("tensor", tensor) not in model.choices or pinned or question.communication == "frozen":
            continue
        if fact.producer is not None and len(question.uses[tensor]) + (tensor in question.graph.outputs) == 2:
            continue  # relayed: its value is what is held
        price = table(question, tensor).time.tolist()
        index = {layout: i for i, layout in enumerate(question.layouts(tensor))}
        every = model.choices["tensor", tensor].keys.tolist()
        keys = {tuple(key[:2]) for key in every}
        links = [link for link in model.links if link.tail == ("tensor", tensor) and not link.name.startswith("tie:")]
        uses = [link.asks.tolist() for link in links]
        delivered = [index[layout] for layout in question.delivered(tensor)]
        tied = question.delivered_as(tensor) is not None
        if tied:
            uses.append(delivered)
            assert sorted(every) == sorted([m, h, read] for m, h in keys for read in {m, h})
        deliver = [min(row[d] for d in delivered) for row in price]
        for m in {m for m, _ in keys}:
            for h in range(len(price)):
                saved = sum(max(0, *(price[m][n] - price[h][n] for n in asks)) for asks in uses)
                if tensor in question.graph.outputs and not tied:
                    saved += max(0, deliver[m] - deliver[h])
                assert ((m, h) in keys) == (m == h or (price[m][h] < INF and saved > price[m][h]))


# ----------------------------------------------------------------------------------------------- what is proved

NOTHING = {"bits": 0, "arrays": [], "tree": {"messages": {}}}


@settings(FEW, max_examples=40)
@given(random_graphs(max_ops=4))
def test_random_messages_never_prove_more_than_the_optimum(case: Case) -> None:
    best = reference.best(Task(case.graph, case.mesh, case.pins, case.communication, case.capabilities))
    model = Model(asked(case))
    rng = random.Random(0)
    for scale in (0, 1, 10, 1000, 10**6, 10**12, 2**61, 10**30):
        bound = proved(model, random_certificate(model, rng, scale))
        assert bound <= (INF if best is None else best[0])


def random_certificate(model: Model, rng: random.Random, scale: int, depth: int = 3) -> dict[str, Any]:
    arrays: list[list[int]] = []

    def vector(count: int) -> int:
        arrays.append([rng.randint(-scale, scale) for _ in range(count)])
        return len(arrays) - 1

    def tree(left: int) -> dict[str, Any]:
        if left and rng.random() < 0.7:
            kind, name = rng.choice(list(model.choices))
            keys = model.choices[kind, name].keys.tolist()
            values = rng.sample(keys, rng.randint(0, len(keys)))
            return {kind: name, "left_values": values, "left": tree(left - 1), "right": tree(left - 1)}
        leaf = messages(model.links)
        if left and rng.random() < 0.5:
            leaf["blocks"] = blocks(left - 1)
        if left and rng.random() < 0.3:
            return {**leaf, "within": rng.randint(0, 2 * scale), "rest": tree(left - 1)}
        return leaf

    def messages(links: list[Link]) -> dict[str, Any]:
        kept = [link for link in links if rng.random() < 0.9]
        return {"messages": {link.name: [vector(n) for n in link.price.shape] for link in kept}}

    def blocks(left: int) -> list[dict[str, Any]]:
        names = rng.sample(list(model.choices), len(model.choices))
        size = rng.randint(1, max(1, len(names) // 2))
        return [block(names[at : at + size], left) for at in range(0, len(names), size) if rng.random() < 0.7]

    def block(names: list[Name], left: int) -> dict[str, Any]:
        inner = [link for link in model.links if {link.tail, link.head} <= set(names)]

        def within(depth: int) -> dict[str, Any]:
            if depth and rng.random() < 0.5:
                kind, name = rng.choice(names)
                keys = model.choices[kind, name].keys.tolist()
                values = rng.sample(keys, rng.randint(0, len(keys)))
                return {kind: name, "left_values": values, "left": within(depth - 1), "right": within(depth - 1)}
            return messages(inner)

        return {"variables": [list(name) for name in names], "tree": within(left)}

    return {"bits": rng.choice([0, 1, 12, 32]), "tree": tree(depth), "arrays": arrays}


@cache
def proofs() -> tuple[tuple[Model, Plan], ...]:
    """Small plans with their proofs, those by hand and some whose tree is split."""
    return tuple((Model(found.problem), found) for found in (*every_plan(), *split_plans(), blocked_plan()))


def test_three_thousand_altered_certificates_prove_nothing_false() -> None:
    rng = random.Random(7)
    known = proofs()
    refused = weaker = 0
    for _ in range(3_000):
        model, found = rng.choice(known)
        altered = alter(json.loads(json.dumps(found.certificate)), rng)
        try:
            bound = proved(model, altered)
        except CertificateError:
            refused += 1
            continue
        assert found.cost_ps is not None
        assert bound <= found.cost_ps, altered
        weaker += bound < found.bound_ps
    assert refused > 150
    assert weaker > 600


def alter(certificate: Any, rng: random.Random) -> Any:
    """Change one to three places: a number of a message, a whole message, which message an edge has, a split."""
    for _ in range(rng.randint(1, 3)):
        rng.choice(ALTERATIONS)(certificate, rng)
    return certificate


def _number(certificate: Any, rng: random.Random) -> None:
    arrays = [array for array in certificate["arrays"] if array]
    if arrays:
        array = rng.choice(arrays)
        at = rng.randrange(len(array))
        array[at] = rng.choice(
            [array[at] + rng.choice([-1, 1]) * 10 ** rng.randint(0, 12), -array[at], 0, rng.randint(-(2**70), 2**70)]
        )


def _vector(certificate: Any, rng: random.Random) -> None:
    arrays = certificate["arrays"]
    if arrays:
        array = rng.choice(arrays)
        array[:] = rng.choice([[0] * len(array), [-v for v in array], [2 * v for v in array], array[::-1], array[1:]])


def _reference(certificate: Any, rng: random.Random) -> None:
    leaf = rng.choice(list(nodes(certificate["tree"])))
    if leaf.get("messages"):
        pair = rng.choice(list(leaf["messages"].values()))
        pair[rng.randrange(2)] = rng.randrange(-1, len(certificate["arrays"]) + 1)


def _edge(certificate: Any, rng: random.Random) -> None:
    leaf = rng.choice(list(nodes(certificate["tree"])))
    if leaf.get("messages"):
        name = rng.choice(list(leaf["messages"]))
        pair = leaf["messages"].pop(name)
        if rng.random() < 0.3:
            leaf["messages"][name + "?"] = pair


def _bits(certificate: Any, rng: random.Random) -> None:
    certificate["bits"] = rng.choice([0, 11, 13, 20, 32, 33, -1])


def _leaf(certificate: Any, rng: random.Random) -> None:
    node = rng.choice(list(nodes(certificate["tree"])))
    node.clear()
    node.update({"infeasible": True})


def _split(certificate: Any, rng: random.Random) -> None:
    node = rng.choice(list(nodes(certificate["tree"])))
    if "left_values" in node:
        values = node["left_values"]
        if values and rng.random() < 0.7:
            values.pop(rng.randrange(len(values)))
        else:
            node["left"], node["right"] = node["right"], node["left"]


def _swapped(certificate: Any, rng: random.Random) -> None:
    """Give one edge the messages of another: edges that look alike are added up together."""
    leaf = rng.choice(list(nodes(certificate["tree"])))
    if len(leaf.get("messages", {})) > 1:
        one, other = rng.sample(list(leaf["messages"]), 2)
        leaf["messages"][one], leaf["messages"][other] = leaf["messages"][other], leaf["messages"][one]


def _within(certificate: Any, rng: random.Random) -> None:
    node = rng.choice(list(nodes(certificate["tree"])))
    if "within" in node:
        node["within"] = rng.choice([0, -1, node["within"] // 2, node["within"] - 1, 2 * node["within"]])


def _block(certificate: Any, rng: random.Random) -> None:
    """Take a variable out of a block, or have a block twice, or none."""
    node = rng.choice(list(nodes(certificate["tree"])))
    if node.get("blocks"):
        block = rng.choice(node["blocks"])
        if rng.random() < 0.6 and block["variables"]:
            block["variables"].pop(rng.randrange(len(block["variables"])))
        elif rng.random() < 0.5:
            node["blocks"].append(copy.deepcopy(block))
        else:
            node["blocks"].remove(block)


ALTERATIONS: list[Callable[[Any, random.Random], None]] = [_number] * 6 + [
    _vector,
    _reference,
    _edge,
    _swapped,
    _bits,
    _leaf,
    _split,
    _within,
    _block,
]


def nodes(tree: Any) -> Iterator[Any]:
    """Every node of a tree."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [node[side] for side in ("left", "right", "rest") if side in node]
        waiting += [block["tree"] for block in node.get("blocks", ())]


def test_some_proofs_need_branching() -> None:
    for found in split_plans():
        assert found.certificate is not None
        assert found.check().ok
        model = Model(found.problem)
        leaves = [node for node in nodes(found.certificate["tree"]) if set(node) == {"messages"}]
        assert len(leaves) > 1
        for node in leaves:
            assert proved(model, {**found.certificate, "tree": node}) < found.bound_ps, "no leaf alone proves the whole"


def test_a_proof_in_blocks_needs_every_block() -> None:
    found = blocked_plan()
    assert found.certificate is not None
    assert found.check().ok
    model, blocked = Model(found.problem), [node for node in nodes(found.certificate["tree"]) if node.get("blocks")]
    assert len(blocked) == 1
    assert len(blocked[0]["blocks"]) == 2
    for block in list(blocked[0]["blocks"]):
        blocked[0]["blocks"].remove(block)
        assert proved(model, found.certificate) < found.bound_ps
        blocked[0]["blocks"].append(block)
    assert proved(model, found.certificate) == found.bound_ps


def test_the_certificate_of_each_plan_proves_its_cost() -> None:
    for model, found in proofs():
        assert (
            found.cost_ps
            == found.bound_ps
            == proved(model, found.certificate)
            == certified_bound(found.problem, found.certificate)
        )


def test_no_messages_prove_something() -> None:
    model, found = Model(communicating().problem), communicating()
    assert 0 < proved(model, NOTHING) < found.bound_ps
    assert proved(model, {**NOTHING, "tree": {"infeasible": True}}) == proved(model, NOTHING)


def test_numbers_beyond_64_bits_are_added_exactly() -> None:
    """A large number that the tail gains and the head loses changes nothing."""
    model, found = Model(communicating().problem), communicating()
    for large in (2**30, 2**57, 2**61, 2**63, 2**80, 10**40):
        certificate = copy.deepcopy(found.certificate)
        assert certificate is not None
        messages, arrays = certificate["tree"]["messages"], certificate["arrays"]
        for name, (tail, head) in messages.items():
            messages[name] = [len(arrays), len(arrays) + 1]
            arrays += [[v + large for v in arrays[tail]], [v - large for v in arrays[head]]]
        assert proved(model, certificate) == found.bound_ps


def test_edges_that_are_added_up_together_count_as_they_do_alone() -> None:
    """The sum of a leaf, against one that goes edge by edge and value by value in Python's whole numbers."""
    rng, shown = random.Random(11), 0
    for model, found in proofs():
        assert found.certificate is not None
        alive = model.consistent_values
        assert alive is not None
        leaf = {"messages": next(one["messages"] for one in nodes(found.certificate["tree"]) if "messages" in one)}
        for most in (0, 10**3, 10**6):
            arrays = [[v + rng.randint(-most, most) for v in array] for array in found.certificate["arrays"]]
            written = {**found.certificate, "arrays": arrays, "tree": leaf}
            wanted = plain_sum(model, alive, written)
            assert proved(model, written) == max(0, -(-wanted >> written["bits"]))
            shown += wanted > 0
    assert shown > 30


def plain_sum(model: Model, alive: Any, certificate: Any) -> int:
    arrays, bits = certificate["arrays"], certificate["bits"]
    values = {
        name: [int(price) << bits if left else None for price, left in zip(one.price, alive[name], strict=True)]
        for name, one in model.choices.items()
    }
    least_of_edges = 0
    for link in model.links:
        tail, head = (arrays[number] for number in certificate["tree"]["messages"][link.name])
        for value, offers in enumerate(link.offers.tolist()):
            if values[link.tail][value] is not None:
                values[link.tail][value] += min(tail[layout] for layout in offers)
        for value, asks in enumerate(link.asks.tolist()):
            if values[link.head][value] is not None:
                values[link.head][value] += head[asks]
        offered = set(link.offers[alive[link.tail]].reshape(-1).tolist())
        asked = set(link.asks[alive[link.head]].tolist())
        least_of_edges += min(
            (int(link.price[source, target]) << bits) - tail[source] - head[target]
            for source in offered
            for target in asked
            if link.price[source, target] < INF
        )
    return least_of_edges + sum(min(one for one in each if one is not None) for each in values.values())


def test_a_split_proves_the_worse_of_its_sides() -> None:
    model, found = Model(communicating().problem), communicating()
    leaf = found.certificate["tree"]  # type: ignore[index]
    for kind, name in model.choices:
        keys = model.choices[kind, name].keys.tolist()
        for count in (0, 1, len(keys)):
            tree = {kind: name, "left_values": keys[:count], "left": leaf, "right": leaf}
            assert proved(model, {**found.certificate, "tree": tree}) == found.bound_ps  # type: ignore[dict-item]
            worse = {**tree, "right": {"messages": {}}}
            assert proved(model, {**found.certificate, "tree": worse}) <= found.bound_ps  # type: ignore[dict-item]


def test_a_tree_as_deep_as_it_likes() -> None:
    model, found = Model(communicating().problem), communicating()
    tree = leaf = found.certificate["tree"]  # type: ignore[index]
    for _ in range(3000):
        tree = {"op": "h0", "left_values": [], "left": {"infeasible": True}, "right": tree}
    assert tree is not leaf
    assert proved(model, {**found.certificate, "tree": tree}) == found.bound_ps  # type: ignore[dict-item]


@pytest.mark.parametrize("graph", HAND_MADE, ids=lambda make: make.__name__)
def test_every_wish_keeps_bound_and_optimum_equal(graph: Any) -> None:
    for communication in ("any", "none", "frozen"):
        found = plan(graph(), CUBE, communication=communication)
        assert found.status == "optimal"
        assert certified_bound(found.problem, found.certificate) == found.cost_ps


def test_a_tree_that_claims_nothing_proves_nothing() -> None:
    for graph in HAND_MADE:
        assert certified_bound(problem(graph(), CUBE), {**NOTHING, "tree": {"unproved": True}}) == 0
