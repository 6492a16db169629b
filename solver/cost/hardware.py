"""Hardware profiles: what one device computes, remembers and sends. Presets are data, in ``hardware.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

PRESETS = Path(__file__).with_name("hardware.json")


class HardwareError(ValueError):
    """A hardware profile that does not exist or does not say what it must."""


@dataclass(frozen=True, slots=True)
class Link:
    """What joins the devices along one mesh axis.

    Parameters
    ----------
    bandwidth : int
        Bytes per second that one device sends.
    latency : int
        Picoseconds of one step.
    ring : bool, optional
        Whether a reduction or a gather takes one step a neighbour instead of one a doubling.
    """

    bandwidth: int
    latency: int
    ring: bool = False


@dataclass(frozen=True, slots=True)
class Hardware:
    """One kind of device, its node and its network.

    Parameters
    ----------
    name : str
        What the profile is called.
    peak : mapping
        Dtype -> floating operations per second of one device; float32 stands for the dtypes that are not named.
    memory_bandwidth : int
        Bytes per second between a device and its memory.
    memory : int
        Bytes of memory of one device.
    node_size : int
        The number of devices that the inner link joins.
    inside, network : Link
        The link inside a node and the link between nodes.
    axes : mapping, optional
        Mesh axis name -> Link, for mesh axes that have a link of their own.
    source : str, optional
        Where the figures come from.

    Examples
    --------
    >>> load("h100").inside.bandwidth
    450000000000
    """

    name: str
    peak: Mapping[str, int] = field(hash=False)
    memory_bandwidth: int
    memory: int
    node_size: int
    inside: Link
    network: Link
    axes: Mapping[str, Link] = field(default_factory=dict, hash=False)
    source: str = ""

    def flops(self, dtype: str) -> int:
        """Give the floating operations per second for a dtype.

        Examples
        --------
        >>> load("a100").flops("bfloat16") // 10**12, load("a100").flops("int64") // 10**11
        (312, 195)
        """
        return self.peak.get(dtype, self.peak["float32"])

    def to_json(self) -> dict[str, Any]:
        """Write the profile as plain data, which `load` reads back.

        Examples
        --------
        >>> load(load("cpu").to_json()) == load("cpu")
        True
        """
        return asdict(self)


def load(profile: str | Path | Mapping[str, Any] | Hardware) -> Hardware:
    """Find a hardware profile.

    Parameters
    ----------
    profile : str, Path, mapping or Hardware
        The name of a preset, the path of a JSON file, its content, or a profile as it is.

    Returns
    -------
    Hardware

    Raises
    ------
    HardwareError
        Where there is no such preset or file, and for every field that is missing, unknown or wrong.

    Examples
    --------
    >>> load("tpu-v5e").node_size
    256
    """
    if isinstance(profile, Hardware):
        return profile
    if isinstance(profile, Mapping):
        return _hardware(profile, str(profile.get("name", "hardware")))
    if str(profile) in presets():
        return presets()[str(profile)]
    path = Path(profile)
    if path.suffix != ".json":
        known = ", ".join(presets())
        close = get_close_matches(str(profile), presets(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else "a profile of your own is the path of a .json file"
        raise HardwareError(f"no hardware is called {str(profile)!r} (known: {known}): {hint}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise HardwareError(f"the hardware file {path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise HardwareError(f"the hardware file {path} is not JSON: it is not a text") from None
    except RecursionError:
        raise HardwareError(f"the hardware file {path} is not JSON that can be read: it is nested too deep") from None
    except ValueError as error:
        raise HardwareError(f"the hardware file {path} is not JSON: {error}") from None
    return _hardware(content, str(path))


@cache
def presets() -> Mapping[str, Hardware]:
    """Read the profiles that come with the package, by name.

    Examples
    --------
    >>> list(presets())
    ['a100', 'h100', 'tpu-v5e', 'tpu-v5p', 'cpu']
    """
    entries = json.loads(PRESETS.read_text(encoding="utf-8"))
    return {entry["name"]: _hardware(entry, entry["name"]) for entry in entries}


def _hardware(content: Any, where: str) -> Hardware:
    fields = {"name", "peak", "memory_bandwidth", "memory", "node_size", "inside", "network"}
    _check_fields(content, fields, {"axes", "source"}, where)
    peak = content["peak"]
    if not isinstance(peak, Mapping) or "float32" not in peak:
        raise HardwareError(f"{where}: peak maps dtypes to operations per second, float32 at least, not {peak!r}")
    axes = content.get("axes", {})
    if not isinstance(axes, Mapping):
        raise HardwareError(f"{where}: axes maps names of mesh axes to links, it is {axes!r}")
    for text in ("name", "source"):
        if not isinstance(content.get(text, ""), str):
            raise HardwareError(f"{where}: {text} is a text, not {content[text]!r}")
    return Hardware(
        name=content["name"],
        peak={str(dtype): _whole(flops, f"{where}: peak {dtype}") for dtype, flops in peak.items()},
        memory_bandwidth=_whole(content["memory_bandwidth"], f"{where}: memory_bandwidth"),
        memory=_whole(content["memory"], f"{where}: memory"),
        node_size=_whole(content["node_size"], f"{where}: node_size"),
        inside=_link(content["inside"], f"{where}: inside"),
        network=_link(content["network"], f"{where}: network"),
        axes={str(axis): _link(link, f"{where}: axes {axis}") for axis, link in axes.items()},
        source=content.get("source", ""),
    )


def _link(content: Any, where: str) -> Link:
    _check_fields(content, {"bandwidth", "latency"}, {"ring"}, where)
    ring = content.get("ring", False)
    if not isinstance(ring, bool):
        raise HardwareError(f"{where}: ring is true or false, not {ring!r}")
    latency = _whole(content["latency"], f"{where}: latency", least=0)
    return Link(_whole(content["bandwidth"], f"{where}: bandwidth"), latency, ring)


def _check_fields(content: Any, required: set[str], optional: set[str], where: str) -> None:
    if not isinstance(content, Mapping):
        raise HardwareError(f"{where}: fields {', '.join(sorted(required))} are expected, not {content!r}")
    if missing := sorted(required - content.keys()):
        raise HardwareError(f"{where}: {missing[0]} is missing")
    if unknown := sorted(content.keys() - required - optional):
        raise HardwareError(f"{where}: {unknown[0]!r} is no field (fields: {', '.join(sorted(required | optional))})")


def _whole(value: Any, where: str, least: int = 1) -> int:
    whole = isinstance(value, int | float) and not isinstance(value, bool) and value == value // 1
    if not whole or value < least:
        raise HardwareError(f"{where} is a whole number of at least {least}, not {value!r}")
    return int(value)
