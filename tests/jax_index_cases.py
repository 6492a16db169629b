"""Gathers, scatters, convolutions, windows, loops and calls in JAX, with the arguments at which they are compared."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax_cases import IDS, Case, X, Y, floats, ints, positive

TABLE, T3 = floats(9, 6), floats(2, 5, 3)


def _grad(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the sum of squares of what a function returns, by its first argument."""
    return jax.grad(lambda *args: jnp.sum(fn(*args) ** 2))


def _along(x: Any, i: Any) -> Any:
    return jnp.take_along_axis(x, i, axis=1)


_LOOKUPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "embedding": (lambda w, i: w[i], (TABLE, IDS), "embedding"),
    "take_axis0": (lambda w, i: jnp.take(w, i, axis=0), (TABLE, IDS), "embedding"),
    "take_axis1": (lambda x, i: jnp.take(x, i, axis=1), (X, ints(6, 3)), ""),
    "index_axis1": (lambda x, i: x[:, i], (T3, ints(5, 4)), "gather"),
    "index_rows": (lambda x, i: x[i], (T3, ints(2, 4)), "gather"),
    "index_two_dims": (lambda x, i, j: x[i, j], (X, ints(4, 5), ints(6, 5)), ""),
    "index_two_apart": (lambda x, i, j: x[i, :, j], (T3, ints(2, 4), ints(3, 4)), ""),
    "index_negative": (lambda w, i: w[i - 4], (TABLE, ints(8, 5)), "embedding"),
    "take_along": (_along, (X, ints(6, 4, 3)), "take_along_axis"),
    "take_along_middle": (_along, (T3, ints(5, 2, 4, 3)), "take_along_axis"),
    "vmap_index": (jax.vmap(lambda x, i: x[i]), (T3, ints(5, 2, 4)), "take_along_axis"),
    "vmap_index_columns": (jax.vmap(lambda x, i: x[:, i]), (T3, ints(3, 2, 4)), "take_along_axis"),
    "vmap_shared_table": (jax.vmap(lambda x, i: x[i], (None, 0)), (TABLE, IDS), "embedding"),
    "vmap_two_dims": (jax.vmap(lambda x, i, j: x[i, j]), (T3, ints(5, 2, 4), ints(3, 2, 4)), "take_along_axis"),
    "vmap_slice": (jax.vmap(lambda x, i: lax.dynamic_slice(x, (i, np.int32(0)), (2, 3))), (T3, ints(3, 2)), ""),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i, np.int32(1)), (2, 6)), (X, np.int32(1)), "gather"),
    "dynamic_slice_two": (lambda x, i: lax.dynamic_slice(x, (i, i), (2, 3)), (X, np.int32(1)), "gather"),
    "dynamic_slice_beyond": (lambda x, i: lax.dynamic_slice(x, (i, np.int32(0)), (2, 6)), (X, np.int32(9)), "gather"),
    "dynamic_index": (lambda x, i: lax.dynamic_index_in_dim(x, i, 1), (X, np.int32(2)), "gather"),
    "dynamic_update": (lambda x, i: lax.dynamic_update_slice_in_dim(x, 2 * x[:2], i, 0), (X, np.int32(1)), "scatter"),
    "dynamic_update_two": (lambda x, i: lax.dynamic_update_slice(x, 2 * x[:2, :2], (i, i)), (X, np.int32(1)), ""),
    "dynamic_update_known": (lambda x: lax.dynamic_update_slice(x, 2 * x[:2, :2], (1, 2)), (X,), "slice_scatter"),
    "at_add": (lambda x, i: x.at[i].add(x[:5]), (TABLE, ints(9, 5)), "index_add"),
    "at_add_columns": (lambda x, i: x.at[:, i].add(x[:, :5]), (TABLE, ints(6, 5)), "index_add"),
    "at_add_number": (lambda x, i: x.at[i].add(1.5), (TABLE, ints(9, 5)), "index_add"),
    "at_add_two": (lambda x, i, j: x.at[i, j].add(x[0, :5]), (TABLE, ints(9, 5), ints(6, 5)), "index_add"),
    "at_set": (lambda x, i: x.at[i].set(2 * x[:2]), (TABLE, np.array([3, 1], np.int32)), "scatter"),
    "at_set_column": (lambda x, i: x.at[i, 2].set(3.0), (TABLE, np.array([3, 1], np.int32)), ""),
    "at_set_known": (lambda x: x.at[1:3].set(0.0), (TABLE,), ""),
    "at_mul": (lambda x, i: x.at[i].mul(3.0), (TABLE, np.array([3, 1], np.int32)), "put_along_axis"),
    "at_max": (lambda x, i: x.at[i].max(x[:5]), (TABLE, ints(9, 5)), "put_along_axis"),
    "at_min": (lambda x, i: x.at[i].min(x[:5]), (TABLE, ints(9, 5)), "put_along_axis"),
    "at_subtract": (lambda x, i: x.at[i].subtract(x[:5]), (TABLE, ints(9, 5)), ""),
    "vmap_at_add": (jax.vmap(lambda x, i: x.at[i].add(x[:4])), (T3, ints(5, 2, 4)), "put_along_axis"),
    "vmap_at_set": (jax.vmap(lambda x, i: x.at[i].set(0.0)), (T3, ints(5, 2)), "put_along_axis"),
    "clip_mode": (lambda w, i: w.at[i].get(mode="clip"), (TABLE, ints(20, 5)), "clip"),
    "segment_sum": (lambda x, i: jax.ops.segment_sum(x, i, 3), (TABLE, ints(3, 9)), ""),
    "one_hot": (lambda i, x: jax.nn.one_hot(i, 9) @ x, (IDS, TABLE), ""),
}
INDEXING = [
    *(Case(name, fn, args, ops) for name, (fn, args, ops) in _LOOKUPS.items()),
    *(
        Case(f"{name}_grad", _grad(fn), args)
        for name, (fn, args, _) in _LOOKUPS.items()
        if name not in ("one_hot", "at_max", "at_min", "clip_mode", "at_mul")
    ),
    Case("embedding_backward", _grad(lambda w, i: w[i]), (TABLE, IDS), "embedding_grad", "where index_add"),
    Case("along_backward", _grad(_along), (X, ints(6, 4, 3)), "take_along_axis_grad", "put_along_axis"),
    Case("rows_backward", _grad(lambda x, i: x[:, i]), (T3, ints(5, 4)), "gather_grad", "index_add"),
    Case("positions", lambda w: w[jnp.arange(2, 7)], (TABLE,), "slice", "embedding"),
    Case("sort_grad", _grad(lambda x: jnp.sort(x, 1)), (X,)),
    Case("top_k_grad", _grad(lambda x: lax.top_k(x, 2)[0]), (X,)),
    Case("max_grad", _grad(lambda x: jnp.max(x, 1)), (X,)),
]


