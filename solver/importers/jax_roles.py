"""What the arguments and outputs of a JAX function are to each other: gradients, new values, states like parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import jax

from solver.importers.errors import (
    ImporterError,
    ShapeMismatchError,
    UnknownNameError,
    UnreadableModelError,
    UnsupportedNodeError,
)
from solver.importers.jax_fold import is_key
from solver.importers.jax_random import is_opaque
from solver.importers.sketch import Role, Sketch, Value

Path: TypeAlias = tuple[str, ...]
Meaning: TypeAlias = Literal["gradients", "updates"]
_SUFFIX: Mapping[Meaning, str] = {"gradients": "grad", "updates": "new"}


@dataclass(frozen=True)
class Leaf:
    """One tensor of the arguments.

    Parameters
    ----------
    argument : int
        The position of its argument.
    path : tuple of str
        Its place in the pytree of the argument.
    value : Value
        Named after both.
    """

    argument: int
    path: Path
    value: Value


def check_options(*, names: Any, gradients: Any, updates: Any, ties: Any, internal: Any, name: Any) -> None:
    """Refuse what is declared of a function in another form than `solver.importers.jax.from_jax` takes.

    Raises
    ------
    ImporterError
        The sentence says what is given and what to give.
    """
    if name is not None and not isinstance(name, str):
        raise ImporterError(f"name is {name!r}: give the name of the graph as a text")
    if names is not None and not (_listed(names) and all(isinstance(one, str) for one in names)):
        raise ImporterError(f"names is {names!r}: give a sequence of texts, one for each argument")
    if not _listed(internal):
        raise ImporterError(f"internal is {internal!r}: give a sequence of outputs, as (3,) or ('3.w',)")
    for what, given, key, example in (
        ("gradients", gradients, "output", "{1: 0}"),
        ("updates", updates, "output", "{0: 0, 1: 'state'}"),
        ("ties", ties, "argument", "{'state': 'params'}"),
    ):
        if given is not None and not isinstance(given, Mapping):
            raise ImporterError(f"{what} is {given!r}: give a mapping from {key} to argument, as {example}")
        for argument in {} if given is None else given.values():
            if not isinstance(argument, int | str) or isinstance(argument, bool):
                raise ImporterError(
                    f"{what} names the argument {argument!r}: give its position, or what the names of its tensors "
                    f"begin with, as in {example}"
                )


def _listed(given: Any) -> bool:
    return isinstance(given, Sequence) and not isinstance(given, str)


def leaf(argument: int, word: str, path: Path, given: Any, role: Role) -> Leaf:
    """Return a tensor of the arguments.

    Raises
    ------
    UnreadableModelError
        Where it is no array and no number.
    """
    name = ".".join(part for part in (word, *path) if part) or f"arg{argument}"
    if is_key(given):
        return Leaf(argument, path, Value(tuple(given.shape), str(given.dtype.name), "result", name))
    try:
        aval = jax.core.get_aval(given) if not hasattr(given, "shape") else given
        dtype = jax.dtypes.canonicalize_dtype(aval.dtype).name
    except (AttributeError, TypeError):
        raise UnreadableModelError(
            f"{name} is {type(given).__name__}: give an array or jax.ShapeDtypeStruct, and bind everything else with "
            "functools.partial"
        ) from None
    shape = tuple(map(int, aval.shape))
    if 0 in shape:
        raise UnreadableModelError(f"{name} has shape {shape}: a dim is at least 1")
    return Leaf(argument, path, Value(shape, str(dtype), role, name))


def path_of(keys: Sequence[Any]) -> Path:
    """Return a path in a pytree as words: keys of dicts, places in sequences, names of fields.

    Examples
    --------
    >>> from jax.tree_util import tree_leaves_with_path
    >>> [path_of(path) for path, _ in tree_leaves_with_path({"layers": [{"wq": 0}, {"wq": 1}]})]
    [('layers', '0', 'wq'), ('layers', '1', 'wq')]
    """
    words = []
    for key in keys:
        for attribute in ("key", "idx", "name"):
            if hasattr(key, attribute):
                words.append(str(getattr(key, attribute)))
                break
        else:
            words.append(str(key).strip("[].'\""))
    return tuple(words)


def selected(output: Any) -> Path:
    """Return the path of an output as it was given: ``1``, ``"1.w"``, ``(1, "w")``."""
    if isinstance(output, tuple):
        return tuple(map(str, output))
    return tuple(part for part in str(output).split(".") if part)


def chosen(leaves: Sequence[Leaf], argument: Any, what: str) -> dict[Path, Leaf]:
    """Return the tensors of an argument, or of a part of it, by their paths from there on.

    Raises
    ------
    UnknownNameError
        Where there are none.
    """
    if isinstance(argument, int):
        found = {one.path: one for one in leaves if one.argument == argument}
    else:
        found = {}
        for one in leaves:
            name = one.value.name
            if name == argument or name.startswith(f"{argument}.") or argument == "":
                rest = name[len(argument) :].strip(".")
                found[tuple(rest.split(".")) if rest else ()] = one
    if not found:
        names = ", ".join(one.value.name for one in leaves[:5]) + (", ..." if len(leaves) > 5 else "")
        raise UnknownNameError(f"{what}: there is no argument {argument!r}; the arguments hold {names or 'nothing'}")
    return found


@dataclass
class Outputs:
    """What a function returns, and what is declared of it.

    Parameters
    ----------
    paths : sequence
        The path of each output in what the function returns.
    values : sequence of Value
    leaves : sequence of Leaf
        The tensors of the arguments.
    """

    paths: Sequence[Path]
    values: Sequence[Value]
    leaves: Sequence[Leaf]
    meanings: dict[int, tuple[Meaning, Leaf]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def declare(self, meaning: Meaning, given: Mapping[Any, Any]) -> None:
        """Read which outputs are gradients of, or new values of, which arguments.

        Raises
        ------
        UnknownNameError, ShapeMismatchError
            Where an output or an argument is not there, or they differ in structure or shapes.
        """
        for output, argument in given.items():
            what = f"{meaning}={{{output!r}: {argument!r}}}"
            mine, others = self._under(output, what), chosen(self.leaves, argument, what)
            if mine.keys() != others.keys():
                odd = sorted(mine.keys() ^ others.keys())[0]
                side = "output" if odd in mine else "argument"
                raise ShapeMismatchError(
                    f"{what}: the output has {len(mine)} tensors and the argument {len(others)}; "
                    f"{'.'.join(odd) or 'the whole'} is in the {side} only"
                )
            for path, at in mine.items():
                value, leader = self.values[at], others[path]
                if value.shape != leader.value.shape:
                    raise ShapeMismatchError(
                        f"{what}: output {_told(self.paths[at])} has shape {value.shape}, and {leader.value.name} "
                        f"has {leader.value.shape}"
                    )
                if meaning == "gradients" and leader.value.role != "weight":
                    raise UnknownNameError(
                        f"{what}: {leader.value.name} is no parameter: name its argument in parameters="
                    )
                if at in self.meanings:
                    raise UnknownNameError(f"{what}: output {_told(self.paths[at])} is declared twice")
                self.meanings[at] = (meaning, leader)

    def hide(self, outputs: Sequence[Any]) -> None:
        """Read which outputs do not leave the graph."""
        for output in outputs:
            self.hidden |= set(self._under(output, f"internal=({output!r},)").values())

    def _under(self, output: Any, what: str) -> dict[Path, int]:
        """Return the outputs at a path, by their paths from there on."""
        start = selected(output)
        found = {path[len(start) :]: at for at, path in enumerate(self.paths) if path[: len(start)] == start}
        if not found:
            told = ", ".join(sorted({path[0] for path in self.paths if path})) or "one tensor"
            raise UnknownNameError(
                f"{what}: the function returns no output {output!r}; it returns {told}; () names all that it returns"
            )
        return found

    def write(self, sketch: Sketch) -> None:
        """Let the outputs leave a sketch, named and tied."""
        leaving = [at for at in range(len(self.values)) if at not in self.hidden]
        for at in leaving:
            if is_opaque(self.values[at]):
                self.notes.append(f"output {_told(self.paths[at])} is a random key, which has no layout: left out")
        leaving = [at for at in leaving if not is_opaque(self.values[at])]
        if not leaving:
            raise UnsupportedNodeError("the function returns nothing that can leave a graph")
        for index, at in enumerate(leaving):
            sketch.outputs.append((self._name(at), self.values[at]))
            if at in self.meanings:
                meaning, leader = self.meanings[at]
                (sketch.gradients if meaning == "gradients" else sketch.ties)[index] = leader.value
        for at in sorted(self.hidden & self.meanings.keys()):
            meaning, leader = self.meanings[at]
            if meaning == "gradients" and self.values[at].role == "result":
                sketch.slopes.append((self.values[at], leader.value))
        self._remark()

    def _name(self, at: int) -> str:
        if at in self.meanings:
            meaning, leader = self.meanings[at]
            return f"{leader.value.name}.{_SUFFIX[meaning]}"
        return ".".join(("output", *self.paths[at]))

    def _remark(self) -> None:
        """Say which outputs look like the parameters or states of an argument, and are not declared to be of it."""
        declared = {self.paths[at][:1] for at in self.meanings}
        for argument in sorted({one.argument for one in self.leaves if one.value.role in ("weight", "state")}):
            shapes = {one.path: one.value.shape for one in self.leaves if one.argument == argument}
            for first in sorted({path[:1] for path in self.paths} - declared):
                found = {
                    path[1:]: value.shape
                    for path, value in zip(self.paths, self.values, strict=True)
                    if path[:1] == first
                }
                if found == shapes and any(shape for shape in shapes.values()):
                    at = _told(first)
                    self.notes.append(
                        f"output {at} has the structure of argument {argument}, and no tie: "
                        f"declare gradients={{{at}: {argument}}} or updates={{{at}: {argument}}} where it is one"
                    )


def _told(path: Path) -> str:
    return ".".join(path) or "()"


def tied_arguments(leaves: Sequence[Leaf], ties: Mapping[Any, Any]) -> list[tuple[Value, Value]]:
    """Return which tensors of the arguments are stored as which others.

    Raises
    ------
    UnknownNameError, ShapeMismatchError
        Where an argument is not there, or they differ in structure or shapes.
    """
    found = []
    for follower, leader in ties.items():
        what = f"ties={{{follower!r}: {leader!r}}}"
        mine, others = chosen(leaves, follower, what), chosen(leaves, leader, what)
        if mine.keys() != others.keys():
            raise ShapeMismatchError(
                f"{what}: they have {len(mine)} and {len(others)} tensors, which are not at equal paths"
            )
        for path, one in mine.items():
            if one.value.shape != others[path].value.shape:
                raise ShapeMismatchError(
                    f"{what}: {one.value.name} has shape {one.value.shape}, and {others[path].value.name} "
                    f"has {others[path].value.shape}"
                )
            found.append((one.value, others[path].value))
    return found
