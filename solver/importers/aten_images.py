"""aten: convolutions, pooling, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from solver.importers.aten_site import Lowering, Number, Saved, Site
from solver.importers.sketch import Value

_FORMATS = {1: "NCL", 2: "NCHW", 3: "NCDHW"}


def _space(site: Site, x: Value) -> int:
    """Return the number of space dims, of those that there are ops for."""
    count = len(x.shape) - 2
    if count not in _FORMATS:
        raise site.refuse(
            f"its operand has rank {len(x.shape)}, and only ranks 3 to 5 (1 to 3 space dims) are supported"
        )
    return count


def _each(value: int | Sequence[int], count: int) -> list[int]:
    """Return one number a space dim; one alone speaks of all."""
    listed = [value] if isinstance(value, int) else list(value)
    return listed * count if len(listed) == 1 else listed


# -------------------------------------------------------------------------------------------------------- convolutions


def _conv_attrs(
    site: Site,
    x: Value,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    transposed: bool,
    output_padding: int | Sequence[int],
    groups: int,
) -> tuple[str, dict[str, Any]]:
    count = _space(site, x)
    attrs: dict[str, Any] = {
        "stride": _each(stride, count),
        "padding": _each(padding, count),
        "dilation": _each(dilation, count),
        "groups": groups,
        "data_format": _FORMATS[count],
    }
    if transposed:
        return f"conv{count}d_transpose", {**attrs, "output_padding": _each(output_padding, count)}
    return f"conv{count}d", attrs


def _convolution(
    site: Site,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    op, attrs = _conv_attrs(site, x, stride, padding, dilation, transposed, output_padding, groups)
    return site.emit(op, x, weight, bias, **attrs)


def _conv(
    site: Site,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    op, attrs = _conv_attrs(site, x, stride, padding, dilation, False, 0, groups)
    return site.emit(op, x, weight, bias, **attrs)


def _conv_transpose(
    site: Site,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Value:
    op, attrs = _conv_attrs(site, x, stride, padding, dilation, True, output_padding, groups)
    return site.emit(op, x, weight, bias, **attrs)


def _convolution_backward(
    site: Site,
    grad_output: Value,
    x: Value,
    weight: Value,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> list[Value | None]:
    op, attrs = _conv_attrs(site, x, stride, padding, dilation, transposed, output_padding, groups)
    bias = tuple(bias_sizes) if bias_sizes and output_mask[2] else None
    shapes = {"x": x.shape, "filter": weight.shape, "bias": bias}
    made = site.emit_all(f"{op}_grad", x, weight, grad_output, **attrs, forward_shapes=shapes)
    dealt = [*made, *[None] * (3 - len(made))]
    return [one if wanted else None for one, wanted in zip(dealt, output_mask, strict=True)]


# ------------------------------------------------------------------------------------------------------------- pooling


def _pool_attrs(
    site: Site,
    x: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
) -> dict[str, Any]:
    count = _space(site, x)
    if set(_each(dilation, count)) != {1}:
        raise site.refuse(f"its dilation {dilation} is not supported: pooling windows are dense here")
    kernel = _each(kernel_size, count)
    return {
        "kernel_size": kernel,
        "stride": _each(stride, count) if stride or isinstance(stride, int) else kernel,
        "padding": _each(padding, count),
        "ceil_mode": ceil_mode,
        "data_format": _FORMATS[count],
    }


def _max_pool(
    site: Site,
    x: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> Value:
    attrs = _pool_attrs(site, x, kernel_size, stride, padding, dilation, ceil_mode)
    return site.emit(f"max_pool{len(x.shape) - 2}d", x, **attrs)


def _max_pool_with_indices(site: Site, x: Value, *args: Any, **kwargs: Any) -> list[Value | Saved]:
    """The backward here reads what was pooled, not where it lay."""
    out = _max_pool(site, x, *args, **kwargs)
    return [out, Saved("the indices of a max pool", out)]


def _max_pool_backward(
    site: Site,
    grad_output: Value,
    x: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    dilation: int | Sequence[int],
    ceil_mode: bool,
    indices: Saved,
) -> Value:
    attrs = _pool_attrs(site, x, kernel_size, stride, padding, dilation, ceil_mode)
    return site.emit(f"max_pool{len(x.shape) - 2}d_grad", x, indices.of, grad_output, **attrs)


def _avg_pool(
    site: Site,
    x: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int] = (),
    padding: int | Sequence[int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    if divisor_override is not None:
        raise site.refuse("a pool that divides by a number of its own is not supported")
    attrs = _pool_attrs(site, x, kernel_size, stride, padding, 1, ceil_mode)
    return site.emit(f"avg_pool{len(x.shape) - 2}d", x, **attrs, exclusive=not count_include_pad)


def _avg_pool_backward(
    site: Site,
    grad_output: Value,
    x: Value,
    kernel_size: int | Sequence[int],
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Value:
    if divisor_override is not None:
        raise site.refuse("a pool that divides by a number of its own is not supported")
    attrs = _pool_attrs(site, x, kernel_size, stride, padding, 1, ceil_mode)
    op, exclusive = f"avg_pool{len(x.shape) - 2}d_grad", not count_include_pad
    return site.emit(op, grad_output, **attrs, exclusive=exclusive, forward_shapes={"x": x.shape})


def _adaptive_avg_pool(site: Site, x: Value, output_size: int | Sequence[int]) -> Value:
    count = _space(site, x)
    return site.emit(f"adaptive_avg_pool{count}d", x, output_size=_each(output_size, count))


def _adaptive_avg_pool_backward(site: Site, grad_output: Value, x: Value) -> Value:
    count = _space(site, x)
    attrs: dict[str, Any] = {"output_size": list(grad_output.shape[2:]), "forward_shapes": {"x": x.shape}}
    return site.emit(f"adaptive_avg_pool{count}d_grad", grad_output, **attrs)


# ------------------------------------------------------------------------------------------------------------ resizing


def _nearest(
    site: Site, x: Value, output_size: Sequence[int] | None = None, scale_factors: Sequence[Number] | None = None
) -> Value:
    return site.emit(
        "interpolate", x, size=list(site.spec.shape[2:]), mode="nearest", data_format=_FORMATS[_space(site, x)]
    )


IMAGES: dict[str, Lowering] = {
    "aten.convolution.default": _convolution,
    "aten.convolution_backward.default": _convolution_backward,
    **{f"aten.conv{count}d.default": _conv for count in _FORMATS},
    "aten.conv_transpose1d.default": _conv_transpose,
    "aten.conv_transpose2d.input": _conv_transpose,
    "aten.conv_transpose3d.input": _conv_transpose,
    **{f"aten.max_pool{count}d.default": _max_pool for count in _FORMATS},
    "aten.max_pool2d_with_indices.default": _max_pool_with_indices,
    "aten.max_pool2d_with_indices_backward.default": _max_pool_backward,
    "prims._low_memory_max_pool_with_offsets.default": _max_pool_with_indices,
    "aten.avg_pool2d.default": _avg_pool,
    "aten.avg_pool2d_backward.default": _avg_pool_backward,
    **{f"aten.adaptive_avg_pool{count}d.default": _adaptive_avg_pool for count in _FORMATS},
    "aten._adaptive_avg_pool2d.default": _adaptive_avg_pool,
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_avg_pool_backward,
    "aten.upsample_nearest2d.vec": _nearest,
}
