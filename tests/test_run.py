"""One op on one device: the blocks it holds, and what its kernel is called with."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from ops import RuleError, rule_for
from ops.run import Cut, Device, steps


def alone(running: Any) -> tuple[Any, list[str]]:
    """Send every array back as it came, as where nothing is cut; return the results and what was asked."""
    sent, asked = None, []
    while True:
        try:
            sent, kind = running.send(sent)
        except StopIteration as stop:
            return stop.value, asked
        asked.append(kind)


def results_of(running: Any) -> Any:
    return alone(running)[0]


def test_cuts_of_one_factor_nest_in_mesh_order() -> None:
    bound = rule_for("tril").bind({"x": (24, 6)}, {})
    device = Device(bound, [Cut("m", 0, 2, 1), Cut("n", 0, 3, 2), Cut("m", 0, 3, 2)])
    assert (device.start("m"), device.count("m")) == (12 + 8, 6)
    assert (device.start("n"), device.count("n")) == (4, 3)
    assert device.operands == {"x": (4, 2)}
    assert device.results == {"out": (4, 2)}


def test_a_cut_of_a_minor_part_has_no_single_start() -> None:
    bound = rule_for("relu").bind({"x": (24,)}, {}, factor_parts={"a0": (4, 6)})
    device = Device(bound, [Cut("a0", 1, 2, 0)])
    assert device.operands == {"x": (12,)}
    message = "factor 'a0' is cut on part 1, so a device holds more than one block of it"
    with pytest.raises(RuleError, match=re.escape(message)):
        device.start("a0")


def test_a_device_of_a_grad_op_speaks_of_the_forward_op() -> None:
    forward = {"x": (4, 6), "y": (6,)}
    bound = rule_for("add_grad").bind({"out_grad": (4, 6)}, {"forward_shapes": tuple(forward.items())})
    device = Device(bound, [Cut("batch1", 0, 2, 0)])
    assert device.operands == {"x": (4, 3), "y": (3,)}
    assert device.results == {"out": (4, 3)}


def test_variadic_and_absent_operands_reach_the_kernel_as_they_were_declared() -> None:
    add_n = rule_for("add_n")
    bound = add_n.bind({"inputs": [(2,), (2,), (2,)]}, {})
    assert Device(bound).operands == {"inputs": [(2,), (2,), (2,)]}
    (out,) = results_of(steps(add_n, bound, [np.ones(2)] * 3, {}, Device(bound)))
    assert out.tolist() == [3, 3]
    linear = rule_for("linear")
    bound = linear.bind({"x": (2, 3), "weight": (3, 2)}, {})
    (out,) = results_of(steps(linear, bound, [np.ones((2, 3)), np.ones((3, 2)), None], {}, Device(bound)))
    assert out.tolist() == [[3, 3], [3, 3]]


def test_einsum_writes_its_slots_one_by_one_and_the_device_lists_them() -> None:
    einsum = rule_for("einsum")
    bound = einsum.bind({"operands": [(4, 6), (6, 8)]}, {"equation": "ij,jk->ik"})
    assert Device(bound, [Cut("j", 0, 2, 0)]).operands == {"operands": [(4, 3), (3, 8)]}
    x, y = np.ones((4, 6)), np.ones((6, 8))
    (out,) = results_of(steps(einsum, bound, [x, y], {"equation": "ij,jk->ik"}, Device(bound)))
    assert (out == 6).all()


def test_the_grads_of_absent_operands_are_left_out() -> None:
    grad = rule_for("linear_grad")
    shapes = {"x": (2, 3), "weight": (3, 4), "bias": None}
    attrs = {"forward_shapes": tuple(shapes.items())}
    bound = grad.bind({"x": (2, 3), "weight": (3, 4), "out_grad": (2, 4)}, attrs)
    arrays = [np.ones((2, 3)), np.ones((3, 4)), np.ones((2, 4))]
    assert [g.shape for g in results_of(steps(grad, bound, arrays, attrs, Device(bound)))] == [(2, 3), (3, 4)]


def test_a_synced_kernel_says_what_must_be_reduced_and_how() -> None:
    loss = rule_for("cross_entropy_with_softmax")
    bound = loss.bind({"logits": (2, 4), "label": (2, 1)}, {})
    running = steps(loss, bound, [np.zeros((2, 4)), np.array([[1], [2]])], {}, Device(bound))
    (softmax, entropy), asked = alone(running)
    assert asked == ["max", "sum", "sum"]
    assert (softmax == 0.25).all()
    assert np.allclose(entropy, np.log(4))
