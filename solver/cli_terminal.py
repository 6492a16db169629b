"""What the command says while it works, and how Ctrl-C ends that."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from solver.words import percent

REFUSED, BAD_INPUT, INFEASIBLE, NO_PLAN, BUG = 1, 2, 3, 4, 70
"""Exit codes beside 0; a bug has one of its own, so that no script takes a crash for a refused plan."""
QUIET = 5.0
"""Seconds between two lines that tell of progress where there is no terminal."""
SOON = 2.0
"""The same for work that fills much memory."""


def say(text: str, err: bool = False) -> None:
    """Print on stdout, or on stderr; where nobody reads any more, nothing is left to say, and the work goes on."""
    stream = sys.stderr if err else sys.stdout
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    try:
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), file=stream)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except OSError as error:
        raise click.ClickException(f"nothing can be printed: {error.strerror}") from error


@contextlib.contextmanager
def stage(what: str, quiet: float | None = None) -> Iterator[Callable[[str], None]]:
    """Show what goes on and for how long; gives a function that says how far it is.

    Where stderr is no terminal a line is written there now and then, but none by what ends soon.
    """
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        with _now_and_then(what, QUIET if quiet is None else quiet) as tell:
            yield tell
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda state: progress.update(task, description=f"{what}: {state}")


@contextlib.contextmanager
def _now_and_then(what: str, quiet: float) -> Iterator[Callable[[str], None]]:
    """Write a line every so many seconds, from a thread of its own: what is compiled, or Z3, tells nothing itself."""
    begin, state, ended = time.monotonic(), "", threading.Event()

    def tell(now: str) -> None:
        nonlocal state
        state = f": {now}"

    def write() -> None:
        while not ended.wait(quiet):
            with contextlib.suppress(click.ClickException):  # the work goes on where nothing can be printed
                say(f"{what}, {time.monotonic() - begin:.0f} s{state}", err=True)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        yield tell
    finally:
        ended.set()
        writer.join()


@contextlib.contextmanager
def stopped_by_interrupt(what: str = "the best plan so far") -> Iterator[Callable[[], bool]]:
    """Let the first Ctrl-C ask the search to stop with what it has so far; the second one ends the command.

    Gives a function that tells whether the search was asked to stop.
    """
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            os.write(2, b"\nshardproof: stopped without a plan\n")
            os._exit(NO_PLAN)  # at once: an exception would wait for whatever code it has to travel through
        asked.set()
        say(f"\nstopping with {what}; Ctrl-C again ends without", err=True)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def state_text(name: str, state: Any) -> str:
    """Say how far the planning is."""
    if state is None:
        return name
    bound = max(state.bound, 0)
    cost = "no plan yet" if state.cost is None else f"a plan of {state.cost / 1e9:.4g} ms"
    gap = f", gap {percent(max(0.0, 1 - bound / state.cost))}" if state.cost else ""
    return f"{cost}, every plan takes at least {bound / 1e9:.4g} ms{gap}"
