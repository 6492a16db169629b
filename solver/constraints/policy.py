"""What a person may allow or forbid beside pins."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from solver.constraints.policy_kinds import (
    KINDS,
    Batch,
    Equal,
    Expert,
    Forbid,
    Policy,
    Sequence,
    Traffic,
    Untie,
    Zero,
)
from solver.words import read_size


def untie(*patterns: str) -> Untie:
    """Let ties go: what follows is stored, or delivered, as the plan chooses.

    Parameters
    ----------
    *patterns : str
        Names of followers, or globs over them: ``untie("*.moment1", "*.moment2")`` lets an optimizer's state be cut
        otherwise than its parameter.

    Returns
    -------
    Untie
        For ``plan(..., policy=(untie("*"),))``.

    Raises
    ------
    ValueError
        Where no pattern is given, or one is no text.
    """
    if not patterns or not all(isinstance(pattern, str) for pattern in patterns):
        raise ValueError(f"untie{patterns!r}: give the name of a follower, or a glob, as untie('*.moment1')")
    return Untie(patterns)


def forbid(kind: str, *tensors: str, axis: str | None = None) -> Forbid:
    """Forbid a kind of collective.

    Parameters
    ----------
    kind : str
        ``all_reduce all_gather reduce_scatter all_to_all permute``, or ``halo_exchange shift`` of kernels.
    *tensors : str
        Names of tensors, or globs over them; without any all tensors, and what kernels send themselves, too.
    axis : str, optional
        The mesh axis; every one where it is left out.

    Returns
    -------
    Forbid
        For ``plan(..., policy=(forbid("all_gather", "*.weight", axis="tp"),))``.

    Raises
    ------
    ValueError
        For a kind that is none, or a pattern that is no text.
    """
    if kind not in KINDS:
        raise ValueError(f"forbid({kind!r}): choose a kind of collective from {', '.join(KINDS)}")
    return Forbid((kind,), _patterns("forbid", tensors) or ("*",), axis if axis is None else _axis("forbid", axis))


def no_communication(axis: str, *tensors: str) -> Forbid:
    """Forbid every collective that involves a mesh axis.

    Parameters
    ----------
    axis : str
        The mesh axis.
    *tensors : str
        Names of tensors, or globs over them; without any all tensors, and what kernels send themselves, too.

    Returns
    -------
    Forbid

    Raises
    ------
    ValueError
        Where the axis or a pattern is no text.
    """
    return Forbid(KINDS, _patterns("no_communication", tensors) or ("*",), _axis("no_communication", axis))


def batch_stays(axis: str, *tensors: str, dim: int = 0) -> Batch:
    """Keep the batch cut on a mesh axis.

    Parameters
    ----------
    axis : str
        The mesh axis.
    *tensors : str
        Names of tensors, or globs over them: each is stored or held, and read by every use, cut at `dim`. Without any
        these are the inputs that are as long at `dim` as the first one, and all that the rules of ops carry the batch
        to, each at the dim where the batch then is.
    dim : int, optional
        The tensor dim of the batch.

    Returns
    -------
    Batch

    Raises
    ------
    ValueError
        For an axis or a pattern that is no text, or a dim that is none.
    """
    return Batch(_axis("batch_stays", axis), _dim("batch_stays", dim), _patterns("batch_stays", tensors))


def zero(stage: int, axis: str) -> Zero:
    """Cut what an optimizer keeps over a mesh axis, at whatever dim it divides; what it does not divide stays free.

    Parameters
    ----------
    stage : int
        1: the states of the optimizer; 2: gradients, too, as they are held; 3: parameters, too.
    axis : str
        The mesh axis.

    Returns
    -------
    Zero
        Below stage 3 the ties of states and of gradients to parameters are let go.

    Raises
    ------
    ValueError
        For a stage that is none, or an axis that is no text.
    """
    if stage not in (1, 2, 3) or isinstance(stage, bool):
        raise ValueError(f"zero(stage={stage!r}): choose 1 (states), 2 (and gradients) or 3 (and parameters)")
    return Zero(stage, _axis("zero", axis))


def sequence_parallel(axis: str, *tensors: str, dim: int = 1) -> Sequence:
    """Cut the sequence on a mesh axis where ops work on each of its places.

    Parameters
    ----------
    axis : str
        The mesh axis.
    *tensors : str
        Names of tensors, or globs over them: each is held, and read by every use, cut at `dim`. Without any these are
        what normalizations and dropouts, forward and backward, read and make of the sequence.
    dim : int, optional
        The tensor dim of the sequence in the inputs.

    Returns
    -------
    Sequence

    Raises
    ------
    ValueError
        For an axis or a pattern that is no text, or a dim that is none.
    """
    axis, dim = _axis("sequence_parallel", axis), _dim("sequence_parallel", dim)
    return Sequence(axis, dim, _patterns("sequence_parallel", tensors))


def expert_parallel(axis: str, *tensors: str) -> Expert:
    """Let each device along a mesh axis keep and run its own experts.

    Parameters
    ----------
    axis : str
        The mesh axis.
    *tensors : str
        Names of the stacked weights of experts, or globs over them: each is stored and read cut at dim 0. Without any
        these are the stacked matrices that ``grouped_mm`` reads.

    Returns
    -------
    Expert

    Raises
    ------
    ValueError
        For an axis or a pattern that is no text.
    """
    return Expert(_axis("expert_parallel", axis), _patterns("expert_parallel", tensors))


def equal_layers(*patterns: str) -> Equal:
    """Let layers lie alike: each op needs and makes the layouts of its fellow in the first layer.

    Parameters
    ----------
    *patterns : str
        Names of layers, whose first ``*`` stands for a number: ``equal_layers("layers.*")`` speaks of all ops in whose
        name, or else module, such a piece stands between dots.

    Returns
    -------
    Equal

    Raises
    ------
    ValueError
        Where no pattern is given, or one has no ``*``.
    """
    if not patterns or not all(isinstance(pattern, str) and "*" in pattern for pattern in patterns):
        raise ValueError(f"equal_layers{patterns!r}: give names of ops with * for the layer, as equal_layers('h.*')")
    return Equal(patterns)


def traffic(axis: str, most: int | str) -> Traffic:
    """Send no more than so many bytes over a mesh axis.

    Parameters
    ----------
    axis : str
        The mesh axis.
    most : int or str
        What a device sends in the whole step by collectives that involve the axis: bytes, or a size as ``"1.5GB"``.

    Returns
    -------
    Traffic
        One of it can be planned with. The bound is by a multiplier, so that a gap may stay open.

    Raises
    ------
    ValueError
        For an axis that is no text, or an amount that is none.
    """
    try:
        count = read_size(most, least=0)
    except ValueError as error:
        raise ValueError(f"traffic: {most!r} is no amount of bytes: {error}") from error
    return Traffic(_axis("traffic", axis), count)


def policy_from_text(text: str) -> Policy:
    """Read a policy as it is called, with or without quotes: ``forbid(all_gather, *.weight, axis=tp)``.

    Raises
    ------
    ValueError
        Where it is no policy, or the arguments do not fit.

    Examples
    --------
    >>> str(policy_from_text("zero(1, dp)"))
    "zero(1, 'dp')"
    """
    call = re.fullmatch(r"\s*(\w+)\s*\((.*)\)\s*", text)
    if call is None or call[1] not in MAKERS:
        raise ValueError(f"{text!r} is no policy: write NAME(ARGUMENT, ...) with a name from {', '.join(MAKERS)}")
    given, named = [], {}
    for piece in call[2].split(",") if call[2].strip() else ():
        key, equals, value = piece.partition("=")
        word = (value if equals else key).strip().strip("'\"")
        argument = int(word) if word.isdecimal() else word
        if equals and key.strip() in named:
            raise ValueError(f"{text!r} gives {key.strip()} twice: give it once")
        if equals:
            named[key.strip()] = argument
        else:
            given.append(argument)
    try:
        return MAKERS[call[1]](*given, **named)
    except TypeError as error:
        told = str(error).replace(f"{call[1]}() ", "")
        raise ValueError(f"{text!r} cannot be read: {call[1]} {told}") from error


MAKERS: dict[str, Callable[..., Policy]] = {
    one.__name__: one
    for one in (
        no_communication,
        forbid,
        batch_stays,
        zero,
        sequence_parallel,
        expert_parallel,
        equal_layers,
        traffic,
        untie,
    )
}
"""Every policy by its name."""


def policy_from_json(data: Mapping[str, Any]) -> Policy:
    """Read what `Policy.to_json` wrote.

    Raises
    ------
    ValueError
        Where it is no policy.
    """
    if len(data) != 1 or next(iter(data)) not in _READERS:
        raise ValueError(f"{dict(data)!r} is no policy: choose from {', '.join(_READERS)}")
    name, values = next(iter(data.items()))
    return _READERS[name](values)


_READERS: dict[str, Callable[[Any], Policy]] = {
    "untie": lambda given: untie(*given),
    "forbid": lambda given: Forbid(
        tuple(forbid(kind).kinds[0] for kind in given["kinds"]),
        _patterns("forbid", tuple(given["tensors"])),
        None if given["axis"] is None else _axis("forbid", given["axis"]),
    ),
    "batch_stays": lambda given: batch_stays(given["axis"], *given["tensors"], dim=given["dim"]),
    "zero": lambda given: zero(given["stage"], given["axis"]),
    "sequence_parallel": lambda given: sequence_parallel(given["axis"], *given["tensors"], dim=given["dim"]),
    "expert_parallel": lambda given: expert_parallel(given["axis"], *given["tensors"]),
    "traffic": lambda given: traffic(given["axis"], given["most"]),
    "equal_layers": lambda given: equal_layers(*given["patterns"]),
}


def _patterns(policy: str, patterns: tuple[Any, ...]) -> tuple[str, ...]:
    if not all(isinstance(pattern, str) and pattern for pattern in patterns):
        raise ValueError(f"{policy}: {patterns!r} are no names of tensors: give texts, as '*.weight'")
    return patterns


def _axis(policy: str, axis: Any) -> str:
    if not isinstance(axis, str):
        raise ValueError(f"{policy}: {axis!r} is no mesh axis: give its name, as 'dp'")  # noqa: TRY004
    return axis


def _dim(policy: str, dim: Any) -> int:
    if not isinstance(dim, int) or isinstance(dim, bool) or dim < 0:
        raise ValueError(f"{policy}: dim={dim!r} is no tensor dim: give its number, 0 for the first")
    return dim
