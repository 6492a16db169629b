"""Read an explanation from the JSON values that it was written as."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from solver.explanation import Explanation, Fact, Repair, StoryStep


def read(data: Mapping[str, Any]) -> Explanation:
    """Read an explanation.

    Parameters
    ----------
    data : mapping
        As `Explanation.to_json` gives it; what earlier versions did not write may be missing.

    Returns
    -------
    Explanation

    Raises
    ------
    TypeError, KeyError
        Where something has another type than it should have, or is missing.
    """
    core, support = (tuple(map(_fact, data[part])) for part in ("core", "support"))
    beside = tuple(map(read, data.get("beside", [])))
    steps = tuple(_step(step) for step in data.get("story", []))
    repairs = tuple(Repair(**repair) for repair in data.get("repairs", []))
    minimal, more = data["minimal"], data.get("more", False)
    if not isinstance(minimal, bool) or not isinstance(more, bool):
        raise TypeError(f"minimal is {minimal!r} and more {more!r}: they should be true or false")
    where, by, unrepaired = data.get("where", ""), data.get("by", "z3"), data.get("unrepaired", "")
    if not all(isinstance(text, str) for text in (where, by, unrepaired, *(repair.text for repair in repairs))):
        raise TypeError("a sentence of the explanation is no text")
    story = {"steps": steps, "where": where, "by": by, "beside": beside, "more": more}
    return Explanation(core, support, minimal, repairs, unrepaired=unrepaired, **story)


def _fact(data: Mapping[str, Any]) -> Fact:
    alike = data.get("alike", [])
    words = {key: data[key] for key in ("kind", "subject", "text", "source")} | {"place": data.get("place", "")}
    if not all(isinstance(word, str) for word in (*words.values(), *alike)):
        raise TypeError("a fact of the explanation holds something that is no text")
    return Fact(**words, alike=tuple(alike))


def _step(data: Mapping[str, Any]) -> StoryStep:
    words = {key: data.get(key, "") for key in ("kind", "source", "place")}
    step = StoryStep(data["text"], data["subject"], data["again"], **words)
    if not all(isinstance(word, str) for word in (step.text, step.subject, *words.values())):
        raise TypeError("a step of the story is no sentence about something")
    if type(step.again) is not int:
        raise TypeError(f"a step of the story repeats {step.again!r} times: it should be a number")
    return step
