"""What each aten overload is tried on: small tensors, and variants of its other arguments."""

from __future__ import annotations

from aten_cases.case import Case
from aten_cases.elements import losses, pointwise, reductions
from aten_cases.layers import grids, images, norms, products
from aten_cases.views import creation, indexing, strided, views

CASES: list[Case] = [
    case
    for family in (views, strided, creation, indexing, pointwise, reductions, losses, products, norms, images, grids)
    for case in family()
]
