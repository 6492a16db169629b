"""The house of DESIGN: data flows one way, and every heavy package has its place."""

from __future__ import annotations

import ast
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent

# A module imports from its own row and from the rows above it. The longest matching prefix gives a module its row;
# the file graph_json.py stands with graph.py.
FLOW = (
    ("ops",),
    (
        "solver.deadline",
        "solver.garbage",
        "solver.layout",
        "solver.mesh",
        "solver.cost",
        "solver.graph",
        "solver.chains",
        "solver.parts",
        "solver.terms",
        "solver.formula",
        "solver.words",
        "solver.explanation",
        "solver.padding",
        "solver.importers",
        "solver.autodiff",
        "solver.training",
        "solver.constraints.policy",
    ),
    ("solver.problem", "solver.choice"),
    ("solver.constraints",),
    ("solver.search", "solver.explain"),
    ("solver.plan",),
    (
        "solver.planner",
        "solver.memory_budget",
        "solver.frontier",
        "solver.greedy",
        "solver.repairs",
        "solver.difference",
        "solver.why",
        "solver.prices",
        "solver.advice",
        "solver.compare",
        "solver.pairs",
        "solver.recipes",
        "solver.infer",
    ),
    (
        "solver.program",
        "solver.collectives",
        "solver.values",
        "solver.simulate",
        "solver.certificate",
        "solver.verify",
        "solver.reference",
    ),
    ("solver.report", "solver.exporters"),
    ("solver", "solver.cli"),
)
# The methods of a Plan are doors to what stands behind it: imported when called, never when loaded.
DOORS = {
    ("solver.plan", "solver.program"),
    ("solver.plan", "solver.verify"),
    ("solver.plan", "solver.simulate"),
    ("solver.plan", "solver.why"),
    ("solver.plan", "solver.report.text"),
}
Z3_PLACES = ("solver.constraints", "solver.search", "solver.explain")
WISHES = ("solver.constraints.policy", "solver.constraints.policy_kinds")
"""What a person may write down beside pins: a part of the question, without z3."""
WITHOUT_SOLVER = ("solver.program", "solver.certificate", "solver.verify", "solver.simulate", "solver.reference")
# Each optional package, and the first word of the names of the files that may load it.
OPTIONAL = {
    "onnx": "onnx",
    "google": "onnx",
    "torch": "torch",
    "jax": "jax",
    "paddle": "paddle",
    "matplotlib": "matplotlib",
}


@dataclass(frozen=True)
class Import:
    """One import statement: who, what, where, and whether loading the module runs it."""

    module: str
    target: str
    line: int
    at_load: bool

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"

    @property
    def package(self) -> str:
        return self.target.partition(".")[0]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for top in ("ops", "solver") for path in sorted((ROOT / top).rglob("*.py"))}


