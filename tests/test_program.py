"""The program that a plan lowers to: steps in the order of docs/semantics.md, local shapes and attributes, groups."""

from __future__ import annotations

import pytest

from ops.placement import layout_text
from solver import Graph, Mesh
from solver.layout import local_shape
from solver.program import LocalOp, Program, Transfer
from solver.simulate import simulate
from solver.simulate_memory import read_by, written_by
from tests.graphs import HARDWARE, mlp, shared
from tests.plans import FAST, biased_product, communicating, every_plan, planned


def test_every_step_reads_what_was_written_and_writes_once() -> None:
    for found in every_plan():
        program = found.program
        there = {*program.sources.values()}
        for step in program.steps:
            assert {*read_by(step)} <= there
            assert not there & {*written_by(step)}, "nothing is written twice"
            there |= {*written_by(step)}
        assert {*program.outputs.values()} <= there
        assert there == {*program.buffers}
        assert list(program.outputs) == found.problem.graph.outputs


def test_ops_stand_in_program_order_with_the_rows_of_the_plan() -> None:
    for found in every_plan():
        program, plan = found.program, found.evaluation
        ops = [step for step in program.steps if isinstance(step, LocalOp)]
        assert [step.node for step in ops] == list(found.problem.graph.nodes)
        for step in ops:
            read = list(read_by(step))
            uses = found.problem.graph.operand_uses(step.node)
            assert [program.buffers[name].layout for name in read] == [plan.needed(use) for use in uses]
            assert [program.buffers[name].layout for name in step.results] == [
                plan.made(tensor) for tensor in found.problem.graph.nodes[step.node].results
            ]


def test_buffers_have_the_shape_of_their_layout() -> None:
    for found in every_plan():
        problem = found.problem
        for buffer in found.program.buffers.values():
            fact = problem.graph.tensors[buffer.tensor]
            sizes, parts = problem.mesh.sizes, problem.parts(buffer.tensor)
            assert buffer.shape == local_shape(buffer.layout, fact.shape, parts, sizes)


def test_the_moves_of_a_plan_are_those_of_its_reshards() -> None:
    for found in every_plan():
        ran = sorted(str(step.move) for step in found.program.steps if isinstance(step, Transfer))
        assert ran == sorted(str(move) for reshard in found.reshards for move in reshard.moves)


def test_groups_are_device_ids_of_the_mesh() -> None:
    mesh = Mesh({"dp": 2, "tp": 3}, hardware=HARDWARE["compute"], devices=[[20, 40, 50], [0, 10, 30]])
    g = Graph("product")
    g.output(g.op("matmul", g.input("x", (4, 6)), g.parameter("w", (6, 4)), name="p"))
    program = planned(g, mesh, pins={"p": "dp=R,tp=R", "p/x": "dp=S(0),tp=S(1)"}).program
    groups = {step.move.kind: step.groups for step in program.steps if isinstance(step, Transfer) and step.move.bytes}
    assert groups == {"all_gather": ((20, 0), (40, 10), (50, 30)), "all_reduce": ((20, 40, 50), (0, 10, 30))}


def test_a_permute_has_the_whole_mesh_for_a_group() -> None:
    permutes = [s for s in communicating().program.steps if isinstance(s, Transfer) and s.move.kind == "permute"]
    assert permutes
    assert all(step.groups == ((0, 1, 2, 3),) for step in permutes)


def test_a_shared_copy_is_made_once_right_after_its_tensor() -> None:
    found = planned(shared(), FAST, pins={"p/x": "tp=S(1)", "p": "dp=R,tp=R"})
    program = found.program
    assert found.made("p") != found.held("p")
    copies = [step for step in program.steps if isinstance(step, Transfer) and step.target == "p held"]
    assert len(copies) == 1
    made = next(i for i, step in enumerate(program.steps) if isinstance(step, LocalOp) and step.node == "p")
    first = program.steps[made + 1]
    assert isinstance(first, Transfer)
    assert first.source == "p"


def test_local_attributes_are_those_of_the_device() -> None:
    g = Graph("views")
    x = g.op("reshape", g.input("x", (4, 6)), shape=[2, 2, 6], name="v")
    ids = g.input("ids", (4,), dtype="int64")
    g.output(x, g.op("embedding", ids, g.parameter("w", (8, 4)), name="e"))
    program = planned(g, FAST, pins={"x": "dp=S(0)", "v": "dp=S(0)", "e/weight": "tp=S(0)"}).program
    steps = {step.node: step for step in program.steps if isinstance(step, LocalOp)}
    attrs = steps["e"].attrs
    assert attrs[0] is attrs[2], "equal attributes are one object"
    assert attrs[1] is attrs[3]
    assert attrs[0] != attrs[1], "each half of the words has its own start"
    assert len({id(found) for found in steps["v"].attrs}) == 1
    assert simulate(program).ok


def test_names_that_look_like_those_of_buffers_do_no_harm() -> None:
    g = Graph("names")
    total = g.op("matmul", g.input("x", (4, 8)), g.parameter("w", (8, 4)), name="p")
    taken = g.op("relu", total, name="p held")
    for_use = g.op("exp", taken, name="p for p held/x")
    g.output(g.op("tanh", for_use, name="p held via 1"), g.op("neg", total, name="x for p/x"))
    found = planned(g, FAST, pins={"p/x": "tp=S(1)", "p": "dp=R,tp=R", "p held": "dp=S(0)", "p held/x": "tp=S(1)"})
    program = found.program
    assert program.buffers["p held"].tensor == "p held"
    assert program.buffers["p held'"].tensor == "p"
    assert found.simulate().ok


def test_a_program_in_words() -> None:
    pins = {"x": "dp=R,tp=R", "w": "dp=R,tp=R", "p": "dp=R,tp=R", "p/x": "dp=S(0),tp=S(1)"}
    program = planned(biased_product(), FAST, pins=pins).program
    lines = str(program).splitlines()
    assert len(lines) == len(program.steps)
    assert "p = matmul(x for p/x, w for p/y)" in lines
    assert any(line.endswith("bytes sent") and "all_reduce[tp]" in line for line in lines)


def test_a_program_without_steps_says_what_leaves_it() -> None:
    g = Graph("through")
    g.output(g.input("x", (4, 4)))
    assert str(planned(g, FAST).program) == "out = x"


def test_absent_and_variadic_operands_are_written() -> None:
    g = Graph("several")
    x = g.input("x", (4, 4))
    y = g.op("layer_norm", x, None, None, begin_norm_axis=1, name="n")
    g.output(g.op("add_n", [x, y[0]], name="s"))
    text = str(planned(g, FAST).program)
    assert "(x, None, None)" in text.replace(" for n/x", "")
    assert "add_n([" in text


@pytest.mark.parametrize("sizes", [{"tp": 1}, {"dp": 1, "tp": 1}])
def test_one_device_sends_nothing(sizes: dict[str, int]) -> None:
    program: Program = planned(mlp(), Mesh(sizes)).program
    assert all(isinstance(step, LocalOp) for step in program.steps)
    assert all(layout_text(b.layout) == f"[{', '.join('R' for _ in sizes)}]" for b in program.buffers.values())
