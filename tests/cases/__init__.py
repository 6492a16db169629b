"""The cases of the truth harness, a file per family of ops, in `CASES` of each."""

from __future__ import annotations

import importlib
import pkgutil

from truth import Case

CASES: list[Case] = [
    case for module in pkgutil.iter_modules(__path__) for case in importlib.import_module(f"cases.{module.name}").CASES
]
