"""From a module to a capture: torch.export for the forward pass, then the joint graph with its backward pass."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._decomp import decomposition_table
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from solver.importers.aten import TABLE
from solver.importers.capture import GRADIENT, Capture
from solver.importers.errors import ImporterError, NoLossError, UnsupportedNodeError
from solver.importers.torch_fake import fake_copy, fake_tensor
from solver.importers.torch_nodes import capture_of, own_name
from solver.importers.torch_watch import refuse_hooks, watched

__all__ = ["first_names", "joint", "loss_in", "quiet", "trace"]

_FIXED = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
"""What an argument or a result may hold beside tensors."""


class _Step(nn.Module):  # type: ignore[misc]
    """A module, and the loss of what it returns, as a function of tensors alone."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any] | None, training: bool, arguments: _Arguments):
        super().__init__()
        self.model = model
        self.loss = loss
        self.arguments = arguments
        self.differentiated = training

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Return the loss, or the tensors that the module returns."""
        args, kwargs, for_loss = self.arguments.rebuild(tensors)
        made = self.model(*args, **kwargs)
        if self.loss is not None:
            made = self.loss(made, **for_loss)
        return _scalar(made) if self.differentiated else _tensors(made, "the module returns")


class _Arguments:
    """What a module is called with, taken apart into its tensors and the rest."""

    def __init__(
        self, model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], loss: Callable[..., Any] | None
    ) -> None:
        if isinstance(args, torch.Tensor) or not isinstance(args, Sequence):
            raise ImporterError("args is the sequence of the positional arguments: write (x,) for a single one")
        named = _parameters(model.forward)
        wanted = _parameters(loss)[1:] if loss is not None else []
        for_loss = {name: value for name, value in kwargs.items() if name in wanted}
        others = {name: value for name, value in kwargs.items() if name not in wanted or name in named}
        paths, self._spec = pytree.tree_flatten_with_path((tuple(args), others, for_loss))
        self._leaves = [leaf for _, leaf in paths]
        for path, leaf in paths:
            if not isinstance(leaf, (torch.Tensor, *_FIXED)):
                raise ImporterError(
                    f"argument {_named(path, named)!r} holds a {type(leaf).__name__}: give tensors, numbers, texts, "
                    "and lists, tuples and dicts of them"
                )
        self.names = [_named(path, named) for path, leaf in paths if isinstance(leaf, torch.Tensor)]
        self.tensors = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]

    def rebuild(self, tensors: Sequence[Any]) -> Any:
        """Put other tensors in place of those that were given."""
        fresh = iter(tensors)
        leaves = [next(fresh) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._spec)

    def __deepcopy__(self, memo: object) -> _Arguments:
        return self


def trace(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    training: bool,
    loss: Callable[..., Any] | None,
) -> Capture:
    """Trace a module: `solver.importers.torch.capture` says how and what may go wrong."""
    if not isinstance(module, nn.Module):
        raise ImporterError(f"{type(module).__name__} is no torch.nn.Module: give the module and its arguments")
    module = getattr(module, "_orig_mod", module)  # what torch.compile wraps
    arguments = _Arguments(module, args, kwargs, loss)
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    given = _Step(module, loss, training, arguments)
    if training:
        refuse_hooks(given)
    step = fake_copy(given, mode)
    if not training:
        step.eval()
    notes = _switch(step, kwargs, training)
    inputs = tuple(fake_tensor(tensor, mode) for tensor in arguments.tensors)
    name = type(module).__name__
    with _refused(f"torch.export cannot trace {name}"), torch.set_grad_enabled(training), watched(training):
        exported = torch.export.export(step, inputs, strict=False).module()
    firsts = first_names(step)
    return joint(exported, inputs, mode, name, arguments.names, firsts, training=training, notes=notes)


def joint(
    exported: nn.Module,
    inputs: Sequence[Any],
    mode: FakeTensorMode,
    name: str,
    names: Sequence[str],
    firsts: Mapping[str, str],
    *,
    training: bool,
    notes: Sequence[str] = (),
) -> Capture:
    """Trace an exported module once more, in functional form, with its backward pass where it is trained.

    Ops stay as they are, but for those that have no lowering and that PyTorch can take apart.

    Parameters
    ----------
    exported : torch.fx.GraphModule
        What ``ExportedProgram.module()`` gives, its parameters fake. It is changed: its constants become buffers, and
        a parameter keeps one name.
    inputs : sequence of FakeTensor
    mode : FakeTensorMode
        Theirs.
    name : str
        Of the model.
    names : sequence of str
        Of the inputs.
    firsts : mapping
        Of the module, by `first_names`: such names are not used.
    training : bool
    notes : sequence of str, optional
        What was changed so far, a sentence each.
    """
    constants = _constants_become_buffers(exported, mode, name)
    _ties_become_one(exported)
    what = f"the backward pass of {name}" if training else name
    if not training:
        exported.requires_grad_(False)
    elif not any(parameter.requires_grad for parameter in exported.parameters()):
        raise ImporterError(f"no parameter of {name} requires a gradient: bring it in with training=False")
    with contextlib.ExitStack() as stack, torch.set_grad_enabled(training), _refused(f"{what} cannot be traced"):
        made = aot_export_joint_with_descriptors(stack, exported, tuple(inputs), decompositions=_unknown_ops())
    tied = [f"{own_name(one)} is {own_name(first)}: one tensor, under its first name" for one, first in firsts.items()]
    found = capture_of(made.graph_module, name, names, constants, firsts)
    if training and not any(role == GRADIENT for role, _ in found.nodes[-1].outs):
        raise NoLossError(
            f"the loss of {name} depends on no parameter that requires a gradient, so there is nothing to "
            "differentiate: compute it without detach() and torch.no_grad(), or bring the module in with training=False"
        )
    return replace(found, notes=(*notes, *tied))


def _unknown_ops() -> dict[Any, Callable[..., Any]]:
    """Let PyTorch take apart the ops that have no lowering here, where it can; the others stay whole."""
    return {op: parts for op, parts in decomposition_table.items() if str(op) not in TABLE}


def _switch(step: nn.Module, kwargs: Mapping[str, Any], training: bool) -> list[str]:
    """Switch what a model from transformers offers to a form that can be traced; say what was switched."""
    notes = []
    for path, part in step.named_modules():
        config: Any = getattr(part, "config", None)
        where = own_name(path) or "the model"
        if getattr(config, "_experts_implementation", "grouped_mm") != "grouped_mm":
            before, config._experts_implementation = config._experts_implementation, "grouped_mm"
            notes.append(f"{where}: experts are traced as grouped_mm, not {before}, whose loop depends on the data")
        if training and getattr(config, "use_cache", False) is True and "use_cache" not in kwargs:
            config.use_cache = False
            notes.append(f"{where}: use_cache is off, a training step keeps no keys and values")
    return notes


def _constants_become_buffers(exported: nn.Module, mode: FakeTensorMode, model: str) -> dict[str, Any]:
    """Let the tensors that the trace holds as plain attributes be inputs; return the values of those that have any.

    One that the module does not name and that has no values was cut off from what it was made of, and is refused.
    """
    values: dict[str, Any] = {}
    for path, part in list(exported.named_modules()):
        for name, value in list(vars(part).items()):
            if isinstance(value, torch.Tensor):
                hollow = isinstance(value, FakeTensor) or value.is_meta
                if hollow and name.startswith("lifted_tensor_"):
                    raise _cut_off(value, path, model)
                delattr(part, name)
                part.register_buffer(name, fake_tensor(value, mode))
                if not hollow:
                    values[f"{path}.{name}".lstrip(".")] = value
    return values


def _cut_off(tensor: torch.Tensor, path: str, model: str) -> UnsupportedNodeError:
    where = f"module {own_name(path)!r} of {model}" if own_name(path) else model
    what = f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
    return UnsupportedNodeError(
        f"{where} uses a tensor {what} that is none of its parameters, buffers and inputs, nor computed from them as "
        "far as PyTorch can tell: in place of .data use detach() or torch.no_grad(), do without requires_grad_() and "
        "gradients inside forward, and register_buffer a tensor that was made outside of the module"
    )


def first_names(module: nn.Module) -> dict[str, str]:
    """Return the first name of each parameter and buffer that has several, by the others."""
    first: dict[int, str] = {}
    named = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
    for name, tensor in named:
        first.setdefault(id(tensor), name)
    return {name: first[id(tensor)] for name, tensor in named if first[id(tensor)] != name}


def _ties_become_one(exported: Any) -> None:
    """Let a parameter or buffer of several names stand in the graph once."""
    other = first_names(exported)
    for node in exported.graph.nodes:
        if node.op == "get_attr" and node.target in other:
            node.target = other[node.target]
    for name in other:
        path, _, last = name.rpartition(".")
        delattr(exported.get_submodule(path), last)
    exported.recompile()


def _parameters(function: Callable[..., Any]) -> list[str]:
    """Return the names of a function's parameters, as far as it has names for them."""
    function = function.forward if isinstance(function, nn.Module) else function
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]


