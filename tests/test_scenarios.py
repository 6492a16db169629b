"""What sensible plans look like, case by case: each is a sentence that a person would say of the plan."""

from __future__ import annotations

from ops import Partial, Replicate, Shard
from solver import Graph, Mesh, plan
from solver.plan import Plan

MESH = Mesh({"dp": 2, "tp": 4})


def good(found: Plan) -> Plan:
    """Hold that a plan is optimal, checked and right when run."""
    assert (found.status, found.gap) == ("optimal", 0)
    assert found.check().ok, found.check()
    assert found.simulate(seed=3).ok, found.simulate(seed=3)
    return found


def test_batch_and_sequence_flattened_multiplied_and_split_again_send_nothing() -> None:
    graph = Graph("flattened")
    x = graph.input("x", (8, 128, 64))
    flat = graph.op("reshape", x, shape=[1024, 64], name="flat")
    product = graph.op("matmul", flat, graph.parameter("w", (64, 96)), name="product")
    graph.output(graph.op("reshape", product, shape=[8, 128, 96], name="out"))
    found = good(plan(graph, MESH, pins={"x": "dp=S(0),tp=S(1)", "out": "dp=S(0),tp=S(1)"}))
    assert found.reshards == ()
    assert found.made("flat") == {"dp": Shard(0), "tp": Shard(0, part=1)}
    frozen = plan(graph, MESH, pins={"x": "dp=S(0),tp=S(1)"}, communication="frozen")
    assert good(frozen).reshards == ()


def test_a_tensor_used_twice_by_one_op_is_paid_for_at_both_uses() -> None:
    graph = Graph("squared")
    x = graph.input("x", (64, 64))
    graph.output(graph.op("matmul", x, x, name="y"))
    contracted = {"y/x": "tp=S(1),dp=R", "y/y": "tp=S(0),dp=R"}
    found = good(plan(graph, MESH, pins={"x": "tp=S(0),dp=R", **contracted}))
    assert [reshard.uses for reshard in found.reshards if reshard.bytes and reshard.tensor == "x"] == [("y/x",)]
    neither = good(plan(graph, MESH, pins={"x": "tp=R,dp=S(0)", **contracted}))
    dear = [reshard for reshard in neither.reshards if reshard.tensor == "x" and reshard.bytes]
    assert {use for reshard in dear for use in reshard.uses} == {"y/x", "y/y"}


def test_a_bias_after_a_row_parallel_matmul_is_never_added_more_than_once() -> None:
    graph = Graph("biased")
    x, w = graph.input("x", (32, 64)), graph.parameter("w", (64, 48))
    y = graph.op("matmul", x, w, name="y")
    graph.output(graph.op("add", y, graph.parameter("b", (48,)), name="out"))
    row_parallel = {"y/x": "tp=S(1),dp=R", "y/y": "tp=S(0),dp=R"}
    found = good(plan(graph, MESH, pins=row_parallel))
    assert found.made("y")["tp"] == Partial("sum")
    partial_in, bias_in = found.needed("out/x")["tp"], found.needed("out/y")["tp"]
    reduced_before = not isinstance(partial_in, Partial)
    both_partial = partial_in == bias_in == Partial("sum")
    assert reduced_before or both_partial
    forced = good(plan(graph, MESH, pins={**row_parallel, "out/x": "tp=P(sum)"}))
    assert forced.needed("out/y")["tp"] == Partial("sum")
    never = plan(graph, MESH, pins={**row_parallel, "out/x": "tp=P(sum)", "out/y": "tp=R"})
    assert never.status == "infeasible"


def test_no_partial_passes_through_what_is_not_linear() -> None:
    graph = Graph("relu")
    y = graph.op("matmul", graph.input("x", (32, 64)), graph.parameter("w", (64, 48)), name="y")
    graph.output(graph.op("relu", y, name="out"))
    refused = plan(graph, MESH, pins={"out/x": "tp=P(sum)"})
    assert refused.status == "infeasible"
    assert {fact.kind for fact in refused.explanation.core} == {"pin"}  # type: ignore[union-attr]
    assert refused.explanation.minimal  # type: ignore[union-attr]


