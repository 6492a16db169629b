"""docs/explanations.md shows what the scenarios say, and the command prints the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solver.cli import OUTCOMES, main
from tests.explain.page import PAGE, SHOWN, page
from tests.explain.scenario import FOLDER, read


def test_the_page_is_made_of_the_scenarios() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.explain.rewrite makes it anew"


@pytest.mark.parametrize("name", SHOWN)
def test_the_command_prints_it(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario = read(FOLDER / f"{name}.toml")
    wishes = scenario.wishes
    model, told = tmp_path / "model.json", tmp_path / "told.json"
    model.write_text(json.dumps(scenario.graph().to_json()), encoding="utf-8")
    mesh = ",".join(f"{axis}={size}" for axis, size in wishes.mesh.items())
    pins = [
        word
        for subject, placements in wishes.options()["pins"].items()
        for word in ("--pin", f"{subject}:{placements}")
    ]
    asked = ["--mesh", mesh, "--communication", wishes.communication, *pins, "--json", str(told)]
    assert main(["explain", str(model), *asked]) == OUTCOMES[scenario.verdict]
    assert capsys.readouterr().out.rstrip("\n") == scenario.text
    facts = json.loads(told.read_text(encoding="utf-8"))["core"]
    assert len(facts) == len(scenario.core)
