"""Models of PyTorch for the tests: the tiny GPT, small ones of transformers, and what torch itself computes.

Everything is in float64, so that a difference is a mistake and not a rounding.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tiny_gpt
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)  # tiny tensors are many times faster so

Array = np.ndarray[Any, Any]
BATCH, SEQUENCE, WORDS = 4, 8, 64


# ------------------------------------------------------------------------------------------------- what torch computes


@dataclass(frozen=True)
class Truth:
    """What torch computes: the loss, the gradient of each parameter, and the buffers after the step."""

    loss: float
    gradients: Mapping[str, Array]
    buffers: Mapping[str, Array]


def truth(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], loss: Callable[..., Any]) -> Truth:
    """Run a module forward and backward; its weights stay, its buffers are put back."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    module.zero_grad()
    made = loss(module(*args, **kwargs))
    made.backward()
    found = Truth(
        made.item(),
        {name: p.grad.numpy() for name, p in module.named_parameters() if p.grad is not None},
        {name: buffer.numpy(force=True).copy() for name, buffer in module.named_buffers()},
    )
    for name, buffer in module.named_buffers():
        buffer.copy_(before[name])
    return found


def agree(found: Mapping[str, Array], wanted: Mapping[str, Array], tolerance: float = 1e-4) -> None:
    """Hold arrays against those of torch: a relative error of 1e-4, as torch itself computes parts in float32.

    Some gradients are nothing but rounding, as that of a bias that softmax cancels: a trillionth of the largest one.
    """
    noise = 1e-12 * max((float(np.abs(array).max()) for array in wanted.values()), default=0.0)
    for name, array in wanted.items():
        error, largest = np.abs(found[name] - array).max(), np.abs(array).max()
        assert error <= tolerance * largest + noise, (
            f"{name} differs by {error:.2e}, its largest value is {largest:.2e}"
        )


def values(module: nn.Module, graph: Any, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The weights, buffers and inputs of a module, as a graph that was made of it asks for them."""
    given = {**dict(module.named_parameters()), **dict(module.named_buffers()), **inputs}
    return {
        name: given[name].numpy(force=True)
        for name, tensor in graph.tensors.items()
        if tensor.producer is None and tensor.value is None
    }


# ----------------------------------------------------------------------------------------------------- the tiny GPT


class _Linear(nn.Module):
    def __init__(self, inner: int, outer: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inner, outer))
        self.bias = nn.Parameter(torch.empty(outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class _Attention(nn.Module):
    def __init__(self, sizes: tiny_gpt.Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.q, self.k, self.v, self.proj = (_Linear(sizes.width, sizes.width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            layer(x).view(batch, length, self.sizes.heads, self.sizes.head).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2) * self.sizes.head**-0.5
        seen = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        probs = torch.where(seen, scores, tiny_gpt.MASKED).softmax(-1)
        return self.proj((probs @ v).transpose(1, 2).reshape(batch, length, width))


class _Mlp(nn.Module):
    def __init__(self, sizes: tiny_gpt.Sizes) -> None:
        super().__init__()
        self.up, self.down = _Linear(sizes.width, sizes.hidden), _Linear(sizes.hidden, sizes.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(x), approximate="tanh"))


class _Block(nn.Module):
    def __init__(self, sizes: tiny_gpt.Sizes) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(sizes.width, eps=tiny_gpt.EPSILON) for _ in range(2))
        self.attn, self.mlp = _Attention(sizes), _Mlp(sizes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class TinyGpt(nn.Module):
    """`tiny_gpt`, written for PyTorch."""

    def __init__(self, sizes: tiny_gpt.Sizes = tiny_gpt.SIZES) -> None:
        super().__init__()
        self.wte = nn.Parameter(torch.empty(sizes.vocab, sizes.width))
        self.wpe = nn.Parameter(torch.empty(sizes.sequence, sizes.width))
        self.h = nn.ModuleList(_Block(sizes) for _ in range(sizes.layers))
        self.ln_f = nn.LayerNorm(sizes.width, eps=tiny_gpt.EPSILON)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = functional.embedding(ids, self.wte) + self.wpe
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.t()
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def gpt(dtype: str = "float64") -> tuple[TinyGpt, dict[str, torch.Tensor]]:
    """The tiny GPT with its weights, and its inputs."""
    module = TinyGpt().to(getattr(torch, dtype))
    module.load_state_dict({name: torch.from_numpy(array) for name, array in tiny_gpt.weights(dtype=dtype).items()})
    ids, labels = tiny_gpt.tokens()
    return module, {"ids": torch.from_numpy(ids), "labels": torch.from_numpy(labels)}


# ------------------------------------------------------------------------------------------- models of transformers


def _words(**more: Any) -> dict[str, Any]:
    """What models of language share."""
    return {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0, **more}


def _llama(config: Any, **more: Any) -> Any:
    return config(
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=32,
        intermediate_size=64,
        max_position_embeddings=16,
        **_words(**more),
    )


def _encoder(config: Any, **more: Any) -> Any:
    return config(
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_size=32,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **more,
    )


def _gpt2(t: Any) -> Any:
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 16}
    none = {"resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}
    return t.GPT2LMHeadModel(t.GPT2Config(**sizes, **none, **_words()))


def _t5(t: Any) -> Any:
    sizes = {"num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "d_model": 32, "d_kv": 8, "d_ff": 64}
    return t.T5ForConditionalGeneration(t.T5Config(dropout_rate=0.0, decoder_start_token_id=0, **sizes, **_words()))


def _resnet(t: Any) -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"}
    return t.ResNetForImageClassification(t.ResNetConfig(num_labels=4, **sizes))


def _convnext(t: Any) -> Any:
    sizes = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 4, "image_size": 32}
    return t.ConvNextForImageClassification(t.ConvNextConfig(num_labels=4, drop_path_rate=0.0, **sizes))


def _vit(t: Any) -> Any:
    return t.ViTForImageClassification(_encoder(t.ViTConfig, num_labels=4, image_size=32, patch_size=8))


def _mixtral(t: Any) -> Any:
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}
    return t.MixtralForCausalLM(_llama(t.MixtralConfig, **experts))


WORD_MODELS: dict[str, Callable[[Any], Any]] = {
    "gpt2": _gpt2,
    "llama": lambda t: t.LlamaForCausalLM(_llama(t.LlamaConfig)),
    "bert": lambda t: t.BertForMaskedLM(_encoder(t.BertConfig, max_position_embeddings=16, **_words())),
    "t5": _t5,
    "mixtral": _mixtral,
}
IMAGE_MODELS: dict[str, Callable[[Any], Any]] = {"vit": _vit, "resnet": _resnet, "convnext": _convnext}


def tiny(name: str, dtype: torch.dtype = torch.float64) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A model of transformers with two layers and random weights, and the inputs of a training step."""
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.manual_seed(0)
    if name in WORD_MODELS:
        ids, labels = (torch.randint(2, WORDS, (BATCH, SEQUENCE)) for _ in range(2))
        module = WORD_MODELS[name](transformers).to(dtype)
        module.config._experts_implementation = "eager"  # the one that runs in float64, and cannot be traced
        return module, {"input_ids": ids, "labels": labels}
    images, labels = torch.randn(BATCH, 3, 32, 32, dtype=dtype), torch.randint(0, 4, (BATCH,))
    return IMAGE_MODELS[name](transformers).to(dtype), {"pixel_values": images, "labels": labels}
