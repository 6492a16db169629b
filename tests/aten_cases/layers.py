"""Products, attention, norms, convolutions, pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aten_cases.case import CUBE, FOUR, NARROW, ROW, Case, Item, Node, T, X, Y, each


def products() -> Iterator[Case]:
    wide, three = T((6, 3)), T((2, 4, 3))
    yield from each("mm", (X, wide))
    yield Case("aten.mm.default", (Node("t"), wide), before=(("t", "aten.t.default", (T((6, 4)),)),))
    yield Case("aten.mm.default", (X, Node("t")), before=(("t", "aten.t.default", (T((3, 6)),)),))
    yield from each("bmm", (CUBE, three))
    yield Case("aten.bmm.default", (CUBE, Node("t")), before=(("t", "aten.transpose.int", (T((2, 5, 4)), 1, 2)),))
    yield from each(
        "matmul",
        (X, wide),
        (T((2, 4, 6)), wide),
        (FOUR, T((2, 1, 6, 3))),
        (X, ROW),
        (ROW, wide),
        (ROW, T((6,))),
        (CUBE, T((4,))),
    )
    yield from each("mv", (X, ROW))
    yield from each("dot", (ROW, T((6,))))
    yield from each("addmm", (T((3,)), X, wide), (T((4, 3)), X, wide))
    yield from each("addmm", (T((4, 3)), X, wide), beta=0.5, alpha=2)
    yield from each("baddbmm", (T((2, 3, 3)), CUBE, three))
    yield from each("baddbmm", (T((3,)), CUBE, three), beta=2, alpha=0.5)
    yield from each("linear", (X, T((3, 6))), (CUBE, T((5, 4)), T((5,))))
    yield from each("einsum", ("ij,jk->ik", [X, wide]), ("b i j, b k j -> b i k", [CUBE, T((2, 5, 4))]))
    query, key, value = T((2, 2, 3, 4)), T((2, 2, 5, 4)), T((2, 2, 5, 4))
    masks = (None, T((2, 2, 3, 5)), T((2, 1, 3, 5)), T((1, 1, 1, 5)))
    forward = "aten._scaled_dot_product_flash_attention_for_cpu.default"
    for mask in masks:
        yield Case(forward, (query, key, value), {"attn_mask": mask}, results=(0,))
        yield Case("aten.scaled_dot_product_attention.default", (query, key, value, mask))
        yield _flash_backward(forward, query, key, value, {"attn_mask": mask, "scale": 0.3})
    yield Case(forward, (query, query, query, 0.0, True), {"scale": 0.5}, results=(0,))
    yield Case(forward, (query, key, value, 0.0, True), results=(0,))
    yield Case("aten.scaled_dot_product_attention.default", (query, key, value, T((3, 5), "bool", kind="mask")))
    yield Case("aten.scaled_dot_product_attention.default", (T((2, 4, 3, 4)), key, value), {"enable_gqa": True})
    ends = T((2,), "int32", kind="ends", high=6)
    yield Case("aten._grouped_mm.default", (T((6, 8), "bfloat16"), T((2, 8, 16), "bfloat16"), ends))
    cuts = T((2,), "int32", kind="ends", high=16)
    yield Case("aten._grouped_mm.default", (T((8, 16), "bfloat16"), T((16, 8), "bfloat16"), cuts))
    yield Case("aten._grouped_mm.default", (T((2, 6, 8), "bfloat16"), T((2, 8, 16), "bfloat16")))


def _flash_backward(forward: str, query: T, key: T, value: T, kwargs: dict[str, Any]) -> Case:
    """The backward reads what the forward gave with the same arguments."""
    backward = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    before = (("flash", forward, (query, key, value, 0.0, False), kwargs),)
    out = (Item("flash", 0), Item("flash", 1))
    return Case(backward, (T((2, 2, 3, 4)), query, key, value, *out, 0.0, False), kwargs, before)


def norms() -> Iterator[Case]:
    yield from each("aten._softmax.default aten._log_softmax.default", (X, 1, False), (X, 0, False), (CUBE, -2, False))
    yield from each("aten.softmax.int aten.log_softmax.int", (X, 1), (CUBE, 0))
    yield from each("aten.softmax.int aten.log_softmax.int", (NARROW, 1), dtype="torch.float64")
    for name in ("_softmax", "_log_softmax"):
        before = (("out", f"aten.{name}.default", (X, 1, False)),)
        yield Case(f"aten.{name}_backward_data.default", (Y, Node("out"), 1, "torch.float64"), before=before)
    yield from each("_safe_softmax", (X, -1), (T((4, 6), kind="masked"), 1), (T((4, 6), kind="masked"), 0))
    scale, bias = T((6,)), T((6,))
    yield from each("layer_norm", (X, [6]), (X, [6], scale, bias), (CUBE, [3, 4], T((3, 4)), None, 1e-3))
    yield from each(
        "native_layer_norm",
        (X, [6], scale, bias, 1e-5),
        (X, [6], None, None, 1e-2),
        (CUBE, [3, 4], T((3, 4)), T((3, 4)), 0.1),
    )
    for weight, shift in ((scale, bias), (None, None), (scale, None)):
        before = (("norm", "aten.native_layer_norm.default", (X, [6], weight, shift, 1e-5)),)
        mask = [True, weight is not None, shift is not None]
        args = (Y, X, [6], Item("norm", 1), Item("norm", 2), weight, shift, mask)
        yield Case("aten.native_layer_norm_backward.default", args, before=before)
    before = (("norm", "aten.native_layer_norm.default", (CUBE, [3, 4], T((3, 4)), None, 1e-5)),)
    args = (T((2, 3, 4)), CUBE, [3, 4], Item("norm", 1), Item("norm", 2), None, None, [True, False, False])
    yield Case("aten.native_layer_norm_backward.default", args, before=before)
    weight, shift = T((4,)), T((4,))
    yield from each("group_norm", (FOUR, 2), (FOUR, 2, weight, shift), (FOUR, 4, weight, None, 0.1))
    yield from each("native_group_norm", (FOUR, weight, shift, 2, 4, 36, 2, 1e-5), (FOUR, None, None, 2, 4, 36, 1, 0.1))
    for scaled, mask in ((weight, [True, True, True]), (None, [True, False, False]), (weight, [False, True, False])):
        before = (("norm", "aten.native_group_norm.default", (FOUR, scaled, None, 2, 4, 36, 2, 1e-5)),)
        args = (T((2, 4, 6, 6)), FOUR, Item("norm", 1), Item("norm", 2), scaled, 2, 4, 36, 2, mask)
        yield Case("aten.native_group_norm_backward.default", args, before=before)
    mean, variance = T((4,)), T((4,), kind="positive")
    for training in (False, True):
        yield from each("batch_norm", (FOUR, weight, shift, mean, variance, training, 0.2, 1e-5, False))
        yield from each("batch_norm", (FOUR, None, None, mean, variance, training, 0.1, 1e-3, False))
    yield from each("batch_norm", (FOUR, weight, shift, None, None, True, 0.1, 1e-5, False))
    name = "aten._native_batch_norm_legit_no_training.default"
    yield Case(name, (FOUR, weight, shift, mean, variance, 0.1, 1e-5), results=(0,))
    name = "aten._native_batch_norm_legit_functional.default"
    yield Case(name, (FOUR, weight, shift, mean, variance, True, 0.1, 1e-5), results=(0, 3, 4))
    for training in (False, True):
        before = (("norm", name, (FOUR, weight, shift, mean, variance, training, 0.1, 1e-5)),)
        given = (weight, mean, variance, Item("norm", 1), Item("norm", 2), training, 1e-5, [True, True, True])
        yield Case("aten.native_batch_norm_backward.default", (T((2, 4, 6, 6)), FOUR, *given), before=before)


def images() -> Iterator[Case]:
    x, weight, bias = T((2, 4, 7)), T((6, 4, 3)), T((6,))
    yield from each("conv1d", (x, weight), (x, weight, bias, [2], [1], [1]), (x, T((6, 2, 3)), bias, [1], [2], [2], 2))
    image, filter = T((2, 4, 6, 5)), T((6, 4, 3, 3))
    yield from each(
        "conv2d",
        (image, filter),
        (image, filter, bias, [2, 1], [1, 2]),
        (image, T((4, 1, 3, 3)), None, [1, 1], [1, 1], [2, 1], 4),
    )
    yield from each("conv3d", (T((1, 2, 4, 3, 3)), T((3, 2, 2, 2, 2)), T((3,)), [1, 1, 1], [1, 0, 0]))
    up = T((4, 3, 3, 3))
    yield from each(
        "aten.conv_transpose2d.input",
        (image, up),
        (image, up, T((3,)), [2, 2], [1, 1], [1, 0]),
        (image, T((4, 2, 2, 2)), None, [2, 1], [0, 0], [0, 0], 2),
    )
    yield from each("conv_transpose1d", (x, T((4, 3, 3)), None, [2]))
    yield from each("aten.conv_transpose3d.input", (T((1, 2, 3, 3, 2)), T((2, 3, 2, 2, 2))))
    zero, one, two = [0, 0], [1, 1], [2, 2]
    plain = (one, one, one, False, zero, 1)
    yield from each("convolution", (image, filter, bias, *plain), (image, filter, None, two, zero, one, False, zero, 1))
    yield from each(
        "convolution",
        (image, T((4, 1, 3, 3)), None, one, one, two, False, zero, 4),
        (image, up, T((3,)), two, one, one, True, [1, 0], 1),
    )
    yield from each(
        "convolution",
        (x, weight, bias, [1], [1], [1], False, [0], 1),
        (T((1, 2, 4, 3, 3)), T((3, 2, 2, 2, 2)), None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1),
    )
    masks = ([True, True, True], [False, True, True], [True, True, False])
    yield from each("convolution_backward", *((T((2, 6, 6, 5)), image, filter, [6], *plain, mask) for mask in masks))
    yield from each(
        "convolution_backward",
        (T((2, 6, 2, 2)), image, filter, None, two, zero, one, False, zero, 1, [True, True, False]),
    )
    yield from each(
        "convolution_backward", (T((2, 4, 4, 3)), image, T((4, 1, 3, 3)), [4], one, one, two, False, zero, 4, masks[0])
    )
    yield from each(
        "convolution_backward", (T((2, 3, 12, 9)), image, up, [3], two, one, one, True, [1, 0], 1, masks[0])
    )
    yield from each("convolution_backward", (T((2, 6, 7)), x, weight, [6], [1], [1], [1], False, [0], 1, masks[0]))
    line, box, kernel = T((4, 3, 3)), T((1, 2, 3, 3, 2)), T((2, 3, 2, 2, 2))
    every = {1: ([1], [0], [1]), 3: ([1] * 3, [0] * 3, [1] * 3)}
    for count, x_of, weight_of, out in ((1, x, line, T((2, 3, 9))), (3, box, kernel, T((1, 3, 4, 4, 3)))):
        stride, padding, dilation = every[count]
        given = (stride, padding, dilation, True, padding, 1)
        yield from each("convolution", (x_of, weight_of, None, *given))
        yield from each("convolution_backward", (out, x_of, weight_of, [3], *given, masks[0]))
    stride, padding, dilation = every[3]
    given = (stride, padding, dilation, False, padding, 1)
    yield from each("convolution_backward", (T((1, 3, 2, 2, 1)), box, T((3, 2, 2, 2, 2)), [3], *given, masks[0]))
    pools = (([3, 3], two, one), ([2, 2],), ([3, 2], [1, 2], [1, 0], one, True))
    yield from each("max_pool2d", *((FOUR, *pool) for pool in pools))
    yield from each("max_pool1d", (x, [3], [2], [1]))
    yield from each("max_pool3d", (T((1, 2, 4, 4, 4)), [2, 2, 2]))
    yield from (Case("aten.max_pool2d_with_indices.default", (FOUR, *pool), results=(0,)) for pool in pools)
    yield Case("prims._low_memory_max_pool_with_offsets.default", (FOUR, [3, 3], two, one, one, False), results=(0,))
    before = (("pool", "aten.max_pool2d_with_indices.default", (FOUR, [3, 3], two, one)),)
    args = (T((2, 4, 3, 3)), FOUR, [3, 3], two, one, one, False, Item("pool", 1))
    yield Case("aten.max_pool2d_with_indices_backward.default", args, before=before)
    offsets = (("pool", "prims._low_memory_max_pool_with_offsets.default", (FOUR, [3, 3], two, one, one, False)),)
    found = (
        "places",
        "prims._low_memory_max_pool_offsets_to_indices.default",
        (Item("pool", 1), [3, 3], [6, 6], two, one, one),
    )
    yield Case("aten.max_pool2d_with_indices_backward.default", (*args[:-1], Node("places")), before=(*offsets, found))
    yield from each("avg_pool2d", (FOUR, [2, 2]), (FOUR, [3, 3], two, one), (FOUR, [3, 3], two, one, False, False))
    yield from each("avg_pool2d_backward", (T((2, 4, 3, 3)), FOUR, [3, 3], two, one, False, True, None))
    yield from each("avg_pool2d_backward", (T((2, 4, 3, 3)), FOUR, [3, 3], two, one, False, False, None))
    yield from each("adaptive_avg_pool1d", (T((2, 4, 6)), [3]))
    yield from each("adaptive_avg_pool2d _adaptive_avg_pool2d", (FOUR, [1, 1]), (FOUR, [3, 2]))
    yield from each("adaptive_avg_pool3d", (T((1, 2, 4, 4, 2)), [2, 1, 1]))
    yield from each("_adaptive_avg_pool2d_backward", (T((2, 4, 3, 2)), FOUR))
    yield from each("aten.upsample_nearest2d.vec", (FOUR, [12, 12], None), (FOUR, None, [2.0, 3.0]))


def grids() -> Iterator[Case]:
    flat, deep, volume = T((2, 4, 3, 2)), T((2, 2, 3, 2, 3)), T((2, 4, 3, 4, 2))
    ways = [(mode, padding, corners) for mode in (0, 1) for padding in (0, 1, 2) for corners in (True, False)]
    yield from each("grid_sampler_2d", *((FOUR, flat, *way) for way in ways))
    yield from each("grid_sampler_3d", *((volume, deep, *way) for way in ways[:2]))
    yield from each("grid_sampler_2d_backward", *((T((2, 4, 4, 3)), FOUR, flat, *way, [True, True]) for way in ways))
    yield from each("grid_sampler_2d_backward", (T((2, 4, 4, 3)), FOUR, flat, *ways[0], [False, True]))
    yield from each("grid_sampler_3d_backward", (T((2, 4, 2, 3, 2)), volume, deep, *ways[0], [True, True]))
    yield from each("affine_grid_generator", (T((2, 2, 3)), [2, 4, 3, 5], True), (T((2, 3, 4)), [2, 1, 2, 3, 2], False))
    one, two, zero = [1, 1], [2, 2], [0, 0]
    yield from each("im2col", (FOUR, two, one, zero, two), (FOUR, [3, 2], one, [1, 0], one), (FOUR, two, two, one, two))
    yield from each("col2im", (T((2, 16, 9)), [6, 6], two, one, zero, two))
    yield from each("col2im", (T((2, 24, 30)), [6, 6], [3, 2], one, [1, 0], one))
