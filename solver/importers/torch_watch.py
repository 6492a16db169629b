"""What a trace of PyTorch loses without a word: backward passes that are written by hand, hooks, gradients inside."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.autograd.function import _SingleLevelFunction
from torch.utils import _pytree as pytree

from solver.importers.errors import UnsupportedNodeError

__all__ = ["refuse_hooks", "watched"]

_TRUE = ("torch._higher_order_ops.", "torch._library.", "torch.utils.checkpoint._NoopSaveInputs")
"""Functions of PyTorch's own whose backward pass the joint graph has, or that compute nothing."""


def refuse_hooks(module: nn.Module) -> None:
    """Refuse a module on which hooks wait for the backward pass: a trace does not run them.

    Raises
    ------
    UnsupportedNodeError
        For the first such hook, with the name of its module or parameter.
    """
    every = nn.modules.module
    if every._global_backward_hooks or every._global_backward_pre_hooks:
        raise _lost_hook("every module (register_module_full_backward_hook)")
    for path, part in module.named_modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise _lost_hook(f"module {_own(path)!r} ({type(part).__name__})")
    for path, parameter in module.named_parameters():
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None):
            raise _lost_hook(f"parameter {_own(path)!r}")


def _own(path: str) -> str:
    """Name a part as the model does, without the step around it."""
    return path.removeprefix("model").removeprefix(".")


def _lost_hook(where: str) -> UnsupportedNodeError:
    return UnsupportedNodeError(
        f"{where} has a backward hook, which PyTorch does not trace, so that gradients would come in without what it "
        "does: remove the hook, or bring the module in with training=False"
    )


@contextlib.contextmanager
def watched(training: bool) -> Iterator[None]:
    """Refuse what runs inside and would be missing in the trace, also where the module catches the error.

    Parameters
    ----------
    training : bool
        Whether the trace is differentiated: hooks and a backward pass of one's own do not count otherwise.

    Raises
    ------
    UnsupportedNodeError
        With the line of the model that does it.
    """
    seen: list[UnsupportedNodeError] = []

    def refuse(what: str) -> None:
        seen.append(UnsupportedNodeError(f"{_line()} {what}"))
        raise seen[-1]

    with contextlib.ExitStack() as stack:
        stack.enter_context(_put(torch.autograd, "_engine_run_backward", _engine(refuse)))
        if training:
            stack.enter_context(_put(_SingleLevelFunction, "apply", classmethod(_apply(refuse))))
            stack.enter_context(_put(torch.Tensor, "grad_fn", property(_grad_fn(refuse))))
            stack.enter_context(
                _put(torch.autograd.graph, "_get_grad_fn_or_grad_acc", _hook(refuse, "register_multi_grad_hook"))
            )
            for place, name in (
                (torch.Tensor, "register_hook"),
                (torch.Tensor, "register_post_accumulate_grad_hook"),
                (nn.Module, "register_full_backward_hook"),
                (nn.Module, "register_full_backward_pre_hook"),
                (nn.Module, "register_backward_hook"),
            ):
                stack.enter_context(_put(place, name, _hook(refuse, name)))
        try:
            yield
        except Exception as error:
            if seen:
                raise seen[0] from error
            raise
    if seen:
        raise seen[0]


def _apply(refuse: Callable[[str], None]) -> Callable[..., Any]:
    """Stand before every use of a `torch.autograd.Function`, also by a reference to its ``apply`` that was kept."""

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        name = f"{cls.__module__}.{cls.__qualname__}"
        needed = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in pytree.tree_leaves(args))
        if needed and torch.is_grad_enabled() and not name.startswith(_TRUE):
            advice = "; give checkpoint use_reentrant=False" if cls.__module__ == "torch.utils.checkpoint" else ""
            refuse(
                f"uses the torch.autograd.Function {cls.__qualname__}, whose own backward PyTorch does not trace, so "
                "that the derivative of its forward would come in: write it in ops that PyTorch differentiates, or "
                f"bring the module in with training=False{advice}"
            )
        return super(_SingleLevelFunction, cls).apply(*args, **kwargs)

    return apply


def _engine(refuse: Callable[[str], None]) -> Callable[..., Any]:
    def run_backward(*_: Any, **__: Any) -> None:
        refuse(
            "computes gradients inside the module (torch.autograd.grad or backward()), which cannot be traced as "
            "PyTorch runs it: write the derivative in ops, or leave that term out of the loss"
        )

    return run_backward


def _grad_fn(refuse: Callable[[str], None]) -> Callable[[Any], Any]:
    """Stand before the nodes of a tensor's history, on which a model may put hooks of its own."""
    getter = torch._C.TensorBase.grad_fn

    def grad_fn(tensor: Any) -> Any:
        found = getter.__get__(tensor)
        if found is not None and not _of_torch(sys._getframe(1)):
            refuse("reads grad_fn, the history of a tensor, which a trace does not have: do without it")
        return found

    return grad_fn


def _hook(refuse: Callable[[str], None], name: str) -> Callable[..., Any]:
    def register(*_: Any, **__: Any) -> None:
        refuse(
            f"calls {name}, and PyTorch does not trace such hooks, so that gradients would come in without what they "
            "do: do without it, or bring the module in with training=False"
        )

    return register


@contextlib.contextmanager
def _put(place: Any, name: str, value: Any) -> Iterator[None]:
    """Put something in the place of an attribute; a class that had inherited it inherits it again."""
    before = vars(place).get(name)
    setattr(place, name, value)
    try:
        yield
    finally:
        if before is None:
            delattr(place, name)
        else:
            setattr(place, name, before)


def _of_torch(frame: Any) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"


def _line() -> str:
    """Name the line of the model that is being traced."""
    frame: Any = sys._getframe(1)
    while frame is not None and (_of_torch(frame) or frame.f_globals.get("__name__") == __name__):
        frame = frame.f_back
    return "the module" if frame is None else f"line {frame.f_lineno} of {Path(frame.f_code.co_filename).name}"
