"""Pooling: windows that take the largest or the mean element."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Attrs, LocalContext, Range, Shapes
from ops.registry import family
from ops.rule import Rule, rule
from ops.window import (
    FORMATS,
    Padding,
    Window,
    as_given,
    at_tap,
    channels_first,
    channels_last,
    cut_space,
    image,
    image_shape,
    padded,
    paddings,
    per_dim,
    space_dims,
    space_of,
    space_reach,
    taps,
    taps_of,
    unpadded,
    windows,
)


def _slid(x: Shape, kernel_size: Any, stride: Any, padding: Padding, ceil_mode: bool, last: bool) -> tuple[Window, ...]:
    space = space_of(x, last)
    kernel = per_dim(kernel_size, len(space), "kernel_size")
    return windows(space, kernel, kernel if stride is None else stride, padding, ceil_mode=ceil_mode)


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if np.issubdtype(dtype, np.floating) else np.iinfo(dtype).min


def _max_forward(x: Array, slid: Sequence[Window]) -> Array:
    view = taps(padded(x, slid, _lowest(x.dtype)), slid)
    first, *others = taps_of(slid)
    out = np.array(at_tap(view, first))
    for tap in others:
        np.maximum(out, at_tap(view, tap), out=out)
    return out


def _max_backward(x: Array, out: Array, out_grad: Array, slid: Sequence[Window]) -> Array:
    """The grad goes to the first tap that holds the largest element."""
    view = taps(padded(x, slid, _lowest(x.dtype)), slid)
    grad = np.zeros((*x.shape[:2], *(w.reach for w in slid)), out_grad.dtype)
    into = taps(grad, slid)
    free = np.ones(out.shape, dtype=bool)
    for tap in taps_of(slid):
        here = free & (at_tap(view, tap) == out)
        free &= ~here
        under = at_tap(into, tap)
        under += np.where(here, out_grad, 0)
    return unpadded(grad, slid)


def _counts(slid: Sequence[Window], exclusive: bool) -> Array:
    """Return by how much each place divides: its elements of x, or with the padding."""
    total = np.ones(())
    for w in slid:
        start = np.arange(w.out) * w.stride - w.before
        low, high = (0, w.size) if exclusive else (-w.before, w.size + w.after)
        total = total[..., None] * (np.minimum(start + w.kernel, high) - np.maximum(start, low))
    return total


def _avg_forward(x: Array, slid: Sequence[Window], counts: Array) -> Array:
    view = taps(padded(x, slid), slid)
    first, *others = taps_of(slid)
    total = np.array(at_tap(view, first))
    for tap in others:
        total += at_tap(view, tap)
    return np.asarray(total / counts.astype(x.dtype))


def _avg_backward(out_grad: Array, slid: Sequence[Window], counts: Array) -> Array:
    share = out_grad / counts.astype(out_grad.dtype)
    grad = np.zeros((*out_grad.shape[:2], *(w.reach for w in slid)), out_grad.dtype)
    into = taps(grad, slid)
    for tap in taps_of(slid):
        under = at_tap(into, tap)
        under += share
    return unpadded(grad, slid)


def _whole(shapes: Shapes, attrs: Attrs) -> tuple[Window, ...]:
    last = channels_last(attrs["data_format"], len(shape_of(shapes, "x")) - 2)
    kernel, stride, padding, ceil_mode = (attrs[key] for key in ("kernel_size", "stride", "padding", "ceil_mode"))
    return _slid(shape_of(shapes, "x"), kernel, stride, padding, ceil_mode, last)


def _shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
    x = shape_of(shapes, "x")
    last = channels_last(attrs["data_format"], len(x) - 2)
    return (image_shape(x[0], x[-1] if last else x[1], [w.out for w in _whole(shapes, attrs)], last),)


def _reach(shapes: Shapes, attrs: Attrs, factor: str, block: int, count: int) -> dict[str, Range]:
    return {"x": space_reach(_whole(shapes, attrs), factor, block, count)}


def _local_padding(attrs: Attrs, ctx: LocalContext) -> Attrs:
    found = cut_space(_whole(ctx.whole, attrs), ctx)
    return attrs if found is None else {**attrs, "padding": paddings(found)}


def _flops(shapes: Shapes, attrs: Attrs) -> int:
    out = shapes.get("out") or shapes.get("out_grad")
    return math.prod(shape_of({"out": out}, "out")) * math.prod(
        per_dim(attrs["kernel_size"], len(attrs["data_format"]) - 2, "kernel_size")
    )


def _pool_rule(x: Shape, rank: int, slid: Sequence[Window], last: bool, linear: str) -> Rule:
    space = space_dims(slid)
    return rule(
        f"x[{image('n', 'c', space.dense, last)}] -> out[{image('n', 'c', space.sparse, last)}]",
        linear=linear,
        **space.clauses(),
    )


def _check_rank(x: Shape, rank: int) -> None:
    if len(x) != rank + 2:
        raise RuleError(f"x has shape {x}: an image with {rank} space dims has rank {rank + 2}")


def _register_max(rank: int) -> None:
    def forward(x: Array, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, data_format: str) -> Array:
        last = channels_last(data_format, rank)
        slid = _slid(x.shape, kernel_size, stride, padding, ceil_mode, last)
        return as_given(_max_forward(channels_first(x, last), slid), last)

    def backward(
        x: Array,
        out: Array,
        out_grad: Array,
        *,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        data_format: str,
    ) -> Array:
        last = channels_last(data_format, rank)
        slid = _slid(x.shape, kernel_size, stride, padding, ceil_mode, last)
        first, made, grad = (channels_first(array, last) for array in (x, out, out_grad))
        return as_given(_max_backward(first, made, grad, slid), last)

    @family(
        f"max_pool{rank}d",
        "x[] -> out[]",
        kernel=forward,
        shape=_shape,
        local=_local_padding,
        reach=_reach,
        flops=_flops,
        grad=Grad(backward, reads="x out", cuts="s*", flops=_flops),
    )
    def max_pool(
        x: Shape,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        data_format: str = FORMATS[rank][0],
    ) -> Rule:
        """The largest element of each window."""
        _check_rank(x, rank)
        last = channels_last(data_format, rank)
        return _pool_rule(x, rank, _slid(x, kernel_size, stride, padding, ceil_mode, last), last, "")


def _register_avg(rank: int) -> None:
    def forward(
        x: Array, kernel_size: Any, stride: Any, padding: Any, ceil_mode: bool, exclusive: bool, data_format: str
    ) -> Array:
        last = channels_last(data_format, rank)
        slid = _slid(x.shape, kernel_size, stride, padding, ceil_mode, last)
        return as_given(_avg_forward(channels_first(x, last), slid, _counts(slid, exclusive)), last)

    def backward(
        out_grad: Array,
        *,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        ceil_mode: bool,
        exclusive: bool,
        data_format: str,
        shapes: Shapes,
    ) -> Array:
        last = channels_last(data_format, rank)
        slid = _slid(shape_of(shapes, "x"), kernel_size, stride, padding, ceil_mode, last)
        return as_given(_avg_backward(channels_first(out_grad, last), slid, _counts(slid, exclusive)), last)

    @family(
        f"avg_pool{rank}d",
        "x[] -> out[]",
        kernel=forward,
        shape=_shape,
        local=_local_padding,
        reach=_reach,
        flops=_flops,
        grad=Grad(backward, reads="", cuts="s*", shapes=True, flops=_flops),
    )
    def avg_pool(
        x: Shape,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        exclusive: bool = True,
        data_format: str = FORMATS[rank][0],
    ) -> Rule:
        """The mean of each window; exclusive: of its elements that are no padding."""
        _check_rank(x, rank)
        last = channels_last(data_format, rank)
        return _pool_rule(x, rank, _slid(x, kernel_size, stride, padding, ceil_mode, last), last, "x")


# ------------------------------------------------------------------------------------------------------------ adaptive


def _targets(space: Shape, output_size: Any) -> list[int]:
    """Return the sizes that are made; None keeps one."""
    listed = [output_size] * len(space) if output_size is None or isinstance(output_size, int) else list(output_size)
    if len(listed) != len(space) or min((goal for goal in listed if goal is not None), default=1) < 1:
        raise RuleError(f"output_size={output_size} is not one size for each of {len(space)} space dims")
    return [size if goal is None else int(goal) for size, goal in zip(space, listed, strict=True)]


def _bins(size: int, goal: int) -> Iterator[slice]:
    """Yield the elements of each place along one dim; bins overlap where the sizes do not divide."""
    yield from (slice(i * size // goal, -(-(i + 1) * size // goal)) for i in range(goal))


def _adaptive_rule(x: Shape, output_size: Any, last: bool, kind: str) -> Rule:
    space = space_of(x, last)
    dense, sparse, reduced = [], [], []
    sizes: dict[str, int] = {}
    for dim, (size, goal) in enumerate(zip(space, _targets(space, output_size), strict=True)):
        kept, gone = f"s{dim}", f"i{dim}"
        if size % goal:
            dense.append("_")
            sparse.append("_")
            continue
        sizes |= {name: count for name, count in ((kept, goal), (gone, size // goal)) if count > 1}
        names = [name for name in (kept, gone) if name in sizes]
        dense.append("1" if not names else names[0] if len(names) == 1 else f"({' '.join(names)})")
        sparse.append(kept if goal > 1 else "1")
        reduced += [gone] if gone in sizes else []
    clauses: dict[str, Any] = {kind: " ".join(reduced)}
    return rule(
        f"x[{image('n', 'c', dense, last)}] -> out[{image('n', 'c', sparse, last)}]",
        linear="x" if kind == "avg" else "",
        monotone="x" if kind == "max" and reduced else "",
        sizes=sizes,
        **clauses,
    )


def _local_size(rank: int) -> Callable[[Attrs, LocalContext], Attrs]:
    def local(attrs: Attrs, ctx: LocalContext) -> Attrs:
        out = shape_of(ctx.results, "out")
        return {**attrs, "output_size": list(space_of(out, channels_last(attrs["data_format"], rank)))}

    return local


def _adaptive_shape(rank: int) -> Callable[[Shapes, Attrs], tuple[Shape]]:
    def shape(shapes: Shapes, attrs: Attrs) -> tuple[Shape]:
        x = shape_of(shapes, "x")
        last = channels_last(attrs["data_format"], rank)
        goals = _targets(space_of(x, last), attrs["output_size"])
        return (image_shape(x[0], x[-1] if last else x[1], goals, last),)

    return shape


def _reduced(x: Array, output_size: Any, reduce: Callable[..., Any]) -> Array:
    """Reduce the bins of each space dim in turn."""
    for dim, goal in enumerate(_targets(x.shape[2:], output_size), 2):
        slots = (slice(None),) * dim
        x = np.stack([reduce(x[(*slots, bin_)], axis=dim) for bin_ in _bins(x.shape[dim], goal)], dim)
    return x


def _avg_spread(out_grad: Array, space: Shape) -> Array:
    grad = out_grad
    for dim, size in enumerate(space, 2):
        wide = np.zeros((*grad.shape[:dim], size, *grad.shape[dim + 1 :]), grad.dtype)
        for place, bin_ in enumerate(_bins(size, grad.shape[dim])):
            wide[(slice(None),) * dim + (bin_,)] += grad.take([place], dim) / (bin_.stop - bin_.start)
        grad = wide
    return grad


def _max_spread(x: Array, out_grad: Array) -> Array:
    """The grad of each place goes to the first of its elements that is the largest."""
    grad = np.zeros(x.shape, out_grad.dtype)
    bins = [list(_bins(size, goal)) for size, goal in zip(x.shape[2:], out_grad.shape[2:], strict=True)]
    for place in np.ndindex(*out_grad.shape[2:]):
        slots = (slice(None), slice(None), *(bins[dim][i] for dim, i in enumerate(place)))
        block = x[slots].reshape(*x.shape[:2], -1)
        here = np.arange(block.shape[-1]) == block.argmax(-1)[..., None]
        grad[slots] += (here * out_grad[(..., *place)][..., None]).reshape(grad[slots].shape)
    return grad


def _register_adaptive_avg(rank: int) -> None:
    def forward(x: Array, output_size: Any, data_format: str) -> Array:
        last = channels_last(data_format, rank)
        return as_given(_reduced(channels_first(x, last), output_size, np.mean), last)

    def backward(out_grad: Array, *, output_size: Any, data_format: str, shapes: Shapes) -> Array:
        last = channels_last(data_format, rank)
        return as_given(_avg_spread(channels_first(out_grad, last), space_of(shape_of(shapes, "x"), last)), last)

    @family(
        f"adaptive_avg_pool{rank}d",
        "x[] -> out[]",
        kernel=forward,
        shape=_adaptive_shape(rank),
        local=_local_size(rank),
        grad=Grad(backward, reads="", shapes=True),
    )
    def adaptive_avg_pool(
        x: Shape, output_size: int | Sequence[int | None] | None, data_format: str = FORMATS[rank][0]
    ) -> Rule:
        """The mean of bins, as many as asked for; None keeps a size."""
        _check_rank(x, rank)
        return _adaptive_rule(x, output_size, channels_last(data_format, rank), "avg")


def _register_adaptive_max(rank: int) -> None:
    def forward(x: Array, output_size: Any, data_format: str) -> Array:
        last = channels_last(data_format, rank)
        return as_given(_reduced(channels_first(x, last), output_size, np.max), last)

    def backward(x: Array, out_grad: Array, *, output_size: Any, data_format: str) -> Array:
        last = channels_last(data_format, rank)
        return as_given(_max_spread(channels_first(x, last), channels_first(out_grad, last)), last)

    @family(
        f"adaptive_max_pool{rank}d",
        "x[] -> out[]",
        kernel=forward,
        shape=_adaptive_shape(rank),
        local=_local_size(rank),
        grad=Grad(backward, reads="x"),
    )
    def adaptive_max_pool(
        x: Shape, output_size: int | Sequence[int | None] | None, data_format: str = FORMATS[rank][0]
    ) -> Rule:
        """The largest element of bins, as many as asked for; None keeps a size."""
        _check_rank(x, rank)
        return _adaptive_rule(x, output_size, channels_last(data_format, rank), "max")


for _rank in FORMATS:
    _register_max(_rank)
    _register_avg(_rank)
    _register_adaptive_avg(_rank)
    _register_adaptive_max(_rank)
