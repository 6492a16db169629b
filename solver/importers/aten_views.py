"""aten: what names, cuts apart and joins tensors without computing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from solver.importers.aten_site import Lowering, Number, Site, dtype_name
from solver.importers.sketch import Value


def _itself(site: Site, x: Any, *_: Any, **__: Any) -> Any:
    """Strides, gradients and devices are settled: the tensor as it is."""
    return x


def _nothing(site: Site, *_: Any, **__: Any) -> None:
    """A check at capture."""


def _reshape(site: Site, x: Value, size: Sequence[int]) -> Value:
    return site.reshape(x, site.spec.shape)


def _flatten(site: Site, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    return site.reshape(x, site.spec.shape)


def _squeeze(site: Site, x: Value, dim: int | Sequence[int] | None = None) -> Value:
    dims = site.axes(dim, len(x.shape))
    gone = [axis for axis in dims if x.shape[axis] == 1] if x.shape else []
    return _renamed(site, x, "squeeze", gone) if gone else x


def _unsqueeze(site: Site, x: Value, dim: int) -> Value:
    return _renamed(site, x, "unsqueeze", [site.axis(dim, len(x.shape) + 1)])


def _renamed(site: Site, x: Value, op: str, axis: list[int]) -> Value:
    """Add or take dims of size 1; where the operand was made so, name the shape at once."""
    if x.maker is not None and x.maker.op in ("reshape", "squeeze", "unsqueeze"):
        return site.reshape(x, site.spec.shape)
    return site.emit(op, x, axis=axis)


def _t(site: Site, x: Value) -> Value:
    return site.transpose(x, range(len(x.shape))[::-1])


def _transpose(site: Site, x: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(x.shape)))
    first, second = site.axis(dim0, len(order)), site.axis(dim1, len(order))
    order[first], order[second] = order[second], order[first]
    return site.transpose(x, order)


def _permute(site: Site, x: Value, dims: Sequence[int]) -> Value:
    return site.transpose(x, dims)


def _expand(site: Site, x: Value, size: Sequence[int], *, implicit: bool = False) -> Value:
    return site.expand(x, site.spec.shape)


def _broadcast_tensors(site: Site, tensors: Sequence[Value]) -> list[Value]:
    ranks = max(len(x.shape) for x in tensors)
    padded = [(1,) * (ranks - len(x.shape)) + x.shape for x in tensors]
    shape = [max(sizes) for sizes in zip(*padded, strict=True)]
    return [site.expand(x, shape) for x in tensors]


# ------------------------------------------------------------------------------------------------------ copies, casts


def _clone(site: Site, x: Value, *, memory_format: str | None = None) -> Value:
    """A copy; unless another order in memory is asked for, one of a transpose lies as the transpose does."""
    if x.data is not None:
        return x
    kept = memory_format in (None, "torch.preserve_format")
    if kept and x.maker is not None and x.maker.op == "transpose":
        (source,) = x.maker.inputs()
        return site.transpose(site.emit("assign", source), x.maker.attrs["perm"])
    return site.emit("assign", x)


def _contiguous(site: Site, x: Value, *, memory_format: str | None = None) -> Value:
    """A copy where the operand is a transpose, itself where it lies row by row."""
    return site.emit("assign", x) if x.maker is not None and x.maker.op == "transpose" else x


def _copy(site: Site, x: Value, src: Value, non_blocking: bool = False) -> Value:
    """Every element of x becomes that of src; what x held is not read."""
    made = site.expand(site.cast(src, x.dtype), x.shape)
    return made if made is not src else _clone(site, src)


def _to_copy(site: Site, x: Value, *, dtype: str | None = None, **_: Any) -> Value:
    return x if dtype is None else site.cast(x, dtype_name(dtype))


def _to_dtype(site: Site, x: Value, dtype: str, *_: Any, **__: Any) -> Value:
    return site.cast(x, dtype_name(dtype))


def _to_device(site: Site, x: Value, device: str, dtype: str | None = None, *_: Any, **__: Any) -> Value:
    return _to_copy(site, x, dtype=dtype)


# -------------------------------------------------------------------------------------------------------------- slices


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    return slice(start, end).indices(size)[:2]


def _slice(
    site: Site, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    axis = site.axis(dim, len(x.shape))
    first, last = _bounds(x.shape[axis], start, end)
    if (first, last, step) == (0, x.shape[axis], 1):
        return x
    if step == 1:
        return site.emit("slice", x, axes=[axis], starts=[first], ends=[last])
    return site.emit("strided_slice", x, axes=[axis], starts=[first], ends=[last], strides=[step])


def _slice_backward(
    site: Site, grad: Value, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> Value:
    axis, shape = site.axis(dim, len(input_sizes)), tuple(input_sizes)
    first, last = _bounds(shape[axis], start, end)
    if (first, last, step) == (0, shape[axis], 1):
        return grad
    if step == 1:
        where: dict[str, Any] = {"axes": [axis], "starts": [first], "ends": [last]}
        return site.emit("slice_grad", grad, **where, forward_shapes={"input": shape})
    where = {"axes": [axis], "starts": [first], "ends": [last], "strides": [step]}
    return site.emit("strided_slice_grad", grad, **where, forward_shapes={"x": shape})


def _slice_scatter(
    site: Site,
    x: Value,
    src: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    axis = site.axis(dim, len(x.shape))
    first, last = _bounds(x.shape[axis], start, end)
    if (first, last, step) == (0, x.shape[axis], 1):
        return _copy(site, x, src)
    where = {"axes": [axis], "starts": [first], "ends": [last], "strides": [step]}
    return site.emit("slice_scatter", x, site.cast(src, x.dtype), **where)


def _one(site: Site, shape: Sequence[int], dim: int, index: int) -> tuple[int, int]:
    """Return a dim and an index of it, both counted from the front."""
    axis = site.axis(dim, len(shape))
    return axis, index % shape[axis]


def _select(site: Site, x: Value, dim: int, index: int) -> Value:
    axis, place = _one(site, x.shape, dim, index)
    return site.emit("slice", x, axes=[axis], starts=[place], ends=[place + 1], decrease_axis=[axis])


def _select_backward(site: Site, grad: Value, input_sizes: Sequence[int], dim: int, index: int) -> Value:
    axis, place = _one(site, input_sizes, dim, index)
    where: dict[str, Any] = {"axes": [axis], "starts": [place], "ends": [place + 1], "decrease_axis": [axis]}
    return site.emit("slice_grad", grad, **where, forward_shapes={"input": tuple(input_sizes)})


def _select_scatter(site: Site, x: Value, src: Value, dim: int, index: int) -> Value:
    axis, place = _one(site, x.shape, dim, index)
    value = site.reshape(site.cast(src, x.dtype), (*x.shape[:axis], 1, *x.shape[axis + 1 :]))
    return site.emit("slice_scatter", x, value, axes=[axis], starts=[place], ends=[place + 1], strides=[1])


def _diff(
    site: Site, x: Value, n: int = 1, dim: int = -1, prepend: Value | None = None, append: Value | None = None
) -> Value:
    axis = site.axis(dim, len(x.shape))
    parts = [part for part in (prepend, x, append) if part is not None]
    made = parts[0] if len(parts) == 1 else site.emit("concat", parts, axis=axis)
    for _ in range(n):
        size = made.shape[axis]
        later, earlier = (
            site.emit("slice", made, axes=[axis], starts=[start], ends=[start + size - 1]) for start in (1, 0)
        )
        made = site.emit("not_equal" if made.dtype == "bool" else "subtract", later, earlier)
    return made


# ------------------------------------------------------------------------------------------------- joining and cutting


def _met(site: Site, tensors: Sequence[Value]) -> Sequence[Value]:
    """Return tensors in the dtype that they meet in, which is that of the result."""
    if len({x.dtype for x in tensors}) == 1:
        return tensors
    return [site.cast(site.held(x), site.dtype) for x in tensors]


def _cat(site: Site, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Old code joins with an empty tensor of rank 1, which adds nothing."""
    parts = _met(site, [x for x in tensors if x.shape != (0,)])
    return parts[0] if len(parts) == 1 else site.emit("concat", parts, axis=site.axis(dim, len(parts[0].shape)))


