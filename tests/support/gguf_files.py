"""GGUF files of small Llama models with random weights."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

gguf = pytest.importorskip("gguf", reason="pip install 'regard[interop]'")
transformers = pytest.importorskip("transformers", reason="the oracle")
LLAMA_SHAPE = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
Kind = gguf.GGMLQuantizationType
Change = Callable[[Any], None]


def no_change(writer: Any) -> None:
    """Leave the file unchanged."""


def random_llama(**changes: Any) -> Any:
    """Return a `transformers` Llama with random weights everywhere, including norms."""
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA_SHAPE | changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(mean=float("norm" in name), std=0.2)
    return model


def gguf_name(name: str) -> str:
    """Return the name that llama.cpp gives to a tensor of `transformers`."""
    names = {
        "model.embed_tokens": "token_embd",
        "model.norm": "output_norm",
        "lm_head": "output",
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    module, part = name.rsplit(".", 1)
    if not module.startswith("model.layers."):
        return f"{names[module]}.{part}"
    _, _, layer, rest = module.split(".", 3)
    return f"blk.{layer}.{names[rest]}.{part}"


def interleave_rows(rows: np.ndarray, heads: int) -> np.ndarray:
    """Reorder the rows of queries and keys as llama.cpp's converter does."""
    half = len(rows) // heads // 2
    order = [h * 2 * half + part * half + i for h in range(heads) for i in range(half) for part in (0, 1)]
    return rows[order]


def write_gguf(path: Path, model: Any, kind: Any = Kind.F32, change: Change = no_change, **overrides: Any) -> Path:
    """Write a GGUF file as llama.cpp's converter does; `change` modifies the writer, `overrides` the config."""
    config, writer = model.config, gguf.GGUFWriter(path, "llama")
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "rope.dimension_count": config.head_dim,
        "vocab_size": config.vocab_size,
    } | overrides
    for key, number in numbers.items():
        writer.add_uint32(f"llama.{key}", number)
    writer.add_float32("llama.rope.freq_base", config.rope_parameters["rope_theta"])
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        rows, module = tensor.numpy(), name.split(".")[-2]
        rows = interleave_rows(rows, heads[module]) if module in heads else rows
        stored = Kind.F32 if rows.ndim == 1 else kind
        writer.add_tensor(gguf_name(name), gguf.quants.quantize(rows, stored), raw_dtype=stored)
    change(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
