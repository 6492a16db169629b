"""docs/explanations.md: ten scenarios with their texts."""

from __future__ import annotations

from pathlib import Path

from tests.explain.scenario import Scenario, Wishes, scenarios, written

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanations.md"
SHOWN = (
    "kv_heads_4_on_8",
    "softmax_dim",
    "conv_space_without_halo",
    "bias_added_on_every_device",
    "split_fused_qkv",
    "flattened_tokens_cut_plainly",
    "twenty_layers_later",
    "tied_embedding_cut_two_ways",
    "four_conflicts",
    "feasible_pin_that_costs",
)
HEAD = """\
# What it says when there is no plan, and what a plan comes from

Made by `python -m tests.explain.rewrite`; do not edit. These are ten of the scenarios of the test suite
(`tests/explain/scenarios/`): what a person tried, the graph, the wishes, and word for word what `shardproof explain`
and `solver.explain` say. The requests that are told as not holding together are irreducible: without any one of them
these requests have a plan, and the suite checks it. Each repair has been planned; the time and the memory beside it
are those of its plan.

Graphs are sketched, one statement a line: `input x: 8x16` gives name and shape, `y = matmul(x, w)` an op. They are
small, so that times are nanoseconds. A pin `x: tp=S(1)` cuts dim 1 of x over the mesh axis tp, `R` keeps it whole on
every device, `P(sum)` leaves it as terms that are still to be summed up; `y/x` is what the op y reads as its operand x.
"""


def page() -> str:
    """Return the page as it should stand."""
    known = {one.name: one for one in scenarios()}
    return "\n".join([HEAD, *(_section(known[name]) for name in SHOWN)])


def _section(scenario: Scenario) -> str:
    asked = "\n".join([scenario.sketch.strip("\n"), "", *_wishes(scenario.wishes)])
    return f"## {scenario.title}\n\n{scenario.prose.strip()}\n\n{_block(asked)}\n\n{_block(scenario.text)}\n"


def _wishes(wishes: Wishes) -> list[str]:
    lines = ["mesh " + ", ".join(f"{axis}={size}" for axis, size in wishes.mesh.items())]
    lines += [f"pin  {subject}: {placement}" for subject, placement in wishes.pins]
    if wishes.communication != "any":
        lines.append(f'communication "{wishes.communication}"')
    lines += [f"policy {one}" for one in wishes.policy]
    lines += [f"constraint {written(one)}" for one in wishes.constraints]
    if wishes.memory is not None:
        lines.append(f"memory {wishes.memory}")
    return lines


def _block(text: str) -> str:
    return f"```\n{text}\n```"
