"""Bring the training step of a PyTorch module in, plan it on four devices, check the proof, and run the plan.

A person writes the model as always. What is planned is the step that PyTorch would run: forward, backward as PyTorch
derives it, and the update by AdamW.
"""

from __future__ import annotations

import sys

from solver import Mesh, from_torch, plan

try:
    import torch
except ImportError:
    print("skipped, as it needs PyTorch: pip install 'shardproof[torch]'")
    sys.exit()

from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """Causal attention and a layer of neurons, each around its norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the next stream of activations."""
        heads = self.qkv(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(functional.gelu(self.up(self.between(x))))


class Gpt(nn.Module):
    """A language model whose head is tied to its embedding."""

    def __init__(self, words: int = 512, width: int = 256, heads: int = 4, layers: int = 2, length: int = 64) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return a score for every word at every place."""
        return self.head(self.blocks(self.words(tokens) + self.places))


def loss(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Compare the scores with the words that come next."""
    return functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def main() -> int:
    """Plan the step with the batch cut over dp."""
    with torch.device("meta"):  # no weights are needed to plan
        model, tokens = Gpt(), torch.empty(64, 64, dtype=torch.int64)
    step = from_torch(model, (), {"tokens": tokens, "target": tokens}, loss=loss, optimizer="adamw")
    found = plan(step, Mesh({"dp": 2, "tp": 2}, hardware="cpu"), pins={"tokens": "dp=S(0)", "target": "dp=S(0)"})
    print(found)
    for name in ("words.weight", "blocks.0.qkv.weight", "blocks.0.up.weight", "blocks.0.down.weight"):
        print(f"{name}: {found.layout(name)}")
    checked, ran = found.check(), found.simulate()
    print(checked, ran, sep="\n")
    return not (checked.ok and ran.ok)


if __name__ == "__main__":
    sys.exit(main())
