"""Layers of Paddle: products, convolutions, pooling, norms, attention, losses."""

from __future__ import annotations

from typing import Any

from solver.importers.paddle_direct import Direct
from solver.importers.paddle_site import Site


def _padding(site: Site) -> list[int] | str:
    """The padding of a window: widths, or how they are found."""
    algorithm = site.attr("padding_algorithm", "EXPLICIT")
    return site.ints("paddings") if algorithm == "EXPLICIT" else str(algorithm)


def _window(op: str, x: str, **more: Any) -> Direct:
    """A convolution: strides and dilations by dim."""
    return Direct(
        op,
        operands={"x": x},
        attrs={"stride": "strides", "dilation": "dilations", "padding": _padding, **more},
        drop="paddings",
    )


def _transposed(op: str) -> Direct:
    return _window(
        op,
        "x",
        output_padding=lambda site: site.ints("output_padding") or 0,
        output_size=lambda site: site.ints("output_size") or None,
    )


def _pool(site: Site) -> Direct:
    """Pooling is one op there: its attributes say of which kind."""
    rank = len(site.value("x").shape) - 2
    kind = str(site.attr("pooling_type"))
    own = "ceil_mode exclusive paddings padding_algorithm strides kernel_size global_pooling adaptive"
    site.read.update(own.split())
    if site.attr("global_pooling") or site.attr("adaptive"):
        size = [1] * rank if site.attr("global_pooling") else site.ints("kernel_size")
        return Direct(f"adaptive_{kind}_pool{rank}d", attrs={"output_size": lambda site: size}, drop="pooling_type")
    return Direct(
        f"{kind}_pool{rank}d",
        attrs={"kernel_size": lambda site: site.ints("kernel_size"), "stride": "strides", "padding": _padding},
        drop="pooling_type",
    )


def _pool_with_index(site: Site) -> Direct:
    """Max pooling that also tells where: its grad needs no index here."""
    rank = len(site.value("x").shape) - 2
    site.read.update(("global_pooling", "adaptive", "strides", "paddings", "ceil_mode"))
    for result, what in (("mask", "where the largest elements lie"),):
        if result in site.results and any(
            not op.name().endswith("_grad") for op in site.results[result].all_used_ops()
        ):
            raise site.refuse(f"something reads {what}, which no op here tells")
    if site.attr("global_pooling") or site.attr("adaptive"):
        size = [1] * rank if site.attr("global_pooling") else site.ints("kernel_size")
        return Direct(f"adaptive_max_pool{rank}d", attrs={"output_size": lambda site: size})
    return Direct(
        f"max_pool{rank}d",
        attrs={"kernel_size": lambda site: site.ints("kernel_size"), "stride": "strides", "padding": "paddings"},
    )


def _statistics(op: str) -> Direct:
    """Running statistics are used in training only where they are the batch's own."""
    return Direct(op, attrs={"use_global_stats": "use_global_stats"}, needs={"trainable_statistics": False})


def _attention(site: Site) -> Direct:
    """Flash attention; with a mask it is the op that takes one."""
    site.read.update(("fixed_seed_offset", "is_test", "return_softmax", "softmax_lse", "seed_offset"))
    if site.attr("dropout"):
        raise site.refuse("dropout inside attention draws numbers by its own counter; plan it with dropout 0")
    names = {"query": "q", "key": "k", "value": "v"}
    if site.has("attn_mask"):
        return Direct("scaled_dot_product_attention", operands=names, attrs={"is_causal": "causal"}, drop="dropout")
    return Direct("flash_attention", operands=names)


def _rms_norm(site: Site) -> Direct:
    rank = len(site.value("x").shape)
    return Direct(
        "rms_norm",
        attrs={"begin_norm_axis": lambda site: rank - max(1, len(site.ints("normalized_shape")))},
        drop="normalized_shape",
    )


def _interpolate(mode: str) -> Any:
    def choose(site: Site) -> Direct:
        space = [site.attr(name) for name in ("out_d", "out_h", "out_w")][-(len(site.value("x").shape) - 2) :]
        scale = site.attr("scale")
        site.read.update(("out_d", "out_h", "out_w", "scale", "interp_method"))
        for name in ("out_size", "size_tensor", "scale_tensor"):
            if name in site.inputs:
                raise site.refuse(f"its {name} is a tensor; give the size as numbers")
        return Direct(
            "interpolate",
            attrs={
                "mode": lambda site: mode,
                "size": lambda site: None if scale else space,
                "scale_factor": lambda site: list(scale) if scale else None,
            },
        )

    return choose


LAYERS: dict[str, Any] = {
    "conv2d": _window("conv2d", "input"),
    "conv3d": _window("conv3d", "input"),
    "depthwise_conv2d": _window("depthwise_conv2d", "input"),
    "conv2d_transpose": _transposed("conv2d_transpose"),
    "conv3d_transpose": _transposed("conv3d_transpose"),
    "pool2d": _pool,
    "pool3d": _pool,
    "max_pool2d_with_index": _pool_with_index,
    "max_pool3d_with_index": _pool_with_index,
    "batch_norm": _statistics("batch_norm"),
    "sync_batch_norm": _statistics("sync_batch_norm"),
    "rms_norm": _rms_norm,
    "flash_attn": _attention,
    "cross_entropy_with_softmax": Direct(
        "cross_entropy_with_softmax", operands={"logits": "input"}, needs={"use_softmax": True}
    ),
    "nearest_interp": _interpolate("nearest"),
    "bilinear_interp": _interpolate("bilinear"),
    "bicubic_interp": _interpolate("bicubic"),
    "trilinear_interp": _interpolate("trilinear"),
    "linear_interp": _interpolate("linear"),
}
"""Ops that are one of ours, or which one by their attributes."""
