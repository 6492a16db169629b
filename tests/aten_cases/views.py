"""What names, cuts apart and joins; tensors made from nothing; lookups and scatters."""

from __future__ import annotations

from collections.abc import Iterator

from aten_cases.case import COLUMN, CUBE, INF, INTS, MORE, NARROW, NUMBER, ROW, SMALL, TRUTHS, Case, Node, T, X, Y, each


def views() -> Iterator[Case]:
    yield from each("alias detach contiguous lift_fresh_copy clone", (X,), (NUMBER,))
    yield from each(
        "aten.view.default aten._unsafe_view.default aten.reshape.default", (X, [2, 12]), (X, [-1]), (X, [4, 6])
    )
    yield from each("aten.flatten.using_ints", (CUBE,), (CUBE, 1), (CUBE, 0, 1), (NUMBER,))
    thin = T((4, 1, 6, 1))
    yield from each("squeeze", (thin,), (X,))
    yield from each("aten.squeeze.dim", (thin, 1), (thin, -1), (thin, 0))
    yield from each("aten.squeeze.dims", (thin, [1, 3]), (thin, [0, 1]))
    yield from each("unsqueeze", (X, 0), (X, 1), (X, -1), (NUMBER, 0))
    yield from each("t", (X,), (ROW,))
    yield from each("aten.transpose.int", (CUBE, 0, 2), (CUBE, -1, 1))
    yield from each("permute", (CUBE, [2, 0, 1]), (CUBE, [0, 1, 2]), (CUBE, [-1, 1, 0]))
    yield from each("expand", (ROW, [4, 6]), (T((4, 1)), [-1, 6]), (X, [4, 6]), (T((4, 1)), [2, 4, 6]))
    yield from each("broadcast_tensors", ([X, ROW, NUMBER],))
    yield from each("copy", (X, Y), (X, ROW), (X, NARROW), (INTS, MORE))
    for dtype in ("float32", "int64", "bool", "float64"):
        kwargs = {"dtype": f"torch.{dtype}"}
        yield from (Case("aten._to_copy.default", (x,), kwargs) for x in (X, INTS, TRUTHS))
        yield Case("aten.to.dtype_layout", (X,), kwargs)
        yield from each("aten.to.dtype prims.convert_element_type.default", (X, f"torch.{dtype}"))
    yield Case("aten._to_copy.default", (X,))
    yield Case("aten.to.device", (X, "cpu", "torch.float32"))
    yield from each(
        "aten.slice.Tensor", (X,), (X, 1, 2), (X, 0, 1, 3), (X, 1, -4, -1), (X, 1, 0, 2**63 - 1, 2), (X, -1, 1, 6, 2)
    )
    yield from each(
        "slice_backward", (T((4, 2)), [4, 6], 1, 2, 4, 1), (X, [4, 6], 0, 0, 4, 1), (T((4, 3)), [4, 6], 1, 0, 6, 2)
    )
    yield from each("slice_backward", (T((4, 3)), [4, 6], 1, 3, 2**63 - 1, 1))
    yield from each("slice_scatter", (X, T((4, 2)), 1, 2, 4), (X, Y), (X, T((4, 3)), 1, 1, 6, 2), (X, T((2, 6)), 0, -2))
    yield from each("aten.select.int", (X, 0, 1), (X, 1, -1), (ROW, 0, 2))
    yield from each("select_backward", (ROW, [4, 6], 0, 1), (T((4,)), [4, 6], 1, -1))
    yield from each("select_scatter", (X, ROW, 0, 1), (X, T((4,)), -1, 2))
    yield from each(
        "diff", (X,), (X, 2), (X, 1, 0), (INTS, 1, -1, T((4, 1), "int64")), (X, 1, 1, COLUMN, COLUMN), (TRUTHS,)
    )
    yield from each("cat", ([X, Y],), ([X, Y], 1), ([X, NARROW], -1), ([INTS, SMALL],))
    yield Case("aten.cat.default", ([X, Node("none")],), before=(("none", "aten.zeros.default", ([0],)),))
    yield from each("stack", ([X, Y],), ([X, Y, X], 1), ([X, NARROW], -1))
    yield from each("aten.split.Tensor", (X, 2), (X, 4, 1), (X, 6, 1))
    yield from each("split_with_sizes", (X, [1, 3]), (X, [1, 2, 3], 1))
    yield from each("chunk", (X, 2), (X, 4, 1), (X, 3, -1))
    yield from each("aten.unbind.int", (X,), (X, 1))
    yield from each("repeat", (X, [2, 1]), (X, [3, 1, 2]), (X, [1, 1]), (X, [1, 1, 1]))
    yield from each("aten.repeat_interleave.self_int", (X, 2), (X, 3, 1))
    yield from each("roll", (X, [1]), (X, [1], [1]), (X, [1, -2], [0, 1]))
    yield from each("aten.flip.default prims.rev.default", (X, [0]), (X, [0, 1]))
    yield from each(
        "constant_pad_nd", (X, [1, 2]), (X, [1, 0, 0, 2], 3.0), (X, [-1, 2]), (X, [0, 0]), (CUBE, [1, 1, 2, 0])
    )
    yield from each("pad", (X, [1, 2]), (X, [1, 2], "constant", 2.0))
    yield Case("aten._assert_tensor_metadata.default", (X,))


