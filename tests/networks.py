"""Cost networks for tests: tiny random ones, transformer steps, and what must hold of a search's answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from solver.search.bound import Messages, certified_bound, edge_minimum, variable_sums
from solver.search.branch import Result
from solver.search.flat import SCALE_BITS
from solver.search.network import INF, Domains, Edge, IdArray, IntArray, Network, Variable, arc_consistency
from solver.search.reduce import reduced
from solver.search.tree import Block, Leaf, Narrowed, Split, Tree


def variables(*costs: list[int]) -> tuple[Variable, ...]:
    return tuple(Variable(f"v{i}", "op", np.array(cost, np.int64)) for i, cost in enumerate(costs))


def single(layouts: list[int] | IdArray) -> IdArray:
    """The tail index of values that offer one layout each."""
    return np.stack([np.array(layouts, np.int32)] * 2, axis=1)


def edge(tail: int, head: int, table: IntArray, tails: IdArray, heads: list[int] | IdArray) -> Edge:
    return Edge(f"{tail}->{head}", tail, head, table, tails, np.array(heads, np.int32))


def assignments(network: Network) -> list[tuple[tuple[int, ...], int]]:
    """All allowed assignments with their prices."""
    everything = product(*(range(len(variable)) for variable in network.variables))
    priced = [(values, network.cost(values)) for values in everything]
    return [(values, cost) for values, cost in priced if cost < INF]


def best_cost(network: Network) -> int:
    return min((cost for _, cost in assignments(network)), default=INF)


def random_network(seed: int, unit: int = 1) -> Network:
    """Up to six variables of up to five values: copies, forbidden prices, parallel edges, shared tables, loose ends."""
    draw = np.random.default_rng(seed)
    count = int(draw.integers(0, 7))
    found = []
    for i in range(count):
        size = int(draw.integers(1, 6))
        cost = draw.integers(0, draw.choice([3, 20, 10**9]), size) * unit
        found.append(Variable(f"v{i}", "op", np.where(draw.random(size) < 0.1, INF, cost).astype(np.int64)))
    tables: list[IntArray] = []
    edges = []
    for _ in range(int(draw.integers(0, 12)) if count > 1 else 0):
        tail, head = sorted(int(i) for i in draw.choice(count, 2, replace=False))
        if not tables or draw.random() < 0.5:
            table = draw.integers(0, draw.choice([3, 20, 10**9]), draw.integers(1, 5, 2)) * unit
            tables.append(np.where(draw.random(table.shape) < draw.choice([0, 0.2, 0.5]), INF, table).astype(np.int64))
        table = tables[draw.integers(len(tables))]
        offers = draw.integers(0, len(table), (len(found[tail]), 2)).astype(np.int32)
        if draw.random() < 0.5:
            offers[:, 1] = offers[:, 0]
        edges.append(
            edge(tail, head, table, offers, draw.integers(0, table.shape[1], len(found[head])).astype(np.int32))
        )
    return Network(tuple(found), tuple(edges))


def frustrated(seed: int, count: int = 12, values: int = 4, unit: int = 1) -> Network:
    """A dense random network, whose bound stays below its optimum until it is branched."""
    draw = np.random.default_rng(seed)
    edges = []
    for tail, head in ((u, v) for u in range(count) for v in range(u + 1, count)):
        if draw.random() < 0.4:
            table = draw.integers(0, 100, (values, values)) * unit
            table[draw.random(table.shape) < 0.1] = INF
            edges.append(edge(tail, head, table, single(list(range(values))), list(range(values))))
    return Network(variables(*((draw.integers(0, 50, values) * unit).tolist() for _ in range(count))), tuple(edges))


Sizes = dict[str, int]
Axis = tuple[int, int]
"""Devices, and bytes per microsecond."""

SIZES: Sizes = {"b": 64, "s": 2048, "t": 2048, "d": 4096, "h": 32, "e": 128, "f": 11008}
SLOW, FAST = (8, 25_000), (8, 200_000)


class Step:
    """A transformer step: one variable per weight, op and, with `copies`, tensor that is read more than once."""

    def __init__(self, axes: tuple[Axis, ...], copies: bool) -> None:
        self.axes, self.copies = axes, copies
        self.variables: list[Variable] = []
        self.edges: list[Edge] = []
        self.made: dict[str, tuple[int, IdArray, str]] = {}
        self.uses: dict[str, list[tuple[int, IdArray]]] = {}
        self.tables: dict[str, IntArray] = {}
        self.rows: dict[str, tuple[IntArray, list[IdArray]]] = {}

    def placements(self, dims: str) -> list[str]:
        return ["R", *dims, "P"]

    def local(self, dims: str, layout: tuple[str, ...]) -> float:
        """Bytes on one device."""
        total = 2.0
        for dim in dims:
            total *= SIZES[dim]
        for place, (devices, _) in zip(layout, self.axes, strict=True):
            total /= devices if place in dims else 1
        return total

    def table(self, dims: str) -> IntArray:
        """The cheapest paths between layouts, one axis at a time."""
        if dims not in self.tables:
            layouts = list(product(self.placements(dims), repeat=len(self.axes)))
            number = {layout: k for k, layout in enumerate(layouts)}
            table = np.full((len(layouts), len(layouts)), INF // 4, np.int64)
            for source, (axis, (devices, speed)) in product(layouts, enumerate(self.axes)):
                for place in self.placements(dims):
                    target = (*source[:axis], place, *source[axis + 1 :])
                    ring = (devices - 1) / devices * 10**6 / speed
                    before, after = self.local(dims, source), self.local(dims, target)
                    old = source[axis]
                    if old == place:
                        price = 0.0
                    elif old == "P":
                        price = ring * before * (2 if place == "R" else 1) + 10**7
                    elif old == "R" or place == "P":
                        price = before / 3 if place == "P" else 0.0
                    else:
                        price = ring * (after if place == "R" else before) + 5 * 10**6
                    table[number[source], number[target]] = min(table[number[source], number[target]], int(price))
            for k in range(len(layouts)):
                np.minimum(table, table[:, k : k + 1] + table[k : k + 1], out=table)
            self.tables[dims] = table
        return self.tables[dims]

    def codes(self, dims: str, layouts: list[tuple[str, ...]]) -> IdArray:
        number = {place: k for k, place in enumerate(self.placements(dims))}
        codes = np.zeros(len(layouts), np.int32)
        for axis in range(len(self.axes)):
            codes = codes * len(number) + np.array([number[layout[axis]] for layout in layouts], np.int32)
        return codes

    def weight(self, name: str, dims: str) -> str:
        layouts = list(product(["R", *dims], repeat=len(self.axes)))
        self.made[name] = len(self.variables), self.codes(dims, layouts), dims
        self.variables.append(Variable(name, "tensor", np.zeros(len(layouts), np.int64)))
        return name

    def op(self, name: str, rule: str, *operands: str, whole: str = "", linear: bool = False) -> str:
        """An einsum, where each axis cuts a factor, nothing, or passes partial sums on."""
        cost, columns = self.row_table(rule, whole, linear)
        me = len(self.variables)
        self.variables.append(Variable(name, "op", cost))
        for operand, column in zip(operands, columns, strict=False):
            self.uses.setdefault(operand, []).append((me, column))
        self.made[name] = me, columns[-1], rule.split(">")[1]
        return name

    def row_table(self, rule: str, whole: str, linear: bool) -> tuple[IntArray, list[IdArray]]:
        key = f"{rule} {whole} {linear}"
        if key not in self.rows:
            left, result = rule.split(">")
            terms = [*left.split(","), result]
            factors = sorted(set("".join(terms)) - set(whole))
            per_axis = [["R"] * len(terms)]
            per_axis += [[f if f in t else "R" for t in terms[:-1]] + [f if f in result else "P"] for f in factors]
            per_axis += [["P"] * len(terms)] if linear else []
            joint = list(product(per_axis, repeat=len(self.axes)))
            work = 10**6 / 300e6 * 2
            for factor in set("".join(terms)):
                work *= SIZES[factor]
            cost = [
                work
                / np.prod([1 if set(row) <= {"R", "P"} else n for row, (n, _) in zip(rows, self.axes, strict=True)])
                for rows in joint
            ]
            columns = [self.codes(t, [tuple(row[k] for row in rows) for rows in joint]) for k, t in enumerate(terms)]
            self.rows[key] = np.array(cost).astype(np.int64), columns
        return self.rows[key]

    def network(self) -> Network:
        """Join producers and uses, in the order in which variables are ready."""
        order: list[tuple[int, Variable]] = [(2 * i, variable) for i, variable in enumerate(self.variables)]
        raw: list[tuple[int, int, IntArray, IdArray, IdArray]] = []
        for name, uses in self.uses.items():
            me, codes, dims = self.made[name]
            offer, source, table = single(codes), 2 * me, self.table(dims)
            if self.copies and len(uses) > 1:
                size = len(table)
                pairs = np.stack(np.meshgrid(np.unique(codes), np.arange(size), indexing="ij"), -1).reshape(-1, 2)
                order.append((2 * me + 1, Variable(f"{name}:copy", "tensor", table[pairs[:, 0], pairs[:, 1]])))
                same = self.tables.setdefault(f"same {size}", np.where(np.eye(size, dtype=bool), 0, INF))
                raw.append((source, source + 1, same, offer, pairs[:, 0].astype(np.int32)))
                offer, source = pairs.astype(np.int32), source + 1
            raw += [(source, 2 * user, table, offer, column) for user, column in uses]
        place = {at: k for k, (at, _) in enumerate(sorted(order, key=lambda pair: pair[0]))}
        edges = [edge(place[tail], place[head], table, offer, column) for tail, head, table, offer, column in raw]
        return Network(tuple(v for _, v in sorted(order, key=lambda pair: pair[0])), tuple(edges))


def transformer(layers: int, axes: tuple[Axis, ...] = (SLOW, FAST), copies: bool = False) -> Network:
    """Forward, backward and update of equal layers."""
    step = Step(axes, copies)
    x = step.weight("x", "bsd")
    saved = []
    for i in range(layers):
        w = {k: step.weight(f"{i}.w{k}", dims) for k, dims in {"q": "dhe", "k": "dhe", "v": "dhe", "o": "hed"}.items()}
        w |= {k: step.weight(f"{i}.w{k}", dims) for k, dims in {"u": "df", "g": "df", "p": "fd"}.items()}
        n = step.op(f"{i}.norm", "bsd>bsd", x, whole="d")
        q, v = (step.op(f"{i}.{k}", "bsd,dhe>bshe", n, w[k]) for k in "qv")
        k = step.op(f"{i}.k", "btd,dhe>bthe".replace("t", "s"), n, w["k"])
        scores = step.op(f"{i}.scores", "bshe,bthe>bhst", q, k)
        prob = step.op(f"{i}.prob", "bhst>bhst", scores, whole="t")
        mixed = step.op(f"{i}.mixed", "bhst,bthe>bshe", prob, v)
        out = step.op(f"{i}.out", "bshe,hed>bsd", mixed, w["o"])
        y = step.op(f"{i}.add", "bsd,bsd>bsd", x, out, linear=True)
        m = step.op(f"{i}.norm2", "bsd>bsd", y, whole="d")
        up, gate = (step.op(f"{i}.{k}", "bsd,df>bsf", m, w[k]) for k in "ug")
        both = step.op(f"{i}.both", "bsf,bsf>bsf", up, gate)
        down = step.op(f"{i}.down", "bsf,fd>bsd", both, w["p"])
        saved.append((w, n, mixed, m, up, gate, both))
        x = step.op(f"{i}.add2", "bsd,bsd>bsd", y, down, linear=True)
    g = step.op("loss", "bsd>bsd", x)
    for i in reversed(range(layers)):
        w, n, mixed, m, up, gate, both = saved[i]
        db = step.op(f"{i}.dboth", "bsd,fd>bsf", g, w["p"])
        du, dg = step.op(f"{i}.dup", "bsf,bsf>bsf", db, gate), step.op(f"{i}.dgate", "bsf,bsf>bsf", db, up)
        grads = [("p", "bsf,bsd>fd", both, g), ("u", "bsd,bsf>df", m, du), ("g", "bsd,bsf>df", m, dg)]
        dm = [step.op(f"{i}.dm{k}", "bsf,df>bsd", d, w[k]) for k, d in (("u", du), ("g", dg))]
        dm2 = step.op(f"{i}.dnorm2", "bsd,bsd>bsd", *dm, linear=True)
        g = step.op(f"{i}.dadd", "bsd,bsd>bsd", g, dm2, linear=True)
        dmixed = step.op(f"{i}.dmixed", "bsd,hed>bshe", g, w["o"])
        dq = step.op(f"{i}.dq", "bshe>bshe", dmixed, whole="s")
        grads += [("o", "bshe,bsd>hed", mixed, g), *((k, "bsd,bshe>dhe", n, dq) for k in "qkv")]
        dn = step.op(f"{i}.dn", "bshe,dhe>bsd", dq, w["q"])
        for k, rule, one, other in grads:
            dw = step.op(f"{i}.grad{k}", rule, one, other)
            dims = rule.split(">")[1]
            step.op(f"{i}.update{k}", f"{dims},{dims}>{dims}", w[k], dw)
        g = step.op(f"{i}.dadd2", "bsd,bsd>bsd", g, dn, linear=True)
    return step.network()


def proved(network: Network, tree: Tree, domains: Domains | None = None) -> int:
    """What a tree proves, in 1/4096 ps, checked leaf by leaf; its splits part all that is left."""
    left = arc_consistency(network, domains)
    if isinstance(tree, Leaf):
        if tree.infeasible:
            assert not left.feasible
            return INF << SCALE_BITS
        assert tree.messages is not None
        bound = certified_bound(network, tree.messages, left.domains)
        bound += sum(gains(network, tree.messages, tree.blocks, left.domains).values())
        assert bound >= tree.units
        return bound
    if isinstance(tree, Narrowed):
        return min(tree.within + 1, proved(network, tree.rest, narrowed(network, tree, left.domains)))
    i = tree.variable
    assert sorted([*tree.left_values, *tree.right_values]) == np.flatnonzero(left.domains[i]).tolist()
    sides = []
    for values, side in ((tree.left_values, tree.left), (tree.right_values, tree.right)):
        assert len(values)
        mask = np.zeros(len(left.domains[i]), np.bool_)
        mask[values] = True
        sides.append(proved(network, side, (*left.domains[:i], mask, *left.domains[i + 1 :])))
    return min(sides)


def narrowed(network: Network, tree: Narrowed, domains: Domains) -> Domains:
    """The values with which the messages and blocks of a node do not prove every assignment too dear."""
    rest = reduced(network, tree.messages, domains)
    gained = gains(network, tree.messages, tree.blocks, domains)
    own = {i: gained[n] for n, block in enumerate(tree.blocks) for i in block.variables}
    spend = tree.within - rest.units - sum(gained.values())
    return tuple(paid <= spend + own.get(i, 0) for i, paid in enumerate(rest.own))


def gains(network: Network, messages: Messages, blocks: Sequence[Block], domains: Domains) -> dict[int, int]:
    """What each block proves beyond the messages: computed on a network of its own, in 1/4096 ps."""
    seen = [i for block in blocks for i in block.variables]
    assert len(seen) == len(set(seen))
    found = {}
    for n, block in enumerate(blocks):
        part, least = alone(network, messages, block)
        inside = tuple(domains[i] for i in block.variables)
        sums = variable_sums(network, messages)
        before = sum(int(sums[i][domains[i]].min()) for i in block.variables)
        for e in block.edges:
            edge = network.edges[e]
            before += edge_minimum(edge, *messages[e], domains[edge.tail], domains[edge.head])
        found[n] = (proved(part, local(block), inside) >> SCALE_BITS) + least - before
        assert found[n] == block.gain
    return found


def alone(network: Network, messages: Messages, block: Block) -> tuple[Network, int]:
    """A block as a network in 1/4096 ps, with the messages of the other edges in its prices, and what was taken off."""
    place = {i: k for k, i in enumerate(block.variables)}
    inner = [e for e, edge in enumerate(network.edges) if edge.tail in place and edge.head in place]
    assert sorted(block.edges) == inner
    costs = [np.where(network.variables[i].cost < INF, network.variables[i].cost << SCALE_BITS, INF) for i in place]
    for e, edge in enumerate(network.edges):
        if e not in inner and edge.tail in place:
            costs[place[edge.tail]] = costs[place[edge.tail]] + messages[e][0][edge.tail_index].min(axis=1)
        if e not in inner and edge.head in place:
            costs[place[edge.head]] = costs[place[edge.head]] + messages[e][1][edge.head_index]
    allowed = [network.variables[i].cost < INF for i in place]
    least = [int(cost[mask].min()) for cost, mask in zip(costs, allowed, strict=True)]
    own = [np.where(mask, cost - low, INF) for cost, mask, low in zip(costs, allowed, least, strict=True)]
    names = [network.variables[i] for i in place]
    found = []
    for e in block.edges:
        edge = network.edges[e]
        table = np.where(edge.table < INF, edge.table << SCALE_BITS, INF)
        ends = place[edge.tail], place[edge.head]
        found.append(Edge(edge.name, *ends, table, edge.tail_index, edge.head_index))
    variables = tuple(Variable(v.name, v.kind, cost) for v, cost in zip(names, own, strict=True))
    return Network(variables, tuple(found)), sum(least)


def local(block: Block) -> Tree:
    """The tree of a block with its own numbers of variables, and messages in 1/4096 of its prices."""
    place = {i: k for k, i in enumerate(block.variables)}

    def told(tree: Tree) -> Tree:
        if isinstance(tree, Leaf):
            pairs = (
                None if tree.messages is None else tuple((a << SCALE_BITS, b << SCALE_BITS) for a, b in tree.messages)
            )
            return Leaf(pairs, tree.units << SCALE_BITS, tree.infeasible)
        assert isinstance(tree, Split)
        return Split(place[tree.variable], tree.left_values, tree.right_values, told(tree.left), told(tree.right))

    return told(block.tree)


def assert_optimal(network: Network, result: Result, best: int) -> None:
    """The answer is the best one and its tree proves that."""
    assert result.cost == best
    assert result.bound == best
    assert result.infeasible == (best >= INF)
    assert min(-(-proved(network, result.tree) >> SCALE_BITS), INF) >= best
    if best < INF:
        assert result.assignment is not None
        assert network.cost(result.assignment) == best
    else:
        assert result.assignment is None
