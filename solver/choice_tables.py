"""What equal tensors of a problem share: the prices between their layouts, and the bytes of their blocks."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from solver.cost.collectives import BUCKET
from solver.cost.reshard import ReshardTable, reshard_table
from solver.cost.tariff import Tariff
from solver.layout import local_shape
from solver.problem import Problem


def table(problem: Problem, tensor: str) -> ReshardTable:
    """Return the prices between the layouts of a tensor; equal tensors share one table."""
    return table_with(problem, tensor, problem.tariff(tensor))


def table_with(problem: Problem, tensor: str, tariff: Tariff) -> ReshardTable:
    """Return the prices between the layouts of a tensor where other collectives may run."""
    fact = problem.graph.tensors[tensor]
    local = problem.communication != "any"
    bucket = BUCKET if tensor in problem.bucketed else None
    asked = fact.shape, fact.itemsize, problem.parts(tensor), problem.mesh, problem.kinds
    return reshard_table(*asked, local, bucket, tariff)


def price_class(problem: Problem, tensor: str) -> tuple[object, ...]:
    """Return what the prices of a tensor depend on within a problem: tensors of one class share them."""
    fact = problem.graph.tensors[tensor]
    return fact.shape, fact.itemsize, problem.parts(tensor), tensor in problem.bucketed, problem.tariff(tensor)


def block_bytes(problem: Problem, tensor: str) -> NDArray[np.int64]:
    """Return the bytes of one device's block of a tensor in each of its layouts; equal tensors share them."""
    fact, parts = problem.graph.tensors[tensor], problem.parts(tensor)
    key = fact.shape, fact.itemsize, parts
    known = problem.block_bytes
    if key not in known:
        blocks = (local_shape(layout, fact.shape, parts, problem.mesh.sizes) for layout in problem.layouts(tensor))
        known[key] = np.array([math.prod(block) * fact.itemsize for block in blocks], np.int64)
    found: NDArray[np.int64] = known[key]
    return found