def _conv(x: Any, w: Any, spec: str = "NHWC HWIO NHWC", **given: Any) -> Any:
    strides = given.pop("window_strides", (1,) * (x.ndim - 2))
    padding = given.pop("padding", "SAME")
    return lax.conv_general_dilated(x, w, strides, padding, dimension_numbers=tuple(spec.split()), **given)


_IMAGE, _FILTER = floats(2, 8, 9, 4), floats(3, 3, 4, 6)
_CONVOLUTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "conv2d": (_conv, (_IMAGE, _FILTER)),
    "conv2d_valid": (partial(_conv, padding="VALID"), (_IMAGE, _FILTER)),
    "conv2d_stride": (partial(_conv, window_strides=(2, 2)), (_IMAGE, _FILTER)),
    "conv2d_uneven": (partial(_conv, window_strides=(2, 3), padding=((2, 1), (0, 2))), (_IMAGE, _FILTER)),
    "conv2d_dilated": (partial(_conv, rhs_dilation=(2, 1)), (_IMAGE, _FILTER)),
    "conv2d_groups": (partial(_conv, feature_group_count=2), (_IMAGE, floats(3, 3, 2, 6))),
    "conv2d_depthwise": (
        partial(_conv, feature_group_count=4, window_strides=(2, 2)),
        (_IMAGE, floats(3, 3, 1, 8)),
    ),
    "conv2d_batch_groups": (partial(_conv, batch_group_count=2), (floats(4, 6, 5, 3), floats(3, 3, 3, 8))),
    "conv2d_nchw": (partial(_conv, spec="NCHW OIHW NCHW"), (floats(2, 4, 8, 9), floats(6, 4, 3, 3))),
    "conv2d_odd": (partial(_conv, spec="CHWN IHWO HWNC"), (floats(4, 8, 9, 2), floats(4, 3, 3, 6))),
    "conv2d_spread": (partial(_conv, lhs_dilation=(2, 2), padding=((1, 2), (2, 1))), (_IMAGE, _FILTER)),
    "conv2d_spread_wide": (partial(_conv, lhs_dilation=(2, 2), padding=((4, 4), (3, 3))), (_IMAGE, _FILTER)),
    "conv2d_negative": (partial(_conv, padding=((-1, 2), (0, -1))), (_IMAGE, _FILTER)),
    "conv1d": (partial(_conv, spec="NWC WIO NWC", window_strides=(2,)), (floats(2, 9, 4), floats(3, 4, 6))),
    "conv3d": (partial(_conv, spec="NDHWC DHWIO NDHWC"), (floats(1, 4, 5, 4, 2), floats(3, 3, 3, 2, 4))),
    "conv_transpose": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), (_IMAGE, _FILTER)),
}  # fmt: skip


