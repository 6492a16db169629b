# ruff: noqa: E402
"""Files of torch.export.save, by the library and by the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import load
from solver.cli import main
from solver.importers import ImporterError
from solver.values import given_values, run_whole

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'shardproof[torch]'")
from torch import nn
from torch_models import agree, truth, values


class Net(nn.Module):
    """Returns its loss and more; batch statistics change with every step, a weight has two names."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 6)
        self.again = self.down

    def forward(self, x: torch.Tensor, *, scale: torch.Tensor, power: int = 1) -> dict[str, Any]:
        y = self.again(self.norm(self.up(x)).relu() * scale**power)
        return {"loss": (y - x).square().mean(), "y": y, "scale": scale}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().double()


INPUTS = {"x": (8, 6), "scale": (8, 8)}


def drawn(rows: int = 8) -> dict[str, Any]:
    torch.manual_seed(1)
    return {name: torch.randn(rows, width, dtype=torch.float64) for name, (_, width) in INPUTS.items()}


@pytest.fixture(scope="module")
def fixed(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported with sizes that stay."""
    path = tmp_path_factory.mktemp("pt2") / "fixed.pt2"
    given = drawn()
    torch.export.save(torch.export.export(net, (given["x"],), {"scale": given["scale"], "power": 2}), path)
    return path


@pytest.fixture(scope="module")
def free(net: Net, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported with a batch of any size above 1."""
    path = tmp_path_factory.mktemp("pt2") / "free.pt2"
    given, rows = drawn(), torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(
        net,
        (given["x"],),
        {"scale": given["scale"], "power": 2},
        dynamic_shapes={"x": {0: rows}, "scale": {0: rows}, "power": None},
    )
    torch.export.save(program, path)
    return path


def symbol(path: Path) -> str:
    """The name that the export gave to the batch."""
    with pytest.raises(ImporterError) as refusal:
        load(path)
    return str(refusal.value).partition("--dim ")[2].partition("=")[0]


@pytest.mark.parametrize("training", [False, True])
def test_a_program_computes_what_its_module_does(net: Net, fixed: Path, training: bool) -> None:
    graph = load(fixed, training=training)
    given = drawn()
    found = run_whole(graph, given_values(graph, values(net, graph, given)))
    true = truth(net, (given["x"],), {"scale": given["scale"], "power": 2}, lambda made: made["loss"])
    results = [output for output in graph.outputs if output not in graph.ties]
    assert abs(found[results[0]] - true.loss) < 1e-12
    assert len(results) == (1 if training else 3)
    agree({leader: found[output] for output, leader in graph.ties.items()}, true.gradients if training else {}, 1e-9)
    statistics = {leader for output, leader in graph.ties.items() if output not in graph.gradients}
    assert statistics == {"norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert set(graph.gradients.values()) == (set(true.gradients) if training else set())


def test_another_batch(net: Net, free: Path) -> None:
    given = drawn(12)
    for sizes in ({"dims": {symbol(free): 12}}, {"input_shapes": {"x": (12, 6)}}):
        graph = load(free, **sizes)
        assert graph.tensors["scale"].shape == (12, 8)
        found = run_whole(graph, given_values(graph, values(net, graph, given)))
        with torch.no_grad():
            wanted = net(given["x"], scale=given["scale"], power=2)["y"].numpy()
        assert any(array.shape == (12, 6) and np.allclose(array, wanted, 1e-12, 1e-12) for array in found.values())


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({}, ["'x'", "--dim", "--input-shape"]),
        ({"dims": {"batch": 8}}, ["'batch'", "dynamic dim"]),
        ({"input_shapes": {"y": (8, 6)}}, ["'y'", "'x'", "'scale'"]),
        ({"input_shapes": {"x": (8,)}}, ["[8]", "'x'", "2 dims"]),
        ({"input_shapes": {"x": (8, 7)}}, ["[8, 7]", "'x'", "dynamic_shapes"]),
        ({"input_shapes": {"x": (8, 6), "scale": (4, 8)}}, ["'scale'", "4", "8 elsewhere"]),
        ({"input_shapes": {"x": (1, 6)}}, ["1", "at least 2", "at most 64"]),
        ({"input_shapes": {"x": (65, 6)}}, ["65", "at most 64"]),
    ],
)
def test_sizes_that_do_not_fit(free: Path, sizes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ImporterError) as refusal:
        load(free, **sizes)
    assert all(word in str(refusal.value) for word in [*words, "free.pt2"]), refusal.value


def test_other_archives_are_no_programs(tmp_path: Path) -> None:
    torch.save({"w": torch.zeros(3)}, tmp_path / "weights.pt")
    (tmp_path / "cut.pt2").write_bytes(b"PK\x03\x04 and no more")
    for path in tmp_path.iterdir():
        with pytest.raises(ImporterError, match=path.name) as refusal:
            load(path)
        assert "torch.export.save" in str(refusal.value)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "21 ops"),
        (["--training"], "pytorch"),
        (["--optimizer", "adamw"], ".moment1"),
        (["--optimizer", "momentum", "--clip-norm", "1.0"], ".velocity"),
    ],
)
def test_the_command_plans_a_program(
    fixed: Path, options: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "plan",
        str(fixed),
        "--mesh",
        "dp=2,tp=2",
        "--hardware",
        "cpu",
        "--pin",
        "x:dp=S(0)",
        "--verify",
        *options,
    ]
    assert main(command) == 0
    told = capsys.readouterr().out
    assert "fixed: " in told
    assert "optimal" in told
    assert "agree with the unsharded run" in told


def test_the_command_differentiates_what_is_no_loss(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plain.pt2"
    torch.export.save(torch.export.export(nn.Linear(6, 4), (torch.randn(8, 6),)), path)
    assert main(["plan", str(path), "--mesh", "dp=2", "--optimizer", "sgd", "--verify"]) == 0
    assert "agree with the unsharded run" in capsys.readouterr().out
