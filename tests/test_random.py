"""Random numbers by a counter: even, apart for other seeds and streams, the same wherever an element lies."""

from __future__ import annotations

import numpy as np
import pytest

from ops import rule_for
from ops.random import draw, normal
from ops.run import Cut, Device

WHOLE = [((0, 200, 200),), ((0, 500, 500),)]


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    return float(abs(np.corrcoef(x.ravel(), y.ravel())[0, 1]))


def test_the_numbers_are_even_and_independent() -> None:
    drawn = draw(3, WHOLE)
    assert drawn.shape == (200, 500)
    assert np.histogram(drawn, 10, (0, 1))[0] == pytest.approx(10_000, rel=0.05)
    others = (draw(4, WHOLE), draw(3, WHOLE, stream=1), np.roll(drawn, 1, 0), np.roll(drawn, 1, 1))
    assert max(correlation(drawn, other) for other in others) < 0.02


def test_normal_numbers_have_the_moments_of_the_distribution() -> None:
    drawn = normal(3, WHOLE)
    assert [float((drawn**k).mean()) for k in (1, 2, 3, 4)] == pytest.approx([0, 1, 0, 3], abs=0.05)


@pytest.mark.parametrize("mean", [0.5, 4.5, 800.0])
def test_poisson_counts_have_their_mean_and_variance(mean: float) -> None:
    drawn = rule_for("poisson").kernel(np.full((300, 300), mean), seed=1, spans=None)
    assert (drawn.mean(), drawn.var()) == pytest.approx((mean, mean), rel=0.02)


def test_a_device_draws_its_elements_of_the_whole() -> None:
    bound = rule_for("dropout").bind({"x": (24, 6)}, {}, factor_parts={"a0": (2, 3, 4)})
    device = Device(bound, [Cut("a0", 1, 3, 2), Cut("a1", 0, 2, 1)])
    assert device.spans("a0") == ((0, 2, 2), (8, 4, 12))
    assert device.spans("a1") == ((3, 3, 6),)
    mine = draw(5, [device.spans("a0"), device.spans("a1")])
    whole = draw(5, [((0, 24, 24),), ((0, 6, 6),)])
    assert (mine == whole.reshape(2, 3, 4, 6)[:, 2, :, 3:].reshape(8, 3)).all()


def test_dropout_keeps_the_mean() -> None:
    x = np.ones((200, 500))
    out = rule_for("dropout").kernel(x, p=0.3, axis=None, training=True, mode="upscale_in_train", seed=1, spans=None)
    assert out.mean() == pytest.approx(1, rel=0.01)
    assert set(np.unique(out.round(9))) == {0, round(1 / 0.7, 9)}
