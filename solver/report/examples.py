"""Small shapes and attributes on which rules are shown where neither the rule nor the defaults say them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SIZE = 4
"""Size of each factor of an example."""

ATTRIBUTES: Mapping[str, tuple[Any, ...]] = {
    "axes": ((1,),),
    "axis": (0,),
    "capacity": (2,),
    "destination": (1,),
    "downscale_factor": (2,),
    "dtype": ("float64",),
    "end": (SIZE,),
    "ends": ((2,),),
    "fill_value": (0,),
    "forward_dtype": ("float32",),
    "groups": (2,),
    "k": (2,),
    "kernel_size": (2,),
    "kernel_sizes": (2,),
    "num": (SIZE,),
    "num_classes": (SIZE,),
    "num_or_sections": (2,),
    "num_rows": (SIZE,),
    "output_size": (2,),
    "pad": ((0, 0, 1, 1),),
    "perm": ((1, 0),),
    "repeat_times": ((1, 2),),
    "repeats": (2,),
    "shape": ((SIZE * SIZE,), (2, SIZE, SIZE)),
    "shifts": (1,),
    "size": (3,),
    "source": (0,),
    "start": (0,),
    "starts": ((0,),),
    "stop": (1,),
    "strides": ((1,),),
    "upscale_factor": (2,),
    "value": (0.0,),
}
"""Values for attributes that must be given."""

OPS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "affine_grid": ({"theta": (4, 2, 3)}, {"out_shape": (4, 4, 4, 4)}),
    "bincount": ({"x": (4,), "weights": None}, {"minlength": 4}),
    "depthwise_conv2d": ({"x": (4, 4, 4, 4), "filter": (4, 1, 2, 2), "bias": (4,)}, {}),
    "einsum": ({"operands": [(4, 4), (4, 4)]}, {"equation": "ij,jk->ik"}),
    "fold": ({"x": (4, 16, 4)}, {"output_sizes": 4, "kernel_sizes": 2, "strides": 2}),
    "grid_sample": ({"x": (4, 4, 4, 4), "grid": (4, 4, 4, 2)}, {}),
    "grouped_mm": ({"mat_a": (8, 4), "mat_b": (2, 4, 4), "offs": (2,)}, {}),
    "index_put": ({"x": (4, 4), "indices": [(2,)], "value": (2, 4)}, {}),
    "interpolate": ({"x": (4, 4, 4, 4)}, {"size": (8, 8)}),
    "nonzero": ({"x": (4, 4)}, {"size": 4}),
    "pixel_shuffle": ({"x": (4, 4, 4, 4)}, {"upscale_factor": 2}),
    "slice_scatter": (
        {"x": (4, 4), "value": (4, 2)},
        {"axes": (1,), "starts": (0,), "ends": (2,), "strides": (1,)},
    ),
    "unbind": ({"input": (4, 4)}, {"axis": 0}),
    "unfold": ({"x": (4, 4, 4, 4)}, {"kernel_sizes": 2, "strides": 2}),
    "unique": ({"x": (4,)}, {"size": 4}),
}
"""Op -> shapes and attributes, where these go together in a way that nothing tells."""
