"""The command `shardproof`, guarded while its packages load: Ctrl-C ends it in one line."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def stop(number: int, frame: FrameType | None) -> NoReturn:
    """End at once: nothing was begun, and an exception would come out of half a package as something else."""
    os.write(2, b"\nshardproof: stopped before there was a plan\n")
    os._exit(4)


def main() -> NoReturn:
    """Load the command, run it and exit with its code."""
    signal.signal(signal.SIGINT, stop)
    from solver.cli import main as command

    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = command()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
