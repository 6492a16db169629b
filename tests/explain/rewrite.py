"""``python -m tests.explain.rewrite``: write down the texts as the tool says them now, and show what differs.

With ``--show`` nothing is written. Verdicts and cores are never written: a scenario whose answer has another one is
named, left as it is, and the command ends with 1.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

from tests.explain.page import PAGE, page
from tests.explain.scenario import FOLDER, Scenario, scenarios, warm

QUOTE = "'''"
TEXT = f"\ntext = {QUOTE}\n"
"""What begins the last entry of a file."""


def main(arguments: list[str]) -> int:
    write = arguments != ["--show"]
    warm()
    wrong = [scenario.name for scenario in scenarios() if not _rewritten(scenario, write)]
    if write:
        _replace(PAGE, page())
    for name in wrong:
        print(f"{name}: another verdict or core; see the test")
    return 1 if wrong else 0


def _rewritten(scenario: Scenario, write: bool) -> bool:
    """Put the text of the answer into the file; False where the answer is another one."""
    answer = scenario.answer()
    if (answer.verdict, answer.core) != (scenario.verdict, scenario.core):
        return False
    if answer.text != scenario.text:
        print(
            "\n".join(
                difflib.unified_diff(*map(str.splitlines, (scenario.text, answer.text)), scenario.name, lineterm="")
            )
        )
        assert QUOTE not in answer.text, scenario.name
        path = FOLDER / f"{scenario.name}.toml"
        before = path.read_text(encoding="utf-8").partition(TEXT)[0].rstrip("\n")
        if write:
            _replace(path, f"{before}{TEXT}{answer.text}\n{QUOTE}\n")
    return True


def _replace(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
