from __future__ import annotations

from truth import Case

STATISTICS = dict.fromkeys(("mean", "variance"), (6,))
WEIGHTS = dict.fromkeys(("scale", "bias"), (6,))

CASES = [
    Case(
        "batch_norm",
        {"x": (4, 6, 2), **STATISTICS, **WEIGHTS},
        {"data_format": "NCL"},
    ),
    Case(
        "batch_norm",
        {"x": (4, 3, 2, 6), **STATISTICS, "bias": (6,)},
        {"is_test": True, "data_format": "NHWC"},
    ),
    Case(
        "batch_norm",
        {"x": (4, 6), **STATISTICS, "scale": (6,)},
        {"use_global_stats": True},
    ),
    Case(
        "sync_batch_norm",
        {"x": (4, 6, 2, 6), **STATISTICS, **WEIGHTS},
        {},
    ),
    Case("sync_batch_norm", {"x": (4, 2, 6), **STATISTICS, "bias": (6,)}, {"data_format": "NLC", "momentum": 0.5}),
    Case(
        "sync_batch_norm",
        {"x": (4, 6, 3), **STATISTICS, "scale": (6,)},
        {"is_test": True},
    ),
    Case("instance_norm", {"x": (4, 6, 3, 2), **WEIGHTS}),
    Case("group_norm", {"x": (2, 24, 4), "scale": (24,), "bias": (24,)}, {"groups": 6}),
    Case("group_norm", {"x": (2, 3, 12), "scale": (12,)}, {"groups": 12, "data_format": "NLC"}),
    Case("group_norm", {"x": (2, 6, 4)}),
    Case("local_response_norm", {"x": (2, 6, 4)}, {"size": 3, "alpha": 0.5}),
    Case("local_response_norm", {"x": (2, 4, 6)}, {"size": 4, "alpha": 0.5, "data_format": "NLC"}),
    Case("instance_norm", {"x": (2, 3, 4, 2, 6), "bias": (6,)}, {"data_format": "NDHWC"}),
    Case("group_norm", {"x": (4, 12), "bias": (12,)}, {"groups": 2}),
]