def test_what_does_not_divide_is_said_with_its_sizes() -> None:
    graph = Graph("heads")
    q = graph.input("q", (2, 4, 16))
    graph.output(graph.op("softmax", q, axis=-1, name="p"))
    refused = plan(graph, Mesh({"tp": 8}), pins={"q": "tp=S(1)"})
    assert refused.status == "infeasible"
    assert "4" in str(refused)
    assert "tp=8" in str(refused)


def test_a_shared_copy_is_paid_once() -> None:
    graph = Graph("shared")
    y = graph.op("matmul", graph.input("x", (64, 512)), graph.parameter("w", (512, 64)), name="y")
    for name in "abc":
        graph.output(graph.op("softmax", graph.op("relu", y, name=f"{name}.relu"), axis=-1, name=name))
    pins = {"y/x": "tp=S(1),dp=R", **{f"{name}.relu/x": {"dp": Replicate(), "tp": Replicate()} for name in "abc"}}
    found = good(plan(graph, MESH, pins=pins))
    assert found.made("y")["tp"] == Partial("sum")
    assert [move.kind for reshard in found.reshards for move in reshard.moves].count("all_reduce") == 1


def test_at_one_price_the_plan_that_stores_less_is_taken() -> None:
    graph = Graph("free slices")
    x, w = graph.input("x", (64, 128, 512)), graph.parameter("w", (512, 2048))
    flat = graph.op("reshape", x, shape=[8192, 512], name="flat")
    graph.output(graph.op("matmul", flat, w, name="y"))
    found = good(plan(graph, MESH))
    assert found.layout("x") == {"dp": Shard(0), "tp": Shard(0)}
    assert found.reshards == ()


def test_a_copy_that_only_a_pin_wants_is_told() -> None:
    graph = Graph("unread")
    y = graph.op("matmul", graph.input("x", (64, 64)), graph.parameter("w", (64, 64)), name="y")
    graph.output(graph.op("relu", y, name="z"))
    found = good(plan(graph, MESH, pins={"y": "tp=P(sum)", "z/x": "tp=S(0)", "y/x": "tp=S(0)"}))
    assert "'y' is copied to" in str(found)


def test_a_mesh_axis_that_cuts_nothing_is_told() -> None:
    graph = Graph("odd")
    graph.output(graph.op("relu", graph.input("x", (8, 4)), name="y"))
    assert "tp=3 cuts nothing: 3 divides no dim" in str(good(plan(graph, Mesh({"dp": 2, "tp": 3}))))


def test_what_an_axis_leaves_uncut_is_told() -> None:
    graph = Graph("one cut, one not")
    x = graph.input("x", (8, 3))
    graph.output(graph.op("softmax", x, axis=0, name="whole"), graph.op("relu", graph.input("y", (3, 8)), name="cut"))
    told = str(good(plan(graph, Mesh({"tp": 8}))))
    assert "tp=8 leaves 1 op uncut" in told
    assert told.rstrip().endswith("of compute on every device: 'whole'")


def test_the_whole_text_leaves_nothing_out() -> None:
    graph = Graph("many")
    x = graph.input("x", (8, 8))
    for k in range(30):
        x = graph.op("relu", graph.op("matmul", x, graph.parameter(f"w{k}", (8, 8))), name=f"act{k}")
    graph.output(x)
    found = good(plan(graph, Mesh({"tp": 2})))
    assert "the 12 ops that compute longest, of 60" in str(found)
    assert "of 60" not in found.text(whole=True)
    assert all(f"  act{k} " in found.text(whole=True) for k in range(30))
    assert all(f"w{k}" in found.text(whole=True) for k in range(30))
    assert repr(found).startswith("Plan('many': optimal, ")


def test_a_capability_that_is_not_granted_is_told() -> None:
    graph = Graph("window")
    graph.output(graph.op("conv2d", graph.input("x", (1, 2, 8, 8)), graph.parameter("w", (4, 2, 3, 3)), padding=1))
    mesh = Mesh({"tp": 2})
    told = "1 op may be cut in more ways where the runtime has the capability halo_exchange, which is not granted"
    assert told in str(good(plan(graph, mesh)))
    assert told not in str(good(plan(graph, mesh, capabilities=frozenset({"halo_exchange"}))))
