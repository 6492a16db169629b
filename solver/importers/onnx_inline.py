"""Bodies that take a node's place: the branch of an ``If``, the function that defines an op."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, NodeProto, TypeProto, helper

from solver.importers.sketch import Value


def taken_branch(node: NodeProto, branch: GraphProto, taken: Collection[str]) -> GraphProto:
    """Return a branch of an ``If`` to be put in its place.

    Parameters
    ----------
    node : onnx.NodeProto
    branch : onnx.GraphProto
    taken : collection of str
        Names that are in use already: the branch's own tensors of such a name get another.

    Returns
    -------
    onnx.GraphProto
        Its outputs stand for the outputs of the node, in order.
    """
    own = {tensor.name for tensor in branch.initializer} | {
        name for inner in branch.node for name in inner.output if name
    }
    names = {name: _fresh(f"{node.name or node.output[0]}/{name}", taken) for name in own if name in taken}
    made = GraphProto()
    made.CopyFrom(branch)
    _rename_graph(made, names)
    return made


def defining_body(
    node: NodeProto, operands: Sequence[Value | None], opset: int, taken: Collection[str]
) -> FunctionProto | None:
    """Return the function by which the ONNX standard defines an op, its tensors renamed to take the node's place.

    Parameters
    ----------
    node : onnx.NodeProto
    operands : sequence of Value or None
    opset : int
    taken : collection of str

    Returns
    -------
    onnx.FunctionProto or None
        None for an op that is no function.
    """
    body = _function(node, operands, opset)
    if body is None:
        return None
    label = node.name or node.output[0]
    names = dict.fromkeys((*body.input, *body.output), "")
    names |= dict(zip(body.input, node.input, strict=False)) | dict(zip(body.output, node.output, strict=False))
    inner = {name for step in body.node for name in step.output if name} - names.keys()
    names |= {name: _fresh(f"{label}/{name}", taken) for name in inner}
    names |= {formal: _fresh(f"{label}/{formal}", taken) for formal in body.output if not names[formal]}
    given = {attribute.name: attribute for attribute in body.attribute_proto} | {a.name: a for a in node.attribute}
    given = _schema_defaults(node, opset) | given
    for index, step in enumerate(body.node):
        step.name = f"{label}/{step.name or f'{step.op_type}_{index}'}"
        _fill_attributes(step, given)
        _rename(step, names)
    return body


def _function(node: NodeProto, operands: Sequence[Value | None], opset: int) -> FunctionProto | None:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return None
    body = FunctionProto()
    if schema.has_function:
        body.CopyFrom(schema.function_body)
        return body
    if schema.has_context_dependent_function:
        types = [_type(operand).SerializeToString() for operand in operands]
        versions = [version for version in schema.context_dependent_function_opset_versions if version <= opset]
        if versions:
            text = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), types
            )
            body.ParseFromString(text)
            return body
    return None


def _type(operand: Value | None) -> TypeProto:
    if operand is None:
        return TypeProto()
    code = helper.np_dtype_to_tensor_dtype(np.dtype(operand.dtype))
    return helper.make_tensor_type_proto(code, operand.shape)


def _schema_defaults(node: NodeProto, opset: int) -> dict[str, AttributeProto]:
    schema = onnx.defs.get_schema(node.op_type, opset, "" if node.domain == "ai.onnx" else node.domain)
    return {name: a.default_value for name, a in schema.attributes.items() if a.default_value.name}


def _fill_attributes(step: NodeProto, given: Mapping[str, AttributeProto]) -> None:
    """Put the node's attributes where the body refers to them; one that was not given is left out."""
    filled = []
    for attribute in step.attribute:
        if not attribute.ref_attr_name:
            filled.append(attribute)
        elif attribute.ref_attr_name in given:
            value = AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            filled.append(value)
    kept = [AttributeProto.FromString(attribute.SerializeToString()) for attribute in filled]
    step.ClearField("attribute")
    step.attribute.extend(kept)


def _rename_graph(graph: GraphProto, names: Mapping[str, str]) -> None:
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for info in graph.output:
        info.name = names.get(info.name, info.name)
    for node in graph.node:
        _rename(node, names)


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    for field in (node.input, node.output):
        field[:] = [names.get(name, name) for name in field]
    for attribute in node.attribute:
        for inner in subgraphs_of(attribute):
            own = {tensor.name for tensor in inner.initializer} | {name for step in inner.node for name in step.output}
            _rename_graph(inner, {old: new for old, new in names.items() if old not in own})


def subgraphs_of(attribute: AttributeProto) -> Iterable[GraphProto]:
    """Yield the graphs that an attribute holds."""
    if attribute.type == AttributeProto.GRAPH:
        yield attribute.g
    elif attribute.type == AttributeProto.GRAPHS:
        yield from attribute.graphs


def _fresh(name: str, taken: Collection[str]) -> str:
    count, tried = 1, name
    while tried in taken:
        count += 1
        tried = f"{name}_{count}"
    return tried
