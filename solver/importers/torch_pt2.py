"""Models that ``torch.export.save`` has written, ``.pt2``."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.graph import CodeGen
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from solver.importers.capture import Capture
from solver.importers.errors import (
    DynamicDimError,
    NoLossError,
    ShapeMismatchError,
    UnknownNameError,
    UnreadableModelError,
)
from solver.importers.torch_fake import fake_copy, fake_tensor
from solver.importers.torch_trace import first_names, joint, loss_in, quiet

__all__ = ["read_pt2"]


def read_pt2(
    path: Path,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    training: bool = False,
) -> Capture:
    """Read an exported model into a capture.

    Parameters
    ----------
    path : Path
    dims : mapping, optional
        Sizes of dynamic dims, by the symbols that the export gave them: ``{"s77": 8}``.
    input_shapes : mapping, optional
        Whole shapes by the name of the input.
    training : bool, optional
        Whether the backward pass of its one result, or of its ``loss``, is part of the capture.

    Returns
    -------
    Capture

    Raises
    ------
    ImporterError
        For a file that is no such model, and sizes that are missing or do not fit.
    """
    try:
        with quiet():
            program = torch.export.load(path)
    except Exception as error:
        told = _seems(path, " ".join(str(error).split())[:300])
        raise UnreadableModelError(
            f"{path} is no exported program that PyTorch {torch.__version__} can read: write it with torch.export.save "
            f"({told})"
        ) from error
    wanted = _Sizes(program, dims, input_shapes)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with quiet():
        given = _shared(program.module())
        firsts, module = first_names(given), fake_copy(given, mode)
    names = _flattened(module, training)
    hollow = {name: torch.empty(wanted.shape(name), dtype=wanted.inputs[name].dtype, device="meta") for name in names}
    inputs = [fake_tensor(tensor, mode) for tensor in hollow.values()]
    return joint(module, inputs, mode, path.stem, names, firsts, training=training)


def _seems(path: Path, reason: str) -> str:
    """Say what a file is instead of an exported program, as far as the names in its archive tell, else the reason."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return reason
    inner = {name.partition("/")[2] for name in names}
    programs = sorted(Path(name).stem for name in inner if name.startswith("models/") and name.endswith(".json"))
    if any(name.startswith("code/") for name in inner):
        return "it seems to be a TorchScript module of torch.jit.save: export the module that it was made of"
    if "data.pkl" in inner:
        return (
            "it seems to be a module, a state_dict or another object of torch.save: make the module in Python, load it "
            "there, and export it or give it to from_torch"
        )
    if any(name.startswith("data/aotinductor/") for name in inner):
        return "it seems to be a package that was compiled for one device: export the module that it was made of"
    if programs and "model" not in programs:
        return f"it is a package of programs of other names, {', '.join(programs)}: save the one to plan by itself"
    if not programs and not any(name.startswith("serialized_exported_program") for name in names):
        first = names[0] if names else "nothing"
        return f"it is a zip archive without an exported program in it, and begins with {first}"
    why = "" if "warnings above" in reason else f": {reason}"
    return f"its program is damaged or was written by another version of PyTorch, so export it anew{why}"


def _shared(module: GraphModule) -> GraphModule:
    """Let parameters that lie on the same memory be one again: a file keeps the memory, and not the parameter."""
    one: dict[tuple[Any, ...], Any] = {}
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and parameter.numel():
                place = parameter.data_ptr(), tuple(parameter.shape), parameter.stride(), parameter.dtype
                part._parameters[name] = one.setdefault(place, parameter)
    return module


def _flattened(module: GraphModule, training: bool) -> list[str]:
    """Let the module take its tensors one by one, and return its loss or its tensors; name the inputs."""
    graph = module.graph
    names = []
    for node in [node for node in graph.nodes if node.op == "placeholder"]:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            names.append(str(node.target))
        else:
            _fix(node, value)
    output = graph.output_node()
    leaves = pytree.tree_leaves(output.args[0])
    if training:
        output.args = (_loss(pytree.tree_unflatten(leaves, graph._codegen.pytree_info.out_spec)),)
    else:
        output.args = (tuple(leaf for leaf in leaves if isinstance(leaf, Node)),)
    graph.set_codegen(CodeGen())
    module.recompile()
    return names


