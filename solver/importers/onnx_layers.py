"""ONNX layers: convolution, pooling, normalization, resize."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from solver.importers.onnx_site import Site
from solver.importers.sketch import Value

Pads = list[tuple[int, int]]
"""Per space dim, how many elements are put before and after."""

_FORMATS = {1: "NCL", 2: "NCHW", 3: "NCDHW"}


def _space(site: Site, x: Value) -> int:
    """The number of space dims, of those that there are ops for."""
    count = len(x.shape) - 2
    if count not in _FORMATS:
        raise site.refuse(f"its input has rank {len(x.shape)}, and only ranks 3 to 5 (1 to 3 space dims) are supported")
    return count


def _list(site: Site, name: str, count: int) -> list[int]:
    return list(site.attr(name) or [1] * count)


def _pads(
    site: Site, space: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Pads:
    """The padding that the node asks for, in numbers."""
    auto = site.attr("auto_pad", "NOTSET")
    count = len(space)
    if auto == "NOTSET":
        flat = list(site.attr("pads") or [0] * 2 * count)
        return list(zip(flat[:count], flat[count:], strict=True))
    if auto == "VALID":
        return [(0, 0)] * count
    pads = []
    for size, window, step, spread in zip(space, kernel, stride, dilation, strict=True):
        total = max(0, (-(-size // step) - 1) * step + (window - 1) * spread + 1 - size)
        low, high = total // 2, total - total // 2
        pads.append((low, high) if auto == "SAME_UPPER" else (high, low))
    return pads


def _padding(pads: Pads) -> list[int]:
    """Padding as our ops take it: one number a dim where both sides are equal, else before and after in turn."""
    if all(before == after for before, after in pads):
        return [before for before, _ in pads]
    return [width for pair in pads for width in pair]


def _conv(site: Site) -> Value:
    x, filter = site.operand(0), site.weight(1)
    assert filter is not None
    count = _space(site, x)
    stride, dilation = _list(site, "strides", count), _list(site, "dilations", count)
    pads = _pads(site, x.shape[2:], filter.shape[2:], stride, dilation)
    return site.emit(
        f"conv{count}d",
        x,
        filter,
        site.weight(2),
        stride=stride,
        padding=_padding(pads),
        dilation=dilation,
        groups=site.attr("group", 1),
        data_format=_FORMATS[count],
    )


def _conv_transpose(site: Site) -> Value:
    x, filter = site.operand(0), site.weight(1)
    assert filter is not None
    count = _space(site, x)
    stride, dilation = _list(site, "strides", count), _list(site, "dilations", count)
    extra = list(site.attr("output_padding") or [0] * count)
    whole = [
        step * (size - 1) + more + (window - 1) * spread + 1
        for step, size, more, window, spread in zip(stride, x.shape[2:], extra, filter.shape[2:], dilation, strict=True)
    ]
    pads = _transposed_pads(site, x.shape[2:], whole, stride)
    return site.emit(
        f"conv{count}d_transpose",
        x,
        filter,
        site.weight(2),
        stride=stride,
        padding=_padding(pads),
        output_padding=extra,
        dilation=dilation,
        groups=site.attr("group", 1),
        data_format=_FORMATS[count],
    )


def _transposed_pads(site: Site, space: Sequence[int], whole: Sequence[int], stride: Sequence[int]) -> Pads:
    """What a transposed convolution cuts off; ``whole`` is its size before."""
    auto, asked = site.attr("auto_pad", "NOTSET"), site.attr("output_shape")
    if not asked and auto in ("NOTSET", "VALID"):
        return _pads(site, space, space, stride, stride)
    wanted = list(asked)[-len(space) :] if asked else [size * step for size, step in zip(space, stride, strict=True)]
    pads = []
    for size, goal in zip(whole, wanted, strict=True):
        total = size - goal
        low, high = total // 2, total - total // 2
        pads.append((low, high) if auto == "SAME_UPPER" else (high, low))
    return pads


def _pool(kind: str) -> Callable[[Site], Value]:
    def translate(site: Site) -> Value:
        x = site.operand(0)
        count = _space(site, x)
        if len(site.node.output) > 1 and site.node.output[1]:
            raise site.refuse("its second result, the indices, is not supported")
        kernel, stride = list(site.attr("kernel_shape")), _list(site, "strides", count)
        dilation = _list(site, "dilations", count)
        if set(dilation) != {1}:
            raise site.refuse(f"its dilations {dilation} are not supported: pooling windows are dense here")
        pads = _pads(site, x.shape[2:], kernel, stride, dilation)
        attrs: dict[str, Any] = {"ceil_mode": bool(site.attr("ceil_mode", 0)), "data_format": _FORMATS[count]}
        if kind == "avg":
            attrs["exclusive"] = not site.attr("count_include_pad", 0)
        return site.emit(f"{kind}_pool{count}d", x, kernel_size=kernel, stride=stride, padding=_padding(pads), **attrs)

    return translate


def _global(op: str) -> Callable[[Site], Value]:
    """Pooling over all of space is a reduction."""

    def translate(site: Site) -> Value:
        x = site.operand(0)
        return site.emit(op, x, axis=list(range(2, len(x.shape))), keepdim=True)

    return translate


def _batch_norm(site: Site) -> Value:
    if site.attr("training_mode", 0) or any(site.node.output[1:]):
        raise site.refuse("only batch normalization in inference can be planned: export the model in evaluation mode")
    scale, bias, mean, variance = (site.weight(slot) for slot in range(1, 5))
    return site.emit_all(
        "batch_norm", site.operand(0), mean, variance, scale, bias, is_test=True, epsilon=site.attr("epsilon", 1e-5)
    )[0]


def _instance_norm(site: Site) -> Value:
    return site.emit_all(
        "instance_norm", site.operand(0), site.weight(1), site.weight(2), epsilon=site.attr("epsilon", 1e-5)
    )[0]


def _layer_norm(site: Site) -> list[Value]:
    x = site.operand(0)
    begin, epsilon = site.axis(site.attr("axis", -1), len(x.shape)), site.attr("epsilon", 1e-5)
    out, mean, variance = site.emit_all(
        "layer_norm", x, site.weight(1), site.weight(2), begin_norm_axis=begin, epsilon=epsilon
    )
    results = [out]
    statistics = [*x.shape[:begin], *[1] * (len(x.shape) - begin)]
    if any(site.node.output[1:]):
        results.append(site.emit("reshape", mean, shape=statistics))
    if any(site.node.output[2:]):
        deviation = site.emit("rsqrt", site.emit("add", variance, site.number(epsilon, variance)))
        results.append(site.emit("reshape", deviation, shape=statistics))
    return results


def _group_norm(site: Site) -> Value:
    x, groups = site.operand(0), site.attr("num_groups")
    scale, bias = site.weight(1), site.weight(2)
    if site.opset < 21 and groups != x.shape[1]:
        raise site.refuse(
            "before version 21 its scale is per group, which is not supported: export with version 21 or later"
        )
    return site.emit_all("group_norm", x, scale, bias, groups=groups, epsilon=site.attr("epsilon", 1e-5))[0]


def _lrn(site: Site) -> Value:
    """Of an even number of neighbours the standard takes one more behind, our op one more before."""
    x, size = site.operand(0), site.attr("size")
    attrs = {"alpha": site.attr("alpha", 1e-4), "beta": site.attr("beta", 0.75), "k": site.attr("bias", 1.0)}
    if size % 2:
        return site.emit("local_response_norm", x, size=size, **attrs)
    out = site.emit("local_response_norm", site.emit("flip", x, axis=[1]), size=size, **attrs)
    return site.emit("flip", out, axis=[1])


def _lp_norm(site: Site) -> Value:
    """Where all elements are zero the standard gives zeros: nothing is divided by less than the smallest number."""
    x = site.operand(0)
    axis = site.axis(site.attr("axis", -1), len(x.shape))
    tiny = float(np.finfo(np.float32).tiny)
    return site.emit("normalize", x, p=float(site.attr("p", 2)), axis=axis, epsilon=tiny)


LAYERS: dict[str, Callable[[Site], Any]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool("max"),
    "AveragePool": _pool("avg"),
    "GlobalAveragePool": _global("mean"),
    "GlobalMaxPool": _global("max"),
    "BatchNormalization": _batch_norm,
    "InstanceNormalization": _instance_norm,
    "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm,
    "LRN": _lrn,
    "LpNormalization": _lp_norm,
}
