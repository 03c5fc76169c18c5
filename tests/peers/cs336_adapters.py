"""Regard through the adapters of Stanford CS336, assignment 1 (github.com/stanford-cs336/assignment1-basics).

The assignment's tests call functions of these names. Only what Regard has of its own is here: its linear layers and its
softmax are torch's.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Engine
from torch import Tensor, nn

import regard
from regard.config import ModelConfig
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.model.embedding import Embedding
from regard.model.layers import ACTIVATIONS, FeedForward, Layer, norm
from regard.model.positions import rotary, rotate
from regard.training.loss import loss_sum
from regard.training.optimizer import Optimizer, adam
from regard.training.recipe import TrainSection
from regard.training.schedule import learning_rate

LAYER_WEIGHTS = {
    "attention.q": "attn.q_proj",
    "attention.k": "attn.k_proj",
    "attention.v": "attn.v_proj",
    "attention.out": "attn.output_proj",
    "attention_norm": "ln1",
    "feed_forward.gate": "ffn.w1",
    "feed_forward.down": "ffn.w2",
    "feed_forward.up": "ffn.w3",
    "feed_forward_norm": "ln2",
}
"""Regard's names of a layer's weights, and the assignment's."""


def llama_config(d_model: int = 2, heads: int = 1, d_ff: int = 2, **settings: Any) -> ModelConfig:
    """The assignment's architecture: pre-norm, RMSNorm, SwiGLU, rotary positions in adjacent pairs, no biases."""
    fixed: dict[str, Any] = {
        "kind": "decoder",
        "vocab_size": 2,
        "pad": None,
        "norm": "pre",
        "norm_kind": "rms",
        "norm_eps": 1e-5,
        "activation": "swiglu",
        "positions": "rotary",
        "rotary_pairs": "adjacent",
        "bias": False,
        "tied": False,
        "scale_embeddings": False,
        "dropout": 0.0,
    }
    return ModelConfig(**fixed | {"d_model": d_model, "heads": heads, "d_ff": d_ff} | settings)


