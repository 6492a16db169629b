from __future__ import annotations

from truth import Case

CASES = [
    Case("matmul", {"x": (4, 6), "y": (6, 12)}),
    Case("matmul", {"x": (2, 6, 4), "y": (4, 6)}),
    Case("matmul", {"x": (6, 4), "y": (6, 12)}, {"transpose_x": True}),
    Case("matmul", {"x": (2, 6, 4), "y": (6, 4)}, {"transpose_y": True}),
    Case("matmul", {"x": (4, 1, 6, 4), "y": (6, 4, 6)}),
    Case("matmul", {"x": (6,), "y": (6,)}),
    Case("matmul", {"x": (6,), "y": (6, 4)}),
    Case("matmul", {"x": (2, 4, 6), "y": (6,)}),
    Case("matmul", {"x": (6,), "y": (2, 6, 4)}),
    Case("bmm", {"x": (2, 6, 4), "y": (2, 4, 6)}),
    Case("mv", {"x": (4, 6), "vec": (6,)}),
    Case("dot", {"x": (4, 6), "y": (4, 6)}),
    Case("dot", {"x": (6,), "y": (6,)}),
    Case("outer", {"x": (4,), "y": (6,)}),
    Case("linear", {"x": (2, 4, 6), "weight": (6, 12), "bias": (12,)}),
    Case("linear", {"x": (4, 6), "weight": (6, 12), "bias": None}),
    Case("addmm", {"input": (4, 12), "x": (4, 6), "y": (6, 12)}, {"alpha": 2.0, "beta": 0.5}),
    Case("addmm", {"input": (12,), "x": (4, 6), "y": (6, 12)}),
    Case("addmm", {"input": (4, 1), "x": (4, 6), "y": (6, 12)}),
    Case("baddbmm", {"input": (6, 4), "x": (2, 6, 4), "y": (2, 4, 4)}, {"alpha": 2.0, "beta": 0.5}),
    Case("baddbmm", {"input": (2, 1, 6), "x": (2, 4, 4), "y": (2, 4, 6)}),
    Case("einsum", {"operands": [(4, 6), (6, 12)]}, {"equation": "ij,jk->ik"}),
    Case("einsum", {"operands": [(2, 4, 6), (2, 6, 4)]}, {"equation": "bij,bjk"}),
    Case("einsum", {"operands": [(2, 4, 6), (6, 4)]}, {"equation": "...ij,jk->...ik"}),
    Case("einsum", {"operands": [(4, 6), (6, 2), (2, 4)]}, {"equation": "aB,Bc,cd->ad"}),
    Case("einsum", {"operands": [(4, 6)]}, {"equation": "ij->j"}),
    Case("einsum", {"operands": [(4, 6)]}, {"equation": "ij->ji"}),
    Case("einsum", {"operands": [(4, 6), (4, 6)]}, {"equation": "ij,ij->"}),
]
