from __future__ import annotations

from truth import Case

CASES = [
    Case("unfold", {"x": (2, 6, 8, 12)}, {"kernel_sizes": [2, 3], "strides": [2, 3]}),
    Case("unfold", {"x": (2, 4, 6, 7)}, {"kernel_sizes": 3, "paddings": [1, 0, 1, 2], "strides": 2}),
    Case("unfold", {"x": (2, 4, 5, 6)}, {"kernel_sizes": [2, 1], "dilations": 2}),
    Case("unfold", {"x": (2, 6, 4, 4)}, {"kernel_sizes": 4}),
    Case("fold", {"x": (2, 24, 12)}, {"output_sizes": [6, 8], "kernel_sizes": 2, "strides": 2}),
    Case("fold", {"x": (2, 12, 20)}, {"output_sizes": [6, 4], "kernel_sizes": [2, 1], "strides": 1}),
    Case("fold", {"x": (4, 36, 4)}, {"output_sizes": [4, 6], "kernel_sizes": 3, "paddings": [1, 0], "strides": [3, 3]}),
]
