# ruff: noqa: E402
"""PyTorch modules come in as the step that they run: names, roles, ties, and what torch itself computes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops import Shard
from solver import Mesh, Plan, from_torch, load, plan
from solver.importers import ImporterError
from solver.importers.capture import read_capture, write_capture
from solver.importers.torch import capture
from solver.values import given_values, run_whole

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
import tiny_gpt
from graphs import HARDWARE
from torch import nn
from torch.nn import functional
from torch_models import agree, gpt, truth, values

SLOW = {**HARDWARE["compute"], "peak": {"float32": 10**9}}
"""Computing so dear that every device has to take its share."""
STEPS = {**HARDWARE["latency"], "peak": {"float32": 10**9}}
"""The same, and each collective costs some steps however little it sends."""
WIDTH = 6


def of(*shape: int) -> Any:
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64)


def labels(*shape: int, below: int = WIDTH) -> Any:
    torch.manual_seed(1)
    return torch.randint(0, below, shape)


class Made(nn.Module):
    """Parts, and a function of them and the inputs."""

    def __init__(self, function: Callable[..., Any], **parts: Any) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)
        self.double()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def tied() -> Made:
    made = Made(
        lambda m, ids: functional.cross_entropy(m.head(m.words(ids)).flatten(0, 1), ids.flatten()),
        words=nn.Embedding(WIDTH, 4),
        head=nn.Linear(4, WIDTH, bias=False),
    )
    made.head.weight = made.words.weight
    return made


def frozen() -> Made:
    made = Made(lambda m, x: m.down(m.up(x).relu()).square().mean(), up=nn.Linear(6, 8), down=nn.Linear(8, 2))
    made.up.weight.requires_grad_(False)
    return made


def noting(m: Made, x: Any) -> Any:
    """Write into a buffer, and into a view of what was computed."""
    y = m.line(x).clone()
    y[:, 0] = 0
    y[:, 1:3] *= m.seen.clone()
    m.seen.add_(1)
    return y.square().mean()


def noted() -> Made:
    made = Made(noting, line=nn.Linear(6, 8))
    made.register_buffer("seen", torch.ones((), dtype=torch.float64))
    return made


MODULES: dict[str, Callable[[], tuple[nn.Module, dict[str, Any]]]] = {
    "a linear layer": lambda: (Made(lambda m, x: m.line(x).square().mean(), line=nn.Linear(6, 5)), {"x": of(8, 6)}),
    "tied embeddings": lambda: (tied(), {"ids": labels(8, 3)}),
    "a frozen weight": lambda: (frozen(), {"x": of(8, 6)}),
    "a bias along rows": lambda: (
        Made(
            lambda m, x: (x * m.scale + m.shift).tanh().mean(), **dict(zip(("scale", "shift"), biases(), strict=True))
        ),
        {"x": of(4, 8, 6)},
    ),
    "a convolution": lambda: (
        Made(lambda m, x: m.conv(x).relu().square().mean(), conv=nn.Conv2d(4, 6, 3, padding=1)),
        {"x": of(8, 4, 6, 6)},
    ),
    "a convolution by channel": lambda: (
        Made(lambda m, x: m.conv(x).square().mean(), conv=nn.Conv2d(4, 8, 3, stride=2, groups=4)),
        {"x": of(4, 4, 7, 7)},
    ),
    "batch statistics": lambda: (
        Made(lambda m, x: m.norm(m.conv(x)).relu().square().mean(), conv=nn.Conv2d(4, 6, 1), norm=nn.BatchNorm2d(6)),
        {"x": of(8, 4, 3, 3)},
    ),
    "fixed statistics": lambda: (
        Made(lambda m, x: m.norm(x).relu().square().mean(), norm=nn.BatchNorm1d(6).eval()),
        {"x": of(8, 6)},
    ),
    "norms of other epsilon": lambda: (
        Made(
            lambda m, x: m.group(m.layer(x)).square().mean(),
            layer=nn.LayerNorm(6, eps=0.5),
            group=nn.GroupNorm(2, 4, eps=0.25),
        ),
        {"x": of(8, 4, 6)},
    ),
    "attention": lambda: (
        Made(
            lambda m, x: m.block(x).square().mean(),
            block=nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True),
        ),
        {"x": of(4, 6, 8)},
    ),
    "a causal attention": lambda: (
        Made(
            lambda m, x: (
                functional.scaled_dot_product_attention(
                    *m.qkv(x).view(4, 6, 3, 2, 4).permute(2, 0, 3, 1, 4), is_causal=True
                )
                .square()
                .mean()
            ),
            qkv=nn.Linear(8, 24),
        ),
        {"x": of(4, 6, 8)},
    ),
    "losses without a lowering": lambda: (
        Made(
            lambda m, x: (
                functional.huber_loss(m.line(x), x[:, :4]) + functional.soft_margin_loss(m.line(x), x[:, :4].sign())
            ),
            line=nn.Linear(6, 4),
        ),
        {"x": of(8, 6)},
    ),
    "a recurrent layer": lambda: (
        Made(lambda m, x: m.cells(x)[0].square().mean(), cells=nn.LSTM(6, 4, batch_first=True)),
        {"x": of(4, 3, 6)},
    ),
    "known numbers": lambda: (
        Made(
            lambda m, x: (m.line(x) * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.eye(4)[1]).square().mean(),
            line=nn.Linear(6, 4),
        ),
        {"x": of(8, 6)},
    ),
    "writes in place": lambda: (noted(), {"x": of(8, 6)}),
}


def biases() -> tuple[nn.Parameter, nn.Parameter]:
    return nn.Parameter(of(6)), nn.Parameter(of(8, 1))


@pytest.mark.parametrize("what", MODULES)
def test_a_module_computes_what_torch_does(what: str) -> None:
    module, inputs = MODULES[what]()
    graph = from_torch(module, (), inputs)
    true = truth(module, (), inputs, lambda made: made)
    found = run_whole(graph, given_values(graph, values(module, graph, inputs)))
    (loss,) = (output for output in graph.outputs if output not in graph.ties)
    assert abs(found[loss] - true.loss) <= 1e-9 * abs(true.loss)
    assert set(graph.gradients.values()) == set(true.gradients)
    agree({graph.gradients[output]: found[output] for output in graph.gradients}, true.gradients, 1e-9)
    after = {graph.ties[output]: found[output] for output in graph.ties if output not in graph.gradients}
    changed = {
        name: true.buffers[name] for name, was in module.named_buffers() if (true.buffers[name] != was.numpy()).any()
    }
    assert set(after) == set(changed)
    agree(after, changed, 1e-9)


@pytest.mark.parametrize("what", MODULES)
def test_a_module_is_planned_and_run(what: str) -> None:
    module, inputs = MODULES[what]()
    graph = from_torch(module, (), inputs)
    pins = dict.fromkeys(inputs, "dp=S(0)")
    found = plan(graph, Mesh({"dp": 2, "tp": 2}, hardware=SLOW), pins=pins)
    assert found.status == "optimal"
    assert found.check().ok
    assert found.simulate(values=values(module, graph, inputs)).ok


# -------------------------------------------------------------------------------------------------- gradients, reduced

PASSING = {"reshape", "transpose", "add", "add_n", "cast", "squeeze", "unsqueeze", "assign", "flatten"}
"""Ops through which a gradient goes that is still to be summed over devices."""


def reductions(found: Plan, gradient: str) -> list[str]:
    """The tensors that are summed over devices on the way to a gradient, each as often as it is."""
    graph = found.problem.graph
    waiting, above = [gradient], {gradient}
    while waiting:
        producer = graph.tensors[waiting.pop()].producer
        node = graph.nodes[producer] if producer else None
        if node is not None and node.op in PASSING:
            fresh = [use.tensor for use in graph.operand_uses(node.name) if use.tensor not in above]
            above.update(fresh)
            waiting += fresh
    return [
        reshard.tensor
        for reshard in found.reshards
        if reshard.tensor in above
        for kind, *_ in reshard.collectives
        if kind in ("all_reduce", "reduce_scatter")
    ]


BATCH_CUT = ("a linear layer", "tied embeddings", "a bias along rows", "a convolution", "fixed statistics", "attention")


@pytest.mark.parametrize("optimizer", [None, "adamw"])
@pytest.mark.parametrize("what", BATCH_CUT)
def test_a_gradient_of_a_cut_batch_is_reduced_once(what: str, optimizer: str | None) -> None:
    module, inputs = MODULES[what]()
    wide = {name: torch.cat([tensor] * 64) for name, tensor in inputs.items()}
    graph = from_torch(module, (), wide, optimizer=optimizer)
    pins = {**dict.fromkeys(inputs, "dp=S(0)"), **dict.fromkeys(set(module.state_dict()) & set(graph.tensors), "dp=R")}
    found = plan(graph, Mesh({"dp": 4}, hardware=STEPS), pins=pins)
    assert found.status == "optimal"
    assert len(graph.gradients) == len([p for p in module.parameters() if p.requires_grad])
    for gradient in graph.gradients:
        assert len(reductions(found, gradient)) == 1, gradient


# ------------------------------------------------------------------------------------------------------- the tiny GPT


def test_the_tiny_gpt_is_the_one_of_the_other_frameworks() -> None:
    module, inputs = gpt()
    loss = tiny_gpt.loss(tiny_gpt.weights(dtype="float64"), *tiny_gpt.tokens())
    assert abs(module(**inputs).item() - loss) < 1e-12


@pytest.mark.parametrize(
    "mesh",
    [{"dp": 2, "tp": 2}, pytest.param({"dp": 2, "fsdp": 2, "tp": 2}, marks=pytest.mark.slow)],
    ids=["2x2", "2x2x2"],
)
def test_the_tiny_gpt_is_planned_and_run(mesh: dict[str, int]) -> None:
    module, inputs = gpt()
    graph = from_torch(module, (), inputs)
    given = values(module, graph, inputs)
    true = truth(module, (), inputs, lambda made: made)
    whole = run_whole(graph, given_values(graph, given))
    agree({graph.gradients[output]: whole[output] for output in graph.gradients}, true.gradients, 1e-9)
    found = plan(graph, Mesh(mesh, hardware=SLOW), pins=dict.fromkeys(inputs, "dp=S(0)"))
    assert found.status == "optimal"
    assert found.check().ok
    assert found.simulate(values=given).ok


def test_pins_by_module_pattern() -> None:
    module, inputs = gpt()
    pins = {"h.*.attn.[qkv].weight": "tp=S(1)", "h.*.attn.proj.weight": "tp=S(0)", "ids": "dp=S(0)"}
    found = plan(from_torch(module, (), inputs), Mesh({"dp": 2, "tp": 2}), pins=pins)
    assert [found.layout(f"h.{layer}.attn.{name}.weight")["tp"] for layer in range(2) for name in ("q", "proj")] == [
        Shard(1),
        Shard(0),
    ] * 2
    modules = {node.module for node in found.problem.graph.nodes.values()}
    assert {"h.0.attn.q", "h.1.ln_2", "h.0.mlp", "ln_f"} <= modules


# ------------------------------------------------------------------------------------------------------- the capture


def step(m: Made, x: Any, y: Any) -> Any:
    """Look a word up, and add what a list of other inputs holds."""
    return m.words(x) + y["more"][0]


def test_the_capture_says_what_everything_is(tmp_path: Path) -> None:
    module = Made(step, words=nn.Embedding(4, 6))
    module.register_buffer("unused", torch.zeros(3))
    made = capture(
        module,
        (labels(8, below=4), {"more": [of(8, 6)]}),
        {"target": of(8, 6)},
        loss=functional.mse_loss,
    )
    sources = {node.name: (node.role, node.target) for node in made.nodes if node.op == "placeholder"}
    assert list(sources.values()) == [
        ("ParamAOTInput", "words.weight"),
        ("BufferAOTInput", "unused"),
        ("PlainAOTInput", "arg0"),
        ("PlainAOTInput", "arg1.more.0"),
        ("PlainAOTInput", "target"),
        ("TangentAOTInput", ""),
    ]
    ((result, gradient),) = [made.nodes[-1].outs]
    assert (result[0], gradient[0]) == ("PlainAOTOutput", "GradAOTOutput")
    assert sources[gradient[1]][1] == "words.weight"
    nodes = {node.op: node for node in made.nodes}
    assert nodes["aten.embedding.default"].module == "words"
    assert not nodes["aten.embedding.default"].backward
    assert nodes["aten.embedding_dense_backward.default"].backward
    assert nodes["aten.embedding_dense_backward.default"].module == "words"
    write_capture(made, tmp_path / "capture.json.gz")
    assert read_capture(tmp_path / "capture.json.gz") == made
    assert load(tmp_path / "capture.json.gz").gradients == {"embedding_dense_backward": "words.weight"}


def test_parameters_of_several_names_are_one() -> None:
    module, inputs = MODULES["tied embeddings"]()
    graph = from_torch(module, (), inputs)
    assert [name for name, tensor in graph.tensors.items() if tensor.role == "parameter"] == ["words.weight"]
    assert "head.weight is words.weight: one tensor, under its first name" in graph.notes


def test_inference_is_the_module_in_eval_mode() -> None:
    module = Made(
        lambda m, x: {"y": m.drop(m.norm(x)), "n": 3, "x": [None]}, norm=nn.BatchNorm1d(6), drop=nn.Dropout(0.5)
    )
    graph = from_torch(module, (), {"x": of(8, 6)}, training=False)
    given = given_values(graph, values(module, graph, {"x": of(8, 6)}))
    (found,) = run_whole(graph, given).values()
    assert not graph.gradients
    assert module.training
    assert np.allclose(found, module.eval()(of(8, 6))["y"].detach().numpy(), 1e-12, 1e-12)


def test_a_module_without_weights_is_enough() -> None:
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))
        inputs = {"input": torch.empty(8, 6), "target": torch.empty(8, dtype=torch.int64)}
    on_meta = from_torch(module, (), inputs, loss=functional.cross_entropy)
    inputs = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in inputs.items()}
    real = from_torch(
        nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)), (), inputs, loss=nn.CrossEntropyLoss(), optimizer="adamw"
    )
    assert (
        set(on_meta.gradients.values()) == set(real.gradients.values()) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    )
    assert real.ties["0.weight.moment1"] == "0.weight"
    assert sum(node.op == "adamw" for node in real.nodes.values()) == 4


def test_a_compiled_module_is_the_module() -> None:
    graph = from_torch(torch.compile(line(lambda m, x: m.line(x).sum())), (of(8, 6),))
    assert set(graph.gradients.values()) == {"line.weight", "line.bias"}


def test_inputs_give_way_to_parameters_of_their_name() -> None:
    module = Made(lambda m, weight: (m.weight * weight).sum(), weight=nn.Parameter(of(6)))
    graph = from_torch(module, (), {"weight": of(6)})
    roles = {name: tensor.role for name, tensor in graph.tensors.items() if tensor.role in ("parameter", "input")}
    assert roles == {"weight": "parameter", "input.weight": "input"}


class Locked(Made):
    def __init__(self) -> None:
        super().__init__(lambda m, x: x, line=nn.Linear(6, 4))
        self.lock = (one for one in ())


def line(function: Callable[..., Any]) -> Made:
    return Made(function, line=nn.Linear(6, 4))


REFUSED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "no module": (lambda: from_torch(len, (of(6),)), ["builtin_function_or_method", "torch.nn.Module"]),
    "no tuple": (lambda: from_torch(line(lambda m, x: m.line(x).sum()), of(8, 6)), ["(x,)"]),
    "an argument of another kind": (
        lambda: from_torch(line(lambda m, x: m.line(x).sum()), (), {"x": {"a": object()}}),
        ["'x.a'", "object"],
    ),
    "no loss": (lambda: from_torch(line(lambda m, x: m.line(x)), (of(8, 6),)), ["float64[8, 4]", "loss="]),
    "no tensor": (lambda: from_torch(line(lambda m, x: 3), (of(8, 6),)), ["int", "loss="]),
    "no result": (lambda: from_torch(line(lambda m, x: 3), (of(8, 6),), training=False), ["no tensor"]),
    "another result": (lambda: from_torch(line(lambda m, x: len), (of(8, 6),), training=False), ["builtin_function"]),
    "nothing to learn": (
        lambda: from_torch(line(lambda m, x: m.line(x).sum()).requires_grad_(False), (of(8, 6),)),
        ["no parameter", "training=False"],
    ),
    "no shape yet": (lambda: from_torch(nn.LazyLinear(4), (of(8, 6),)), ["'weight'", "LazyLinear", "run the module"]),
    "no copy": (lambda: from_torch(Locked(), (of(8, 6),)), ["cannot be copied", "generator"]),
    "wrong sizes": (lambda: from_torch(line(lambda m, x: m.line(x).sum()), (of(8, 5),)), ["Made", "[8, 5]"]),
    "a branch on data": (
        lambda: from_torch(line(lambda m, x: m.line(x).sum() if x.sum() > 0 else m.line(x).mean()), (of(8, 6),)),
        ["Made", "data-dependent"],
    ),
    "a shape of data": (lambda: from_torch(line(lambda m, x: m.line(x)[x[:, 0] > 0].sum()), (of(8, 6),)), ["nonzero"]),
    "a branch kept": (
        lambda: from_torch(line(lambda m, x: torch.cond(x.sum() > 0, m.line, m.line, (x,)).sum()), (of(8, 6),)),
        ["cond", "by itself"],
    ),
    "an unknown op": (
        lambda: from_torch(line(lambda m, x: torch.linalg.svdvals(m.line(x)).sum()), (of(8, 6),)),
        ["aten._linalg_svd.default", "aten.TABLE"],
    ),
    "an update of nothing": (
        lambda: from_torch(line(lambda m, x: m.line(x)), (of(8, 6),), training=False, optimizer="sgd"),
        ["'sgd'", "training=False"],
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_brought_in_is_said_in_one_sentence(what: str, capfd: pytest.CaptureFixture[str]) -> None:
    bring, words = REFUSED[what]
    with pytest.raises(ImporterError) as refusal:
        bring()
    message = str(refusal.value)
    assert "\n" not in message
    assert all(word in message for word in words), message
    assert capfd.readouterr() == ("", "")


def test_the_page_says_what_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parent.parent / "docs" / "pytorch.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        exec(block, names)
    assert names["p"].status == "optimal"
    assert load("model.json.gz").gradients.keys() == names["step"].gradients.keys()