def layer_state(weights: Mapping[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """The weights of a layer under Regard's names."""
    return {f"{ours}.weight": weights[f"{prefix}{theirs}.weight"] for ours, theirs in LAYER_WEIGHTS.items()}


def run_embedding(vocab_size: int, d_model: int, weights: Tensor, token_ids: Tensor) -> Tensor:
    embedding = Embedding(llama_config(d_model, vocab_size=vocab_size), vocab_size)
    embedding.load_state_dict({"tokens.weight": weights})
    result: Tensor = embedding(token_ids, torch.arange(token_ids.size(-1)))
    return result


def run_swiglu(
    d_model: int, d_ff: int, w1_weight: Tensor, w2_weight: Tensor, w3_weight: Tensor, in_features: Tensor
) -> Tensor:
    feed_forward = FeedForward(llama_config(d_model, d_ff=d_ff))
    feed_forward.load_state_dict({"gate.weight": w1_weight, "down.weight": w2_weight, "up.weight": w3_weight})
    result: Tensor = feed_forward(in_features)
    return result


def run_scaled_dot_product_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:  # noqa: N803
    output, _ = regard.attention(Q, K, V, mask)
    return output


def _attention(
    d_model: int,
    num_heads: int,
    q_proj_weight: Tensor,
    k_proj_weight: Tensor,
    v_proj_weight: Tensor,
    o_proj_weight: Tensor,
) -> regard.MultiHeadAttention:
    attention = regard.MultiHeadAttention(d_model, num_heads, bias=False)
    state = {"q": q_proj_weight, "k": k_proj_weight, "v": v_proj_weight, "out": o_proj_weight}
    attention.load_state_dict({f"{name}.weight": weight for name, weight in state.items()})
    return attention


def run_multihead_self_attention(d_model: int, num_heads: int, in_features: Tensor, **weights: Tensor) -> Tensor:
    result: Tensor = _attention(d_model, num_heads, **weights)(in_features, in_features, in_features, "causal")
    return result


def run_multihead_self_attention_with_rope(
    d_model: int,
    num_heads: int,
    max_seq_len: int,  # rotations are computed for any length
    theta: float,
    in_features: Tensor,
    token_positions: Tensor | None = None,
    **weights: Tensor,
) -> Tensor:
    positions = torch.arange(in_features.size(1)) if token_positions is None else token_positions
    rotations = rotary(positions.squeeze(0), d_model // num_heads, theta, adjacent=True)
    attention = _attention(d_model, num_heads, **weights)
    result: Tensor = attention(in_features, in_features, in_features, "causal", rotations)
    return result


def run_rope(d_k: int, theta: float, max_seq_len: int, in_query_or_key: Tensor, token_positions: Tensor) -> Tensor:
    return rotate(in_query_or_key, rotary(token_positions, d_k, theta, adjacent=True))


def run_transformer_block(
    d_model: int,
    num_heads: int,
    d_ff: int,
    max_seq_len: int,
    theta: float,
    weights: Mapping[str, Tensor],
    in_features: Tensor,
) -> Tensor:
    layer = Layer(llama_config(d_model, num_heads, d_ff))
    layer.load_state_dict(layer_state(weights))
    rotations = rotary(torch.arange(in_features.size(1)), d_model // num_heads, theta, adjacent=True)
    result: Tensor = layer(in_features, "causal", rotations)
    return result


def run_transformer_lm(
    vocab_size: int,
    context_length: int,
    d_model: int,
    num_layers: int,
    num_heads: int,
    d_ff: int,
    rope_theta: float,
    weights: Mapping[str, Tensor],
    in_indices: Tensor,
) -> Tensor:
    config = llama_config(
        d_model, num_heads, d_ff, vocab_size=vocab_size, layers=num_layers, rotary_base=float(rope_theta)
    )
    state = {
        "embedding.tokens.weight": weights["token_embeddings.weight"],
        "decoder.norm.weight": weights["ln_final.weight"],
        "output.weight": weights["lm_head.weight"],
    }
    for number in range(num_layers):
        layer = layer_state(weights, f"layers.{number}.")
        state |= {f"decoder.layers.{number}.{name}": weight for name, weight in layer.items()}
    network = regard.build(config).eval()
    network.load_state_dict(state)
    result: Tensor = network(in_indices)
    return result


def run_rmsnorm(d_model: int, eps: float, weights: Tensor, in_features: Tensor) -> Tensor:
    normalise = norm(llama_config(d_model, norm_eps=eps))
    normalise.load_state_dict({"weight": weights})
    result: Tensor = normalise(in_features)
    return result


def run_silu(in_features: Tensor) -> Tensor:
    result: Tensor = ACTIVATIONS["silu"](in_features)
    return result


def run_cross_entropy(inputs: Tensor, targets: Tensor) -> Tensor:
    """Regard computes the loss from hidden vectors and the output layer, here the identity."""
    return loss_sum(inputs, torch.eye(inputs.size(1)), None, targets) / len(targets)


def run_gradient_clipping(parameters: Iterable[nn.Parameter], max_l2_norm: float) -> None:
    """Regard clips inside an update, where the fused Adam divides the gradients in place; the weights are restored."""
    trained = [parameter for parameter in parameters if parameter.grad is not None]
    gradients, weights = (
        [parameter.grad for parameter in trained],
        [parameter.detach().clone() for parameter in trained],
    )
    optimizer = Optimizer(nn.ParameterList(trained), TrainSection(clip=max_l2_norm))
    optimizer.update(torch.zeros(()))
    with torch.no_grad():
        for parameter, gradient, weight in zip(trained, gradients, weights, strict=True):
            parameter.copy_(weight)
            parameter.grad = gradient


def get_adamw_cls() -> Callable[..., torch.optim.Optimizer]:
    def make(
        parameters: Iterable[Tensor], lr: float, weight_decay: float, betas: tuple[float, float], eps: float
    ) -> torch.optim.Optimizer:
        settings = TrainSection(optimizer="adamw", weight_decay=weight_decay, beta1=betas[0], beta2=betas[1], eps=eps)
        return adam(list(parameters), settings, lr)

    return make


def run_get_lr_cosine_schedule(
    it: int, max_learning_rate: float, min_learning_rate: float, warmup_iters: int, cosine_cycle_iters: int
) -> float:
    settings = TrainSection(
        lr=float(max_learning_rate),
        lr_end=min_learning_rate / max_learning_rate,
        warmup=warmup_iters,
        steps=cosine_cycle_iters,
        schedule="cosine",
    )
    return learning_rate(it, settings, d_model=1)


class SpecialTokensInText:
    """A tokenizer for which special tokens are part of a text, as in the assignment."""

    def __init__(self, tokenizer: HuggingFaceTokenizer) -> None:
        self.tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, parse_special=True)

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(ids, keep_special=True)


def get_tokenizer(
    vocab: Mapping[int, bytes], merges: Iterable[tuple[bytes, bytes]], special_tokens: Iterable[str] | None = None
) -> SpecialTokensInText:
    """A byte-level BPE in the form in which Regard reads it from a `tokenizer.json`."""
    characters = byte_characters()

    def spelled(token: bytes) -> str:
        return "".join(characters[byte] for byte in token)

    special = list(special_tokens or [])
    ids = {
        token.decode() if token.decode(errors="replace") in special else spelled(token): id_
        for id_, token in vocab.items()
    }
    engine = Engine(models.BPE(ids, [(spelled(one), spelled(other)) for one, other in merges]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return SpecialTokensInText(HuggingFaceTokenizer(engine, {}))


def byte_characters() -> dict[int, str]:
    """The character that stands for each byte in GPT-2's vocabulary: printable ones for themselves."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + number) for number, byte in enumerate(others)}