def statements(module: str, node: ast.AST, at_load: bool = True) -> list[Import]:
    """Every import below a node, those that only a type checker sees left out."""
    found: list[Import] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            found += [Import(module, alias.name, child.lineno, at_load) for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"{module}:{child.lineno}: write the whole name, not a relative import"
            for alias in child.names:
                whole = f"{child.module}.{alias.name}"
                found.append(Import(module, whole if whole in MODULES else child.module or "", child.lineno, at_load))
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        found += statements(module, child, at_load and not inside)
    return found


IMPORTS = [
    statement
    for module, path in MODULES.items()
    for statement in statements(module, ast.parse(path.read_text(encoding="utf-8"), str(path)))
]
OURS = [statement for statement in IMPORTS if statement.package in ("ops", "solver")]


def row_of(module: str) -> int:
    matches = [
        (len(prefix), row)
        for row, prefixes in enumerate(FLOW)
        for prefix in prefixes
        if module == prefix or (module.startswith((f"{prefix}.", f"{prefix}_")) and prefix != "solver")
    ]
    assert matches, f"{module} has no place in the flow: give it one in tests/test_imports.py"
    return max(matches)[1]


def within(module: str, places: tuple[str, ...]) -> bool:
    return any(module == place or module.startswith(f"{place}.") for place in places)


def first_word(module: str) -> str:
    return module.rpartition(".")[2].partition("_")[0]


def loaded_with(module: str) -> set[str]:
    """Every module of ours that loading this one loads."""
    graph = nx.DiGraph((statement.module, statement.target) for statement in OURS if statement.at_load)
    return {module} | (nx.descendants(graph, module) if module in graph else set())


def test_every_module_imports_from_its_left() -> None:
    wrong = [
        str(statement)
        for statement in OURS
        if row_of(statement.target) > row_of(statement.module)
        and ((statement.module, statement.target) not in DOORS or statement.at_load)
    ]
    assert not wrong, "against the flow:\n" + "\n".join(wrong)


def test_no_two_modules_load_each_other() -> None:
    graph = nx.DiGraph((s.module, s.target) for s in OURS if s.at_load and s.module != s.target)
    assert not [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]


def test_ops_import_the_standard_library_and_numpy_only() -> None:
    allowed = sys.stdlib_module_names | {"numpy", "ops"}
    assert not [str(s) for s in IMPORTS if within(s.module, ("ops",)) and s.package not in allowed]


def test_z3_stays_in_its_three_places() -> None:
    assert not [str(s) for s in IMPORTS if s.package == "z3" and not within(s.module, Z3_PLACES)]


def test_solver_imports_only_what_is_declared() -> None:
    core = {"click", "networkx", "numba", "numpy", "rich", "z3", "ops", "solver"}
    cli = "solver.cli", "solver.cli_options", "solver.cli_terminal"
    words = {"click": cli, "rich": (*cli, "solver.report")}
    for statement in IMPORTS:
        if statement.package in sys.stdlib_module_names or statement.package == "numpy":
            continue
        assert statement.package in core | set(OPTIONAL), f"{statement}, which pyproject.toml does not name"
        assert within(statement.module, words.get(statement.package, ("ops", "solver"))), str(statement)


def test_an_optional_package_is_imported_where_it_is_used() -> None:
    for statement in IMPORTS:
        if statement.package in OPTIONAL and statement.at_load:
            assert first_word(statement.module) == OPTIONAL[statement.package], f"{statement} when it is loaded"


@pytest.mark.parametrize("module", WITHOUT_SOLVER)
def test_checkers_share_nothing_with_the_search(module: str) -> None:
    assert module in MODULES, f"{module} is gone: the promise that it works without the solver hangs on it"
    assert not [str(s) for s in OURS if s.module == module and within(s.target, Z3_PLACES)]
    wished = [s for s in IMPORTS if s.module in WISHES and s.target not in (*WISHES, "solver.words")]
    assert not [str(s) for s in wished if s.package in ("z3", "ops", "solver")]
    for loaded in loaded_with(module) - {"solver", *WISHES, "solver.constraints"}:
        assert not within(loaded, Z3_PLACES), f"loading {module} loads {loaded}"


def run_blocked(blocked: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter in which some packages cannot be imported."""
    block = f"""
        import sys
        for name in {blocked!r}:
            sys.modules[name] = None
    """
    program = textwrap.dedent(block) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)


def test_checkers_load_where_z3_is_not_installed() -> None:
    run = run_blocked(("z3",), f"import importlib\nfor name in {WITHOUT_SOLVER!r}: importlib.import_module(name)")
    assert run.returncode == 0, run.stderr


def test_everything_loads_where_no_optional_package_is_installed() -> None:
    modules = [name for name in MODULES if first_word(name) not in OPTIONAL.values()]
    run = run_blocked(tuple(OPTIONAL), f"import importlib\nfor name in {modules!r}: importlib.import_module(name)")
    assert run.returncode == 0, run.stderr


def test_names_of_functions_are_not_hidden_by_modules() -> None:
    code = """
        import solver.plan, solver
        assert callable(solver.plan)
        from solver import plan, Plan
        assert callable(plan)
    """
    run = run_blocked((), code)
    assert run.returncode == 0, run.stderr


def test_loading_the_package_loads_nothing_heavy() -> None:
    run = run_blocked((), "import solver\nprint(*{'z3', 'networkx', 'numba', 'rich'} & set(sys.modules))")
    assert run.stdout.split() == [], run.stderr
