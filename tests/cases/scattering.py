from __future__ import annotations

import numpy as np
from truth import Case

_ROWS = np.array([3, 0, 5, 4, 1, 2])
_COLUMNS = np.stack([np.random.default_rng(row).permutation(12)[:6] for row in range(4)])
_POINTS = np.array([[0, 1], [3, 5], [0, 1], [2, 0], [1, 4], [3, 3]])
_FIRST, _SECOND = np.array([0, 3, 1, 2, 3, 0]), np.array([5, 0, 1, 2, 4, 0])
_ORDER = "an order is declared for one operand at a time, and for the reduction's own kind"
_ORDERED = {
    "P(m*) * P(m*) -> *": _ORDER,
    "P(m*) * R -> *": _ORDER,
    "R R P(m*) -> *": _ORDER,
    "P(m*) S(1) * -> *": _ORDER,
}
_READS_OUT = "the grad reads out, which a cut of the indices makes partial"
_REPEATED = "one value for several indices counts once for each, which the linear form cannot say: they are whole"
_CUT_GRAD = {"R S(1) S(1) R R -> *": _READS_OUT}
_OUT_GRAD = {**_CUT_GRAD, "R R R P(*) R -> *": "out is linear in arr, which the grad reads, too"}

CASES = [
    Case("scatter", {"x": (6, 4), "index": _ROWS[:4], "updates": (4, 4)}),
    Case("scatter", {"x": (12, 4), "index": (6,), "updates": (6, 4)}, {"overwrite": False}),
    Case("index_add", {"x": (4, 12), "index": (6,), "value": (4, 6)}, {"axis": 1}),
    Case("scatter_nd_add", {"x": (4, 6, 12), "index": _POINTS, "updates": (6, 12)}),
    Case("index_put", {"x": (4, 6, 12), "indices": [_FIRST, _SECOND], "value": (6, 12)}),
    Case(
        "index_put",
        {"x": (4, 6, 12), "indices": [_FIRST], "value": (12,)},
        {"accumulate": True},
        {"P(sum) S(0) R -> P(sum)": _REPEATED},
        {"S(0) R -> *": _REPEATED},
    ),
    Case("index_put", {"x": (4, 6), "indices": [_FIRST, _SECOND], "value": (6,)}, {"accumulate": True}),
    Case(
        "index_put",
        {"x": (4, 6, 12), "indices": [_FIRST[:4, None], np.array([-1, 0, 2, 1, 4, 3])], "value": (4, 6, 1)},
        {"accumulate": True},
    ),
    Case("index_put", {"x": (12, 6), "indices": [np.array([4, -1, 9, 0])], "value": (4, 1)}),
    Case("index_put", {"x": (4, 2, 6), "indices": [_FIRST, _FIRST % 2, _SECOND], "value": ()}),
    Case("put_along_axis", {"arr": (4, 12), "indices": _COLUMNS, "values": (4, 6)}, {"axis": 1}),
    Case("put_along_axis", {"arr": (4, 12), "indices": (4, 6), "values": (4, 6)}, {"axis": 1, "reduce": "add"}),
    Case("put_along_axis", {"arr": (4, 12), "indices": (1, 6), "values": (1, 6)}, {"axis": 1, "reduce": "add"}),
    Case(
        "put_along_axis",
        {"arr": (4, 12), "indices": (4, 6), "values": (4, 1)},
        {"axis": 1, "reduce": "add"},
        {"P(sum) S(1) R -> P(sum)": _REPEATED},
        {"* S(1) * R -> *": _REPEATED},
    ),
    Case(
        "put_along_axis",
        {"arr": (4, 12), "indices": (4, 6), "values": (4, 6)},
        {"axis": 1, "reduce": "multiply"},
        {},
        _OUT_GRAD,
    ),
    Case(
        "put_along_axis",
        {"arr": (4, 12), "indices": _COLUMNS, "values": (4, 6)},
        {"axis": 1, "reduce": "amax"},
        _ORDERED,
        _CUT_GRAD,
    ),
    Case(
        "put_along_axis",
        {"arr": (4, 12), "indices": _COLUMNS, "values": (4, 6)},
        {"axis": 1, "reduce": "amin"},
        _ORDERED,
        _CUT_GRAD,
    ),
]
