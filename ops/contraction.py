"""Products that sum over an index: matmul and its relatives, einsum."""

from __future__ import annotations

import numpy as np

from ops.bind import Shape
from ops.dims import Array, shape_of, sum_to
from ops.grad import Grad
from ops.notation import RuleError
from ops.op import Shapes
from ops.registry import family, op
from ops.rule import Rule, rule


def _matmul(x: Array, y: Array, transpose_x: bool, transpose_y: bool) -> Array:
    return np.asarray(_flip(x, transpose_x) @ _flip(y, transpose_y))


def _flip(x: Array, transpose: bool) -> Array:
    return np.swapaxes(x, -1, -2) if transpose and x.ndim > 1 else x


def _matmul_grad(x: Array, y: Array, out_grad: Array, transpose_x: bool, transpose_y: bool) -> tuple[Array, Array]:
    left = x[None, :] if x.ndim == 1 else _flip(x, transpose_x)
    right = y[:, None] if y.ndim == 1 else _flip(y, transpose_y)
    matrix = out_grad
    if x.ndim == 1:
        matrix = np.expand_dims(matrix, -1 if y.ndim == 1 else -2)
    if y.ndim == 1:
        matrix = np.expand_dims(matrix, -1)
    x_grad = _flip(sum_to(matrix @ np.swapaxes(right, -1, -2), left.shape), transpose_x and x.ndim > 1)
    y_grad = _flip(sum_to(np.swapaxes(left, -1, -2) @ matrix, right.shape), transpose_y and y.ndim > 1)
    return x_grad.reshape(x.shape), y_grad.reshape(y.shape)


@family("matmul", "x[], y[] -> out[]", kernel=_matmul, grad=Grad(_matmul_grad))
def matmul(x: Shape, y: Shape, transpose_x: bool = False, transpose_y: bool = False) -> Rule:
    """Batched matrix product; a vector on either side loses its dim."""
    for name, shape in (("x", x), ("y", y)):
        if not shape:
            raise RuleError(f"matmul takes vectors and matrices, but {name} is a scalar: use multiply")
    left = "k" if len(x) == 1 else "... k m" if transpose_x else "... m k"
    right = "k" if len(y) == 1 else "... n k" if transpose_y else "... k n"
    out = " ".join(["..."] * (len(x) > 1 or len(y) > 1) + ["m"] * (len(x) > 1) + ["n"] * (len(y) > 1))
    return rule(f"x[{left}], y[{right}] -> out[{out}]", sum="k", linear="x*y")


def _plain(x: Array, y: Array) -> Array:
    return np.asarray(x @ y)


def _plain_grad(x: Array, y: Array, out_grad: Array) -> tuple[Array, Array]:
    return _matmul_grad(x, y, out_grad, False, False)


op("bmm", "x[b m k], y[b k n] -> out[b m n]", sum="k", linear="x*y", kernel=_plain, grad=Grad(_plain_grad))
op("mv", "x[m k], vec[k] -> out[m]", sum="k", linear="x*vec", kernel=_plain, grad=Grad(_plain_grad))


def _dot_grad(x: Array, y: Array, out_grad: Array) -> tuple[Array, Array]:
    return y * out_grad[..., None], x * out_grad[..., None]


op(
    "dot",
    "x[b* k], y[b* k] -> out[b*]",
    sum="k",
    linear="x*y",
    kernel=lambda x, y: np.asarray((x * y).sum(-1)),
    grad=Grad(_dot_grad),
)


def _outer_grad(x: Array, y: Array, out_grad: Array) -> tuple[Array, Array]:
    return out_grad @ y, x @ out_grad


op("outer", "x[m], y[n] -> out[m n]", linear="x*y", kernel=np.outer, grad=Grad(_outer_grad))


def _linear(x: Array, weight: Array, bias: Array | None) -> Array:
    return np.asarray(x @ weight if bias is None else x @ weight + bias)


def _linear_grad(x: Array, weight: Array, out_grad: Array, shapes: Shapes) -> list[Array]:
    flat = out_grad.reshape(-1, out_grad.shape[-1])
    grads = [out_grad @ weight.T, x.reshape(-1, x.shape[-1]).T @ flat]
    return grads if shapes["bias"] is None else [*grads, flat.sum(0)]


op(
    "linear",
    "x[a* k], weight[k n], bias?[n] -> out[a* n]",
    sum="k",
    linear="x*weight + bias",
    kernel=_linear,
    grad=Grad(_linear_grad, reads="x weight", shapes=True),
)


def _addmm(input: Array, x: Array, y: Array, alpha: float, beta: float) -> Array:
    return np.asarray(beta * input + alpha * (x @ y))


def _addmm_grad(
    x: Array, y: Array, out_grad: Array, alpha: float, beta: float, shapes: Shapes
) -> tuple[Array, Array, Array]:
    x_grad, y_grad = _plain_grad(x, y, alpha * out_grad)
    return sum_to(beta * out_grad, shape_of(shapes, "input")), x_grad, y_grad


_ADDMM_GRAD = Grad(_addmm_grad, reads="x y", shapes=True)


@family("addmm", "input[], x[], y[] -> out[]", kernel=_addmm, grad=_ADDMM_GRAD, attrs={"alpha": 1.0, "beta": 1.0})
def addmm(input: Shape, x: Shape, y: Shape) -> Rule:
    """Compute beta * input + alpha * x @ y; the input broadcasts."""
    whole = (x[0], y[1]) if len(x) == len(y) == 2 else (0, 0)
    return _add_product("addmm", "m k", "k n", ("m", "n"), input, whole)


@family("baddbmm", "input[], x[], y[] -> out[]", kernel=_addmm, grad=_ADDMM_GRAD, attrs={"alpha": 1.0, "beta": 1.0})
def baddbmm(input: Shape, x: Shape, y: Shape) -> Rule:
    """Compute beta * input + alpha * x @ y, batched; the input broadcasts."""
    whole = (x[0], x[1], y[2]) if len(x) == len(y) == 3 else (0, 0, 0)
    return _add_product("baddbmm", "b m k", "b k n", ("b", "m", "n"), input, whole)


def _add_product(name: str, left: str, right: str, out: tuple[str, ...], given: Shape, whole: Shape) -> Rule:
    """Return the rule of input + x @ y: a dim of size 1 of the input that broadcasts is never cut."""
    if len(given) > len(out):
        raise RuleError(f"the input of {name} has rank {len(given)} and shape {given}, its result has rank {len(out)}")
    last = len(out) - len(given)
    dims = [
        "1" if size == 1 != full else factor for factor, size, full in zip(out[last:], given, whole[last:], strict=True)
    ]
    text = f"input[{' '.join(dims)}], x[{left}], y[{right}] -> out[{' '.join(out)}]"
    return rule(text, sum="k", linear="x*y + input")
