"""Why rows that hold are left out, where several cases argue alike: pattern of rows -> reason."""

from __future__ import annotations

AFFINE = {"*P(* -> *": "the expression is affine in what is partial, or a product with a function of another operand"}
JOINT = {"*P(m??) P(m??) -> P(m??)": "an order passes one operand at a time, so that it holds for every monotone op"}
