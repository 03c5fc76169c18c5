"""Sliding windows, compared with Mistral in `transformers`: logits, gradients, weights and generated tokens."""

from typing import Any

import pytest
import torch
from torch import Tensor

from regard.config import ModelConfig, SpecialIds
from regard.decoding.generate import generate
from regard.decoding.options import Decoding
from regard.model.transformer import Decoder, build
from regard.model.watch import watch
from tests.support.networks import ids
from tests.support.oracles import gradient, randomise, small

WINDOW = 4
ATOL = 1e-6
"""Mistral computes norms and rotations in float32, also in a model in float64."""
CONFIG = small(
    kind="decoder",
    norm="pre",
    norm_kind="rms",
    norm_eps=1e-6,
    activation="swiglu",
    positions="rotary",
    kv_heads=2,
    bias=False,
    pad=None,
    scale_embeddings=False,
    tied=False,
    window=WINDOW,
)
NAMES = {
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "feed_forward.up": "mlp.up_proj",
    "feed_forward.gate": "mlp.gate_proj",
    "feed_forward.down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "feed_forward_norm": "post_attention_layernorm",
}
"""Names of a layer's weights here and in Mistral."""


def weight_names() -> dict[str, str]:
    """Our names of all weights, and theirs."""
    names = {"embedding.tokens": "model.embed_tokens", "decoder.norm": "model.norm", "output": "lm_head"}
    for i in range(CONFIG.layers):
        names |= {f"decoder.layers.{i}.{ours}": f"model.layers.{i}.{theirs}" for ours, theirs in NAMES.items()}
    return {f"{ours}.weight": f"{theirs}.weight" for ours, theirs in names.items()}


@pytest.fixture(scope="module")
def mistral() -> Any:
    """A random Mistral with eager attention, in float64."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    config = transformers.MistralConfig(
        vocab_size=CONFIG.vocab_size,
        hidden_size=CONFIG.d_model,
        intermediate_size=CONFIG.d_ff,
        num_hidden_layers=CONFIG.layers,
        num_attention_heads=CONFIG.heads,
        num_key_value_heads=CONFIG.kv_heads,
        max_position_embeddings=64,
        rms_norm_eps=CONFIG.norm_eps,
        sliding_window=WINDOW,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = transformers.MistralForCausalLM(config).double().eval()
    randomise([model])
    return model


@pytest.fixture(scope="module")
def network(mistral: Any) -> Decoder:
    """The same model in Regard."""
    model, theirs = build(CONFIG).double().eval(), mistral.state_dict()
    model.load_state_dict({our_name: theirs[their_name] for our_name, their_name in weight_names().items()})
    assert isinstance(model, Decoder)
    return model


@pytest.mark.slow
def test_logits_weights_and_gradients_equal_mistrals(mistral: Any, network: Decoder) -> None:
    tokens = ids(2, 11)
    theirs = mistral(input_ids=tokens, output_attentions=True)
    ours = network(tokens)
    torch.testing.assert_close(ours, theirs.logits, rtol=0, atol=ATOL)
    with watch(network) as seen:
        torch.testing.assert_close(network(tokens), ours, rtol=0, atol=ATOL)
    for i, weights in enumerate(theirs.attentions):
        torch.testing.assert_close(seen[f"decoder.layers.{i}.attention"][0], weights, rtol=0, atol=ATOL)
    towards = torch.randn_like(ours)
    (theirs.logits * towards).sum().backward()
    (ours * towards).sum().backward()
    their_parameters, our_parameters = dict(mistral.named_parameters()), dict(network.named_parameters())
    for our_name, their_name in weight_names().items():
        torch.testing.assert_close(
            gradient(our_parameters[our_name]), gradient(their_parameters[their_name]), rtol=0, atol=10 * ATOL
        )


@pytest.mark.slow
def test_generation_beyond_the_window_equals_mistrals(mistral: Any, network: Decoder) -> None:
    """Prompts shorter and longer than the window: one by one there, in a batch and one by one here."""
    prompts = [[5, 6], [7, 8, 9, 10, 11, 12, 13], [14]]

    def theirs(prompt: list[int]) -> list[int]:
        generated: Tensor = mistral.generate(input_ids=torch.tensor([prompt]), max_new_tokens=12, do_sample=False)
        return generated[0, len(prompt) :].tolist()

    def ours(prompts: list[list[int]]) -> list[list[int]]:
        return [row[0].ids for row in generate(network, SpecialIds(), prompts, Decoding(max_tokens=12))]

    wanted = [theirs(prompt) for prompt in prompts]
    assert ours(prompts) == wanted
    assert [ours([prompt])[0] for prompt in prompts] == wanted


def test_a_layer_sees_no_further_than_its_window() -> None:
    """With one layer, a change shows up at the changed position and at the window - 1 positions after it."""
    network = build(small(kind="decoder", layers=1, window=3)).double().eval()
    tokens = ids(1, 9)
    changed = tokens.clone()
    changed[0, 2] = tokens[0, 2] % 29 + 1
    differs = (network(tokens) != network(changed)).any(-1)[0]
    assert differs.tolist() == [False, False, True, True, True, False, False, False, False]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "encoder"}, "window=3 needs kind='decoder' and prefix=False"),
        ({"kind": "encoder-decoder"}, "window=3 needs kind='decoder' and prefix=False"),
        ({"kind": "decoder", "prefix": True}, "window=3 needs kind='decoder' and prefix=False"),
        ({"kind": "decoder", "window": 0}, "window=0 is too small: it must be at least 1"),
        ({"kind": "decoder", "window": 10**12}, "window=1000000000000 is too large"),
        ({"kind": "decoder", "window": 2.5}, "ModelConfig.window=2.5 has type float"),
    ],
)
def test_invalid_windows(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModelConfig(**{"vocab_size": 31, "window": 3} | changes)
