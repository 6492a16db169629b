"""A module without its weights: a copy whose tensors have a shape and a dtype, and no values."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from solver.importers.errors import ImporterError, UnsupportedNodeError

__all__ = ["fake_copy", "fake_tensor"]


def fake_tensor(tensor: torch.Tensor, mode: FakeTensorMode) -> Any:
    """Make a tensor of the same shape and dtype that holds nothing.

    It stands on the cpu, wherever the tensor stands: on ``meta`` some backward kernels vanish from a trace.
    """
    strides = tensor.stride() if tensor.layout is torch.strided else None
    with mode:
        if strides is None:
            return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="cpu")


def fake_copy(module: nn.Module, mode: FakeTensorMode) -> nn.Module:
    """Copy a module with fake tensors in place of its parameters and buffers; tensors used twice stay one.

    A tensor that is a plain attribute of a module keeps its values, since the trace may depend on them.

    Raises
    ------
    UnsupportedNodeError
        Where the module cannot be copied.
    """
    copies: dict[int, Any] = {}
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is not None and id(parameter) not in copies:
                if isinstance(parameter, nn.parameter.UninitializedParameter):
                    where = f"parameter {name!r} of {type(part).__name__} {path!r}"
                    raise ImporterError(f"{where} has no shape yet: run the module once, then bring it in")
                made = fake_tensor(parameter, mode)
                copies[id(parameter)] = nn.Parameter(made, requires_grad=parameter.requires_grad)
        for buffer in part._buffers.values():
            if buffer is not None and id(buffer) not in copies:
                copies[id(buffer)] = fake_tensor(buffer, mode)
        for value in vars(part).values():
            if isinstance(value, torch.Tensor) and id(value) not in copies:
                hollow = value.is_meta or isinstance(value, FakeTensor)
                copies[id(value)] = fake_tensor(value, mode) if hollow else value.detach().cpu()
    try:
        return copy.deepcopy(module, copies)
    except Exception as error:
        raise UnsupportedNodeError(
            f"the module cannot be copied, and so not be traced without its weights: {error}"
        ) from error
