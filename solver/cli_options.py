"""The options of the command and how they are read: what is wrong with one is said before any work."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import click


def pair(text: str, form: str) -> tuple[str, tuple[int, ...]]:
    """Read ``NAME=SIZE`` or ``NAME=SIZExSIZE``; what stands left of the last ``=`` is the name."""
    name, _, sizes = text.rpartition("=")
    if not name.strip() or not all(size.strip().isdecimal() for size in sizes.split("x")):
        raise click.BadParameter(f"{text!r} is not written as {form}")
    return name.strip(), tuple(int(size) for size in sizes.split("x"))


def read_pairs(texts: Sequence[str], form: str) -> dict[str, tuple[int, ...]]:
    """Read what may be given for many names, but once for each."""
    pairs: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, sizes = pair(text, form)
        if name in pairs:
            raise click.BadParameter(f"{name!r} is given more than once")
        pairs[name] = sizes
    return pairs


def read_mesh(context: click.Context, option: click.Parameter, text: str) -> dict[str, int]:
    """Read ``dp=2,tp=4``: mesh axes in the order given."""
    axes: dict[str, int] = {}
    for item in text.split(","):
        axis, sizes = pair(item, "AXIS=SIZE, as in dp=2,tp=4")
        if len(sizes) > 1 or axis in axes:
            raise click.BadParameter(f"mesh axis {axis!r} has more than one size in {text!r}")
        axes[axis] = sizes[0]
    return axes


def read_dims(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, int]:
    """Read ``batch=8``, once for each dim."""
    dims = read_pairs(texts, "NAME=SIZE, as in batch=8")
    for name, sizes in dims.items():
        if len(sizes) > 1:
            raise click.BadParameter(f"dim {name!r} is given {len(sizes)} sizes; a shape is given with --input-shape")
    return {name: sizes[0] for name, sizes in dims.items()}


def read_shapes(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read ``x=8x3x224x224``, once for each input."""
    return read_pairs(texts, "NAME=8x3x224x224")


