"""PaddlePaddle's older completion, run by itself: programs of the time before PIR, which it still completes.

    python -m benchmarks.paddle_old [SECONDS] < CASES.json

Each case is ``{"net": name, "sizes": {...}, "mesh": {"dp": 2}, "placements": {"x": "dp=S(0)"}}``, a network of
`benchmarks.paddle_nets`. The answer to each is ``{"sources": {name: dims_mapping}, "ops": [[kind, dims_mapping of what
it makes, dims_mappings of what it reads], ...]}``, or ``{"refused": why}``. Such programs need a process of their own:
PIR is switched off in it. The completion goes forward and backward until nothing changes, and for some placements that
is never: after so many seconds of a processor, `LIMIT` where none are given, a case is told as refused.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ["FLAGS_enable_pir_api"] = "0"  # noqa: SIM112 -- Paddle's own spelling

import numpy as np
import paddle
from paddle.base.layer_helper import LayerHelper
from paddle.distributed.auto_parallel.static import dist_context
from paddle.distributed.auto_parallel.static.completion import Completer
from paddle.distributed.fleet import auto

from benchmarks import paddle_nets

LIMIT = 20.0
"""Seconds of a processor for each case: a GPT of two layers takes a tenth of one."""
MAKES = ("Out", "Output", "Y", "Loss")
"""What an op calls its first result."""
READS = ("X", "Input", "Filter", "Ids", "Logits", "Y", "W", "Scale", "Bias", "Label")
"""What an op calls its operands."""


class Writer:
    """Writes a network as a program of the time before PIR."""

    def __init__(self, mesh: dict[str, int], placements: dict[str, str]) -> None:
        ids = np.arange(math.prod(mesh.values())).reshape(list(mesh.values())).tolist()
        self.mesh, self.placements = auto.ProcessMesh(ids, dim_names=list(mesh)), placements

    def data(self, name: str, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """Add an input."""
        return self._place(name, paddle.static.data(name, list(shape), dtype))

    def parameter(self, name: str, *shape: int) -> Any:
        """Add a parameter."""
        return self._place(name, paddle.create_parameter(list(shape), "float32", attr=paddle.ParamAttr(name=name)))

    def _place(self, name: str, tensor: Any) -> Any:
        if name in self.placements:
            spec: list[str | None] = [None] * len(tensor.shape)
            for wish in self.placements[name].split(","):
                axis, _, placement = wish.partition("=")
                spec[int(placement[2:-1])] = axis
            auto.shard_tensor(tensor, self.mesh, spec)
        return tensor


def op(kind: str, x: Any, y: Any = None, **attrs: Any) -> Any:
    """Add an op whose Python function writes PIR alone."""
    helper = LayerHelper(kind)
    out = helper.create_variable_for_type_inference(x.dtype)
    inputs = {"X": x} if y is None else {"X": x, "Y": y}
    helper.append_op(type=kind, inputs=inputs, outputs={"Out": out}, attrs=attrs)
    return out


class EndlessError(Exception):
    """A completion that does not end."""


@contextmanager
def ending_after(seconds: float) -> Iterator[None]:
    """Raise `EndlessError` in what runs within after so many seconds of a processor, however busy the machine is."""

    def end(*_: Any) -> None:
        raise EndlessError(f"PaddlePaddle's older completion had not come to an end after {seconds:g} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def completed(case: dict[str, Any], limit: float = LIMIT) -> dict[str, Any]:
    """Write a network, complete it, and tell where everything lies; what takes longer than `limit` is refused."""
    dist_context.set_default_distributed_context(None)
    program = paddle.static.Program()
    with paddle.static.program_guard(program, paddle.static.Program()), paddle.utils.unique_name.guard():
        getattr(paddle_nets, case["net"])(**case["sizes"])(Writer(case["mesh"], case["placements"]))
    context = dist_context.get_default_distributed_context()
    try:
        with ending_after(limit):
            Completer(context).complete_forward_annotation(program)
    except (RuntimeError, ValueError, EndlessError) as error:
        return {"refused": str(error).strip().splitlines()[-1]}
    block, ops, sources = program.global_block(), [], {}
    for op in block.ops:
        attr = context.get_op_dist_attr_for_program(op)
        made = next(op.output(name)[0] for name in MAKES if name in op.output_names and op.output(name))
        read = [op.input(name)[0] for name in READS if name in op.input_names and op.input(name)]
        ops.append([op.type, attr.get_output_dims_mapping(made), [attr.get_input_dims_mapping(name) for name in read]])
        for name in read:
            if block.var(name).is_parameter or block.var(name).is_data:
                sources[name] = context.get_tensor_dist_attr_for_program(block.var(name)).dims_mapping
    return {"sources": sources, "ops": ops}


if __name__ == "__main__":
    paddle.matmul = lambda x, y, transpose_y=False: op("matmul_v2", x, y, trans_x=False, trans_y=transpose_y)
    paddle.nn.functional.gelu = lambda x: op("gelu", x)
    paddle.enable_static()
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else LIMIT
    json.dump([completed(case, seconds) for case in json.load(sys.stdin)], sys.stdout)
