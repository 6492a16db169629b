"""Windows that slide over the space dims of an image: sizes, padding, and which cuts they allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ops.bind import Shape
from ops.dims import Array
from ops.given import whole_number, whole_numbers
from ops.notation import RuleError
from ops.op import LocalContext, Range

FORMATS = {1: ("NCL", "NLC"), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}
"""Number of space dims -> data formats, channels first and channels last."""

Padding: TypeAlias = int | str | Sequence[Any]


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides along one space dim.

    Parameters
    ----------
    size : int
        Of the dim it slides over.
    kernel, stride, dilation : int
    before, after : int
        Padding.
    out : int
        The number of places it takes.
    """

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    out: int

    @property
    def span(self) -> int:
        """The elements from the first tap to the last."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def apart(self) -> bool:
        """Whether each place has elements of its own: none in padding, none that another one sees."""
        fits = self.before == self.after == 0 and self.size == self.out * self.stride
        return fits and self.span <= self.stride

    @property
    def reach(self) -> int:
        """The elements, padding included, that the windows need: the last may begin inside and end beyond."""
        return max(self.before + self.size + self.after, (self.out - 1) * self.stride + self.span)


def channels_last(data_format: str, rank: int) -> bool:
    """Tell where the channels of an image with so many space dims are.

    Raises
    ------
    RuleError
        For a format that is none of the two.
    """
    if data_format not in FORMATS[rank]:
        raise RuleError(f"data_format={data_format!r} is not one of {' and '.join(FORMATS[rank])}")
    return data_format == FORMATS[rank][1]


def space_of(x: Shape, last: bool) -> Shape:
    """Return the sizes of the space dims."""
    return x[1:-1] if last else x[2:]


def channels_first(x: Array, last: bool) -> Array:
    """Return an image with its channels in dim 1."""
    return np.moveaxis(x, -1, 1) if last else x


def as_given(x: Array, last: bool) -> Array:
    """Undo `channels_first`."""
    return np.moveaxis(x, 1, -1) if last else x


def image(batch: str, channel: str, space: Sequence[str], last: bool) -> str:
    """Write the dims of an image."""
    return " ".join([batch, *space, channel] if last else [batch, channel, *space])


def image_shape(batch: int, channel: int, space: Sequence[int], last: bool) -> Shape:
    """Return the shape of an image."""
    return (batch, *space, channel) if last else (batch, channel, *space)


def per_dim(value: int | Sequence[int], rank: int, what: str) -> list[int]:
    """Return one number per space dim.

    Raises
    ------
    RuleError
        Where there is another number of them, or one is below 1.
    """
    listed = whole_numbers(value, what) if isinstance(value, list | tuple) else [whole_number(value, what)] * rank
    if len(listed) != rank or min(listed) < 1:
        raise RuleError(f"{what}={value} is not one positive number for each of {rank} space dims")
    return listed


def windows(
    space: Shape,
    kernel: Sequence[int],
    stride: int | Sequence[int],
    padding: Padding,
    dilation: int | Sequence[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Window, ...]:
    """Return the window of each space dim.

    Parameters
    ----------
    space : tuple of int
    kernel : sequence of int
    stride, dilation : int or sequence of int
    padding : int, list or str
        One number, one a dim, before and after of each dim in turn, pairs, pairs with those of batch and channel, or
        ``"SAME"`` or ``"VALID"``.
    ceil_mode : bool
        Whether a last window that ends beyond the padding counts; one that begins there never does.

    Raises
    ------
    RuleError
        Where a window does not fit.
    """
    rank = len(space)
    strides, dilations = per_dim(stride, rank, "stride"), per_dim(dilation, rank, "dilation")
    spans = [(taps - 1) * spread + 1 for taps, spread in zip(kernel, dilations, strict=True)]
    surplus = [
        (-(-size // step) - 1) * step + span - size for size, step, span in zip(space, strides, spans, strict=True)
    ]
    made = []
    for dim, (before, after) in enumerate(widths(padding, rank, surplus)):
        size, step = space[dim], strides[dim]
        room = size + before + after - spans[dim]
        if room < 0 and not (ceil_mode and room > -step):
            raise RuleError(f"a window of {spans[dim]} does not fit into size {size} with padding {before} and {after}")
        out = -(-room // step) + 1 if ceil_mode else room // step + 1
        if ceil_mode and (out - 1) * step >= size + before:
            out -= 1
        made.append(Window(size, kernel[dim], step, dilations[dim], before, after, out))
    return tuple(made)


def widths(padding: Padding, rank: int, surplus: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding before and after each space dim.

    Parameters
    ----------
    padding : int, list or str
        See `windows`.
    rank : int
    surplus : sequence of int
        What ``"SAME"`` deals out to both sides of each dim.

    Raises
    ------
    RuleError
        Where it cannot be read.
    """
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise RuleError(f"padding={padding!r} is neither SAME nor VALID")
        totals = [max(0, total) if padding == "SAME" else 0 for total in surplus]
        return [(total // 2, total - total // 2) for total in totals]
    listed = padding if isinstance(padding, list | tuple) else [padding] * rank
    items = [width for item in listed for width in (item if isinstance(item, list | tuple) else [item])]
    flat = whole_numbers(items, "padding")
    flat = flat[-2 * rank :] if len(flat) == 2 * (rank + 2) else flat
    if len(flat) not in (rank, 2 * rank) or min(flat) < 0:
        raise RuleError(f"padding={padding} does not give one or two widths for each of {rank} space dims")
    if len(flat) == rank:
        return [(width, width) for width in flat]
    return list(zip(flat[::2], flat[1::2], strict=True))


@dataclass
class SpaceDims:
    """The space dims of a rule as they are written, and what its clauses say of them."""

    dense: list[str] = field(default_factory=list)
    """Dims of the image that the windows slide over."""
    sparse: list[str] = field(default_factory=list)
    """Dims of the image with one element a window."""
    halo: list[str] = field(default_factory=list)
    whole: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    def clauses(self) -> dict[str, Any]:
        """Return the clauses for `ops.rule.rule`."""
        return {"halo": " ".join(self.halo), "whole": " ".join(self.whole), "sizes": self.sizes}


def space_dims(slid: Sequence[Window]) -> SpaceDims:
    """Write the space dims: where windows do not overlap nothing crosses a cut, else borders must be exchanged.

    Parameters
    ----------
    slid : sequence of Window

    Returns
    -------
    SpaceDims

    Examples
    --------
    >>> space_dims(windows((8, 8, 9), (1, 2, 3), (1, 2, 1), 0)).dense
    ['s0', '(s1 p1)', 's2']
    """
    dims = SpaceDims()
    for index, window in enumerate(slid):
        name, inner = f"s{index}", f"p{index}"
        if window.out == 1:
            dims.dense.append("1" if window.size == 1 else "_")
            dims.sparse.append("1")
        elif window.apart:
            dims.dense.append(name if window.stride == 1 else f"({name} {inner})")
            dims.sparse.append(name)
            dims.sizes |= {name: window.out} | ({inner: window.stride} if window.stride > 1 else {})
            dims.whole += [inner] if window.stride > 1 else []
        else:
            dims.dense.append(name)
            dims.sparse.append(name)
            dims.halo.append(name)
    return dims


class Seen(NamedTuple):
    """What one block of places, or of a result that places spread over, works on along one dim.

    Parameters
    ----------
    first, end : int
        The indices of the operand.
    before, after : int
        The padding of these alone.
    extra : int
        The elements at the end that no place spreads to.
    """

    first: int
    end: int
    before: int
    after: int
    extra: int = 0


def seen(window: Window, block: int, count: int) -> Seen:
    """Return the elements that one of several blocks of places sees.

    Parameters
    ----------
    window : Window
    block, count : int

    Examples
    --------
    >>> (window,) = windows((8,), (3,), 1, 1)
    >>> seen(window, 0, 2), seen(window, 1, 2)
    (Seen(first=0, end=5, before=1, after=0, extra=0), Seen(first=3, end=8, before=0, after=1, extra=0))
    """
    places = window.out // count
    low = block * places * window.stride - window.before
    high = low + (places - 1) * window.stride + window.span
    first, end = (min(max(at, 0), window.size) for at in (low, high))
    before = min(max(-low, 0), high - low)
    beyond = max(0, high - window.size - window.after)
    return Seen(first, end, before, high - low - before - (end - first) - beyond)


def spreading(window: Window, block: int, count: int) -> Seen:
    """Return the places that spread to one of several blocks of the elements that windows slide over.

    Examples
    --------
    >>> (window,) = windows((8,), (3,), 1, 1)
    >>> spreading(window, 0, 2), spreading(window, 1, 2)
    (Seen(first=0, end=5, before=1, after=2, extra=0), Seen(first=3, end=8, before=2, after=1, extra=0))
    """
    low = block * (window.size // count) + window.before
    high = low + window.size // count
    first, end = 0, window.out
    if count > 1:
        first = min(-((window.span - 1 - low) // window.stride), low // window.stride)
        first = min(max(first, 0), window.out - 1)
        end = min(max((high - 1) // window.stride + 1, first + 1), window.out)
    stop = (end - 1) * window.stride + window.span
    return Seen(first, end, low - first * window.stride, max(0, stop - high), max(0, high - stop))


def space_reach(slid: Sequence[Window], factor: str, block: int, count: int, *, spreads: bool = False) -> Range:
    """Return the indices that a block of a space dim works on: those that places see, or the places that spread."""
    found = (spreading if spreads else seen)(slid[int(factor[1:])], block, count)
    return found.first, found.end


def cut_space(slid: Sequence[Window], ctx: LocalContext, *, spreads: bool = False) -> list[Seen] | None:
    """Return what the windows of a device see, or spread, on each space dim; None where no border is exchanged.

    Parameters
    ----------
    slid : sequence of Window
        Over the whole image.
    ctx : LocalContext
    spreads : bool
    """
    counts = [1 if window.apart else ctx.count(f"s{dim}") for dim, window in enumerate(slid)]
    if max(counts) == 1:
        return None
    blocks = [ctx.block(f"s{dim}") if count > 1 else 0 for dim, count in enumerate(counts)]
    one = spreading if spreads else seen
    return [one(*each) for each in zip(slid, blocks, counts, strict=True)]


def paddings(found: Sequence[Seen]) -> list[int]:
    """Return the padding before and after each space dim in turn."""
    return [width for one in found for width in (one.before, one.after)]


def padded(x: Array, slid: Sequence[Window], value: float = 0.0) -> Array:
    """Pad the space dims of a channels-first image so that every window lies inside."""
    widths = [(w.before, w.reach - w.before - w.size) for w in slid]
    if not any(map(any, widths)):
        return x
    return np.pad(x, [(0, 0), (0, 0), *widths], constant_values=value)


def taps(x: Array, slid: Sequence[Window]) -> Array:
    """View a padded channels-first image as (n, c, places..., taps...), without a copy."""
    strides = x.strides[2:]
    return np.lib.stride_tricks.as_strided(
        x,
        (*x.shape[:2], *(w.out for w in slid), *(w.kernel for w in slid)),
        (
            *x.strides[:2],
            *(step * w.stride for step, w in zip(strides, slid, strict=True)),
            *(step * w.dilation for step, w in zip(strides, slid, strict=True)),
        ),
    )


def unpadded(x: Array, slid: Sequence[Window]) -> Array:
    """Undo `padded`."""
    return x[(slice(None), slice(None), *(slice(w.before, w.before + w.size) for w in slid))]


def taps_of(slid: Sequence[Window]) -> list[tuple[int, ...]]:
    """Return every tap of the window, by index."""
    return [tuple(map(int, tap)) for tap in np.ndindex(*(w.kernel for w in slid))]


def at_tap(view: Array, tap: tuple[int, ...]) -> Array:
    """View the elements under one tap, at all places of `taps`."""
    index: Any = (..., *tap)
    return np.asarray(view[index])