def strided() -> Iterator[Case]:
    yield from each("as_strided", (X, [2, 3], [6, 1]), (X, [4, 2], [6, 2], 1), (T((12,)), [3, 4], [4, 1]))
    yield from each(
        "as_strided", (CUBE, [2, 2, 2, 4], [12, 4, 4, 1]), (T((12,)), [3, 4], [2, 1]), (ROW, [4, 6], [0, 1])
    )
    before = (("t", "aten.t.default", (X,)), ("copy", "aten.contiguous.default", (Node("t"),)))
    yield Case("aten.as_strided.default", (Node("copy"), [5], [4], 1), before=before)
    yield from each("as_strided_scatter", (X, T((2, 3)), [2, 3], [6, 1], 7))


def creation() -> Iterator[Case]:
    yield from each("zeros ones", ([4, 6],), ([],))
    yield from each("zeros ones", ([4, 6],), dtype="torch.int64")
    yield from each("zeros_like ones_like", (X,), (INTS,))
    yield from each("zeros_like ones_like", (X,), dtype="torch.bool")
    yield from each("new_zeros new_ones", (X, [2, 3]), (INTS, []))
    yield from each("full", ([4, 6], 2.5), ([], 1.0), ([2], INF))
    yield from each("full", ([4, 6], 2), dtype="torch.int64")
    yield from each("full_like", (X, 2.5), (INTS, 15))
    yield from each("aten.fill.Scalar", (X, 2.5), (INTS, 15), (NUMBER, 2))
    yield from each("aten.fill.Tensor", (X, NUMBER), (NARROW, NUMBER))
    yield from each("scalar_tensor", (2.5,), (-INF,), (0.0,))
    yield from each("scalar_tensor", (3,), dtype="torch.int64")
    yield from each("arange", (5,), (2.5,))
    yield from each("aten.arange.start", (2, 7))
    yield from each("aten.arange.start_step", (1, 9, 3), (9, 1, -2), (0.0, 1.0, 0.25))
    kwargs = {"start": 3, "step": 2, "dtype": "torch.int64", "device": "cpu", "requires_grad": False}
    yield Case("prims.iota.default", (5,), kwargs)
    yield from each("tril triu", (X,), (X, 1), (CUBE, -1))
    yield from each("dropout native_dropout", (X, 0.5, False), (X, 0.0, True))
    chance = T((4, 6), kind="chance")
    drawn = [("dropout.default", (X, 0.5, True)), ("native_dropout.default", (X, 0.5, True))]
    drawn += [(f"{name}.default", ([4, 6],)) for name in ("rand", "randn")]
    drawn += [(f"{name}.default", (X,)) for name in ("rand_like", "randn_like")]
    drawn += [("bernoulli.default", (chance,)), ("bernoulli.p", (X, 0.5))]
    yield from (Case(f"aten.{name}", args, results=()) for name, args in drawn)
    yield from each("native_dropout_backward", (X, TRUTHS, 2.0))
    for overload in ("aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default"):
        args = {"aten.empty.memory_format": ([4, 6],), "aten.empty_like.default": (X,)}.get(overload, (X, [2, 3]))
        yield Case(overload, args, results=())
    yield Case("aten.new_empty_strided.default", (X, [4, 6], [6, 1]), results=())
    yield Case("aten.empty_strided.default", ([4, 6], [6, 1]), results=())


