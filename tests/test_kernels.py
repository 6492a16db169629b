"""What kernels compute, held against definitions written out element by element, and what they say of wrong shapes."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from ops import RuleError, rule_for

Array = np.ndarray[Any, Any]


def run(op: str, *operands: Any, **attrs: Any) -> Any:
    found = rule_for(op)
    return found.kernel(*operands, **found.full_attrs(attrs))


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def close(got: Array, expected: Array) -> None:
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


# --------------------------------------------------------------------------------------------------------- convolution


def convolved(x: Array, weight: Array, stride: int, pads: list[tuple[int, int]], dilation: int, groups: int) -> Array:
    space = x.shape[2:]
    wide = np.pad(x, [(0, 0), (0, 0), *pads])
    sizes = [
        (size + sum(pad) - (k - 1) * dilation - 1) // stride + 1
        for size, pad, k in zip(space, pads, weight.shape[2:], strict=True)
    ]
    out = np.zeros((len(x), len(weight), *sizes))
    own_in, own_out = weight.shape[1], len(weight) // groups
    for place in np.ndindex(*out.shape):
        n, m, *at = place
        for c, *tap in np.ndindex(*weight.shape[1:]):
            where = tuple(a * stride + t * dilation for a, t in zip(at, tap, strict=True))
            out[place] += wide[(n, m // own_out * own_in + c, *where)] * weight[(m, c, *tap)]
    return out


CONVOLUTIONS = [
    # rank, channels in, channels out, groups, stride, padding, dilation
    (1, 4, 6, 1, 1, [(1, 1)], 1),
    (1, 4, 6, 2, 2, [(0, 2)], 1),
    (2, 4, 6, 1, 2, [(1, 0), (0, 2)], 1),
    (2, 4, 4, 4, 1, [(1, 1), (1, 1)], 1),
    (2, 4, 8, 4, 1, [(2, 2), (1, 1)], 2),
    (2, 6, 4, 2, 3, [(0, 0), (1, 1)], 1),
    (3, 2, 4, 1, 2, [(1, 1), (0, 1), (1, 0)], 1),
]


@pytest.mark.parametrize(("rank", "into", "out", "groups", "stride", "pads", "dilation"), CONVOLUTIONS)
@pytest.mark.parametrize("last", [False, True])
def test_convolution(
    rank: int, into: int, out: int, groups: int, stride: int, pads: list[tuple[int, int]], dilation: int, last: bool
) -> None:
    x, weight, bias = normal(2, into, *[6, 5, 4][:rank]), normal(out, into // groups, *[3, 2, 2][:rank]), normal(out)
    expected = convolved(x, weight, stride, pads, dilation, groups) + bias.reshape(-1, *[1] * rank)
    formats = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}[rank]
    given = np.moveaxis(x, 1, -1) if last else x
    got = run(
        f"conv{rank}d", given, weight, bias,
        stride=stride, padding=pads, dilation=dilation, groups=groups, data_format=formats[last],
    )  # fmt: skip
    close(np.moveaxis(got, -1, 1) if last else got, expected)


@pytest.mark.parametrize(("rank", "into", "out", "groups", "stride", "pads", "dilation"), CONVOLUTIONS)
def test_a_transposed_convolution_is_the_transpose(
    rank: int, into: int, out: int, groups: int, stride: int, pads: list[tuple[int, int]], dilation: int
) -> None:
    x, weight = normal(2, into, *[6, 5, 4][:rank]), normal(out, into // groups, *[3, 2, 2][:rank])
    y = normal(*convolved(x, weight, stride, pads, dilation, groups).shape)
    extra = [
        (size + sum(pad) - (k - 1) * dilation - 1) % stride
        for size, pad, k in zip(x.shape[2:], pads, weight.shape[2:], strict=True)
    ]
    back = run(
        f"conv{rank}d_transpose", y, weight, None,
        stride=stride, padding=pads, dilation=dilation, groups=groups, output_padding=extra,
    )  # fmt: skip
    assert back.shape == x.shape
    assert math.isclose((back * x).sum(), (convolved(x, weight, stride, pads, dilation, groups) * y).sum())


def test_large_images_are_convolved_in_blocks() -> None:
    x, weight = normal(1, 40, 130, 121), normal(3, 40, 3, 3)
    whole = run("conv2d", x, weight, None)
    close(whole[:, :, 100:, 50:], run("conv2d", x[:, :, 100:, 50:], weight, None))


# ------------------------------------------------------------------------------------------------------------- pooling


def pooled(x: Array, kernel: int, stride: int, pads: tuple[int, int], ceil: bool, count: bool | None) -> Array:
    """Pool the last dim: the largest where count is None, else the mean, padding counted or not."""
    size, (before, after) = x.shape[-1], pads
    rows = []
    for start in range(-before, size, stride):
        if start + kernel > size + after and not ceil:
            break
        if start > -before and start - stride + kernel >= size + after:
            break
        taken = x[..., max(start, 0) : min(start + kernel, size)]
        width = min(start + kernel, size + after) - start if count else taken.shape[-1]
        rows.append(taken.max(-1) if count is None else taken.sum(-1) / width)
    return np.stack(rows, -1)


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "ceil"),
    [(2, 2, (0, 0), False), (3, 2, (1, 1), True), (3, 3, (0, 1), True), (3, 1, (1, 0), False), (2, 3, (1, 1), True)],
)
@pytest.mark.parametrize("count", [None, False, True])
def test_pooling(kernel: int, stride: int, pads: tuple[int, int], ceil: bool, count: bool | None) -> None:
    x = normal(2, 3, 8)
    attrs = {"kernel_size": kernel, "stride": stride, "padding": [pads], "ceil_mode": ceil}
    got = run("max_pool1d", x, **attrs) if count is None else run("avg_pool1d", x, exclusive=not count, **attrs)
    close(got, pooled(x, kernel, stride, pads, ceil, count))


def test_adaptive_pooling() -> None:
    x = normal(2, 3, 7)
    bins = [slice(i * 7 // 3, -(-(i + 1) * 7 // 3)) for i in range(3)]
    close(run("adaptive_avg_pool1d", x, output_size=3), np.stack([x[..., b].mean(-1) for b in bins], -1))
    close(run("adaptive_max_pool1d", x, output_size=3), np.stack([x[..., b].max(-1) for b in bins], -1))


# ------------------------------------------------------------------------------------------------------- normalization


def standard(x: Array, epsilon: float = 1e-5) -> Array:
    return (x - x.mean()) / math.sqrt(x.var() + epsilon)


def test_norms() -> None:
    x, scale, bias = normal(2, 6, 3, 4), normal(6), normal(6)
    column = (6, 1, 1)
    batch, instance, group = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    for c in range(6):
        batch[:, c] = standard(x[:, c])
        for n in range(2):
            instance[n, c] = standard(x[n, c])
            group[n, c // 2 * 2 : c // 2 * 2 + 2] = standard(x[n, c // 2 * 2 : c // 2 * 2 + 2])
    mean, variance = normal(6) * 0.1, np.ones(6)
    out, mean_out, variance_out = run("batch_norm", x, mean, variance, scale, bias, momentum=0.75)
    close(out, batch * scale.reshape(column) + bias.reshape(column))
    close(mean_out, 0.75 * mean + 0.25 * x.mean((0, 2, 3)))
    close(variance_out, 0.75 * variance + 0.25 * x.var((0, 2, 3)))
    close(run("instance_norm", x, None, None), instance)
    close(run("group_norm", x, scale, None, groups=3), group * scale.reshape(column))
    out, mean_out, variance_out = run("batch_norm", x, mean, variance, None, None, is_test=True, epsilon=0.5)
    close(out, (x - mean.reshape(column)) / np.sqrt(1.5))
    close(mean_out, mean)
    out, mean_out, variance_out = run("layer_norm", x, None, None, begin_norm_axis=2)
    close(out, instance)
    close(mean_out, x.mean((2, 3)))
    close(variance_out, x.var((2, 3)))
    close(run("rms_norm", x, None, None, epsilon=0.0), x / np.sqrt((x**2).mean(-1, keepdims=True)))


@pytest.mark.parametrize(("size", "before", "after"), [(3, 1, 1), (4, 2, 1), (5, 2, 2)])
def test_local_response_norm(size: int, before: int, after: int) -> None:
    x = normal(2, 6, 3)
    near = np.stack([(x[:, max(0, c - before) : c + after + 1] ** 2).sum(1) for c in range(6)], 1)
    close(run("local_response_norm", x, size=size, alpha=0.5, k=2.0), x / (2 + 0.5 / size * near) ** 0.75)


# -------------------------------------------------------------------------------------------------------------- vision


def source(i: int, size: int, goal: int, align_corners: bool, align_mode: int) -> float:
    if align_corners:
        return i * (size - 1) / (goal - 1)
    return i * size / goal if align_mode else max(0.0, (i + 0.5) * size / goal - 0.5)


@pytest.mark.parametrize(("align_corners", "align_mode"), [(True, 0), (False, 0), (False, 1)])
@pytest.mark.parametrize("goal", [3, 5, 8, 9])
def test_linear_interpolation(align_corners: bool, align_mode: int, goal: int) -> None:
    x = normal(1, 1, 5)
    rows = []
    for i in range(goal):
        at = source(i, 5, goal, align_corners, align_mode)
        low = min(math.floor(at), 4)
        high = min(low + 1, 4)
        rows.append(x[0, 0, low] * (1 - (at - low)) + x[0, 0, high] * (at - low))
    got = run(
        "interpolate", x, size=goal, mode="linear", align_corners=align_corners, align_mode=align_mode,
        data_format="NCL",
    )  # fmt: skip
    close(got[0, 0], np.array(rows))


def test_nearest_interpolation() -> None:
    x = normal(1, 2, 4, 6)
    got = run("interpolate", x, size=[7, 4])
    close(got, x[:, :, [i * 4 // 7 for i in range(7)]][:, :, :, [i * 6 // 4 for i in range(4)]])
    close(run("interpolate", x, scale_factor=2.0), x.repeat(2, 2).repeat(2, 3))


def test_regions_are_means_of_bilinear_samples() -> None:
    x, box = normal(1, 1, 5, 6), (0.6, 1.1, 4.9, 3.7)

    def sample(row: float, column: float) -> float:
        low, left = min(math.floor(row), 3), min(math.floor(column), 4)
        block = x[0, 0, low : low + 2, left : left + 2]
        return float(np.array([1 - row + low, row - low]) @ block @ np.array([1 - column + left, column - left]))

    height, width = (box[3] - box[1]) / 2, (box[2] - box[0]) / 3
    expected = np.zeros((2, 3))
    for i, j in np.ndindex(2, 3):
        places = itertools.product((0.25, 0.75), repeat=2)
        expected[i, j] = np.mean(
            [sample(box[1] - 0.5 + (i + a) * height, box[0] - 0.5 + (j + b) * width) for a, b in places]
        )
    got = run("roi_align", x, np.array([box]), None, pooled_height=2, pooled_width=3, sampling_ratio=2)
    close(got[0, 0], expected)


# ----------------------------------------------------------------------------------------------------------- attention


@pytest.mark.parametrize(("queries", "keys", "causal"), [(4, 4, False), (4, 4, True), (2, 5, True)])
def test_attention(queries: int, keys: int, causal: bool) -> None:
    query, key, value = normal(2, queries, 6, 3), normal(2, keys, 2, 3), normal(2, keys, 2, 5)
    bias = normal(6, queries, keys)
    expected = np.zeros((2, queries, 6, 5))
    for b, i, h in np.ndindex(2, queries, 6):
        seen = range(keys - queries + i + 1) if causal else range(keys)
        powers = [math.exp(query[b, i, h] @ key[b, j, h // 3] * 0.5 + bias[h, i, j]) for j in seen]
        expected[b, i, h] = sum(p * value[b, j, h // 3] for p, j in zip(powers, seen, strict=True)) / sum(powers)
    got = run("scaled_dot_product_attention", query, key, value, bias, is_causal=causal, scale=0.5)
    close(got, expected)


# --------------------------------------------------------------------------------------------- indices, sorting, scans


def test_scatters() -> None:
    x, updates, index = np.zeros((4, 2)), normal(3, 2), np.array([2, 0, 2])
    added = np.stack([updates[1], np.zeros(2), updates[0] + updates[2], np.zeros(2)])
    replaced = np.stack([updates[1], np.zeros(2), updates[2], np.zeros(2)])
    close(run("scatter", x, index, updates), replaced)
    close(run("scatter", x + 1, index, updates, overwrite=False), np.where(np.isin(range(4), index)[:, None], added, 1))
    close(run("index_add", x + 1, index, updates), added + 1)
    close(run("scatter_nd_add", x + 1, index[:, None], updates), added + 1)
    close(run("index_put", x + 1, [index], updates, accumulate=True), added + 1)
    close(run("put_along_axis", x, np.repeat(index[:, None], 2, 1), updates, axis=0, reduce="add"), added)


def test_a_masked_lookup_answers_for_its_own_block() -> None:
    weight, ids = normal(6, 3), np.array([5, 1, 3, 0])
    first = run("embedding", ids, weight[:3], block=(0, 6), padding_idx=0)
    second = run("embedding", ids, weight[3:], block=(3, 6), padding_idx=0)
    close(first + second, np.concatenate([weight[ids[:3]], np.zeros((1, 3))]))


def test_unique() -> None:
    x = np.array([3, 1, 3, 2])
    out, indices, inverse, counts = run(
        "unique", x, size=4, return_index=True, return_inverse=True, return_counts=True, dtype="int32"
    )
    assert (out.tolist(), indices.tolist()) == ([1, 2, 3, 1], [1, 3, 0, 1])
    assert (inverse.tolist(), counts.tolist(), counts.dtype) == ([2, 0, 2, 1], [1, 1, 2, 0], np.int32)
    with pytest.raises(ValueError, match="3 distinct elements, more than size=2"):
        run("unique", x, size=2)


def test_smooth_labels_lean_to_the_prior() -> None:
    label, prior = np.eye(4)[[2, 0]], np.array([[0.1, 0.2, 0.3, 0.4]])
    close(run("label_smooth", label, None, epsilon=0.2), 0.8 * label + 0.05)
    close(run("label_smooth", label, prior, epsilon=0.5), (label + prior) / 2)


def test_boxes_lie_in_the_images_that_the_counts_say() -> None:
    x, boxes = normal(3, 2, 5, 6), np.array([[0.0, 0, 3, 3], [1, 1, 5, 4], [2, 0, 4, 2]])
    got = run("roi_align", x, boxes, np.array([1, 0, 2]), pooled_height=2)
    for box, image in enumerate([0, 2, 2]):
        close(got[box], run("roi_align", x[image : image + 1], boxes[box : box + 1], None, pooled_height=2)[0])
    with pytest.raises(ValueError, match="counts fewer boxes"):
        run("roi_align", x, boxes, np.array([1, 0, 1]))
    with pytest.raises(ValueError, match="are not even"):
        run("roi_align", x, boxes, np.array([1, 0, 2]), even_boxes=True)


def test_an_index_outside_is_an_error_on_every_device() -> None:
    with pytest.raises(IndexError, match="outside a dim of size 6"):
        run("embedding", np.array([6]), normal(6, 3))
    with pytest.raises(IndexError, match="outside a dim of size 6"):
        run("embedding", np.array([6]), normal(3, 3), block=(3, 6))


def test_equal_elements_keep_their_order() -> None:
    x = np.array([2, 1, 2, 0, 1])
    assert run("argsort", x).tolist() == [3, 1, 4, 0, 2]
    assert run("argsort", x, descending=True).tolist() == [0, 2, 1, 4, 3]
    assert run("topk", x, k=3)[1].tolist() == [0, 2, 1]
    assert run("cummax", x, axis=0)[1].tolist() == [0, 0, 2, 2, 2]


def test_scans() -> None:
    x = np.arange(1.0, 5.0)
    close(run("cumsum", x, exclusive=True), np.array([0.0, 1, 3, 6]))
    close(run("cumsum", x, axis=0, reverse=True), np.array([10.0, 9, 7, 4]))
    close(run("logcumsumexp", x), np.log(np.cumsum(np.exp(x))))
    zero = np.array([2.0, 0.0, 3.0])
    grad = rule_for("cumprod_grad").kernel(zero, np.cumprod(zero), np.ones(3), dim=0)
    close(grad, np.array([1.0, 2 + 2 * 3, 0.0]))


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "said"),
    [
        ("reshape", {"x": (4, 6)}, {"shape": [5, -1]}, r"5 does not divide 24 elements"),
        ("reshape", {"x": (4, 6)}, {"shape": [5, 5]}, r"24 elements are not 25"),
        ("transpose", {"x": (4, 6)}, {"perm": [0, 0]}, r"perm=\[0, 0\] is not an order of the 2 dims"),
        ("expand", {"x": (4, 6)}, {"shape": [4, 12]}, r"size 6 does not become 12"),
        ("concat", {"x": [(4, 6), (5, 6)]}, {"axis": 1}, r"has two sizes, 4 and 5 \(at x.1\)"),
        ("split", {"x": (4, 6)}, {"num_or_sections": 4, "axis": 1}, r"size 6 into 4 equal sections"),
        ("slice", {"input": (4,)}, {"axes": [1], "starts": [0], "ends": [1]}, r"axes=1 names no dim"),
        ("conv2d", {"x": (1, 3, 8, 8), "filter": (4, 2, 3, 3)}, {}, r"takes 2 channels a group.*has 3 in 1"),
        ("conv2d", {"x": (1, 3, 2, 8), "filter": (4, 3, 3, 3)}, {}, r"window of 3 does not fit into size 2"),
        ("conv2d", {"x": (1, 3, 8, 8), "filter": (4, 3, 3, 3)}, {"padding": [1, 2, 3]}, r"padding=\[1, 2, 3\]"),
        ("conv2d", {"x": (1, 3, 8, 8), "filter": (4, 3, 3, 3)}, {"data_format": "NCL"}, r"NCHW and NHWC"),
        ("group_norm", {"x": (1, 6, 4)}, {"groups": 4}, r"groups=4 do not divide the 6 channels"),
        ("topk", {"x": (4, 6)}, {"k": 7}, r"k=7 is not between 1 and the size 6"),
        ("index_put", {"x": (4, 5), "indices": [(3,), (2,)], "value": (3,)}, {}, r"do not broadcast to one shape"),
        ("unique", {"x": (4, 6)}, {}, r"only the data say: give size="),
        ("unique", {"x": (4, 6)}, {"size": 25}, r"size=25 is not between 1 and the 24 elements"),
        ("label_smooth", {"label": (4, 6), "prior_dist": (5,)}, {}, r"not one number for each of 6 classes"),
        ("roi_align", {"x": (2, 3, 4, 4), "boxes": (5, 4)}, {}, r"boxes of 2 images need boxes_num"),
        ("interpolate", {"x": (1, 2, 4, 4)}, {}, r"one of size and scale_factor"),
        (
            "scaled_dot_product_attention",
            {"query": (1, 4, 5, 2), "key": (1, 4, 2, 2), "value": (1, 4, 2, 2)},
            {},
            r"5 query heads are no multiple of 2 key heads",
        ),
    ],
)
def test_what_does_not_fit_is_said(op: str, shapes: dict[str, Any], attrs: dict[str, Any], said: str) -> None:
    with pytest.raises(RuleError, match=said) as caught:
        rule_for(op).bind(shapes, attrs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("op", "shapes", "dtypes", "said"),
    [
        ("label_smooth", {"label": (4, 6)}, {"label": "int64"}, r"label is int64: make it one_hot first"),
        (
            "index_put",
            {"x": (4, 6), "indices": [(4, 6)], "value": ()},
            {"indices": ["bool"]},
            r"indices.0 is bool, and only data say how many places",
        ),
    ],
)
def test_what_a_dtype_does_not_fit_is_said(op: str, shapes: dict[str, Any], dtypes: dict[str, Any], said: str) -> None:
    with pytest.raises(RuleError, match=said):
        rule_for(op).bind(shapes, {}, dtypes=dtypes)
