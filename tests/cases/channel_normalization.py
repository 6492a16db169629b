from __future__ import annotations

from truth import Case

from cases.normalization import AFFINE, AFFINE_GRAD, STORED

STATISTICS = dict.fromkeys(("mean", "variance"), (6,))
WEIGHTS = dict.fromkeys(("scale", "bias"), (6,))
RUNNING = "the running statistics are stored, and what is stored is never partial"

CASES = [
    Case(
        "batch_norm",
        {"x": (4, 6, 2), **STATISTICS, **WEIGHTS},
        {"data_format": "NCL"},
        {"R R R P(sum) * -> P(sum) R R": STORED},
        {"R * P(*) R -> *": STORED},
    ),
    Case(
        "batch_norm",
        {"x": (4, 3, 2, 6), **STATISTICS, "bias": (6,)},
        {"is_test": True, "data_format": "NHWC"},
        {"P(sum) P(sum) R - P(sum) -> P(sum) P(sum) R": RUNNING},
    ),
    Case(
        "batch_norm",
        {"x": (4, 6), **STATISTICS, "scale": (6,)},
        {"use_global_stats": True},
        {"R R R P(sum) - -> P(sum) R R": STORED, "P(sum) P(sum) R R - -> P(sum) P(sum) R": RUNNING},
        {"R R R P(*) R -> *": STORED, "* P(avg) R * R -> *": RUNNING, "P(*) * R * R -> *": RUNNING},
    ),
    Case(
        "sync_batch_norm",
        {"x": (4, 6, 2, 6), **STATISTICS, **WEIGHTS},
        {},
        {"R R R P(sum) * -> P(sum) R R": STORED},
        {"R * P(*) R -> *": STORED},
    ),
    Case("sync_batch_norm", {"x": (4, 2, 6), **STATISTICS, "bias": (6,)}, {"data_format": "NLC", "momentum": 0.5}),
    Case(
        "sync_batch_norm",
        {"x": (4, 6, 3), **STATISTICS, "scale": (6,)},
        {"is_test": True},
        {"R R R P(sum) - -> P(sum) R R": STORED, "P(sum) P(sum) R R - -> P(sum) P(sum) R": RUNNING},
        {"R R R P(*) R -> *": STORED, "* P(avg) R * R -> *": RUNNING, "P(*) * R * R -> *": RUNNING},
    ),
    Case("instance_norm", {"x": (4, 6, 3, 2), **WEIGHTS}, {}, AFFINE, AFFINE_GRAD),
    Case("group_norm", {"x": (2, 24, 4), "scale": (24,), "bias": (24,)}, {"groups": 6}, AFFINE, AFFINE_GRAD),
    Case("group_norm", {"x": (2, 3, 12), "scale": (12,)}, {"groups": 12, "data_format": "NLC"}, AFFINE, AFFINE_GRAD),
    Case("group_norm", {"x": (2, 6, 4)}),
    Case("local_response_norm", {"x": (2, 6, 4)}, {"size": 3, "alpha": 0.5}),
    Case("local_response_norm", {"x": (2, 4, 6)}, {"size": 4, "alpha": 0.5, "data_format": "NLC"}),
    Case("instance_norm", {"x": (2, 3, 4, 2, 6), "bias": (6,)}, {"data_format": "NDHWC"}, AFFINE),
    Case("group_norm", {"x": (4, 12), "bias": (12,)}, {"groups": 2}, AFFINE),
]
