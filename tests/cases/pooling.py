from __future__ import annotations

from truth import Case

_ORDER = {"P(max) -> P(max)": "max pooling keeps the order of max only, and halo factors have no kind to say so"}

CASES = [
    Case("max_pool1d", {"x": (4, 6, 6)}, {"kernel_size": 3, "padding": 1}, _ORDER),
    Case("max_pool2d", {"x": (2, 6, 8, 12)}, {"kernel_size": 2}, _ORDER),
    Case("max_pool2d", {"x": (2, 7, 6, 4)}, {"kernel_size": 3, "stride": 2, "data_format": "NHWC"}, _ORDER),
    Case(
        "max_pool2d",
        {"x": (2, 6, 6, 7)},
        {"kernel_size": [3, 2], "stride": 2, "padding": [0, 1, 1, 0], "ceil_mode": True},
        _ORDER,
    ),
    Case("max_pool3d", {"x": (2, 6, 4, 4, 4)}, {"kernel_size": 2}, _ORDER),
    Case("avg_pool1d", {"x": (4, 6, 8)}, {"kernel_size": 3, "stride": 1, "padding": 1}),
    Case("avg_pool2d", {"x": (2, 6, 8, 12)}, {"kernel_size": 2}),
    Case(
        "avg_pool2d",
        {"x": (2, 6, 6, 7)},
        {"kernel_size": 3, "stride": 2, "padding": 1, "exclusive": False, "ceil_mode": True},
    ),
    Case("avg_pool3d", {"x": (2, 6, 4, 4, 4)}, {"kernel_size": 3, "stride": 1}),
    Case("avg_pool2d", {"x": (2, 6, 6, 6)}, {"kernel_size": 6}),
    Case("adaptive_avg_pool1d", {"x": (4, 6, 12)}, {"output_size": 6}),
    Case("adaptive_avg_pool2d", {"x": (2, 6, 6, 12)}, {"output_size": 1}),
    Case("adaptive_avg_pool2d", {"x": (2, 12, 7, 6)}, {"output_size": [6, 5], "data_format": "NHWC"}),
    Case("adaptive_avg_pool3d", {"x": (2, 6, 4, 4, 4)}, {"output_size": [2, 4, None]}),
    Case("adaptive_max_pool1d", {"x": (4, 6, 12)}, {"output_size": 6}),
    Case("adaptive_max_pool2d", {"x": (2, 6, 6, 12)}, {"output_size": 1}),
    Case("adaptive_max_pool2d", {"x": (2, 6, 7, 6)}, {"output_size": [3, 3]}),
    Case("adaptive_max_pool3d", {"x": (2, 6, 4, 4, 4)}, {"output_size": [2, 4, None]}),
    # Space cut where windows overlap.
    Case("max_pool1d", {"x": (2, 2, 12)}, {"kernel_size": 3, "stride": 2, "padding": 1}, _ORDER),
    Case("max_pool1d", {"x": (2, 2, 12)}, {"kernel_size": 8, "stride": 1, "padding": [3, 4]}, _ORDER),
    Case("max_pool1d", {"x": (2, 2, 4)}, {"kernel_size": 3, "stride": 3, "ceil_mode": True}, _ORDER),
    Case(
        "max_pool2d",
        {"x": (2, 6, 12, 2)},
        {"kernel_size": [2, 3], "stride": [1, 2], "padding": [0, 1, 0, 1], "data_format": "NHWC"},
        _ORDER,
    ),
    Case(
        "max_pool2d",
        {"x": (2, 2, 8, 6)},
        {"kernel_size": 3, "stride": [2, 1], "padding": [0, 1], "ceil_mode": True},
        _ORDER,
    ),
    Case("max_pool3d", {"x": (2, 2, 4, 6, 4)}, {"kernel_size": 3, "stride": [2, 1, 1], "padding": 1}, _ORDER),
    Case("avg_pool1d", {"x": (2, 2, 4)}, {"kernel_size": 3, "stride": 3, "ceil_mode": True, "exclusive": False}),
    Case("avg_pool2d", {"x": (2, 2, 12, 8)}, {"kernel_size": 3, "stride": [2, 1], "padding": 1, "exclusive": False}),
    Case("avg_pool2d", {"x": (2, 2, 6, 4)}, {"kernel_size": [5, 3], "stride": 1, "padding": [2, 1], "exclusive": True}),
    Case(
        "avg_pool2d",
        {"x": (2, 8, 6, 2)},
        {
            "kernel_size": 3,
            "stride": [2, 1],
            "padding": [0, 1],
            "ceil_mode": True,
            "exclusive": False,
            "data_format": "NHWC",
        },
    ),
    Case("avg_pool3d", {"x": (2, 2, 4, 4, 6)}, {"kernel_size": [1, 2, 3], "stride": 1, "padding": [0, 0, 1, 0, 1, 1]}),
]
