from __future__ import annotations

from truth import Case

CASES = [
    Case("conv1d", {"x": (4, 6, 8), "filter": (6, 6, 3), "bias": (6,)}, {"padding": 1}),
    Case("conv2d", {"x": (4, 6, 6, 6), "filter": (12, 6, 3, 3), "bias": (12,)}, {"stride": 2, "padding": "SAME"}),
    Case("conv2d", {"x": (4, 6, 6, 6), "filter": (12, 6, 1, 1)}),
    Case("conv2d", {"x": (4, 12, 4, 6), "filter": (6, 12, 2, 3)}, {"stride": [2, 3]}),
    Case(
        "conv2d",
        {"x": (4, 5, 6, 4), "filter": (6, 4, 3, 2)},
        {"padding": [[1, 0], [0, 2]], "dilation": 2, "data_format": "NHWC"},
    ),
    Case("conv2d", {"x": (2, 24, 4, 4), "filter": (24, 4, 3, 3), "bias": (24,)}, {"groups": 6, "padding": [1, 1]}),
    Case("depthwise_conv2d", {"x": (2, 6, 6, 4), "filter": (6, 1, 3, 3), "bias": (6,)}, {"padding": 1}),
    Case("conv2d", {"x": (2, 6, 5, 5), "filter": (12, 1, 3, 3)}, {"groups": 6, "padding": [0, 1, 1, 0]}),
    Case("conv3d", {"x": (2, 4, 4, 3, 6), "filter": (6, 4, 3, 3, 1)}, {"padding": [1, 1, 0]}),
    Case("conv1d_transpose", {"x": (4, 6, 5), "filter": (6, 4, 3), "bias": (4,)}, {"stride": 2, "output_padding": 1}),
    Case("conv2d_transpose", {"x": (4, 6, 6, 6), "filter": (6, 4, 2, 2), "bias": (4,)}, {"stride": 2}),
    Case(
        "conv2d_transpose", {"x": (2, 24, 3, 4), "filter": (24, 2, 3, 3)}, {"groups": 6, "padding": 1, "stride": [1, 2]}
    ),
    Case("conv3d_transpose", {"x": (2, 4, 3, 3, 3), "filter": (4, 6, 2, 2, 2)}, {"padding": [0, 1, 0]}),
    Case(
        "conv2d_transpose",
        {"x": (4, 6, 3, 12), "filter": (12, 6, 2, 2), "bias": (6,)},
        {"stride": 2, "data_format": "NHWC"},
    ),
    Case("conv2d_transpose", {"x": (2, 4, 6, 3), "filter": (4, 6, 1, 2)}, {"stride": [2, 1], "output_size": [12, 4]}),
    Case(
        "conv3d",
        {"x": (2, 4, 3, 2, 12), "filter": (12, 2, 2, 1, 1), "bias": (12,)},
        {"groups": 6, "stride": [2, 3, 1], "data_format": "NDHWC"},
    ),
    Case(
        "depthwise_conv2d",
        {"x": (2, 4, 6, 6), "filter": (12, 1, 2, 3)},
        {"stride": [2, 1], "dilation": [1, 2], "padding": "SAME", "data_format": "NHWC"},
    ),
    Case("depthwise_conv2d", {"x": (4, 6, 4, 6), "filter": (12, 1, 2, 2)}, {"stride": 2, "groups": 6}),
    # Space cut where windows overlap: borders within a neighbour, beyond it, in padding, of strides and dilations.
    Case("conv1d", {"x": (2, 2, 12), "filter": (2, 2, 8)}, {"padding": [3, 4]}),
    Case("conv1d", {"x": (2, 2, 6), "filter": (2, 2, 3), "bias": (2,)}, {"padding": 4, "dilation": 4, "stride": 1}),
    Case("conv1d", {"x": (2, 2, 12), "filter": (2, 2, 1)}, {"stride": 4, "padding": [1, 0]}),
    Case("conv2d", {"x": (2, 4, 12, 6), "filter": (4, 4, 3, 3)}, {"stride": [2, 1], "padding": 1}),
    Case(
        "conv2d", {"x": (2, 12, 6, 4), "filter": (4, 2, 5, 2)}, {"groups": 2, "data_format": "NHWC", "padding": "SAME"}
    ),
    Case("conv2d", {"x": (2, 2, 12, 8), "filter": (2, 2, 5, 2)}, {"stride": [1, 2], "padding": [0, 0, 0, 0]}),
    Case("conv3d", {"x": (2, 2, 4, 6, 2), "filter": (2, 2, 2, 3, 3)}, {"padding": [[1, 0], [1, 1], [1, 1]]}),
    Case(
        "conv1d_transpose",
        {"x": (2, 2, 6), "filter": (2, 2, 5), "bias": (2,)},
        {"stride": 2, "padding": 2, "output_padding": 1},
    ),
    Case("conv1d_transpose", {"x": (2, 2, 6), "filter": (2, 2, 1)}, {"stride": 3, "output_padding": 2, "dilation": 2}),
    Case("conv1d_transpose", {"x": (2, 2, 4), "filter": (2, 2, 3)}, {"stride": 1, "padding": 0, "output_size": 6}),
    Case(
        "conv1d_transpose",
        {"x": (2, 2, 6), "filter": (2, 4, 2)},
        {"dilation": 5, "padding": [0, 2], "output_padding": 3},
    ),
    Case(
        "conv2d_transpose",
        {"x": (2, 4, 6, 12), "filter": (12, 2, 3, 4), "bias": (4,)},
        {"groups": 2, "stride": [1, 2], "padding": [1, 1, 1, 1], "data_format": "NHWC"},
    ),
    Case("conv3d_transpose", {"x": (2, 2, 2, 3, 4), "filter": (2, 2, 3, 3, 3)}, {"padding": 1}),
]
