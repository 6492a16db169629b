"""What an answer about one tensor of a plan holds beside its words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Part:
    """One part of what another plan takes more; all parts add up to the whole difference.

    Parameters
    ----------
    kind : str
        ``collective`` or ``compute``.
    text : str
        Which: ``all_reduce[tp] of y``; of compute nothing more.
    seconds : float
        Negative for what the other plan does no longer.
    """

    kind: str
    text: str
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the part as plain JSON values."""
        return {"kind": self.kind, "text": self.text, "seconds": self.seconds}


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another placement that was asked about, and what became of it.

    Parameters
    ----------
    placement : mapping
        Mesh axis -> placement.
    status : str
        That of the plan with it, as ``infeasible``.
    cost : float or None
        Seconds of that plan.
    cost_delta : float or None
        What it takes more than this one.
    parts : tuple of Part
        Of the difference.
    because : str
        Where it is impossible: why.
    """

    placement: Mapping[str, str]
    status: str
    cost: float | None = None
    cost_delta: float | None = None
    parts: tuple[Part, ...] = ()
    because: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the alternative as plain JSON values."""
        return {
            "placement": dict(self.placement),
            "status": self.status,
            "cost": self.cost,
            "cost_delta": self.cost_delta,
            "parts": [part.to_json() for part in self.parts],
            "because": self.because,
        }


@dataclass(frozen=True, slots=True)
class Lies:
    """How a tensor, or a use, lies in a plan, and what keeps it there.

    Parameters
    ----------
    subject : str
    layout, pinned : mapping
        Mesh axis -> placement, chosen and asked for.
    pin : str or None
        The pin on another tensor that its cut comes from, where one was found.
    """

    subject: str
    layout: Mapping[str, str]
    pinned: Mapping[str, str]
    pin: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "subject": self.subject,
            "layout": dict(self.layout),
            "pinned": dict(self.pinned),
            "comes_from": self.pin,
        }
