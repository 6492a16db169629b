"""Which op of ours each table of tests/data/legal speaks of, and how its attributes are called here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Names:
    """The op of ours that a kernel is.

    Parameters
    ----------
    op : str
        Its name.
    rename : mapping
        Attribute of the kernel -> attribute of ours; one not named keeps its name.
    drop : str
        Attributes that say nothing here, space separated.
    fixed : mapping
        Attributes that the table does not state.
    values : mapping
        Attribute of the kernel -> its value there -> the value of ours, as text.
    operands : str
        Our operand for each input, ``_`` for one that our op does not take; by default those of the op in order.
    logical : tuple of str
        Operands that hold truth values.
    by : tuple
        An attribute that chooses among ops, and the ops by its value.
    """

    op: str
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: str = ""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    operands: str = ""
    logical: tuple[str, ...] = ()
    by: tuple[str, tuple[str, ...]] | None = None

    def op_for(self, attrs: Mapping[str, Any]) -> str:
        """Return the op for the attributes of a case."""
        return self.op if self.by is None else self.by[1][attrs[self.by[0]]]

    def attrs_for(self, attrs: Mapping[str, Any]) -> dict[str, Any]:
        """Return our attributes for those of a case. A kernel that flattens takes no axis."""
        skipped = {*self.drop.split(), "flatten", *([self.by[0]] if self.by else [])}
        made = {
            self.rename.get(name, name): self.values.get(name, {}).get(str(value), value)
            for name, value in attrs.items()
            if name not in skipped
        }
        if attrs.get("flatten"):
            made["axis"] = None
        return {**self.fixed, **made}


_KEEP = {"keep_dim": "keepdim"}
_WINDOW = {"strides": "stride", "paddings": "padding", "dilations": "dilation"}
_REDUCED = ("sum", "max", "min", "prod", "mean", "any", "all")

NAMES: dict[str, Names] = {
    "add": Names("add"),
    "all": Names("all", _KEEP, logical=("x",)),
    "amin": Names("amin", _KEEP),
    "argmax": Names("argmax", {"keepdims": "keepdim"}),
    # The kernel makes the sorted elements, then their indices, which are our argsort.
    "argsort": Names("sort"),
    "bmm": Names("bmm"),
    "clip": Names("clip", fixed={"min": -0.5, "max": 0.5}),
    "conv2d": Names("conv2d", _WINDOW, drop="padding_algorithm"),
    "conv2d_transpose": Names("conv2d_transpose", _WINDOW, drop="padding_algorithm output_padding output_size"),
    "cummin": Names("cummin", values={"dtype": {"@int64": "int64"}}),
    "cumsum": Names("cumsum"),
    "divide": Names("divide"),
    "einsum": Names("einsum"),
    # The kernel's -1 says that no id is padding; the public function's says the last one.
    "embedding": Names("embedding", drop="sparse", values={"padding_idx": {"-1": None}}),
    "expand": Names("expand"),
    # The shape of y says it.
    "expand_as": Names("expand_as", drop="target_shape"),
    "flash_attention": Names("flash_attention", drop="return_softmax is_test", operands="query key value _ _"),
    "frobenius_norm": Names("frobenius_norm", _KEEP),
    # A root mean square over the last dim of rank 3, its inverse as a second result.
    "fused_rms_norm": Names("rms_norm", fixed={"begin_norm_axis": 2}),
    "gather": Names("gather"),
    "gelu": Names("gelu"),
    "group_norm": Names("group_norm"),
    "index_put": Names("index_put"),
    "instance_norm": Names("instance_norm"),
    "linear_v2": Names("linear", drop="transpose_weight"),
    "matmul": Names("matmul", {"trans_x": "transpose_x", "trans_y": "transpose_y"}),
    "maximum": Names("maximum"),
    "mean_all": Names("mean_all"),
    "min": Names("min", _KEEP),
    "one_hot": Names("one_hot"),
    "pad": Names("pad", {"paddings": "pad", "pad_value": "value"}),
    "prod": Names("prod", _KEEP),
    # The kernel's number of a reduction, in its order.
    "reduce_base": Names("sum", _KEEP, by=("reduce_type", _REDUCED)),
    # The table gives each image two boxes.
    "roi_align": Names("roi_align", fixed={"even_boxes": True}),
    # The first case states no attributes: its kernel adds a bias.
    "scale": Names("scale", fixed={"scale": 2.0, "bias": 0.5}),
    "scatter_nd_add": Names("scatter_nd_add"),
    "softmax": Names("softmax"),
    "split_with_num": Names("split", {"num": "num_or_sections"}),
    "squared_l2_norm": Names("squared_l2_norm"),
    "stack": Names("stack"),
    "subtract": Names("subtract"),
    "swiglu": Names("swiglu"),
    "tanh": Names("tanh"),
    "topk": Names("topk"),
    "transpose": Names("transpose"),
    "triu": Names("triu"),
    "unsqueeze": Names("unsqueeze"),
}

EMPTY: dict[str, str] = {
    "c_softmax_with_cross_entropy": "cross_entropy_with_softmax; its kernel talks to other devices, none was tried",
    "elementwise_pow": "pow; nothing was tried",
    "fused_dropout_add": "dropout, then add; its mask is random, nothing was tried",
    "nonzero": "no op: how large its result is only data say, and none was tried",
    "replicated": "no op: the name of a rule that replicates everything",
    "sync_batch_norm": "sync_batch_norm; its kernel talks to other devices, none was tried",
}
"""Tables without a case, what they mean here, and why they are empty."""
