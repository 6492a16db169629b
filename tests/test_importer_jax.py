# ruff: noqa: E402
"""Every JAX primitive that is translated computes, as a graph run in numpy, what JAX computes."""

from __future__ import annotations

import pytest

jax = pytest.importorskip("jax", reason="JAX is not installed: pip install 'shardproof[jax]'")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)
from solver import from_jax
from tests.jax_blocks import BLOCKS
from tests.jax_cases import ELEMENTWISE, PRODUCTS, VIEWS, Case
from tests.jax_index_cases import CALLS, INDEXING, WINDOWS
from tests.jax_runs import compare

CASES = [*ELEMENTWISE, *VIEWS, *PRODUCTS, *INDEXING, *WINDOWS, *CALLS, *BLOCKS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_graph_computes_what_jax_computes(case: Case) -> None:
    graph = from_jax(case.fn, *case.args)
    used = {node.op for node in graph.nodes.values()}
    assert used.issuperset(case.ops.split())
    assert not used.intersection(case.absent.split())
    compare(graph, case.fn, case.args, case.tolerance)
