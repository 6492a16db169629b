"""The command `shardproof`: arguments in, one call of the library, a report out."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from solver import __version__
from solver.cli_options import Once, memory_option, model_options, policy_wishes, read_output, training_wishes
from solver.cli_terminal import (
    BAD_INPUT,
    BUG,
    INFEASIBLE,
    NO_PLAN,
    REFUSED,
    SOON,
    say,
    stage,
    state_text,
    stopped_by_interrupt,
)

if TYPE_CHECKING:
    from solver.plan import Plan

OUTCOMES = {"optimal": 0, "feasible": 0, "infeasible": INFEASIBLE, "unknown": NO_PLAN}


def keep(found: Plan, path: Path) -> str:
    """Write a plan to a file; give the sentence that says what became of it."""
    if found.status == "unknown" and path.is_file() and path.stat().st_size:
        return f"no plan was found, so {path} is left as it was"
    keep_text(found.to_json(), path)
    return ""


def keep_text(text: str, path: Path) -> None:
    """Write a text to a file, whole or not at all."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror or error}") from error


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all; what is no regular file (a pipe, a terminal) is written directly."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    target = path.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


@click.group(
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__)
@click.pass_context
def command(context: click.Context) -> int:
    """Place the tensors of a network on a mesh of devices, provably best.

    Exit codes: 0 a plan; 1 the check refuses; 2 bad input; 3 infeasible; 4 no plan, nor a proof that there is none.
    """
    if context.invoked_subcommand is None:
        say(context.get_help(), err=True)
        return BAD_INPUT
    return 0


@command.command("plan", cls=Once)
@model_options
@memory_option
@click.option("--json", "output", callback=read_output, metavar="FILE", help="Write the plan with its certificate.")
@click.option("--full", is_flag=True, help="Print every op, reshard and note, not the dearest only.")
@click.option("--check", is_flag=True, help="Check the proof without the solver, but run nothing.")
@click.option("--verify", is_flag=True, help="Check the proof without the solver; run the plan on simulated devices.")
def plan_command(output: Path | None, full: bool, check: bool, verify: bool, **asked: Any) -> int:
    """Plan MODEL on a mesh, and prove that the plan is the best."""
    found, stopped = planned(**asked)
    code = OUTCOMES[found.status]
    try:
        unwritten = keep(found, output) if output is not None else ""
    finally:
        say(found.text(whole=full))
    if unwritten:
        return complain(unwritten, code)
    if output is not None:
        say(f"written to {output}")
    if not (check or verify) or code:
        return code
    if stopped:
        say("the plan that was found is verified now; Ctrl-C ends that", err=True)
    return verified(found, run=verify)


def planned(
    model: Path,
    axes: dict[str, int],
    hardware: str,
    dims: dict[str, int],
    shapes: dict[str, tuple[int, ...]],
    **wishes: Any,
) -> tuple[Plan, bool]:
    """Read a model and plan it; also tell whether the search was asked to stop."""
    from solver import Mesh, load, plan
    from solver.training import training_step

    policy_wishes(wishes)
    mesh, training = Mesh(axes, hardware=hardware), training_wishes(wishes)
    with stage(f"reading {model.name}"):
        differentiated = training is not None and training["loss"] is None
        graph = load(model, dims=dims, input_shapes=shapes, training=differentiated)
        if training is not None:
            graph = training_step(graph, **training)
    with stage(f"planning {len(graph.nodes)} ops") as tell, stopped_by_interrupt() as stopped:

        def progress(name: str, state: Any) -> bool:
            tell(state_text(name, state))
            return stopped()

        return plan(graph, mesh, progress=progress, **wishes), stopped()


@command.command("explain", cls=Once)
@model_options
@memory_option
@click.option("--json", "output", callback=read_output, metavar="FILE", help="Write the explanation.")
@click.option("--why", metavar="TENSOR", help="Say what keeps TENSOR in its layout, and what the next best would cost.")
def explain_command(output: Path | None, why: str | None, timeout: float, **asked: Any) -> int:
    """Say why there is no plan for MODEL and what would do; or what dominates its plan, and what each pin costs."""
    from solver.advice import explain_plan

    deadline = time.monotonic() + timeout
    found, _ = planned(timeout=timeout / 2, **asked)
    left = max(0.0, deadline - time.monotonic())
    with stage("explaining"):
        told = found.why(why, left) if why is not None and found.choice is not None else explain_plan(found, left)
    if output is not None:
        keep_text(json.dumps(told.to_json(), indent=1), output)
    say(str(told))
    return OUTCOMES[found.status]


def verified(found: Plan, run: bool) -> int:
    """Check the proof, and run the plan where that is asked for; say what was found."""
    try:
        with stage("checking the plan and its certificate"):
            checked = found.check()
        say(str(checked))
        if not run:
            return 0 if checked.ok else REFUSED
        with stage(f"running the plan on {found.problem.mesh.device_ids.size} simulated devices", SOON) as tell:
            ran = found.simulate(seed=0, tell=tell)
        say(str(ran))
    except KeyboardInterrupt:
        return complain("stopped before the plan was confirmed", REFUSED)
    return 0 if checked.ok and ran.ok else REFUSED


