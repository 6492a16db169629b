"""Plan a real ONNX network on eight devices, check the proof without the solver, and run the plan.

The file is one of those that the installed `onnx` package carries. Another of them, and any options of
`shardproof plan`, can be named: ``python examples/demo.py light_resnet50 --mesh pod=2,dp=2,tp=2``.
"""

from __future__ import annotations

import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path


def light_model(name: str) -> Path:
    """Find the file of one of the networks in the installed `onnx` package."""
    spec = importlib.util.find_spec("onnx")
    if spec is None or spec.origin is None:
        sys.exit("the demo reads a network that the onnx package carries: pip install 'shardproof[onnx]'")
    folder = Path(spec.origin).parent / "backend" / "test" / "data" / "light"
    path = folder / f"{name}.onnx"
    if not path.is_file():
        known = ", ".join(sorted(file.stem for file in folder.glob("*.onnx")))
        sys.exit(f"{name} is not a network of the installed onnx package: it has {known}")
    return path


def main(name: str = "light_squeezenet", *options: str) -> int:
    """Run the command line that a person would type."""
    arguments = ["plan", str(light_model(name)), *(options or ("--mesh", "dp=2,tp=4"))]
    if name == "light_squeezenet":
        arguments += ["--input-shape", "data_0=2x3x224x224"]
    arguments.append("--verify")
    print("$ shardproof", shlex.join(arguments), flush=True)
    return subprocess.call([sys.executable, "-m", "solver.cli", *arguments])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
