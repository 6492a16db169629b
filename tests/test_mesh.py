"""Meshes and hardware profiles: what they refuse, and which link a mesh axis gets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.cost.hardware import Hardware, HardwareError, Link, load, presets
from solver.mesh import Mesh, MeshError


def test_what_a_mesh_says() -> None:
    mesh = Mesh({"dp": 2, "tp": 4}, hardware="h100")
    assert (mesh.axes, mesh.sizes, str(mesh)) == (("dp", "tp"), (2, 4), "dp=2, tp=4")
    assert repr(mesh) == "Mesh(dp=2, tp=4, hardware='h100')"
    assert mesh.device_ids.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert mesh.groups(0) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert mesh.groups(1) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert mesh.coordinates()[:5] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    assert mesh.axis("tp") == 1


def test_devices_of_ones_own() -> None:
    mesh = Mesh({"dp": 2, "tp": 3}, devices=[[2, 4, 5], [0, 1, 3]])
    assert mesh.groups(0) == [[2, 0], [4, 1], [5, 3]]
    assert mesh.groups(1) == [[2, 4, 5], [0, 1, 3]]
    assert Mesh({"dp": 2, "tp": 3}, devices=np.array([[2, 4, 5], [0, 1, 3]])) == mesh
    assert Mesh({"dp": 2, "tp": 3}) != mesh


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_groups_hold_every_device_once(sizes: list[int]) -> None:
    mesh = Mesh({f"a{i}": size for i, size in enumerate(sizes)}, hardware="cpu")
    for axis, size in enumerate(sizes):
        groups = mesh.groups(axis)
        assert {len(group) for group in groups} == {size}
        assert sorted(device for group in groups for device in group) == list(range(len(mesh.coordinates())))
        at = {int(mesh.device_ids[where]): where for where in mesh.coordinates()}
        for group in groups:
            assert [at[device][axis] for device in group] == list(range(size))
            assert len({at[d][:axis] + at[d][axis + 1 :] for d in group}) == 1


@pytest.mark.parametrize(
    ("axes", "devices", "message"),
    [
        ({}, None, "a mesh has at least one axis: a single device is the mesh dp=1"),
        ({"dp": 0}, None, "mesh axis dp has size 0: a mesh axis has at least one device"),
        ({"dp": -2}, None, "mesh axis dp has size -2: a mesh axis has at least one device"),
        ({"dp": 2.0}, None, "the size of mesh axis dp is a whole number, not 2.0"),
        ({"dp": True}, None, "the size of mesh axis dp is a whole number, not True"),
        ({"d p": 2}, None, "'d p' is no name of a mesh axis: use letters, digits and _"),
        ({3: 2}, None, "3 is no name of a mesh axis: use letters, digits and _"),
        ([("dp", 2)], None, 'a mesh is given by its axes, as in {"dp": 2, "tp": 4}, not by [(\'dp\', 2)]'),
        ({"dp": 2}, [0, 1, 2], "the device ids have the shape (3,), the mesh dp=2 has the shape (2,)"),
        (
            {"dp": 2, "tp": 2},
            [0, 1, 2, 3],
            "the device ids have the shape (4,), the mesh dp=2, tp=2 has the shape (2, 2)",
        ),
        (
            {"dp": 2, "tp": 2},
            [[0, 1], [2]],
            "the device ids do not form a grid: rows of equal length are expected for dp=2, tp=2",
        ),
        ({"dp": 2}, [5, 5], "device 5 stands twice on the mesh dp=2: every place has its own device"),
        ({"dp": 2}, [-1, 0], "device ids are whole numbers from 0 on"),
        ({"dp": 2}, [0.0, 1.0], "device ids are whole numbers from 0 on"),
        ({"dp": 2}, ["a", "b"], "device ids are whole numbers from 0 on"),
    ],
)
def test_a_mesh_that_cannot_be(axes: Any, devices: Any, message: str) -> None:
    with pytest.raises(MeshError) as caught:
        Mesh(axes, devices=devices)
    assert str(caught.value) == message


def test_a_mesh_axis_that_is_not_there() -> None:
    with pytest.raises(MeshError, match="the mesh dp=2 has no axis 'tp': its axes are dp"):
        Mesh({"dp": 2}).axis("tp")


def test_device_ids_cannot_be_changed_behind_the_mesh() -> None:
    given_ids = np.array([1, 0])
    mesh = Mesh({"dp": 2}, devices=given_ids)
    given_ids[0] = 7
    assert mesh.device_ids.tolist() == [1, 0]
    with pytest.raises(ValueError, match="read-only"):
        mesh.device_ids[0] = 5


def test_parse() -> None:
    assert Mesh.parse(" dp=2 , tp = 4", hardware="cpu") == Mesh({"dp": 2, "tp": 4}, hardware="cpu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' in the mesh '' is no mesh axis: write name=size, as in dp=2,tp=4"),
        ("dp=2,", "'' in the mesh 'dp=2,' is no mesh axis: write name=size, as in dp=2,tp=4"),
        ("dp", "'dp' in the mesh 'dp' is no mesh axis: write name=size, as in dp=2,tp=4"),
        ("dp=two", "'dp=two' in the mesh 'dp=two' is no mesh axis: write name=size, as in dp=2,tp=4"),
        ("dp=2,dp=4", "the mesh 'dp=2,dp=4' names the mesh axis 'dp' twice: give every mesh axis its own name"),
        ("dp=0", "mesh axis dp has size 0: a mesh axis has at least one device"),
        ("dp=-1", "mesh axis dp has size -1: a mesh axis has at least one device"),
    ],
)
def test_a_text_that_is_no_mesh(text: str, message: str) -> None:
    with pytest.raises(MeshError) as caught:
        Mesh.parse(text)
    assert str(caught.value) == message


@pytest.mark.parametrize("axes", [{"a": 10**5, "b": 10**5}, {"dp": 999999999999999999999}, {"dp": 2**20 + 1}])
def test_a_mesh_of_too_many_devices(axes: dict[str, int]) -> None:
    with pytest.raises(MeshError, match=r" devices: 1,048,576 are the most that can be planned for$"):
        Mesh(axes)


@pytest.mark.parametrize("hardware", [None, 3, [1]])
def test_hardware_that_is_none(hardware: Any) -> None:
    with pytest.raises(MeshError) as caught:
        Mesh({"a": 2}, hardware=hardware)
    told = "the hardware of a mesh is the name of a preset, as 'h100', or a profile or its path, not "
    assert str(caught.value) == f"{told}{hardware!r}"


# --- links


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("tp=8", [True]),
        ("dp=2,tp=8", [False, True]),
        ("dp=2,tp=4", [True, True]),
        ("dp=4,pp=2,tp=4", [False, True, True]),
        ("dp=16", [False]),
        ("dp=3,tp=3", [False, True]),
        ("tp=8,one=1", [True, True]),
        ("dp=2,tp=16", [False, False]),
    ],
)
def test_the_last_axes_that_fit_a_node_are_inside(text: str, inside: list[bool]) -> None:
    mesh = Mesh.parse(text, hardware="h100")
    assert [link == mesh.hardware.inside for link in mesh.links] == inside
    assert [link == mesh.hardware.network for link in mesh.links] == [not fits for fits in inside]


def test_a_link_of_its_own_for_a_mesh_axis() -> None:
    profile = load("h100").to_json() | {"axes": {"dp": {"bandwidth": 7, "latency": 3}}}
    mesh = Mesh({"dp": 2, "tp": 4}, hardware=profile)
    assert mesh.links == (Link(7, 3), mesh.hardware.inside)


# --- JSON


def test_json_round_trip() -> None:
    profile = load("tpu-v5e").to_json() | {
        "name": "mine",
        "axes": {"x": {"bandwidth": 5e9, "latency": 10, "ring": True}},
    }
    mesh = Mesh({"x": 2, "y": 3}, hardware=profile, devices=[[5, 4, 3], [2, 1, 0]])
    again = Mesh.from_json(json.loads(json.dumps(mesh.to_json())))
    assert again == mesh
    assert hash(again) == hash(mesh)
    assert again.links == mesh.links
    assert again.axes == ("x", "y")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "a mesh in JSON has the fields axes, hardware and devices, this is []"),
        (
            {"axes": {"dp": 2}, "hardware": "cpu"},
            "the axes of a mesh in JSON are a list of pairs like [\"dp\", 2], not {'dp': 2}",
        ),
        (
            {"axes": [["dp", 2], ["dp", 2]], "hardware": "cpu"},
            "the axes of a mesh in JSON have one name each, not ['dp', 'dp']",
        ),
        (
            {"axes": [[2, "dp"]], "hardware": "cpu"},
            "the axes of a mesh in JSON are a list of pairs like [\"dp\", 2], not [[2, 'dp']]",
        ),
    ],
)
def test_json_that_is_no_mesh(content: Any, message: str) -> None:
    with pytest.raises(MeshError) as caught:
        Mesh.from_json(content)
    assert str(caught.value) == message


# --- hardware


def test_presets_are_plausible_and_say_where_they_come_from() -> None:
    assert list(presets()) == ["a100", "h100", "tpu-v5e", "tpu-v5p", "cpu"]
    for hardware in presets().values():
        assert hardware.source
        assert hardware.inside.bandwidth > hardware.network.bandwidth
        assert hardware.inside.latency < hardware.network.latency
        assert hardware.memory_bandwidth > hardware.inside.bandwidth
        assert hardware.flops("bfloat16") >= hardware.flops("float32")
        assert hardware.flops("a dtype nobody knows") == hardware.peak["float32"]
    assert presets()["tpu-v5e"].inside.ring
    assert not presets()["h100"].inside.ring


def profile(**changes: Any) -> dict[str, Any]:
    base = {
        "name": "mine",
        "peak": {"float32": 1e12},
        "memory_bandwidth": 1e11,
        "memory": 1e10,
        "node_size": 4,
        "inside": {"bandwidth": 1e10, "latency": 1000},
        "network": {"bandwidth": 1e9, "latency": 5000, "ring": True},
    }
    return {name: value for name, value in (base | changes).items() if value is not ...}


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(profile()), encoding="utf-8")
    wanted = Hardware(
        name="mine",
        peak={"float32": 10**12},
        memory_bandwidth=10**11,
        memory=10**10,
        node_size=4,
        inside=Link(10**10, 1000),
        network=Link(10**9, 5000, ring=True),
    )
    assert load(path) == load(str(path)) == load(profile()) == load(wanted) == wanted
    assert load(json.loads(json.dumps(wanted.to_json()))) == wanted
    assert Mesh({"tp": 8}, hardware=path).links == (wanted.network,)


@pytest.mark.parametrize("field", ["name", "peak", "memory_bandwidth", "memory", "node_size", "inside", "network"])
def test_a_missing_field_is_named(field: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(profile(**{field: ...})), encoding="utf-8")
    with pytest.raises(HardwareError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: {field} is missing"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": -1}, "mine: memory is a whole number of at least 1, not -1"),
        ({"memory": "80GB"}, "mine: memory is a whole number of at least 1, not '80GB'"),
        ({"memory": float("nan")}, "mine: memory is a whole number of at least 1, not nan"),
        ({"memory": float("inf")}, "mine: memory is a whole number of at least 1, not inf"),
        ({"node_size": 2.5}, "mine: node_size is a whole number of at least 1, not 2.5"),
        ({"memory_bandwidth": True}, "mine: memory_bandwidth is a whole number of at least 1, not True"),
        ({"memory_bandwidth": 0}, "mine: memory_bandwidth is a whole number of at least 1, not 0"),
        ({"peak": 5}, "mine: peak maps dtypes to operations per second, float32 at least, not 5"),
        (
            {"peak": {"float16": 5}},
            "mine: peak maps dtypes to operations per second, float32 at least, not {'float16': 5}",
        ),
        ({"peak": {"float32": "fast"}}, "mine: peak float32 is a whole number of at least 1, not 'fast'"),
        ({"inside": 5}, "mine: inside: fields bandwidth, latency are expected, not 5"),
        ({"inside": {"bandwidth": 5}}, "mine: inside: latency is missing"),
        (
            {"inside": {"bandwidth": 5, "latency": 1, "speed": 1}},
            "mine: inside: 'speed' is no field (fields: bandwidth, latency, ring)",
        ),
        ({"inside": {"bandwidth": 5, "latency": -1}}, "mine: inside: latency is a whole number of at least 0, not -1"),
        ({"network": {"bandwidth": 5, "latency": 1, "ring": 1}}, "mine: network: ring is true or false, not 1"),
        ({"axes": [1]}, "mine: axes maps names of mesh axes to links, it is [1]"),
        ({"axes": {"tp": {"latency": 1}}}, "mine: axes tp: bandwidth is missing"),
        ({"source": 5}, "mine: source is a text, not 5"),
        (
            {"cores": 5},
            (
                "mine: 'cores' is no field "
                "(fields: axes, inside, memory, memory_bandwidth, name, network, node_size, peak, source)"
            ),
        ),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(HardwareError) as caught:
        load(profile(**changes))
    assert str(caught.value) == message


def test_hardware_that_is_not_there(tmp_path: Path) -> None:
    known = r"\(known: a100, h100, tpu-v5e, tpu-v5p, cpu\)"
    with pytest.raises(HardwareError, match=rf"no hardware is called 'h10' {known}: did you mean 'h100'\?"):
        load("h10")
    with pytest.raises(HardwareError, match=rf"{known}: a profile of your own is the path of a .json file"):
        load("quantum")
    with pytest.raises(HardwareError, match=r"the hardware file none\.json cannot be read: No such file or directory"):
        load("none.json")
    path = tmp_path / "broken.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(HardwareError, match=r"broken\.json is not JSON: Expecting property name"):
        load(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(HardwareError, match=r"broken\.json is not JSON"):
        load(path)
    path.write_text("[1]", encoding="utf-8")
    with pytest.raises(HardwareError, match=r"broken\.json: fields .* are expected, not \[1\]"):
        load(path)
