"""The nameable facts behind hard constraints."""

from __future__ import annotations

from dataclasses import dataclass

CHOSEN = frozenset({"pin", "communication", "tie", "policy", "expression"})
"""The kinds of reason that are a person's own choice; the others are the graph's."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One fact that a group of constraints stands for.

    Parameters
    ----------
    kind : str
        ``pin``, ``communication``, ``tie``, ``policy``, ``expression``, ``rule``, ``divisibility``, ``kinds``,
        ``storage`` or ``repeat``.
    subject : str
        The tensor, use or op that it speaks of.
    text : str
        The fact in one clause of a sentence.
    source : str
        Where it comes from, as it was written.
    """

    kind: str
    subject: str
    text: str
    source: str = ""

    @property
    def chosen(self) -> bool:
        """Whether a person chose it."""
        return self.kind in CHOSEN


def policy_reason(policy: object) -> Reason:
    """Return the reason that all demands of one policy stand under."""
    return Reason("policy", "", f"you asked for {policy}", str(policy))