def read_pins(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME:dp=S(0),tp=R``, any number of times: what stands left of the last colon is the name."""
    pins: dict[str, str] = {}
    for text in texts:
        name, _, placements = text.rpartition(":")
        if not name or "=" not in placements:
            raise click.BadParameter(f"{text!r} is not written as NAME:dp=S(0),tp=R")
        pins[name] = f"{pins[name]},{placements}" if name in pins else placements
    return pins


def read_untie(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> tuple[Any, ...]:
    """Read the names of followers, any number of times, as a policy."""
    from solver.constraints.policy import untie

    return (untie(*texts),) if texts else ()


def read_policies(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> tuple[Any, ...]:
    """Read policies as they are called, any number of times."""
    from solver.constraints.policy import policy_from_text

    return tuple(map(policy_from_text, texts))


def read_constraints(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> tuple[Any, ...]:
    """Read a person's own expressions, any number of times."""
    from solver.formula import read_formula

    return tuple(map(read_formula, texts))


def read_overlap(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, float]:
    """Read ``all_gather=0.5``, once for each kind of collective."""
    found: dict[str, float] = {}
    for text in texts:
        kind, _, part = text.partition("=")
        try:
            found[kind.strip()] = float(part)
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is not written as KIND=FRACTION, as in all_gather=0.5") from error
    return found


def read_capabilities(context: click.Context, option: click.Parameter, names: Sequence[str]) -> frozenset[str]:
    """Add what a person grants to what every runtime can do."""
    from solver.problem import DEFAULT_CAPABILITIES

    return DEFAULT_CAPABILITIES | set(names)


def read_number(context: click.Context, option: click.Parameter, number: float) -> float:
    """Refuse what no search can be given: less than nothing, no number, no end."""
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{number:g} is not a number from 0 up")
    return number


def read_gap(context: click.Context, option: click.Parameter, gap: float) -> float:
    """Refuse a gap that every plan has."""
    if not 0 <= gap < 1:
        raise click.BadParameter(f"{gap:g} is not a number from 0 up to, but not including, 1: 0.01 is 1%")
    return gap


def read_output(context: click.Context, option: click.Parameter, text: str | None) -> Path | None:
    """Find out before the work, not after it, whether a file can be written."""
    if text is None:
        return None
    if not text:
        raise click.BadParameter("the name of the file is empty")
    path = Path(text)
    try:
        target = path.resolve()
    except (OSError, RuntimeError) as error:
        raise click.BadParameter(f"{text!r} is a link that leads nowhere") from error
    if target.is_dir():
        raise click.BadParameter(f"{text!r} is a directory")
    if not target.parent.is_dir():
        leads = f"{text!r} leads to {str(target)!r}, but " if path.is_symlink() else ""
        raise click.BadParameter(f"{leads}there is no directory {str(target.parent)!r}")
    if not os.access(path if path.exists() else target.parent, os.W_OK):
        raise click.BadParameter(f"{text!r} cannot be written")
    return path


class Once(click.Command):
    """A command that refuses an option given several times of which it could take only one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Count what is given before it is read."""
        options = [one for one in self.params if isinstance(one, click.Option) and not one.multiple and not one.is_flag]
        single = {name for option in options for name in option.opts}
        given = Counter(word.partition("=")[0] for word in takewhile(lambda word: word != "--", args))
        for name in given:
            if name in single and given[name] > 1:
                raise click.UsageError(f"{name} is given {given[name]} times: give it once", ctx)
        return super().parse_args(ctx, args)


MODEL_OPTIONS = (
    click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option(
        "--mesh",
        "axes",
        required=True,
        callback=read_mesh,
        metavar="AXIS=SIZE,...",
        help="The mesh axes with their sizes: dp=2,tp=4.",
    ),
    click.option("--hardware", default="h100", show_default=True, help="A preset, or a JSON file of your own."),
    click.option(
        "--dim",
        "dims",
        multiple=True,
        callback=read_dims,
        metavar="NAME=SIZE",
        help="The size of a dynamic dim: batch=8.",
    ),
    click.option(
        "--input-shape",
        "shapes",
        multiple=True,
        callback=read_shapes,
        metavar="NAME=SHAPE",
        help="The shape of an input, x=8x3x224x224; what follows from it is inferred anew.",
    ),
    click.option(
        "--pin",
        "pins",
        multiple=True,
        callback=read_pins,
        metavar="NAME:AXIS=PLACEMENT,...",
        help="A wish: 'x:dp=S(0),tp=R'. NAME may be a glob, or one use: op/operand.",
    ),
    click.option(
        "--communication",
        type=click.Choice(["any", "none", "frozen"]),
        default="any",
        show_default=True,
        help="none: nothing is sent; frozen: every tensor keeps one layout.",
    ),
    click.option(
        "--policy",
        "policy",
        multiple=True,
        callback=read_policies,
        metavar="NAME(ARG,...)",
        help="What may be sent or stays cut: 'no_communication(dp)', 'forbid(all_gather,*.weight,axis=tp)', "
        "'batch_stays(dp)', 'zero(1,dp)', 'sequence_parallel(tp)', 'expert_parallel(ep)', 'equal_layers(h.*)', "
        "'traffic(dp,100MB)'.",
    ),
    click.option(
        "--constraint",
        "constraints",
        multiple=True,
        callback=read_constraints,
        metavar="FORMULA",
        help="A formula that the plan fulfils: '(or (sharded w 0 tp) (not (partial y tp)))'.",
    ),
    click.option(
        "--objective",
        type=click.Choice(["time", "communication"]),
        default="time",
        show_default=True,
        help="communication: least communication time, then least compute.",
    ),
    click.option(
        "--overlap",
        multiple=True,
        callback=read_overlap,
        metavar="KIND=FRACTION",
        help="The fraction of a kind's time that is hidden behind compute: all_gather=0.5.",
    ),
    click.option(
        "--untie",
        "untied",
        multiple=True,
        callback=read_untie,
        metavar="NAME",
        help="Let the tie of NAME go, a glob as '*.moment?': it is stored or delivered as is cheapest.",
    ),
    click.option(
        "--training", is_flag=True, help="Plan the whole step: forward, backward, and the update if one is named."
    ),
    click.option(
        "--loss",
        metavar="NAME",
        help="The tensor to differentiate, by default the only floating output; implies --training. Where it is no "
        "single number, its gradient is an input NAME.grad.",
    ),
    click.option(
        "--optimizer",
        metavar="NAME",
        help="Append the update of sgd, momentum, adam, adamw or lamb; implies --training.",
    ),
    click.option(
        "--clip-norm",
        type=float,
        metavar="NORM",
        help="Scale all gradients to this common norm, where it is larger, before the update.",
    ),
    click.option(
        "--capability",
        "capabilities",
        multiple=True,
        callback=read_capabilities,
        metavar="NAME",
        help="What the runtime can do beside masked_lookup: halo_exchange, parallel_softmax, ...; any number of times.",
    ),
    click.option("--gap", default=0.0, callback=read_gap, show_default=True, help="Stop at this gap: 0.01 is 1%."),
    click.option("--timeout", default=60.0, callback=read_number, show_default=True, help="Seconds to search."),
)


memory_option = click.option(
    "--memory", metavar="SIZE", help="What a plan may fill of one device at its peak: 80GB (10^9), 74.5GiB (2^30)."
)
"""One budget: a frontier tries many and has no such option."""


def training_wishes(wishes: dict[str, Any]) -> dict[str, Any] | None:
    """Take what speaks of training out of the wishes; None where nothing asks for it."""
    given = {name: wishes.pop(name) for name in ("loss", "optimizer", "clip_norm")}
    asked = wishes.pop("training")
    return given if asked or any(value is not None for value in given.values()) else None


def policy_wishes(wishes: dict[str, Any]) -> None:
    """Put the ties that are let go beside the other policies."""
    wishes["policy"] = (*wishes["policy"], *wishes.pop("untied"))


def model_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the model, the mesh and the wishes."""
    for option in reversed(MODEL_OPTIONS):
        command = option(command)
    return command
