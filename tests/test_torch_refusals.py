# ruff: noqa: E402
"""What a trace of PyTorch would lose without a word is refused: each case by the words that a person needs."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import from_torch, load
from solver.importers import ImporterError
from solver.values import given_values, run_whole

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
from torch import nn
from torch.autograd.graph import register_multi_grad_hook
from torch.utils.checkpoint import checkpoint
from torch_models import agree, truth, values

Function = Callable[["Made", Any], Any]


class Tripled(torch.autograd.Function):  # type: ignore[misc]
    """The identity, with a gradient that is three times too large."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 3


tripled = Tripled.apply
"""Kept before any trace watches."""


class Made(nn.Module):  # type: ignore[misc]
    """A linear layer and a buffer, and a function of them and the input."""

    def __init__(self, function: Function, prepare: Callable[[Made], Any] | None = None) -> None:
        super().__init__()
        self.function = function
        self.line = nn.Linear(6, 4)
        self.register_buffer("scale", torch.arange(4.0))
        self.double()
        if prepare is not None:
            prepare(self)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def batch() -> Any:
    torch.manual_seed(0)
    return torch.randn(8, 6, dtype=torch.float64)


def plain(m: Made, x: Any) -> Any:
    return (m.line(x) * m.scale).square().mean()


def hooked(m: Made, x: Any) -> Any:
    y = m.line(x)
    y.register_hook(lambda gradient: gradient * 3)
    return y.sum()


def hooked_node(m: Made, x: Any) -> Any:
    y = m.line(x)
    y.grad_fn.register_hook(lambda before, after: before)
    return y.sum()


def hooked_many(m: Made, x: Any) -> Any:
    y = m.line(x)
    register_multi_grad_hook((y,), lambda gradients: None)
    return y.sum()


def swallowed(m: Made, x: Any) -> Any:
    """Catch the refusal, as a module with a fallback would."""
    try:
        return tripled(m.line(x)).sum()
    except Exception:
        return m.line(x).sum()


def slope(m: Made, x: Any) -> Any:
    (gradient,) = torch.autograd.grad(m.line(x).square().sum(), m.line.weight, create_graph=True)
    return gradient.square().sum()


def slope_of_input(m: Made, x: Any) -> Any:
    x = x.requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(m.line(x).square().sum(), x, create_graph=True)
    return gradient.square().sum()


def run_backward(m: Made, x: Any) -> Any:
    made = m.line(x).sum()
    made.backward()
    return made


def on_module(m: Made) -> Any:
    return m.line.register_full_backward_hook(lambda part, before, after: None)


def on_module_before(m: Made) -> Any:
    return m.line.register_full_backward_pre_hook(lambda part, before: None)


def on_parameter(m: Made) -> Any:
    return m.line.weight.register_hook(lambda gradient: gradient * 3)


def on_parameter_after(m: Made) -> Any:
    return m.line.bias.register_post_accumulate_grad_hook(lambda parameter: None)


TRAINING: dict[str, tuple[Function, Callable[[Made], Any] | None, list[str]]] = {
    "a backward of one's own": (
        lambda m, x: Tripled.apply(m.line(x)).sum(),
        None,
        ["line ", "test_torch_refusals.py", "torch.autograd.Function Tripled", "training=False"],
    ),
    "one that was kept": (lambda m, x: tripled(m.line(x)).sum(), None, ["torch.autograd.Function Tripled"]),
    "one whose refusal is caught": (swallowed, None, ["torch.autograd.Function Tripled"]),
    "a reentrant checkpoint": (
        lambda m, x: checkpoint(m.line, m.line(x) @ m.line.weight, use_reentrant=True).sum(),
        None,
        ["CheckpointFunction", "use_reentrant=False"],
    ),
    "a hook on a tensor": (hooked, None, ["register_hook", "test_torch_refusals.py", "training=False"]),
    "a hook on a node": (hooked_node, None, ["grad_fn", "test_torch_refusals.py"]),
    "a hook on many tensors": (hooked_many, None, ["register_multi_grad_hook"]),
    "a hook on a module": (plain, on_module, ["module 'line' (Linear)", "backward hook", "training=False"]),
    "a hook before a module": (plain, on_module_before, ["module 'line' (Linear)", "backward hook"]),
    "a hook on a parameter": (plain, on_parameter, ["parameter 'line.weight'", "backward hook", "training=False"]),
    "a hook after a parameter": (plain, on_parameter_after, ["parameter 'line.bias'", "backward hook"]),
    "a loss that is cut off": (
        lambda m, x: plain(m, x).detach(),
        None,
        ["the loss of Made", "no parameter", "detach()", "training=False"],
    ),
    "a loss of the input alone": (lambda m, x: x.sum(), None, ["the loss of Made", "no parameter", "training=False"]),
}
"""By what would be lost: the function, what is done to the module first, and words of the refusal."""

