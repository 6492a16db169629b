"""What PaddlePaddle's SPMD rule registry is asked: each rule name, on shapes and attributes, as a case of ours."""

from __future__ import annotations

import numpy as np
import paddle
from paddle_asks import (
    BATCH,
    BINARY,
    IMAGE,
    REDUCTIONS,
    UNARY,
    A,
    Ask,
    B,
    C,
    ask,
    binary,
    conv,
    cross_entropy,
    matmul,
    norm,
    places,
    reduction,
    template,
    unary,
)
from truth import Case

REGISTRY: dict[str, list[Ask]] = {
    **{name: unary(name) for name in UNARY},
    **{name: binary(name) for name in BINARY},
    **{name: reduction(name) for name in REDUCTIONS},
    "clip": unary("clip"),
    "gelu": [Ask(one.case, (False,)) for one in unary("gelu")],
    "add_n": [ask("add_n", {"inputs": [A, A, A]})],
    "argmax": [
        ask("argmax", {"x": A}, (1, False, False), {"axis": 1}),
        ask("argmax", {"x": A}, (0, True, False), {"axis": 0, "keepdim": True}),
        ask("argmax", {"x": A}, (0, False, True)),
    ],
    "argmin": [ask("argmin", {"x": A}, (1, False, False), {"axis": 1}), ask("argmin", {"x": A}, (0, False, True))],
    "argsort": [
        ask("argsort", {"x": A}, (1, False, False), {"axis": 1}, results="_ out"),
        ask("sort", {"x": B}, (0, True, False), {"axis": 0, "descending": True}, results="out _"),
    ],
    "batch_norm": [
        ask("batch_norm", {"x": x, **dict.fromkeys(BATCH, (4,))}, results="out mean_out variance_out _ _ _")
        for x in ((8, 4), IMAGE)
    ],
    "bmm": [ask("bmm", {"x": B, "y": (2, 6, 8)})],
    "c_embedding": [ask("c_embedding", {"weight": (8, 6), "x": (2, 4)}, (0, 8))],
    "c_softmax_with_cross_entropy": [ask("c_softmax_with_cross_entropy", {"logits": A, "label": (4, 1)}, (-100, 0, 2))],
    "c_softmax_with_multi_label_cross_entropy": [
        ask(
            "c_softmax_with_multi_label_cross_entropy",
            {"logits": A, "label": (4, 2), "smooth_weight": (4, 2)},
            (-100, False, 0, 2),
            {"sum_multi_label_loss": False},
        ),
        ask(
            "c_softmax_with_multi_label_cross_entropy",
            {"logits": A, "label": (4, 2), "smooth_weight": (4, 2)},
            (-100, True, 0, 2),
        ),
    ],
    "concat": [ask("concat", {"x": [A, A]}, (axis,), {"axis": axis}) for axis in (0, 1)],
    **{name: conv(name) for name in ("conv2d", "conv3d", "conv2d_transpose", "depthwise_conv2d")},
    "cross_entropy_with_softmax": cross_entropy(""),
    "softmax_with_cross_entropy": cross_entropy(""),
    "cummax": [ask("cummax", {"x": A}, (1, paddle.int64), {"axis": 1})],
    "cummin": [ask("cummin", {"x": A}, (0, paddle.int64), {"axis": 0})],
    "cumsum": [
        ask("cumsum", {"x": A}, (1, False, False, False), {"axis": 1}),
        ask("cumsum", {"x": A}, (0, False, True, True), {"axis": 0, "exclusive": True, "reverse": True}),
        ask("cumsum", {"x": A}, (-1, True, False, False)),
    ],
    "einsum": [
        ask("einsum", {"operands": [A, (6, 8)]}, ("ij,jk->ik",), {"equation": "ij,jk->ik"}),
        ask("einsum", {"operands": [B, (2, 6, 8)]}, ("bij,bjk->bik",), {"equation": "bij,bjk->bik"}),
        ask("einsum", {"operands": [A]}, ("ij->j",), {"equation": "ij->j"}),
    ],
    "embedding": [ask("embedding", {"x": (2, 4), "weight": (8, 6)}, (-1, False))],
    "lookup_table_v2": [ask("embedding", {"x": (2, 4), "weight": (8, 6)}, (-1, False))],
    **{
        name: [ask("expand_as", {"x": x, "y": y}, (list(y),)) for x, y in ((A, A), ((1, 6), A), ((6,), A))]
        for name in ("expand_as", "expand_as_v2")
    },
    "flash_attention": [
        ask(
            "flash_attention",
            {"query": C, "key": C, "value": C},
            (0.0, causal, False, False),
            {"causal": causal},
            tensors="query key value _ _",
            extra=((), ()),
            results="out _ _ _",
        )
        for causal in (False, True)
    ],
    "flatten": [
        ask("flatten", {"x": B}, (0, 1), {"start_axis": 0, "stop_axis": 1}),
        ask("flatten", {"x": B}, (1, 2), {"start_axis": 1, "stop_axis": 2}),
    ],
    "fused_dropout_add": [ask("fused_dropout_add", {"x": A, "y": A}, attrs={"seed": 3}, results="out _")],
    "fused_gemm_epilogue": [ask("fused_gemm_epilogue", {"x": A, "y": (6, 8), "bias": (8,)}, (False, False), {})],
    "fused_linear_param_grad_add": [
        ask("fused_linear_param_grad_add", {"x": B, "dout": (2, 4, 8), "dweight": (6, 8), "dbias": (8,)}, (True, True))
    ],
    "fused_rms_norm": [ask("fused_rms_norm", {"x": B, "scale": (6,)}, (1e-6,))],
    "fused_rotary_position_embedding": [
        ask(
            "fused_rotary_position_embedding",
            {"q": C, "k": C, "v": C},
            (True, False, 10000.0),
            tensors="q k v _ _ _",
            extra=((1, 4, 1, 8), (1, 4, 1, 8), (2, 4)),
        )
    ],
    "gather": [ask("gather", {"x": A, "index": (2,)}, (axis,), {"axis": axis}) for axis in (0, 1)],
    "gather_nd": [ask("gather_nd", {"x": B, "index": places(*shape)}) for shape in ((4, 1), (4, 2), (2, 4, 2))],
    "group_norm": [
        ask("group_norm", {"x": IMAGE, **norm("")}, (1e-5, 2, "NCHW"), {"groups": 2}, results="out _ _"),
        ask(
            "group_norm",
            {"x": (2, 6, 6, 4), **norm("")},
            (1e-5, 2, "NHWC"),
            {"groups": 2, "data_format": "NHWC"},
            results="out _ _",
        ),
    ],
    "index_put": [
        ask("index_put", {"x": A, "indices": [np.array([0, 2, 1, 3])], "value": (4, 6)}, (flag,), {"accumulate": flag})
        for flag in (False, True)
    ],
    "index_select": [ask("index_select", {"x": A, "index": (2,)}, (axis,), {"axis": axis}) for axis in (0, 1)],
    "instance_norm": [ask("instance_norm", {"x": IMAGE, **norm("")}, (1e-5,), results="out _ _")],
    "label_smooth": [ask("label_smooth", {"label": A, "prior_dist": (1, 6)}, (0.1,))],
    "layer_norm": [
        ask(
            "layer_norm",
            {"x": B, "scale": (24 if axis == 1 else 6,), "bias": (24 if axis == 1 else 6,)},
            (1e-5, axis),
            {"begin_norm_axis": axis},
        )
        for axis in (1, 2)
    ],
    "linear_v2": [ask("linear", {"x": B, "weight": (6, 8), "bias": (8,)}, (False,))],
    "log_softmax": [ask("log_softmax", {"x": A}, (axis,), {"axis": axis}) for axis in (0, 1)],
    "logsumexp": [
        ask("logsumexp", {"x": A}, ([axis], keep, False), {"axis": [axis], "keepdim": keep})
        for axis in (0, 1)
        for keep in (False, True)
    ],
    "matmul": matmul(""),
    "matmul_v2": matmul(""),
    "mean_all": [ask("mean_all", {"x": A})],
    "moe_combine": [
        ask(
            "moe_combine",
            {"x": (12, 6), "combine_weights": (4, 2), "scatter_index": (4, 2)},
            whole=("combine_weights", "scatter_index"),
        )
    ],
    "moe_gate_dispatch": [
        ask("moe_gate_dispatch", {"x": (8, 6), "gate_logits": (8, 4)}, (2, 4, True), {"k": 2, "capacity": 4})
    ],
    "nonzero": [ask("nonzero", {"x": A}, attrs={"size": 24})],
    "one_hot": [ask("one_hot", {"x": A}, (8,), {"num_classes": 8})],
    "p_norm": [
        ask("p_norm", {"x": A}, (2.0, axis, 1e-12, keep, False), {"porder": 2.0, "axis": axis, "keepdim": keep})
        for axis in (0, 1)
        for keep in (False, True)
    ],
    "pad": [ask("pad", {"x": A}, ([0, 0, 1, 1], 0), {"pad": [0, 0, 1, 1]})],
    "put_along_axis": [
        ask(
            "put_along_axis",
            {"arr": A, "indices": (2, 6), "values": (2, 6)},
            (0, reduce, True),
            {"axis": 0, "reduce": reduce},
        )
        for reduce in ("assign", "add")
    ],
    "reduce_base": [
        one
        for op, number in (("sum", 0), ("max", 1), ("min", 2), ("prod", 3), ("mean", 4), ("any", 5), ("all", 6))
        for one in reduction("", op, number)
    ],
    **{
        name: [
            ask("reshape", {"x": x}, (to,), {"shape": to})
            for x, to in ((A, [24]), (B, [8, 6]), ((8, 6), [2, 4, 6]), (B, [2, 24]), ((24,), [4, 6]))
        ]
        for name in ("reshape", "reshape2")
    },
    "roi_align": [
        ask(
            "roi_align",
            {"x": (2, 4, 8, 8), "boxes": (4, 4), "boxes_num": (2,)},
            (2, 2, 1.0, 2, True),
            {"pooled_height": 2, "pooled_width": 2, "sampling_ratio": 2},
        )
    ],
    "roll": [ask("roll", {"x": A}, ([1], [axis]), {"shifts": [1], "axis": [axis]}) for axis in (0, 1)]
    + [ask("roll", {"x": A}, ([1], []), {"shifts": [1]})],
    "scatter": [
        ask("scatter", {"x": A, "index": (2,), "updates": (2, 6)}, (flag,), {"overwrite": flag})
        for flag in (True, False)
    ],
    "scatter_nd_add": [
        ask("scatter_nd_add", {"x": A, "index": places(2, 1), "updates": (2, 6)}),
        ask("scatter_nd_add", {"x": B, "index": places(4, 2), "updates": (4, 6)}),
    ],
    "slice": [
        ask("slice", {"input": A}, ([1], [0], [4], [1], []), {"axes": [1], "starts": [0], "ends": [4]}),
        ask(
            "slice",
            {"input": B},
            ([1], [2], [3], [1], [1]),
            {"axes": [1], "starts": [2], "ends": [3], "decrease_axis": [1]},
        ),
    ],
    "softmax": [ask("softmax", {"x": x}, (axis,), {"axis": axis}) for x, axis in ((A, 1), (A, 0), (B, -1))],
    "split": [ask("split", {"x": A}, ([2, 4], 1), {"num_or_sections": [2, 4], "axis": 1})],
    "split_with_num": [ask("split", {"x": A}, (2, axis), {"num_or_sections": 2, "axis": axis}) for axis in (0, 1)],
    "squared_l2_norm": [ask("squared_l2_norm", {"x": A}, ([0, 1], False))],
    "squeeze": [ask("squeeze", {"x": (4, 1, 6)}, ([1],), {"axis": [1]})],
    "stack": [ask("stack", {"x": [A, A]}, (axis,), {"axis": axis}) for axis in (0, 1, 2)],
    "strided_slice": [
        ask("strided_slice", {"x": A}, ([1], [0], [6], [2]), {"axes": [1], "starts": [0], "ends": [6], "strides": [2]})
    ],
    "swiglu": [ask("swiglu", {"x": A, "y": A})],
    "take_along_axis": [ask("take_along_axis", {"arr": A, "indices": (2, 6)}, (0,), {"axis": 0})],
    "tile": [
        ask("tile", {"x": A}, ([1, 2],), {"repeat_times": [1, 2]}),
        ask("tile", {"x": A}, ([2, 1, 1],), {"repeat_times": [2, 1, 1]}),
    ],
    "topk": [ask("topk", {"x": A}, (2, axis, True, True), {"k": 2, "axis": axis}) for axis in (0, 1)],
    **{
        name: [ask("transpose", {"x": B}, (perm,), {"perm": perm}) for perm in ([2, 0, 1], [0, 2, 1])]
        for name in ("transpose", "transpose2")
    },
    "triu": [ask("triu", {"x": A}, (0,)), ask("triu", {"x": B}, (1,), {"diagonal": 1})],
    "tril_triu": [ask("tril", {"x": A}, (0, True)), ask("triu", {"x": A}, (0, False))],
    "unbind": [ask("unbind", {"input": A}, (axis,), {"axis": axis}) for axis in (0, 1)],
    "unique": [
        ask("unique", {"x": (8,)}, (False, False, False, [], paddle.int64, True), {"size": 8}, results="out _ _ _")
    ],
    **{
        name: [ask("unsqueeze", {"x": A}, ([axis],), {"axis": [axis]}) for axis in (0, 1, 2)]
        for name in ("unsqueeze", "unsqueeze2")
    },
    "where": [
        Ask(Case("where", {"condition": A, "x": A, "y": A}, dtypes={"condition": "bool"})),
        Ask(Case("where", {"condition": (6,), "x": A, "y": A}, dtypes={"condition": "bool"})),
    ],
    "elementwise_unary": unary("", "exp"),
    "elementwise_binary": binary("", "add"),
    "replicated": template(),
    "default_": template(),
    "default_data_parallel": template(),
}
"""Their rule name -> what it is asked."""

_NO_REVERSE = (
    "add_n argsort assign batch_norm bmm c_embedding c_softmax_with_cross_entropy "
    "c_softmax_with_multi_label_cross_entropy conv2d_transpose conv3d cummax cummin depthwise_conv2d einsum "
    "flash_attention fused_gemm_epilogue fused_linear_param_grad_add group_norm index_put index_select instance_norm "
    "label_smooth linear_v2 mean_all moe_combine moe_gate_dispatch pad put_along_axis roi_align roll "
    "squared_l2_norm strided_slice take_along_axis topk unique"
)
NO_REVERSE = frozenset(_NO_REVERSE.split())
"""Rules that are not asked backward: they have no reverse rule, or register the rule of their grad in its place, which
takes other tensors; their grads are asked of programs."""
UNCALLED = {
    "moe_gate_dispatch": "its k and capacity are 64-bit integers, which Python cannot hand to a rule",
}
"""Rules that cannot be asked, and why."""
