"""Peak memory: by hand, and against a twin that looks at every step anew."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.cost.memory import MEMORY_PARTS, Memory, Step, StepError, Storage, Stored, peak_memory, plan_memory
from solver.graph import Graph

BLOCK = 4 * 6 * 4  # a 4 x 6 float32


def chain() -> Graph:
    """Two products after each other: x @ w -> y, y @ w -> z."""
    g = Graph()
    x, w = g.input("x", (4, 6)), g.parameter("w", (6, 6))
    y = g.op("matmul", x, w, name="y")
    g.output(g.op("matmul", y, w, name="z"))
    return g


def whole(g: Graph) -> dict[str, int]:
    return {tensor.name: tensor.bytes for tensor in g.tensors.values()}


def test_a_result_lives_from_its_op_to_its_last_use() -> None:
    g = chain()
    memory = plan_memory(g, Stored(whole(g)))
    assert memory == Memory(
        BLOCK + 144 + 2 * BLOCK, {"parameters": 144, "inputs": BLOCK, "activations": 2 * BLOCK, "buffers": 0}, "z"
    )


def test_an_unused_result_lives_for_its_own_step_only() -> None:
    g = chain()
    x, w = g.tensors["x"], g.tensors["w"]
    g.op("matmul", x, w, name="unused")
    g.op("matmul", x, w, name="unused_too")
    memory = plan_memory(g, Stored(whole(g)))
    assert (memory.parts["activations"], memory.at) == (2 * BLOCK, "z")


def test_outputs_live_to_the_end() -> None:
    g = chain()
    g.output(g.tensors["y"])
    g.output(g.op("matmul", g.tensors["x"], g.tensors["w"], name="last"))
    memory = plan_memory(g, Stored(whole(g)))
    assert (memory.parts["activations"], memory.at) == (3 * BLOCK, "last")


def test_states_and_constants_count_as_parameters() -> None:
    g = Graph()
    s, c = g.state("s", (2,)), g.constant("c", [[1.0, 2.0]])
    g.output(s, c)
    assert plan_memory(g, Stored(whole(g))) == Memory(
        24, {"parameters": 24, "inputs": 0, "activations": 0, "buffers": 0}, None
    )


def test_the_shared_copy_of_a_result_follows_its_op_and_lives_to_its_last_reader() -> None:
    g = chain()
    memory = plan_memory(g, Stored({**whole(g), "y": 10, "z": 1}, held={"y": 100}))
    # y and its copy lie together while the copy is made; then the copy and z.
    assert memory == Memory(
        BLOCK + 144 + 110, {"parameters": 144, "inputs": BLOCK, "activations": 10, "buffers": 100}, "reshard held y"
    )
    later = plan_memory(g, Stored({**whole(g), "y": 10, "z": 11}, held={"y": 100}))
    assert (later.at, later.parts["activations"], later.parts["buffers"]) == ("z", 11, 100)


def test_what_was_made_stays_where_somebody_still_reads_it() -> None:
    g = chain()
    stored = Stored({**whole(g), "y": 10, "z": 1}, held={"y": 100}, made_reads=frozenset({"z/x"}))
    # Nobody reads the copy: it is there for its own step only.
    memory = plan_memory(g, stored)
    assert (memory.at, memory.parts["buffers"]) == ("reshard held y", 100)
    lone = plan_memory(g, Stored({**whole(g), "y": 10, "z": 1000}, {"y": 100}, made_reads=frozenset({"z/x"})))
    assert lone.parts == {"parameters": 144, "inputs": BLOCK, "activations": 1010, "buffers": 0}


def test_the_shared_copy_of_a_parameter_comes_before_its_first_reader() -> None:
    g = chain()
    memory = plan_memory(g, Stored({**whole(g), "w": 5, "y": 1, "z": 2}, held={"w": 50}))
    assert memory.parts == {"parameters": 5, "inputs": BLOCK, "activations": 3, "buffers": 50}
    assert memory.at == "z"


def test_a_use_has_a_copy_of_its_own() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    g.output(g.op("matmul", x, x, name="square"))
    stored = Stored({"x": 16, "square": 1}, needed={"square/x": 30, "square/y": 40})
    assert plan_memory(g, stored) == Memory(
        16 + 70 + 1, {"parameters": 0, "inputs": 16, "activations": 1, "buffers": 70}, "square"
    )


def test_an_output_may_be_resharded_for_the_end() -> None:
    g = chain()
    memory = plan_memory(g, Stored({**whole(g), "y": 0, "z": 7}, held={"z": 20}, outputs={"z": 500}))
    assert (memory.at, memory.parts["activations"], memory.parts["buffers"]) == ("reshard output z", 0, 520)
    memory = plan_memory(
        g, Stored({**whole(g), "y": 0, "z": 7}, {"z": 20}, outputs={"z": 500}, made_outputs=frozenset({"z"}))
    )
    assert (memory.parts["activations"], memory.parts["buffers"]) == (7, 500)


def test_a_view_is_the_memory_of_its_operand() -> None:
    g = chain()
    flat = g.op("reshape", g.tensors["y"], shape=(24,), name="flat")
    g.output(g.op("reshape", flat, shape=(2, 12), name="late"))
    g.op("matmul", g.tensors["x"], g.tensors["w"], name="last")
    memory = plan_memory(g, Stored(whole(g)))
    # y lives on as `late`, beside z and the last result.
    assert (memory.parts["activations"], memory.at) == (3 * BLOCK, "last")


def test_a_view_of_a_copy_keeps_the_copy() -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    g.output(g.op("reshape", x, shape=(24,), name="flat"))
    memory = plan_memory(g, Stored({"x": 1, "flat": 77}, needed={"flat/x": 9}))
    assert memory.parts == {"parameters": 0, "inputs": 1, "activations": 0, "buffers": 9}


def test_a_step_that_reads_nothing_known_is_refused() -> None:
    with pytest.raises(StepError, match=r"^step 'a' reads 'x', which no earlier step wrote$"):
        peak_memory([Step("a", ("x",))])
    with pytest.raises(StepError, match=r"^storage 'x' is written twice, the second time by step 'a'$"):
        peak_memory([Step("a", (), (Storage("x", 1, "inputs"),))], [Storage("x", 1, "inputs")])
    with pytest.raises(StepError, match=r"^storage 'x' counts as 'weights': choose from parameters, inputs, "):
        peak_memory([], [Storage("x", 1, "weights")])


# ------------------------------------------------------------------------------------------------- the naive twin


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Step], list[Storage], list[str]]:
    def storage(name: str) -> Storage:
        return Storage(name, draw(st.integers(0, 20)), draw(st.sampled_from(MEMORY_PARTS)))

    resident = [storage(f"r{i}") for i in range(draw(st.integers(0, 3)))]
    names = [one.name for one in resident]
    steps = []
    for i in range(draw(st.integers(0, 8))):
        reads = tuple(draw(st.lists(st.sampled_from(names), max_size=3))) if names else ()
        writes = tuple(storage(f"s{i}.{j}") for j in range(draw(st.integers(0, 2))))
        names += [one.name for one in writes]
        steps.append(Step(f"step {i}", reads, writes))
    return steps, resident, draw(st.lists(st.sampled_from(names))) if names else []


def alive_at(now: int, steps: list[Step], kept: list[str]) -> list[Storage]:
    """What was written up to a step and is read at it or later, or kept, or written right there."""
    return [
        storage
        for born, step in enumerate(steps[: now + 1])
        for storage in step.writes
        if born == now or storage.name in kept or any(storage.name in later.reads for later in steps[now:])
    ]


@given(programs())
def test_the_peak_is_that_of_the_fullest_step(program: Any) -> None:
    steps, resident, kept = program
    found = peak_memory(steps, resident, kept)
    filled = [[*resident, *alive_at(now, steps, kept)] for now in range(len(steps))] or [resident]
    totals = [sum(storage.bytes for storage in lying) for lying in filled]
    assert found.peak == max(totals)
    fullest = totals.index(max(totals))
    assert found.at == (steps[fullest].name if steps else None)
    assert found.parts == {part: sum(s.bytes for s in filled[fullest] if s.part == part) for part in MEMORY_PARTS}


@given(programs())
def test_the_peak_never_falls_when_more_is_kept(program: Any) -> None:
    steps, resident, kept = program
    everything = [storage.name for step in steps for storage in step.writes]
    assert peak_memory(steps, resident, []).peak <= peak_memory(steps, resident, kept).peak
    assert peak_memory(steps, resident, kept).peak <= peak_memory(steps, resident, everything).peak
