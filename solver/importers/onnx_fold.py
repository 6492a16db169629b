"""ONNX tensors and nodes whose values are known before anything runs.

Shapes, constants and what is computed from them alone are evaluated here, so that the graph holds what depends on data
and nothing else. Weights are never copied: a constant tensor is a broadcast view, an external file is mapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, uses_external_data
from onnx.reference import ReferenceEvaluator

from solver.importers.errors import UnreadableModelError, UnsupportedNodeError
from solver.importers.sketch import Value

TABLE_LIMIT = 16
"""Floating tensors of more elements are weights; smaller ones are constants that the model was written with."""


def dtype_name(code: int) -> str:
    """Return the name of an ONNX element type, as ``float32``.

    Raises
    ------
    UnreadableModelError
        Where the code names no element type of a dense tensor.
    """
    try:
        return str(np.dtype(helper.tensor_dtype_to_np_dtype(code)).name)
    except (KeyError, TypeError):
        raise UnreadableModelError(f"element type {code} is none that ONNX tensors have") from None


def stored(tensor: TensorProto, folder: Path) -> Value:
    """Return a tensor that the file holds: a weight or a known value.

    Parameters
    ----------
    tensor : onnx.TensorProto
    folder : pathlib.Path
        Where external data lies.

    Raises
    ------
    UnreadableModelError
        Where the value is damaged, or is needed and lies in a file that is not there.
    """
    shape, dtype = tuple(tensor.dims), dtype_name(tensor.data_type)
    weight = is_weight(shape, dtype)
    if not uses_external_data(tensor):
        data = _inside(tensor)
    else:
        path = _beside(tensor, folder)
        if weight and not path.is_file():
            return Value(shape, dtype, "weight", tensor.name)
        data = _external(tensor, path)
    return Value(shape, dtype, "weight" if weight else "known", tensor.name, data)


def _inside(tensor: TensorProto) -> NDArray[Any]:
    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise UnreadableModelError(f"tensor {tensor.name!r} of the file is damaged: {error}") from error


def _beside(tensor: TensorProto, folder: Path) -> Path:
    location = Path(ExternalDataInfo(tensor).location)
    if location.is_absolute() or ".." in location.parts:
        raise UnreadableModelError(
            f"tensor {tensor.name!r} lies in {location}, which is outside the folder of the model"
        )
    return folder / location


def _external(tensor: TensorProto, path: Path) -> NDArray[Any]:
    dtype, offset = (
        np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)),
        int(ExternalDataInfo(tensor).offset or 0),
    )
    try:
        return np.memmap(path, dtype, "r", offset, tuple(tensor.dims))
    except (OSError, ValueError) as error:
        raise UnreadableModelError(
            f"tensor {tensor.name!r} lies in the file {path}, which cannot be read ({error}): put it beside the model"
        ) from None


def is_weight(shape: Sequence[int], dtype: str) -> bool:
    """Tell whether a stored tensor is a weight: real numbers, and more than a handful."""
    return "float" in dtype and int(np.prod(shape, dtype=np.int64)) > TABLE_LIMIT


def known(data: NDArray[Any], name: str = "") -> Value:
    """Return a value that is known before anything runs."""
    return Value(tuple(data.shape), str(data.dtype.name), "known", name, data)


def fold(
    node: NodeProto, operands: Sequence[Value | None], opsets: Mapping[str, int], where: str
) -> list[Value] | None:
    """Evaluate a node if what it needs is known.

    Parameters
    ----------
    node : onnx.NodeProto
    operands : sequence of Value or None
    opsets : mapping
        Domain -> version.
    where : str
        How to name the node in an error.

    Returns
    -------
    list of Value, or None
        None where the node must run: it reads data or a weight.

    Raises
    ------
    UnsupportedNodeError
        Where the evaluation fails.
    """
    if node.op_type == "Shape" and operands and operands[0] is not None:
        return [known(_shape(node, operands[0]))]
    if node.op_type == "Size" and operands and operands[0] is not None:
        return [known(np.array(np.prod(operands[0].shape, dtype=np.int64)))]
    if any(operand is not None and operand.role != "known" for operand in operands):
        return None
    if node.op_type == "ConstantOfShape":
        return [_filled(node, operands)]
    if node.op_type in _RANDOM:
        return None
    return _evaluate(node, operands, opsets, where)


_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


def _shape(node: NodeProto, operand: Value) -> NDArray[np.int64]:
    given = {attribute.name: attribute.i for attribute in node.attribute}
    return np.array(operand.shape[slice(given.get("start", 0), given.get("end"))], dtype=np.int64)


def _filled(node: NodeProto, operands: Sequence[Value | None]) -> Value:
    """ConstantOfShape: a view on one element, however large."""
    (shape,) = operands
    assert shape is not None
    assert shape.data is not None
    fill = next((numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"), np.zeros(1, np.float32))
    data = np.broadcast_to(fill.reshape(()), tuple(int(size) for size in shape.data))
    return Value(
        data.shape, str(data.dtype.name), "weight" if is_weight(data.shape, str(data.dtype.name)) else "known", "", data
    )


def _evaluate(node: NodeProto, operands: Sequence[Value | None], opsets: Mapping[str, int], where: str) -> list[Value]:
    feeds = {f"i{slot}": operand.data for slot, operand in enumerate(operands) if operand is not None}
    try:
        arrays = iter(_runner(node, operands, opsets).run(None, feeds))
        made = [np.asarray(next(arrays)) if name else np.zeros(0) for name in node.output]
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise UnsupportedNodeError(
            f"{where} reads nothing but constants, and evaluating it failed: {reason}"
        ) from error
    values = [known(array) for array in made]
    for value in values:
        if node.op_type == "Constant" and is_weight(value.shape, value.dtype):
            value.role = "weight"
    return values


def _runner(node: NodeProto, operands: Sequence[Value | None], opsets: Mapping[str, int]) -> ReferenceEvaluator:
    """A model of one node, its tensors renamed by position."""
    bare = NodeProto()
    bare.CopyFrom(node)
    bare.ClearField("input")
    bare.ClearField("output")
    bare.input.extend(f"i{slot}" if operand is not None else "" for slot, operand in enumerate(operands))
    bare.output.extend(f"o{slot}" if name else "" for slot, name in enumerate(node.output))
    inputs = [
        helper.make_tensor_value_info(f"i{slot}", helper.np_dtype_to_tensor_dtype(operand.data.dtype), operand.shape)
        for slot, operand in enumerate(operands)
        if operand is not None and operand.data is not None
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in bare.output if name]
    graph = helper.make_graph([bare], "constant", inputs, outputs)
    return ReferenceEvaluator(
        helper.make_model(graph, opset_imports=[helper.make_opsetid(*pair) for pair in opsets.items()])
    )