def indexing() -> Iterator[Case]:
    table, ids, index = T((5, 3)), T((4, 6), "int64", high=5), T((3,), "int64", high=4)
    yield from each("embedding", (table, ids), (table, ids, 2))
    yield from each("embedding_dense_backward", (T((4, 6, 3)), ids, 5, -1, False), (T((4, 6, 3)), ids, 5, 2, False))
    two, other = T((2, 1), "int64", high=3), T((1, 3), "int64", high=4)
    yield from each("aten.index.Tensor aten._unsafe_index.Tensor", (X, [index]), (X, [None, index]), (X, [two]))
    big = T((2, 3, 4, 5))
    yield Case("aten._unsafe_index.Tensor", (T((2, 4, 6, 6)), [None, None, two, other]))
    yield from each(
        "aten.index.Tensor",
        (CUBE, [None, two, other]),
        (big, [None, two, None, other]),
        (X, [index, index]),
        (CUBE, [T((2, 2), "int64", high=2), None, T((2, 2), "int64", high=4)]),
    )
    yield from each("aten.index.Tensor", (INTS, [index]), (T((4, 6), "bool"), [index, index]))
    for name in ("aten.index_put.default", "aten._unsafe_index_put.default", "aten.index_put_.default"):
        order = T((3,), "int64", kind="order")
        yield from each(
            name,
            (X, [order], T((3, 6))),
            (X, [index], T((3, 6)), True),
            (X, [order], NUMBER),
            (X, [None, order], T((4, 3))),
        )
        yield from each(
            name,
            (CUBE, [None, two, other], T((2, 2, 3)), True),
            (X, [TRUTHS], NUMBER),
            (big, [T((2, 1), "int64", high=2), None, other], T((2, 3, 3, 5)), True),
        )
    yield from each("index_select", (X, 0, index), (X, -1, index))
    yield from each("index_add", (X, 0, index, T((3, 6))), (X, 1, index, T((4, 3))))
    yield from each("index_add", (X, 0, index, T((3, 6))), alpha=2)
    yield from each(
        "gather",
        (X, 1, T((4, 2), "int64")),
        (X, 0, T((2, 6), "int64")),
        (X, 1, T((1, 2), "int64")),
        (X, 1, T((3, 2), "int64")),
    )
    places, narrow = T((4, 2), "int64", kind="order", high=6), T((3, 2), "int64", kind="order", high=6)
    single = T((1, 2), "int64", kind="order", high=6)
    for name in ("aten.scatter.src", "aten.scatter_.src", "aten.scatter_add.default", "aten.scatter_add_.default"):
        yield from each(name, (X, 1, places, T((4, 2))), (X, -1, narrow, T((4, 3))), (X, 1, single, T((1, 2))))
    yield from each("scatter_add", (X, 1, T((4, 5), "int64", high=6), T((4, 5))), (X, 0, T((5, 6), "int64"), T((5, 6))))
    yield from each(
        "aten.scatter.value aten.scatter_.value", (X, 1, places, 2.5), (INTS, 1, places, 1), (X, 1, narrow, 0)
    )
