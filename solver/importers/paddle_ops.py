"""The tables: ops of Paddle that one of ours is, those that become several, and those that only name something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ops.registry import names
from solver.importers.paddle_direct import Direct
from solver.importers.paddle_known import KNOWN
from solver.importers.paddle_layers import LAYERS
from solver.importers.paddle_site import Site
from solver.importers.paddle_updates import UPDATES
from solver.importers.paddle_views import VIEWS

Choice: TypeAlias = "Direct | Callable[[Site], Direct]"
"""One op of ours, or which one by the attributes of theirs."""


def _axes(site: Site) -> list[int] | None:
    """The dims that a reduction is over; None, all of them, where it names none."""
    return None if site.attr("reduce_all", False) else site.ints("axis") or None


def _reduction(op: str, keepdim: str = "keepdim", **more: str | Callable[[Site], Any]) -> Direct:
    return Direct(op, attrs={"axis": _axes, "keepdim": keepdim, **more})


def _extreme(op: str) -> Direct:
    return Direct(op, attrs={"axis": lambda site: None if site.attr("flatten") else site.attr("axis"),
                             "keepdim": "keepdims"})  # fmt: skip


def _running(site: Site) -> int | None:
    return None if site.attr("flatten", False) else int(site.attr("axis"))


def _norm_axis(site: Site) -> int | None:
    return None if site.attr("asvector") else int(site.attr("axis"))


def _seed(site: Site) -> int:
    """Each op that draws has numbers of its own, and its grad draws them again."""
    drawing = site if site.forward is None else site.forward
    return drawing.reading.seed_of(drawing.op)


def _training(site: Site) -> bool:
    return not site.attr("is_test", False)


_DROPOUT = {"training": _training, "seed": _seed}


_SAME_NAME = {name: Direct(name) for name in names() if not name.endswith("_grad")}

DIRECT: dict[str, Choice] = {
    **_SAME_NAME,
    **{op: _reduction(op) for op in ("sum", "mean", "max", "min", "amax", "amin", "prod", "all", "any", "logsumexp")},
    "frobenius_norm": _reduction("frobenius_norm", "keep_dim"),
    "p_norm": Direct("p_norm", attrs={"axis": _norm_axis}, drop="asvector epsilon"),
    "argmax": _extreme("argmax"),
    "argmin": _extreme("argmin"),
    "cumsum": Direct("cumsum", attrs={"axis": _running}, drop="flatten"),
    "logcumsumexp": Direct(
        "logcumsumexp", attrs={"axis": _running}, drop="flatten", needs={"exclusive": False, "reverse": False}
    ),
    "cumprod": Direct("cumprod", needs={"exclusive": False, "reverse": False}),
    "elementwise_pow": Direct("pow"),
    "pow": Direct("pow", operands={"y": "exponent"}, attrs={"factor": lambda site: float(site.attr("y"))}),
    "tanh_shrink": Direct("tanhshrink"),
    "logsigmoid": Direct("log_sigmoid"),
    "hardtanh": Direct("hardtanh", attrs={"min": "t_min", "max": "t_max"}),
    "mish": Direct("mish", drop="lambda"),  # from where on softplus is the identity, to rounding
    "round": Direct("round", needs={"decimals": 0}),
    "trunc": Direct("trunc", operands={"x": "input"}),
    "prelu": Direct("prelu", operands={"weight": "alpha"}, drop="mode"),
    "einsum": Direct("einsum", operands={"operands": "x"}),
    "argsort": Direct("argsort", results={"out": "indices"}),
    "one_hot": Direct("one_hot"),
    "embedding": Direct(
        "embedding",
        attrs={"padding_idx": lambda site: None if site.attr("padding_idx") < 0 else site.attr("padding_idx")},
        needs={"sparse": False},
    ),
    "c_embedding": Direct("c_embedding", drop="vocab_size"),
    "put_along_axis": Direct("put_along_axis", needs={"include_self": True}),
    "index_add": Direct("index_add", operands={"value": "add_value"}),
    "squeeze": Direct("squeeze", attrs={"axis": lambda site: site.ints("axis") or None}),
    "unsqueeze": Direct("unsqueeze", attrs={"axis": lambda site: site.ints("axis")}),
    "dropout": Direct("dropout", attrs=_DROPOUT, drop="seed seed_tensor fix_seed"),
    "fused_dropout_add": Direct("fused_dropout_add", attrs=_DROPOUT, drop="seed seed_tensor fix_seed"),
    "bernoulli": Direct("bernoulli", attrs={"seed": _seed}),
    "poisson": Direct("poisson", attrs={"seed": _seed}),
    "gaussian": Direct("gaussian", attrs={"seed": _seed, "shape": lambda site: site.ints("shape")}, drop="seed"),
    "uniform": Direct("uniform", attrs={"seed": _seed, "shape": lambda site: site.ints("shape")}, drop="seed"),
    "randint": Direct("randint", attrs={"seed": _seed, "shape": lambda site: site.ints("shape")}, drop="seed"),
    "bce_loss": Direct("binary_cross_entropy", attrs={"reduction": lambda site: "none"}),
    "sigmoid_cross_entropy_with_logits": Direct(
        "binary_cross_entropy_with_logits",
        operands={"input": "x"},
        attrs={"reduction": lambda site: "none"},
        needs={"normalize": False, "ignore_index": -100},
    ),
    "huber_loss": Direct("smooth_l1_loss", attrs={"reduction": lambda site: "none", "is_huber": lambda site: True}),
    "kldiv_loss": Direct("kl_div", operands={"input": "x"}),
    **VIEWS,
    **LAYERS,
}
"""Ops of Paddle that one of ours is; their grads follow."""

GRADS: dict[str, Choice] = {"argsort_grad": Direct("sort")}
"""Grad ops that are not those of the op that their name says."""

OTHERS: dict[str, Callable[[Site], None]] = {**KNOWN, **UPDATES}
"""Ops that become none of ours, or several."""


def translate(site: Site) -> None:
    """Write what an op of Paddle becomes, and bind its results.

    Raises
    ------
    ImporterError
        Where it becomes nothing here.
    """
    if site.kind in OTHERS:
        OTHERS[site.kind](site)
        return
    backward = site.kind not in DIRECT
    choice = GRADS.get(site.kind) or DIRECT[site.kind.removesuffix("_grad") if backward else site.kind]
    direct = choice(site) if callable(choice) else choice
    if backward:
        direct.write_grad(site)
    else:
        direct.write(site)
        site.check_read()


def is_known(kind: str) -> bool:
    """Tell whether an op of Paddle, named without dialect, becomes something here."""
    if kind in OTHERS or kind in GRADS or kind in DIRECT:
        return True
    base = kind.removesuffix("_grad")
    return base != kind and base in DIRECT and _has_grad(base)


def _has_grad(kind: str) -> bool:
    choice = DIRECT[kind]
    return callable(choice) or f"{choice.op}_grad" in set(names())
