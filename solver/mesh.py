"""The mesh of devices: named axes with sizes, the devices on it, and the links along its axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.cost.hardware import Hardware, Link, load

DEVICES = 2**20
"""The most devices that a mesh may have."""
_AXIS = re.compile(r"\s*(\w+)\s*=\s*([+-]?\d+)\s*")


class MeshError(ValueError):
    """A mesh that cannot exist."""


class Mesh:
    """Devices in a grid of named axes.

    The last mesh axes whose product fits a node of the hardware lie inside a node; the others go over the network. A
    profile that names a link for a mesh axis decides for that axis.

    Parameters
    ----------
    axes : mapping of str to int
        The name and the size of every mesh axis, outermost first.
    hardware : str, Path, mapping or Hardware, optional
        A preset's name, the path of a profile of one's own, its content, or a profile.
    devices : nested sequence of int, optional
        The device ids in the shape of the mesh; 0, 1, 2, ... in row-major order where not given.

    Raises
    ------
    MeshError
        For a mesh without axes, a name that is no name, a size below 1, more than `DEVICES` devices, device ids of
        another shape or twice, and hardware that is neither a name, a path nor a profile.
    HardwareError
        For hardware that does not exist or is incomplete.

    Examples
    --------
    >>> mesh = Mesh({"dp": 2, "tp": 4}, hardware="h100")
    >>> mesh.groups(0)
    [[0, 4], [1, 5], [2, 6], [3, 7]]
    """

    __slots__ = ("axes", "device_ids", "hardware", "links", "sizes")

    def __init__(
        self,
        axes: Mapping[str, int],
        hardware: str | Path | Mapping[str, Any] | Hardware = "h100",
        devices: Sequence[Any] | NDArray[np.int64] | None = None,
    ) -> None:
        _check_axes(axes)
        self.axes: tuple[str, ...] = tuple(axes)
        self.sizes: tuple[int, ...] = tuple(int(size) for size in axes.values())
        if not isinstance(hardware, str | Path | Mapping | Hardware):
            raise MeshError(
                f"the hardware of a mesh is the name of a preset, as 'h100', or a profile or its path, not {hardware!r}"
            )
        self.hardware: Hardware = load(hardware)
        self.links: tuple[Link, ...] = _links(self.axes, self.sizes, self.hardware)
        self.device_ids: NDArray[np.int64] = _device_ids(devices, self.axes, self.sizes)
        self.device_ids.setflags(write=False)

    @classmethod
    def parse(cls, text: str, hardware: str | Path | Mapping[str, Any] | Hardware = "h100") -> Mesh:
        """Read a mesh from text.

        Parameters
        ----------
        text : str
            ``dp=2,tp=4``.
        hardware : str, Path, mapping or Hardware, optional
            As for the class.

        Returns
        -------
        Mesh

        Raises
        ------
        MeshError
            Where the text is no list of name=size, names an axis twice, or the mesh cannot exist.

        Examples
        --------
        >>> Mesh.parse("dp=2, tp=4").sizes
        (2, 4)
        """
        axes: dict[str, int] = {}
        for piece in text.split(","):
            match = _AXIS.fullmatch(piece)
            if not match:
                raise MeshError(
                    f"{piece.strip()!r} in the mesh {text!r} is no mesh axis: write name=size, as in dp=2,tp=4"
                )
            name, size = match.groups()
            if name in axes:
                raise MeshError(
                    f"the mesh {text!r} names the mesh axis {name!r} twice: give every mesh axis its own name"
                )
            axes[name] = int(size)
        return cls(axes, hardware)

    def axis(self, name: str) -> int:
        """Give the index of a mesh axis.

        Parameters
        ----------
        name : str
            The name of the mesh axis.

        Returns
        -------
        int

        Raises
        ------
        MeshError
            Where the mesh has no such axis.

        Examples
        --------
        >>> Mesh({"dp": 2, "tp": 4}).axis("tp")
        1
        """
        if name not in self.axes:
            raise MeshError(f"the mesh {self} has no axis {name!r}: its axes are {', '.join(self.axes)}")
        return self.axes.index(name)

    def coordinates(self) -> list[tuple[int, ...]]:
        """List where every device stands, in row-major order.

        Examples
        --------
        >>> Mesh({"dp": 1, "tp": 2}).coordinates()
        [(0, 0), (0, 1)]
        """
        return list(product(*map(range, self.sizes)))

    def groups(self, axis: int) -> list[list[int]]:
        """List the device ids that communicate along one mesh axis.

        Parameters
        ----------
        axis : int
            The index of the mesh axis.

        Returns
        -------
        list of list of int
            One list for every coordinate on the other mesh axes, in row-major order; ids in order along the axis.

        Examples
        --------
        >>> Mesh({"dp": 2, "tp": 3}, devices=[[2, 4, 5], [0, 1, 3]]).groups(1)
        [[2, 4, 5], [0, 1, 3]]
        """
        along = np.moveaxis(self.device_ids, axis, -1).reshape(-1, self.sizes[axis])
        return [[int(device) for device in group] for group in along]

    def to_json(self) -> dict[str, Any]:
        """Write the mesh as plain data, with all that its prices depend on.

        Examples
        --------
        >>> mesh = Mesh({"dp": 2, "tp": 4})
        >>> Mesh.from_json(mesh.to_json()) == mesh
        True
        """
        return {
            "axes": [[name, size] for name, size in zip(self.axes, self.sizes, strict=True)],
            "hardware": self.hardware.to_json(),
            "devices": self.device_ids.tolist(),
        }

    @classmethod
    def from_json(cls, content: Any) -> Mesh:
        """Read what `to_json` writes.

        Raises
        ------
        MeshError, HardwareError
            Where the content describes no mesh.

        Examples
        --------
        >>> Mesh.from_json({"axes": [["tp", 2]], "hardware": "cpu"}).hardware.name
        'cpu'
        """
        if not isinstance(content, Mapping) or not {"axes", "hardware"} <= content.keys():
            raise MeshError(f"a mesh in JSON has the fields axes, hardware and devices, this is {content!r}")
        axes = content["axes"]
        pairs = isinstance(axes, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in axes)
        if not pairs or not all(isinstance(name, str) for name, _ in axes):
            raise MeshError(f'the axes of a mesh in JSON are a list of pairs like ["dp", 2], not {axes!r}')
        if len({name for name, _ in axes}) < len(axes):
            raise MeshError(f"the axes of a mesh in JSON have one name each, not {[name for name, _ in axes]}")
        return cls(dict(axes), content["hardware"], content.get("devices"))

    def __str__(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in zip(self.axes, self.sizes, strict=True))

    def __repr__(self) -> str:
        return f"Mesh({self}, hardware={self.hardware.name!r})"

    def _key(self) -> tuple[tuple[str, ...], tuple[int, ...], Hardware, tuple[int, ...]]:
        return self.axes, self.sizes, self.hardware, tuple(map(int, self.device_ids.flat))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _check_axes(axes: Mapping[str, int]) -> None:
    if not isinstance(axes, Mapping):
        raise MeshError(f'a mesh is given by its axes, as in {{"dp": 2, "tp": 4}}, not by {axes!r}')
    if not axes:
        raise MeshError("a mesh has at least one axis: a single device is the mesh dp=1")
    for name, size in axes.items():
        if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
            raise MeshError(f"{name!r} is no name of a mesh axis: use letters, digits and _")
        if not isinstance(size, int | np.integer) or isinstance(size, bool):
            raise MeshError(f"the size of mesh axis {name} is a whole number, not {size!r}")
        if size < 1:
            raise MeshError(f"mesh axis {name} has size {size}: a mesh axis has at least one device")
    if (count := prod(map(int, axes.values()))) > DEVICES:
        told = ", ".join(f"{name}={size}" for name, size in axes.items())
        raise MeshError(f"the mesh {told} has {count:,} devices: {DEVICES:,} are the most that can be planned for")


def _links(axes: Sequence[str], sizes: Sequence[int], hardware: Hardware) -> tuple[Link, ...]:
    inside = [prod(sizes[axis:]) <= hardware.node_size for axis in range(len(sizes))]
    default = [hardware.inside if fits else hardware.network for fits in inside]
    return tuple(hardware.axes.get(name, link) for name, link in zip(axes, default, strict=True))


def _device_ids(
    devices: Sequence[Any] | NDArray[np.int64] | None, axes: Sequence[str], sizes: tuple[int, ...]
) -> NDArray[np.int64]:
    if devices is None:
        return np.arange(prod(sizes), dtype=np.int64).reshape(sizes)
    told = ", ".join(f"{name}={size}" for name, size in zip(axes, sizes, strict=True))
    try:
        ids = np.array(devices)
    except ValueError:
        raise MeshError(f"the device ids do not form a grid: rows of equal length are expected for {told}") from None
    if ids.shape != sizes:
        raise MeshError(f"the device ids have the shape {ids.shape}, the mesh {told} has the shape {sizes}")
    if ids.dtype.kind not in "iu" or ids.min() < 0:
        raise MeshError("device ids are whole numbers from 0 on")
    values, counts = np.unique(ids, return_counts=True)
    if (counts > 1).any():
        raise MeshError(
            f"device {values[counts > 1][0]} stands twice on the mesh {told}: every place has its own device"
        )
    return ids.astype(np.int64)
