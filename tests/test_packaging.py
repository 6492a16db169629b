"""The wheel: built, installed in a fresh environment, used from elsewhere, and beside a foreign `ops`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("ops", "solver", "shardproof.py", "pyproject.toml", "README.md", "LICENSE")


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of this checkout in its Python settings."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, cwd="/", env=clean | environment
    )


def succeed(*command: object, **environment: str) -> str:
    done = run(*command, **environment)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from a copy of the checkout, so that the checkout stays clean."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    succeed(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", source)
    (built,) = (source / "dist").glob("*.whl")
    return built


@pytest.fixture
def fresh(wheel: Path, tmp_path: Path) -> Path:
    """Install the wheel alone in a new environment that sees the dependencies of this one."""
    environment = tmp_path / "environment"
    succeed(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    succeed(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    (site_packages(environment) / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return environment


def site_packages(environment: Path) -> Path:
    (found,) = environment.glob("lib/python*/site-packages")
    return found


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    modules = {str(path.relative_to(ROOT)) for top in ("ops", "solver") for path in (ROOT / top).rglob("*.py")}
    data = {str(path.relative_to(ROOT)) for top in ("ops", "solver") for path in (ROOT / top).rglob("*.json")}
    assert held == modules | data | {"ops/py.typed", "solver/py.typed", "shardproof.py"}


def test_every_package_is_listed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["packages"]
    present = {path.parent for top in ("ops", "solver") for path in (ROOT / top).rglob("*.py")}
    assert sorted(listed) == sorted(".".join(path.relative_to(ROOT).parts) for path in present)


def test_the_wheel_works_from_another_directory(fresh: Path) -> None:
    python = fresh / "bin" / "python"
    code = "import ops, solver; print(ops.__file__); print(solver.__file__); from solver import Graph, Mesh, load, plan"
    assert all(line.startswith(str(fresh)) for line in succeed(python, "-c", code).splitlines())
    succeed(python, "-c", "from solver import Mesh; Mesh({'dp': 2}, hardware='h100')")
    command = fresh / "bin" / "shardproof"
    assert "plan" in succeed(command, "--help")
    assert "transpose_x" in succeed(command, "rules", "matmul")


def test_a_foreign_ops_in_front_is_named(fresh: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "elsewhere" / "ops.py"
    foreign.parent.mkdir()
    foreign.write_text("class CharmBase: pass\n", encoding="utf-8")
    done = run(fresh / "bin" / "python", "-c", "import solver", PYTHONPATH=str(foreign.parent))
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1
    assert last.startswith("ImportError: shardproof needs its own package `ops`")
    assert str(foreign) in last
    assert "rename it or start Python elsewhere" in last


def test_an_overwritten_ops_is_named(fresh: Path) -> None:
    package = site_packages(fresh) / "ops" / "__init__.py"
    package.write_text("class CharmBase: pass\n", encoding="utf-8")
    done = run(fresh / "bin" / "python", "-c", "import solver")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: another distribution has overwritten shardproof's package `ops`")
    assert str(package) in last


def test_a_missing_ops_is_named(fresh: Path) -> None:
    shutil.rmtree(site_packages(fresh) / "ops")
    done = run(fresh / "bin" / "python", "-c", "import solver")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: shardproof needs its package `ops`")
    assert "is missing: install shardproof in an environment of its own" in last
