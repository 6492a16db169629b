"""Models of PyTorch: the step that a module runs, forward and backward, as PyTorch itself differentiates it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from solver.graph import Graph
from solver.importers.aten import lower
from solver.importers.capture import Capture
from solver.importers.errors import ImporterError
from solver.training import add_optimizer


def capture(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool = True,
    loss: Callable[..., Any] | None = None,
) -> Capture:
    """Trace a module into a capture: its forward pass, and, for training, its backward pass.

    Nothing is computed and nothing is allocated: the module is copied with fake tensors in place of its own, so it may
    live on any device, also on ``meta``. It is left as it was.

    Parameters
    ----------
    module : torch.nn.Module
        Traced as it is, in train or eval mode (dropout, batch statistics), with the parameters that require grad; for
        inference, as ``module.eval()``.
    args, kwargs : sequence, mapping, optional
        What the module is called with. Of a tensor only its shape and dtype count; everything else is fixed.
    training : bool, optional
        Whether the gradient of the loss with respect to every parameter that requires grad is part of the capture.
    loss : callable, optional
        Called with what the module returns; gives one number. Items of ``kwargs`` that it names as further parameters
        go to it, ``loss=cross_entropy, kwargs={"target": labels}``, and to the module only where that names them, too.
        By default the module's own result, or its ``loss``.

    Returns
    -------
    Capture

    Raises
    ------
    ImporterError
        Where PyTorch is missing or cannot trace the module, or there is no loss: one sentence with PyTorch's reason.
    """
    try:
        from solver.importers.torch_trace import trace
    except ImportError as error:
        raise _missing(error) from error
    return trace(module, args, kwargs or {}, training=training, loss=loss)


def from_torch(
    module: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any] | None = None,
    *,
    training: bool = True,
    loss: Callable[..., Any] | None = None,
    optimizer: str | None = None,
) -> Graph:
    """Bring a PyTorch module in, as the step that it runs.

    Parameters
    ----------
    module, args, kwargs, training, loss
        As `capture` takes them.
    optimizer : str, optional
        The update that follows the backward pass, ``"adamw"``: see `solver.training`.

    Returns
    -------
    Graph
        Parameters and buffers carry the names that they have in the module, inputs those of its arguments. Its outputs
        are the loss (or what the module returns), the buffers that the step changes, stored as they were, and the
        gradients or, with an optimizer, what it updates.

    Raises
    ------
    ImporterError
        As `capture` does, and for an op that has no rule here.
    """
    graph = lower(capture(module, args, kwargs, training=training, loss=loss))
    if optimizer is None:
        return graph
    if not training:
        raise ImporterError(f"an update by {optimizer!r} needs gradients: leave training=False out")
    return add_optimizer(graph, optimizer)


def exported(
    path: Path,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    training: bool = False,
) -> Capture:
    """Read a file of ``torch.export.save`` into a capture.

    Parameters
    ----------
    path : Path
    dims, input_shapes : mapping, optional
        As `solver.load` takes them.
    training : bool, optional
        Whether the backward pass is part of it: of the model's one result, or of its ``loss``.

    Returns
    -------
    Capture

    Raises
    ------
    ImporterError
        For a file that is no such model, sizes that are missing or do not fit, and where PyTorch is missing.
    """
    try:
        from solver.importers.torch_pt2 import read_pt2
    except ImportError as error:
        raise _missing(error) from error
    return read_pt2(path, dims, input_shapes, training=training)


def _missing(error: ImportError) -> ImporterError:
    """Say what brings PyTorch, in the version that the importer is written for."""
    return ImporterError(f"models of PyTorch need the extra torch: pip install 'shardproof[torch]' ({error})")
