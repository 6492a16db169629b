"""The command `shardproof`: arguments in, one call of the library, a report out."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from solver import __version__

if TYPE_CHECKING:
    from solver.plan import Plan

REFUSED, BAD_INPUT, INFEASIBLE, NO_PLAN, BUG = 1, 2, 3, 4, 70
"""Exit codes beside 0; a bug has one of its own, so that no script takes a crash for a refused plan."""
OUTCOMES = {"optimal": 0, "feasible": 0, "infeasible": INFEASIBLE, "unknown": NO_PLAN}


def pair(text: str, form: str) -> tuple[str, tuple[int, ...]]:
    """Read ``NAME=SIZE`` or ``NAME=SIZExSIZE``; what stands left of the last ``=`` is the name."""
    name, _, sizes = text.rpartition("=")
    if not name.strip() or not all(size.strip().isdecimal() for size in sizes.split("x")):
        raise click.BadParameter(f"{text!r} is not written as {form}")
    return name.strip(), tuple(int(size) for size in sizes.split("x"))


def read_mesh(context: click.Context, option: click.Parameter, text: str) -> dict[str, int]:
    """Read ``dp=2,tp=4``: mesh axes in the order given."""
    axes: dict[str, int] = {}
    for item in text.split(","):
        axis, sizes = pair(item, "AXIS=SIZE, as in dp=2,tp=4")
        if len(sizes) > 1 or axis in axes:
            raise click.BadParameter(f"mesh axis {axis!r} has more than one size in {text!r}")
        axes[axis] = sizes[0]
    return axes


def read_dims(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, int]:
    """Read ``batch=8``, any number of times."""
    dims = dict(pair(text, "NAME=SIZE, as in batch=8") for text in texts)
    for name, sizes in dims.items():
        if len(sizes) > 1:
            raise click.BadParameter(f"dim {name!r} is given {len(sizes)} sizes; a shape is given with --input-shape")
    return {name: sizes[0] for name, sizes in dims.items()}


def read_shapes(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Read ``x=8x3x224x224``, any number of times."""
    return dict(pair(text, "NAME=8x3x224x224") for text in texts)


def read_pins(context: click.Context, option: click.Parameter, texts: Sequence[str]) -> dict[str, str]:
    """Read ``NAME:dp=S(0),tp=R``, any number of times: what stands left of the last colon is the name."""
    pins: dict[str, str] = {}
    for text in texts:
        name, _, placements = text.rpartition(":")
        if not name or "=" not in placements:
            raise click.BadParameter(f"{text!r} is not written as NAME:dp=S(0),tp=R")
        pins[name] = f"{pins[name]},{placements}" if name in pins else placements
    return pins


def read_number(context: click.Context, option: click.Parameter, number: float) -> float:
    """Refuse what no search can be given: less than nothing, no number, no end."""
    if not 0 <= number < math.inf:
        raise click.BadParameter(f"{number:g} is not a number from 0 up")
    return number


def read_output(context: click.Context, option: click.Parameter, text: str | None) -> Path | None:
    """Find out before the work, not after it, whether a file can be written."""
    if text is None:
        return None
    path = Path(text)
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a directory")
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no directory {str(path.parent)!r}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{text!r} cannot be written")
    return path


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all; what is no regular file (a pipe, a terminal) is written directly."""
    target = path.resolve()
    if target.exists() and not target.is_file():
        target.write_text(text, encoding="utf-8")
        return
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


@contextlib.contextmanager
def stage(what: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal what goes on and for how long; gives a function that says how far it is."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda state: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda state: progress.update(task, description=f"{what}: {state}")


@contextlib.contextmanager
def stopped_by_interrupt() -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C ask the search to stop with the best plan so far; the second one ends the command.

    Gives a function that tells whether the search was asked to stop.
    """
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        asked.set()
        click.echo("\nstopping with the best plan so far; Ctrl-C again ends without one", err=True)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def state_text(name: str, state: Any) -> str:
    """Say how far the planning is."""
    if state is None:
        return name
    cost = "no plan yet" if state.cost is None else f"a plan of {state.cost / 1e9:.4g} ms"
    return f"{cost}, every plan takes at least {max(state.bound, 0) / 1e9:.4g} ms"


