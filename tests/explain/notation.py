"""A graph as a person would sketch it, one statement a line.

=====================================  ==================================================================
``input x: 8x16 int64``                also ``param``, ``state``; without a dtype it is float32
``constant mask: 16x16``               of zeros
``y = matmul(x, w, transpose_y=True)``  an op, called as its result; ``None`` is an absent operand, ``[a, b]`` a list
``t = topk(x, k=2)``                   an op of several results: ``t.out``, ``t.indices``
``output y, t.out``                    what leaves the graph
``tie new_w to w``                     `Graph.tie`; ``gradient g of w`` and ``repeat b of a`` are `gradient`, `repeat`
``step of loss by adamw``              the training step of what stands above (`solver.training`)
``for i in 1..20: a; b``               statements again and again, with ``{i}`` and ``{i-1}`` in their names
=====================================  ==================================================================
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from solver import Graph
from solver.graph import Tensor
from solver.training import training_step

SOURCE = re.compile(r"(input|param|state|constant) ([\w.]+): (\d+(?:x\d+)*|scalar)(?: (\w+))?")
OP = re.compile(r"([\w.]+) = (\w+)\((.*)\)")
RELATION = re.compile(r"(tie|gradient|repeat) ([\w.]+) (?:to|of) ([\w.]+)")
STEP = re.compile(r"step of ([\w.]+) by (\w+)")
LOOP = re.compile(r"for (\w) in (\d+)\.\.(\d+): (.*)")
COMMA = re.compile(r",(?![^\[(]*[\])])")
"""A comma outside of brackets."""


def graph_of(text: str, name: str) -> Graph:
    """Build the graph of a sketch.

    >>> g = graph_of("input x: 8x4\\nparam w: 4x2\\ny = matmul(x, w)\\noutput y", "small")
    >>> g.outputs, g.nodes["y"].operands
    (['y'], ('x', 'w'))
    >>> list(graph_of("input h0: 4\\nfor i in 1..3: h{i} = relu(h{i-1})\\noutput h3", "deep").nodes)
    ['h1', 'h2', 'h3']
    """
    graph = Graph(name)
    for statement in statements(text):
        if found := STEP.fullmatch(statement):
            graph = training_step(graph, loss=found[1], optimizer=found[2])
        else:
            add(graph, statement)
    return graph


def statements(text: str) -> Iterator[str]:
    for line in filter(None, map(str.strip, text.splitlines())):
        loop = LOOP.fullmatch(line)
        if loop is None:
            yield line
            continue
        letter, first, last, body = loop.groups()
        for number in range(int(first), int(last) + 1):
            names = re.compile(rf"\{{{letter}(-1)?\}}")
            yield from (names.sub(lambda m: str(number - bool(m[1])), one) for one in body.split("; "))  # noqa: B023


def add(graph: Graph, statement: str) -> None:
    if found := SOURCE.fullmatch(statement):
        role, name, size, dtype = found.groups()
        shape = () if size == "scalar" else tuple(map(int, size.split("x")))
        if role == "constant":
            graph.constant(name, np.zeros(shape, dtype or "float32"))
        else:
            source = {"input": graph.input, "param": graph.parameter, "state": graph.state}[role]
            source(name, shape, dtype or "float32")
    elif found := RELATION.fullmatch(statement):
        verb, one, other = found.groups()
        if verb == "repeat":
            graph.repeat(one, other)
        else:
            getattr(graph, verb)(graph.tensors[one], graph.tensors[other])
    elif found := OP.fullmatch(statement):
        name, kind, arguments = found.groups()
        given = [one.strip() for one in COMMA.split(arguments) if one.strip()]
        attrs = dict(one.split("=", 1) for one in given if "=" in one)
        operands = [operand(graph, one) for one in given if "=" not in one]
        graph.op(kind, *operands, name=name, **{key: ast.literal_eval(value) for key, value in attrs.items()})
    elif statement.startswith("output "):
        graph.output(*(graph.tensors[name] for name in statement.removeprefix("output ").split(", ")))
    else:
        raise ValueError(f"no statement: {statement}")


def operand(graph: Graph, text: str) -> Tensor | list[Any] | None:
    if text.startswith("["):
        return [operand(graph, one.strip()) for one in text[1:-1].split(",")]
    return None if text == "None" else graph.tensors[text]