def _stack(site: Site, tensors: Sequence[Value], dim: int = 0) -> Value:
    parts = _met(site, tensors)
    return site.emit("stack", parts, axis=site.axis(dim, len(parts[0].shape) + 1))


def _split(site: Site, x: Value, split_size: int, dim: int = 0) -> Sequence[Value]:
    size = x.shape[site.axis(dim, len(x.shape))]
    return _split_with_sizes(site, x, [min(split_size, size - at) for at in range(0, size, split_size)], dim)


def _split_with_sizes(site: Site, x: Value, split_sizes: Sequence[int], dim: int = 0) -> Sequence[Value]:
    if len(split_sizes) == 1:
        return [x]
    return site.emit_all("split", x, num_or_sections=list(split_sizes), axis=site.axis(dim, len(x.shape)))


def _chunk(site: Site, x: Value, chunks: int, dim: int = 0) -> Sequence[Value]:
    return _split(site, x, math.ceil(x.shape[site.axis(dim, len(x.shape))] / chunks), dim)


def _unbind(site: Site, x: Value, dim: int = 0) -> Sequence[Value]:
    return site.emit_all("unbind", x, axis=site.axis(dim, len(x.shape)))


# ------------------------------------------------------------------------------------------- repeating and reordering


def _repeat(site: Site, x: Value, repeats: Sequence[int]) -> Value:
    wide = site.reshape(x, (1,) * (len(repeats) - len(x.shape)) + x.shape)
    if all(times == 1 for times in repeats):
        return wide
    return site.emit("tile", wide, repeat_times=list(repeats))


