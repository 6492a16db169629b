from __future__ import annotations

import numpy as np
from truth import Case

_BOXES = np.array([[0.5, 1.0, 4.0, 5.0], [1.0, 0.0, 3.5, 2.0], [2.0, 2.0, 5.5, 4.5]])
_BOXES = np.concatenate([_BOXES, _BOXES * 0.75 + 0.5])
CASES = [
    Case("interpolate", {"x": (2, 6, 4, 6)}, {"scale_factor": 2.0}),
    Case("interpolate", {"x": (2, 6, 4, 6)}, {"size": [2, 9]}),
    Case("interpolate", {"x": (2, 4, 6, 6)}, {"size": [4, 1], "align_corners": True, "data_format": "NHWC"}),
    Case("interpolate", {"x": (2, 6, 4)}, {"size": 7, "mode": "linear", "data_format": "NCL"}),
    Case("interpolate", {"x": (2, 6, 4, 6)}, {"scale_factor": [2.0, 1.0], "mode": "bilinear"}),
    Case("interpolate", {"x": (2, 6, 4, 6)}, {"size": [7, 3], "mode": "bilinear", "align_mode": 1}),
    Case("interpolate", {"x": (2, 6, 4, 6)}, {"size": [7, 8], "mode": "bilinear", "align_corners": True}),
    Case("interpolate", {"x": (2, 6, 4, 3, 2)}, {"size": [2, 4, 3], "mode": "trilinear", "data_format": "NCDHW"}),
    Case("interpolate", {"x": (2, 6, 4, 6)}, {"size": [7, 3], "mode": "bicubic"}),
    Case("interpolate", {"x": (2, 6, 12, 7)}, {"size": [6, 3], "mode": "area"}),
    Case("interpolate", {"x": (2, 2, 6, 4)}, {"size": [9, 8], "mode": "bilinear"}),
    Case("interpolate", {"x": (2, 2, 6, 8)}, {"size": [4, 6], "mode": "bilinear", "align_mode": 1}),
    Case("interpolate", {"x": (2, 2, 4, 6)}, {"size": [8, 9], "mode": "bicubic"}),
    Case("interpolate", {"x": (2, 4, 6, 2)}, {"size": [6, 9], "mode": "area", "data_format": "NHWC"}),
    Case("interpolate", {"x": (2, 2, 12)}, {"scale_factor": 1.6, "mode": "linear", "data_format": "NCL"}),
    Case("interpolate", {"x": (2, 2, 4, 6, 4)}, {"size": [8, 9, 4], "mode": "nearest", "data_format": "NCDHW"}),
    Case("pixel_shuffle", {"x": (2, 24, 2, 6)}, {"upscale_factor": 2}),
    Case("pixel_unshuffle", {"x": (2, 4, 12, 6)}, {"downscale_factor": 2, "data_format": "NHWC"}),
    Case("channel_shuffle", {"x": (2, 24, 2, 3)}, {"groups": 4}),
    Case(
        "roi_align",
        {"x": (2, 6, 6, 6), "boxes": _BOXES, "boxes_num": np.array([2, 4])},
        {"pooled_height": 2, "pooled_width": 3, "sampling_ratio": 2},
    ),
    Case(
        "roi_align",
        {"x": (6, 2, 6, 6), "boxes": _BOXES, "boxes_num": np.array([1, 0, 0, 2, 0, 3])},
        {"spatial_scale": 0.5},
    ),
    Case(
        "roi_align",
        {"x": (2, 4, 6, 6), "boxes": np.concatenate([_BOXES, _BOXES[::-1] + 0.25]), "boxes_num": np.array([6, 6])},
        {"pooled_width": 2, "even_boxes": True},
    ),
    Case("roi_align", {"x": (1, 6, 6, 6), "boxes": _BOXES}, {"pooled_height": 2, "aligned": False}),
]