@command.command("compare", cls=Once)
@model_options
@memory_option
@click.option(
    "--recipe",
    "recipes",
    multiple=True,
    metavar="NAME",
    help="A recipe to plan as well: data_parallel, fsdp, megatron, megatron_sp or expert_parallel; megatron(tp) names "
    "the mesh axis that cuts the model, by default the last.",
)
@click.option("--json", "output", callback=read_output, metavar="FILE", help="Write the figures.")
def compare_command(output: Path | None, recipes: tuple[str, ...], timeout: float, **asked: Any) -> int:
    """Plan MODEL, let greedy propagation (Paddle, Shardy, DTensor) do the same, and show both on one cost model."""
    from solver.compare import compare
    from solver.recipes import read_recipe
    from solver.report.comparison import comparison_text, figures

    for name in recipes:
        read_recipe(name, tuple(asked["axes"]))
    best, _ = planned(timeout=timeout, **asked)
    if best.choice is None:
        say(best.text())
        return OUTCOMES[best.status]
    with stage("planning greedily"):
        found = compare(best, recipes, timeout)
    if output is not None:
        keep_text(json.dumps([figures(one, best) for one in found], indent=1), output)
    say(comparison_text(found))
    return OUTCOMES[best.status]


@command.command("frontier", cls=Once)
@model_options
@click.option("--points", default=8, type=click.IntRange(2), show_default=True, help="The most rows.")
@click.option("--json", "output", callback=read_output, metavar="FILE", help="Write the figures.")
@click.option("--csv", "table", callback=read_output, metavar="FILE", help="Write them as CSV.")
@click.option("--plot", "picture", callback=read_output, metavar="FILE", help="Draw them: a name as frontier.png.")
def frontier_command(
    points: int, output: Path | None, table: Path | None, picture: Path | None, timeout: float, **asked: Any
) -> int:
    """Show time against memory: the best plan of MODEL within budgets down to the least that works, with bounds.

    The time limit is for all of them together: at most half of it for the plan without a budget.
    """
    from solver.frontier import frontier
    from solver.report.frontier import frontier_csv, frontier_json, frontier_text, plot

    quickest, over = planned(timeout=timeout / 2, memory=None, **asked)
    if quickest.choice is None:
        say(quickest.text())
        return OUTCOMES[quickest.status]
    with stage("planning within budgets") as tell, stopped_by_interrupt("the plans found so far") as stopped:

        def telling(what: str) -> bool:
            tell(what)
            return over or stopped()

        left = max(0.0, timeout - sum(quickest.stages.values()))
        found = frontier(quickest, points, left, telling)
    if output is not None:
        keep_text(json.dumps(frontier_json(found), indent=1), output)
    if table is not None:
        keep_text(frontier_csv(found), table)
    if picture is not None:
        plot(found, picture)
    say(frontier_text(found))
    return 0


@command.command("check")
@click.argument("plan_file", metavar="PLAN.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check_command(plan_file: Path) -> int:
    """Compute a plan again: every layout, collective and price, and its bound. Needs no solver."""
    from solver.plan_json import parse
    from solver.verify import verify

    try:
        claimed = parse(plan_file.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{plan_file} is no plan file: it is not a text") from error
    except ValueError as error:
        raise click.ClickException(f"{plan_file}: {error}") from error
    try:
        with stage(f"checking {plan_file.name}"):
            checked = verify(claimed)
    except KeyboardInterrupt:
        return complain("stopped before the plan was confirmed", REFUSED)
    say(str(checked))
    return 0 if checked.ok else REFUSED


@command.command("rules")
@click.argument("op", required=False)
@click.option("--shape", "shapes", multiple=True, metavar="NAME=4x6", help="The shape of an operand of OP.")
@click.option("--attr", "attributes", multiple=True, metavar="NAME=VALUE", help="An attribute of OP.")
@click.option("--size", default=2, type=click.IntRange(1), show_default=True, help="The size of the mesh axis.")
@click.option("--coverage", is_flag=True, help="Say which names of other frameworks the ops cover.")
def rules_command(
    op: str | None, shapes: tuple[str, ...], attributes: tuple[str, ...], size: int, coverage: bool
) -> int:
    """Show how OP may be cut; without OP, a table of all ops by family."""
    from solver.report.coverage import coverage_text
    from solver.report.rules import op_text, table_text

    if op is None and (shapes or attributes):
        raise click.UsageError("--shape and --attr speak of an OP: name it")
    say(coverage_text() if coverage else table_text() if op is None else op_text(op, shapes, attributes, size))
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands after the name of the command; by default what the process was started with.

    Returns
    -------
    int
        The exit code.
    """
    try:
        return int(command.main(args=arguments, prog_name="shardproof", standalone_mode=False) or 0)
    except SystemExit:  # click's own answer to a reader who went away while it printed a help text
        return 0
    except (click.Abort, KeyboardInterrupt):
        return complain("stopped before there was a plan", NO_PLAN)
    except click.ClickException as error:
        return complain(error.format_message(), BAD_INPUT)
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), BAD_INPUT)
    except (ValueError, ImportError) as error:
        return complain(str(error), BAD_INPUT)
    except MemoryError as error:
        return complain(" ".join(f"there is not enough memory for this: {error}".rstrip(": ").split()), BAD_INPUT)
    except Exception:
        return complain(f"internal error, please report it:\n{traceback.format_exc()}", BUG)


def complain(message: str, code: int) -> int:
    """Say on stderr what is wrong."""
    say(f"shardproof: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
