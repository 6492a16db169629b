"""The skeleton of a table: few steps, whose cheapest sums are the table, and with which a sweep proves the same."""

from __future__ import annotations

import numpy as np
import pytest
from networks import random_network, transformer

from solver import Mesh
from solver.cost.reshard import reshard_table
from solver.search import flat as flat_module
from solver.search.bound import Dual, certified_bound
from solver.search.flat import flatten
from solver.search.network import INF, IntArray, arc_consistency
from solver.search.skeleton import Skeleton, skeleton


def closed(table: IntArray) -> IntArray:
    """Shortest ways, by Floyd and Warshall."""
    found = table.copy()
    np.fill_diagonal(found, 0)
    for k in range(len(found)):
        np.minimum(found, found[:, k : k + 1] + found[k : k + 1], out=found)
    return np.minimum(found, INF)


def spread(steps: Skeleton, count: int) -> IntArray:
    """The steps as a table."""
    found = np.full((count, count), INF, np.int64)
    for i in range(count):
        for k in range(steps.start[i], steps.start[i + 1]):
            found[i, steps.at[k]] = min(found[i, steps.at[k]], steps.price[k])
    return found


def drawn(seed: int, count: int, dearest: int) -> IntArray:
    draw = np.random.default_rng(seed)
    prices = draw.integers(0, dearest + 1, (count, count))
    return closed(np.where(draw.random((count, count)) < 0.6, INF, prices).astype(np.int64))


@pytest.mark.parametrize("dearest", [0, 1, 3, 10**12])
@pytest.mark.parametrize("seed", range(25))
def test_the_cheapest_sums_of_the_steps_are_the_table(seed: int, dearest: int) -> None:
    """Many prices of zero among them: layouts that are free to change into each other must not wait for each other."""
    table = drawn(seed, 3 + seed % 9, dearest)
    steps = skeleton(table)
    assert steps is not None
    assert (closed(spread(steps, len(table))) == table).all()
    assert (closed(spread(steps.turned(), len(table))) == table.T).all()


@pytest.mark.parametrize("seed", range(25))
def test_no_step_can_be_spared_where_every_price_is_positive(seed: int) -> None:
    table = drawn(seed, 6, 10**6)
    table = closed(np.where(table == 0, 5, table))
    steps = skeleton(table)
    assert steps is not None
    whole = spread(steps, len(table))
    for i, j in np.argwhere(whole < INF):
        fewer = whole.copy()
        fewer[i, j] = INF
        assert (closed(fewer) != table).any()


@pytest.mark.parametrize(
    "table",
    [
        pytest.param([[0, 9, 1], [9, 0, 9], [1, 1, 0]], id="a sum undercuts a price"),
        pytest.param([[0, INF, 1], [9, 0, 9], [1, 1, 0]], id="a sum undercuts what is forbidden"),
        pytest.param([[1, 2], [2, 0]], id="staying is not free"),
        pytest.param([[0, 1, 1], [1, 0, 1]], id="not square"),
    ],
)
def test_other_tables_have_none(table: list[list[int]]) -> None:
    assert skeleton(np.array(table, np.int64)) is None


@pytest.mark.parametrize("sizes", [(8,), (2, 4), (2, 2, 2)])
def test_reshards_are_sums_of_few_moves(sizes: tuple[int, ...]) -> None:
    mesh = Mesh({f"m{i}": size for i, size in enumerate(sizes)}, hardware="h100")
    table = reshard_table((16, 64, 64), 2, ((16,), (64,), (64,)), mesh, ("sum",)).time
    steps = skeleton(table)
    assert steps is not None
    assert (closed(spread(steps, len(table))) == table).all()
    assert len(steps.at) < len(table) * 4 * len(sizes)


def test_sweeps_along_the_steps_prove_what_sweeps_across_the_table_prove(monkeypatch: pytest.MonkeyPatch) -> None:
    for network in [transformer(1), *map(random_network, range(40))]:
        start = arc_consistency(network)
        if not start.feasible:
            continue
        found = []
        for large in (2**60, 1):
            monkeypatch.setattr(flat_module, "LARGE", large)
            dual = Dual(flatten(network, start.domains))
            for _ in range(12):
                dual.sweep()
            assert certified_bound(network, dual.messages(), start.domains) >= dual.units
            found.append(dual)
        assert (found[1].network.flat.steps_on >= 0).any() or len(network.variables) < 7
        assert found[0].units == pytest.approx(found[1].units, rel=1e-9)
