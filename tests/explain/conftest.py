"""What the tests of scenarios share."""

from __future__ import annotations

import pytest

from tests.explain.scenario import warm


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compile before anything is timed."""
    warm()
