"""Where PaddlePaddle is not installed, one sentence says how to get it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from solver import from_paddle, from_paddle_layer, paddle_pins
from solver.importers import ImporterError


@pytest.mark.parametrize("way", [from_paddle, from_paddle_layer, paddle_pins])
def test_the_extra_is_named(way: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("solver.importers.paddle")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "paddle", None)
    with pytest.raises(ImporterError, match=r"need the extra paddle \(.*\): pip install 'shardproof\[paddle\]'$"):
        way(3)