def _named(path: tuple[Any, ...], positional: Sequence[str]) -> str:
    """Name a tensor among the arguments: ``x``, ``batch.labels``, ``images.0``."""
    group, *rest = (getattr(key, "key", getattr(key, "idx", getattr(key, "name", key))) for key in path)
    if group == 0 and rest:
        at = rest[0]
        rest[0] = positional[at] if at < len(positional) else f"arg{at}"
    return ".".join(map(str, rest))


def loss_in(made: Any, kind: type) -> Any:
    """Return what a module returns where it is one thing of a kind, else its ``loss``; None where it has none."""
    if isinstance(made, kind):
        return made
    return made.get("loss") if isinstance(made, Mapping) else getattr(made, "loss", None)


def _scalar(made: Any) -> torch.Tensor:
    """Find the loss in what a module returns."""
    found = loss_in(made, torch.Tensor)
    if not isinstance(found, torch.Tensor):
        raise NoLossError(
            f"training needs one number to differentiate, and the module returns a {type(made).__name__} without a "
            "loss: give loss=, a function of what it returns, or what it computes a loss from"
        )
    if found.numel() != 1 or not found.is_floating_point():
        raise NoLossError(
            f"training needs one number to differentiate, and the loss is {str(found.dtype).removeprefix('torch.')}"
            f"{list(found.shape)}: give loss=, a function of what the module returns"
        )
    return found.reshape(())


def _tensors(made: Any, who: str) -> tuple[torch.Tensor, ...]:
    """Return the tensors in what a module returns."""
    leaves = pytree.tree_leaves(made)
    for leaf in leaves:
        if not isinstance(leaf, (torch.Tensor, *_FIXED)):
            raise ImporterError(f"{who} a {type(leaf).__name__}: return tensors, or lists, tuples and dicts of them")
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    if not tensors:
        raise ImporterError(f"{who} no tensor")
    return tensors


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what PyTorch warns of, logs and prints on its way for its own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def _refused(what: str) -> Iterator[None]:
    """Tell in one sentence why PyTorch gave up."""
    try:
        with quiet():
            yield
    except ImporterError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or ["no reason given"]
        raise UnsupportedNodeError(f"{what}: {type(error).__name__}: {lines[0][:400]}") from error