def _repeat_interleave(
    site: Site, x: Value, repeats: int, dim: int | None = None, *, output_size: int | None = None
) -> Value:
    axis = None if dim is None else site.axis(dim, len(x.shape))
    return site.emit("repeat_interleave", x, repeats=repeats, axis=axis)


def _roll(site: Site, x: Value, shifts: int | Sequence[int], dims: int | Sequence[int] = ()) -> Value:
    moves = [shifts] if isinstance(shifts, int) else list(shifts)
    listed = [dims] if isinstance(dims, int) else list(dims)
    if not listed:
        flat = site.emit("roll", site.reshape(x, (math.prod(x.shape),)), shifts=moves, axis=[0])
        return site.reshape(flat, x.shape)
    return site.emit("roll", x, shifts=moves, axis=[site.axis(dim, len(x.shape)) for dim in listed])


def _flip(site: Site, x: Value, dims: Sequence[int]) -> Value:
    return site.emit("flip", x, axis=site.axes(dims, len(x.shape))) if dims else x


def _pad(site: Site, x: Value, pad: Sequence[int], value: Number | None = 0) -> Value:
    """Widths stand before and after, those of the last dim first; what is negative cuts off."""
    widths = [(0, 0)] * len(x.shape)
    for back, pair in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        widths[-back] = pair
    for axis, (before, after) in enumerate(widths):
        if min(before, after) < 0:
            x = _slice(site, x, axis, max(0, -before), x.shape[axis] - max(0, -after))
    flat = [max(0, width) for pair in widths for width in pair]
    return site.emit("pad", x, pad=flat, value=value or 0) if any(flat) else x


def _pad_mode(site: Site, x: Value, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Value:
    if mode != "constant":
        raise site.refuse(f"only constant padding can be planned, not {mode!r}")
    return _pad(site, x, pad, value)


VIEWS: dict[str, Lowering] = {
    **dict.fromkeys(
        (
            "aten.alias.default",
            "aten.detach.default",
            "aten.lift_fresh_copy.default",
            "prims._low_memory_max_pool_offsets_to_indices.default",
        ),
        _itself,
    ),
    "aten._assert_tensor_metadata.default": _nothing,
    **dict.fromkeys(("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"), _reshape),
    "aten.flatten.using_ints": _flatten,
    **dict.fromkeys(("aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims"), _squeeze),
    "aten.unsqueeze.default": _unsqueeze,
    "aten.t.default": _t,
    "aten.transpose.int": _transpose,
    "aten.permute.default": _permute,
    "aten.expand.default": _expand,
    "aten.broadcast_tensors.default": _broadcast_tensors,
    "aten.clone.default": _clone,
    "aten.contiguous.default": _contiguous,
    "aten.copy.default": _copy,
    "aten._to_copy.default": _to_copy,
    "aten.to.dtype": _to_dtype,
    "aten.to.dtype_layout": _to_copy,
    "aten.to.device": _to_device,
    "prims.convert_element_type.default": _to_dtype,
    "aten.slice.Tensor": _slice,
    "aten.slice_backward.default": _slice_backward,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.select.int": _select,
    "aten.select_backward.default": _select_backward,
    "aten.select_scatter.default": _select_scatter,
    "aten.diff.default": _diff,
    "aten.cat.default": _cat,
    "aten.stack.default": _stack,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_with_sizes,
    "aten.chunk.default": _chunk,
    "aten.unbind.int": _unbind,
    "aten.repeat.default": _repeat,
    "aten.repeat_interleave.self_int": _repeat_interleave,
    "aten.roll.default": _roll,
    **dict.fromkeys(("aten.flip.default", "prims.rev.default"), _flip),
    "aten.constant_pad_nd.default": _pad,
    "aten.pad.default": _pad_mode,
}