def _fix(source: Node, value: Any) -> None:
    """Put the value with which an argument was exported in its place."""
    for user in list(source.users):
        user.args, user.kwargs = map_arg((user.args, user.kwargs), lambda arg: value if arg is source else arg)
    source.graph.erase_node(source)


def _loss(result: Any) -> Node:
    """Find the node that is the loss in what an exported model returns."""
    found = loss_in(result, Node)
    val = found.meta.get("val") if isinstance(found, Node) else None
    if not isinstance(val, torch.Tensor) or val.dim() or not val.is_floating_point():
        what = "no one number" if val is None else f"{str(val.dtype).removeprefix('torch.')}{list(val.shape)}"
        raise NoLossError(f"training needs one number to differentiate, and the model returns {what}")
    return found


class _Sizes:
    """The shapes of the inputs: as exported, and as given for the dims that the export left dynamic."""

    def __init__(
        self, program: Any, dims: Mapping[str, int] | None, input_shapes: Mapping[str, Sequence[int]] | None
    ) -> None:
        vals = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
        named = [name for name in program.graph_signature.user_inputs if isinstance(name, str)]
        self.inputs = {name: vals[name] for name in named if isinstance(vals[name], torch.Tensor)}
        self.sizes: dict[str, int] = {}
        symbols = [str(size) for val in self.inputs.values() for size in val.shape if not isinstance(size, int)]
        for name, size in (dims or {}).items():
            self._known(name, symbols, "dynamic dim")
            self.sizes[name] = size
        for name, shape in (input_shapes or {}).items():
            self._known(name, list(self.inputs), "input")
            self._read(name, shape)
        for symbol, limits in program.range_constraints.items():
            given = self.sizes.get(str(symbol), limits.lower)
            if not limits.lower <= given <= limits.upper:
                most = f" and at most {limits.upper}" if limits.upper < 2**31 else ""
                raise ShapeMismatchError(
                    f"dim {symbol} is {given}, but was exported for sizes of at least {limits.lower}{most}"
                )

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of an input."""
        return tuple(self._size(name, size) for size in self.inputs[name].shape)

    def _read(self, name: str, shape: Sequence[int]) -> None:
        exported = self.inputs[name].shape
        if len(shape) != len(exported):
            raise ShapeMismatchError(f"shape {list(shape)} is given for {name!r}, which has {len(exported)} dims")
        for size, wanted in zip(shape, exported, strict=True):
            if not isinstance(wanted, int):
                if self.sizes.setdefault(str(wanted), size) != size:
                    raise ShapeMismatchError(
                        f"dim {wanted} of {name!r} is {size}, and {self.sizes[str(wanted)]} elsewhere: give it one size"
                    )
            elif size != wanted:
                raise ShapeMismatchError(
                    f"shape {list(shape)} is given for {name!r}, which was exported with {list(exported)}: export it "
                    "with dynamic_shapes, or leave the size as it is"
                )

    def _size(self, name: str, size: Any) -> int:
        """Return a size; a dynamic one is a symbol, or computed from symbols."""
        if isinstance(size, int):
            return size
        if str(size) in self.sizes:
            return self.sizes[str(size)]
        computed = size.node.expr.subs({one: self.sizes.get(str(one), one) for one in size.node.expr.free_symbols})
        if not computed.is_Integer:
            raise DynamicDimError(
                f"input {name!r} was exported with the shape {list(self.inputs[name].shape)}: give its dynamic dims a "
                f"size (--dim {size}=SIZE, or --input-shape {name}=SIZExSIZE)"
            )
        return int(computed)

    @staticmethod
    def _known(name: str, names: Sequence[str], what: str) -> None:
        if name not in names:
            has = ", ".join(map(repr, dict.fromkeys(names))) or "none"
            raise UnknownNameError(f"{name!r} is no {what} of the model; it has {has}")