MODEL_OPTIONS = (
    click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    click.option(
        "--mesh",
        "axes",
        required=True,
        callback=read_mesh,
        metavar="AXIS=SIZE,...",
        help="The mesh axes with their sizes: dp=2,tp=4.",
    ),
    click.option("--hardware", default="h100", show_default=True, help="A preset, or a JSON file of your own."),
    click.option(
        "--dim",
        "dims",
        multiple=True,
        callback=read_dims,
        metavar="NAME=SIZE",
        help="The size of a dynamic dim: batch=8.",
    ),
    click.option(
        "--input-shape",
        "shapes",
        multiple=True,
        callback=read_shapes,
        metavar="NAME=SHAPE",
        help="The shape of an input, x=8x3x224x224; what follows from it is inferred anew.",
    ),
    click.option(
        "--pin",
        "pins",
        multiple=True,
        callback=read_pins,
        metavar="NAME:AXIS=PLACEMENT,...",
        help="A wish: 'x:dp=S(0),tp=R'. NAME may be a glob, or one use: op/operand.",
    ),
    click.option(
        "--communication",
        type=click.Choice(["any", "none", "frozen"]),
        default="any",
        show_default=True,
        help="none: nothing is sent; frozen: every tensor keeps one layout.",
    ),
    click.option("--gap", default=0.0, callback=read_number, show_default=True, help="Stop at this gap: 0.01 is 1%."),
    click.option("--timeout", default=60.0, callback=read_number, show_default=True, help="Seconds to search."),
)


def model_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command the model, the mesh and the wishes."""
    for option in reversed(MODEL_OPTIONS):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__)
def command() -> None:
    """Place the tensors of a network on a mesh of devices, provably best.

    Exit codes: 0 a plan; 1 the check refuses; 2 bad input; 3 infeasible; 4 out of time with no plan.
    """


@command.command("plan")
@model_options
@click.option("--json", "output", callback=read_output, metavar="FILE", help="Write the plan with its certificate.")
@click.option("--verify", is_flag=True, help="Check the proof without the solver; run the plan on simulated devices.")
def plan_command(
    model: Path,
    axes: dict[str, int],
    hardware: str,
    dims: dict[str, int],
    shapes: dict[str, tuple[int, ...]],
    output: Path | None,
    verify: bool,
    **wishes: Any,
) -> int:
    """Plan MODEL on a mesh, and prove that the plan is the best."""
    from solver import Mesh, load, plan

    mesh = Mesh(axes, hardware=hardware)
    with stage(f"reading {model.name}"):
        graph = load(model, dims=dims, input_shapes=shapes)
    with stage(f"planning {len(graph.nodes)} ops") as tell, stopped_by_interrupt() as stopped:

        def progress(name: str, state: Any) -> bool:
            tell(state_text(name, state))
            return stopped()

        found = plan(graph, mesh, progress=progress, **wishes)
    click.echo(str(found))
    if output is not None:
        write_whole(output, found.to_json())
        click.echo(f"written to {output}")
    code = OUTCOMES[found.status]
    return (code or verified(found)) if verify else code


def verified(found: Plan) -> int:
    """Check the proof and run the plan; say what was found."""
    try:
        with stage("checking the plan and its certificate"):
            checked = found.check()
        click.echo(str(checked))
        with stage(f"running the plan on {found.problem.mesh.device_ids.size} simulated devices"):
            ran = found.simulate(seed=0)
        click.echo(str(ran))
    except KeyboardInterrupt:
        return complain("stopped before the plan was confirmed", REFUSED)
    return 0 if checked.ok and ran.ok else REFUSED


@command.command("check")
@click.argument("plan_file", metavar="PLAN.json", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check_command(plan_file: Path) -> int:
    """Compute a plan again: every layout, collective and price, and its bound. Needs no solver."""
    from solver.plan_json import parse
    from solver.verify import verify

    try:
        claimed = parse(plan_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise click.ClickException(f"{plan_file}: {error}") from error
    try:
        with stage(f"checking {plan_file.name}"):
            checked = verify(claimed)
    except KeyboardInterrupt:
        return complain("stopped before the plan was confirmed", REFUSED)
    click.echo(str(checked))
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
    click.echo(coverage_text() if coverage else table_text() if op is None else op_text(op, shapes, attributes, size))
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
        code = command.main(args=arguments, prog_name="shardproof", standalone_mode=False)
        sys.stdout.flush()
        return int(code or 0)
    except BrokenPipeError:  # the reader has gone (`shardproof rules | head`): nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (click.Abort, KeyboardInterrupt):
        return complain("stopped before there was a plan", NO_PLAN)
    except click.ClickException as error:
        return complain(error.format_message(), BAD_INPUT)
    except OSError as error:
        return complain(f"{error.filename}: {error.strerror}" if error.filename else str(error), BAD_INPUT)
    except (ValueError, ImportError) as error:
        return complain(str(error), BAD_INPUT)
    except Exception:
        return complain(f"internal error, please report it:\n{traceback.format_exc()}", BUG)


def complain(message: str, code: int) -> int:
    """Say on stderr what is wrong."""
    click.echo(f"shardproof: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