def _window(name: str, start: float, sizes: tuple[int, ...], steps: tuple[int, ...], padding: Any) -> Any:
    reduce = {"sum": lax.add, "max": lax.max, "min": lax.min}[name]
    return lambda x: lax.reduce_window(x, start, reduce, sizes, steps, padding)


_POOLS: dict[str, Callable[..., Any]] = {
    "max_pool": _window("max", -np.inf, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    "max_pool_same": _window("max", -np.inf, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "min_pool": _window("min", np.inf, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    "sum_pool": _window("sum", 0.0, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"),
    "sum_batch": _window("sum", 0.0, (2, 1, 1, 3), (1, 1, 2, 1), "VALID"),
    "max_three": _window("max", -np.inf, (1, 2, 2, 2), (1, 2, 2, 2), "VALID"),
}
WINDOWS = [
    *(Case(name, fn, args) for name, (fn, args) in _CONVOLUTIONS.items()),
    *(
        Case(f"{name}_grad_{slot}", jax.grad(lambda x, w, fn=fn: jnp.sum(fn(x, w) ** 2), slot), args)
        for name, (fn, args) in _CONVOLUTIONS.items()
        for slot in (0, 1)
    ),
    *(Case(name, fn, (_IMAGE,)) for name, fn in _POOLS.items()),
    *(Case(f"{name}_grad", _grad(fn), (_IMAGE,)) for name, fn in _POOLS.items() if name != "min_pool"),
    Case("strides_back", _grad(_CONVOLUTIONS["conv2d_stride"][0]), (_IMAGE, _FILTER), "conv2d_transpose", "flip pad"),
]  # fmt: skip


@jax.custom_vjp
def _scaled(x: Any) -> Any:
    return 2 * x


_scaled.defvjp(lambda x: (2 * x, None), lambda _, g: (3 * g,))


def _layers(x: Any, w: Any) -> Any:
    return lax.scan(lambda h, each: (jnp.tanh(h @ each), jnp.sum(h)), x, w)


def _counted(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 2, c[1] * 1.5), (0, x))


CALLS = [
    Case("jit", jax.jit(lambda x: jax.jit(jnp.sin)(x) * 2), (X,)),
    Case("custom_jvp", lambda x: jax.nn.relu(x) + jax.nn.silu(x), (X,)),
    Case("custom_jvp_grad", _grad(lambda x: jax.nn.relu(x) * jax.nn.softplus(x)), (X,)),
    Case("custom_vjp", _scaled, (X,)),
    Case("custom_vjp_grad", _grad(_scaled), (X,)),
    Case("remat", _grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)))), (X,)),
    Case("gelu", lambda x: (jax.nn.gelu(x), jax.nn.gelu(x, approximate=False)), (X,)),
    Case("gelu_grad", _grad(lambda x: jax.nn.gelu(x, approximate=False)), (X,)),
    Case("scan", _layers, (X, floats(3, 6, 6)), "unbind"),
    Case("scan_grad", _grad(lambda w, x: _layers(x, w)[0]), (floats(3, 6, 6), X), "unbind stack"),
    Case("scan_reverse", lambda x: lax.scan(lambda c, a: (c + a, c * a), jnp.zeros(6), x, reverse=True), (X,)),
    Case("scan_counts", lambda x: lax.scan(lambda c, i: (c + i, c), x, jnp.arange(3)), (X,), absent="unbind"),
    Case("scan_nested", lambda x: lax.scan(lambda c, a: (_layers(c, a)[0], None), x, floats(2, 2, 6, 6))[0], (X,)),
    Case("fori_loop", lambda x: lax.fori_loop(0, 3, lambda i, c: c * i + 1, x), (X,)),
    Case("fori_index", lambda x: lax.fori_loop(0, 4, lambda i, c: c + jnp.asarray(x)[i], jnp.zeros(6)), (X,), "slice"),
    Case("while_known", _counted, (X,)),
    Case("cond_known", lambda x: lax.cond(np.bool_(True), jnp.sin, jnp.cos, x), (X,), "sin", "cos"),
    Case("switch_known", lambda x: lax.switch(np.int32(1), [jnp.sin, jnp.cos, jnp.tan], x), (X,), "cos", "sin tan"),
    Case("map", lambda x: lax.map(jnp.sin, x), (X,)),
    Case("vmap", jax.vmap(lambda x, y: jnp.dot(x, y) * x), (X, Y)),
    Case("jacobian", jax.jacobian(lambda x: jnp.tanh(x).sum(0)), (X,)),
    Case("hessian", jax.hessian(lambda x: jnp.sum(x**3)), (floats(4),)),
    Case("key_known", lambda x: x + jax.random.normal(jax.random.key(3), (4, 6)), (X,), absent="uniform"),
    Case("key_old", lambda x: x + jax.random.uniform(jax.random.split(jax.random.PRNGKey(3))[1], (4, 6)), (X,)),
    Case("lgamma_grad", _grad(lax.lgamma), (positive(4, 6),)),
]