ALWAYS: dict[str, tuple[Function, list[str]]] = {
    "a gradient inside": (slope, ["torch.autograd.grad", "test_torch_refusals.py"]),
    "a gradient of the input": (slope_of_input, ["torch.autograd.grad", "test_torch_refusals.py"]),
    "a backward pass inside": (run_backward, ["backward()", "test_torch_refusals.py"]),
    "the data of a parameter": (
        lambda m, x: (m.line(x) * m.line.bias.data).sum(),
        ["Made uses a tensor float64[4]", ".data", "detach()", "torch.no_grad()"],
    ),
    "the data of a buffer": (lambda m, x: (m.line(x) * m.scale.data).sum(), ["float64[4]", "detach()"]),
    "the data of the input": (lambda m, x: m.line(x.data).sum(), ["module 'line' of Made", "float64[8, 6]"]),
    "the data of a result": (lambda m, x: (m.line(x) * m.line(x).data).sum(), ["float64[8, 4]", "detach()"]),
    "an op that checks": (
        lambda m, x: torch.linalg.inv(m.line(x)[:4]).sum(),
        ["aten._linalg_check_errors.default", "torch.linalg.inv_ex"],
    ),
}


def refused(bring: Callable[[], Any], words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ImporterError) as refusal:
        bring()
    message = str(refusal.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("what", TRAINING)
def test_a_step_that_would_lose_something_is_refused(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    function, prepare, words = TRAINING[what]
    refused(lambda: from_torch(Made(function, prepare), (batch(),)), words, capfd)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("what", ALWAYS)
def test_what_is_cut_off_is_refused(what: str, training: bool, capfd: pytest.CaptureFixture[str]) -> None:
    function, words = ALWAYS[what]
    refused(lambda: from_torch(Made(function), (batch(),), training=training), words, capfd)


INFERRED = (
    "a backward of one's own",
    "one that was kept",
    "a hook on a module",
    "a hook on a parameter",
    "a hook after a parameter",
    "a loss that is cut off",
    "a loss of the input alone",
)


@pytest.mark.parametrize("what", INFERRED)
def test_inference_does_not_mind(what: str) -> None:
    function, prepare, _ = TRAINING[what]
    module = Made(function, prepare)
    graph = from_torch(module, (), {"x": batch()}, training=False)
    (found,) = run_whole(graph, given_values(graph, values(module, graph, {"x": batch()}))).values()
    assert np.allclose(found, module(batch()).detach().numpy(), 1e-12, 1e-12)


TABLE = torch.arange(4.0)

KEPT: dict[str, Function] = {
    "a checkpoint": lambda m, x: checkpoint(m.line, x, use_reentrant=False).square().mean(),
    "a part that is cut off": lambda m, x: (m.line(x) * m.line.bias.detach()).square().mean(),
    "a part without gradients": lambda m, x: (m.line(x) * Tripled.apply(x)[:, :4]).square().mean(),
    "a tensor from outside": lambda m, x: (m.line(x) * TABLE).square().mean(),
}
"""What stands close to a refusal and comes in right."""


@pytest.mark.parametrize("what", KEPT)
def test_what_is_close_to_a_refusal_comes_in(what: str) -> None:
    module, inputs = Made(KEPT[what]), {"x": batch()}
    graph = from_torch(module, (), inputs)
    true = truth(module, (), inputs, lambda made: made)
    found = run_whole(graph, given_values(graph, values(module, graph, inputs)))
    assert set(graph.gradients.values()) == {"line.weight", "line.bias"}
    agree({graph.gradients[output]: found[output] for output in graph.gradients}, true.gradients, 1e-9)


def test_nothing_is_watched_after_a_trace() -> None:
    for function in (plain, hooked):
        try:
            from_torch(Made(function), (batch(),))
        except ImporterError:
            assert function is hooked
    seen: list[Any] = []
    x = torch.ones(3, requires_grad=True)
    y = tripled(x * 2)
    y.register_hook(seen.append)
    assert y.grad_fn is not None
    y.sum().backward()
    assert x.grad.tolist() == [6.0] * 3
    assert len(seen) == 1


# ------------------------------------------------------------------------------------------------------------- files


def other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no program")


def damaged(path: Path) -> None:
    whole = path.with_suffix(".whole")
    torch.export.save(torch.export.export(nn.Linear(6, 4), (torch.randn(8, 6),)), whole)
    with zipfile.ZipFile(whole) as given, zipfile.ZipFile(path, "w") as made:
        for name in given.namelist():
            made.writestr(name, b"{}" if name.endswith("models/model.json") else given.read(name))


FILES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a module": (lambda path: torch.save(nn.Linear(6, 4), path), "torch.save"),
    "weights": (lambda path: torch.save(nn.Linear(6, 4).state_dict(), path), "state_dict"),
    "a script": (lambda path: torch.jit.trace(nn.Linear(6, 4), torch.randn(8, 6)).save(str(path)), "TorchScript"),
    "another zip": (other_zip, "without an exported program in it, and begins with notes.txt"),
    "a damaged program": (damaged, "damaged"),
    "no zip": (lambda path: path.write_bytes(b"no zip at all"), "not a zip file"),
}


@pytest.mark.parametrize("what", FILES)
@pytest.mark.filterwarnings("ignore")
def test_a_file_that_is_no_program_is_told(what: str, tmp_path: Path) -> None:
    write, word = FILES[what]
    path = tmp_path / "model.pt2"
    write(path)
    with pytest.raises(ImporterError) as refusal:
        load(path)
    message = str(refusal.value)
    assert all(one in message for one in ("model.pt2", "torch.export.save", word)), message
    assert "warnings above" not in message
    assert "\n" not in message
