"""Plan, check and simulate the real ONNX networks that installed packages carry.

    python -m benchmarks.onnx_models                 every model on 2x4 and on 2x2x2
    python -m benchmarks.onnx_models resnet50 2x4    some of it

The light models of the onnx wheel are planned with a batch of 8, the OCR models with 8 images, magika with 8 files.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from solver import Mesh, load, plan
from solver.words import percent

MESHES = {"2x4": {"dp": 2, "tp": 4}, "2x2x2": {"dp": 2, "tp": 2, "pp": 2}}


@dataclass(frozen=True)
class Model:
    """An ONNX file of an installed package, and the sizes to plan it with."""

    package: str
    path: str
    dims: dict[str, int] = field(default_factory=dict)
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def find(self) -> Path | None:
        """Return the file, or None where the package is not installed."""
        spec = importlib.util.find_spec(self.package)
        folders = list(spec.submodule_search_locations or []) if spec else []
        return next((Path(f) / self.path for f in folders if (Path(f) / self.path).is_file()), None)


def _light(name: str, input_name: str) -> Model:
    return Model("onnx", f"backend/test/data/light/light_{name}.onnx", input_shapes={input_name: (8, 3, 224, 224)})


MODELS = {
    "alexnet": _light("bvlc_alexnet", "data_0"),
    "densenet121": _light("densenet121", "data_0"),
    "inception_v1": _light("inception_v1", "data_0"),
    "inception_v2": _light("inception_v2", "data_0"),
    "resnet50": _light("resnet50", "gpu_0/data_0"),
    "shufflenet": _light("shufflenet", "gpu_0/data_0"),
    "squeezenet": _light("squeezenet", "data_0"),
    "vgg19": _light("vgg19", "data_0"),
    "zfnet512": _light("zfnet512", "gpu_0/data_0"),
    "ocr_rec": Model("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", input_shapes={"x": (8, 3, 48, 320)}),
    "ocr_cls": Model(
        "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", input_shapes={"x": (8, 3, 48, 192)}
    ),
    "ocr_det": Model("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", input_shapes={"x": (8, 3, 320, 320)}),
    "magika": Model("magika", "models/standard_v3_3/model.onnx", dims={"unk__214": 8}),
}


def main(arguments: list[str]) -> int:
    """Run what was asked for, or everything; print a table; return 1 where anything is wrong."""
    models = [name for name in arguments if name in MODELS] or list(MODELS)
    meshes = [name for name in arguments if name in MESHES] or list(MESHES)
    columns = ("model", "mesh", "ops", "status", "gap", "sent", "check", "max error", "plan s", "run s")
    table = Table(*columns, box=box.SIMPLE_HEAD)
    wrong = 0
    for name in models:
        file = MODELS[name].find()
        if file is None:
            print(f"{name}: the package {MODELS[name].package} is not installed", file=sys.stderr)
            continue
        graph = load(file, MODELS[name].dims, MODELS[name].input_shapes)
        for mesh in meshes:
            print(f"{name} on {mesh} ...", file=sys.stderr, flush=True)
            begin = time.monotonic()
            found = plan(graph, Mesh(MESHES[mesh]), timeout=300)
            planned = time.monotonic()
            checked, ran = found.check(), found.simulate()
            good = found.status == "optimal" and found.gap == 0 and checked.ok and ran.ok
            wrong += not good
            for finding in [*checked.findings, *ran.findings]:
                print(f"  {finding}", file=sys.stderr)
            table.add_row(
                name, mesh, str(len(graph.nodes)), found.status, percent(found.gap or 0), f"{ran.bytes_sent:,}",
                "ok" if checked.ok else "REFUSED", f"{max(ran.max_error.values()):.1e}", f"{planned - begin:.1f}",
                f"{time.monotonic() - planned:.1f}",
            )  # fmt: skip
    Console(width=140).print(table)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
