"""Replace the attention of a Regard network with one of your own, and train both for comparison.

The attention here may attend to nothing: an additional score of zero takes the weight that no key deserves.

    python examples/custom_attention.py --steps 300
"""

import argparse

import torch
from torch import Tensor, nn

import regard


class QuietAttention(regard.MultiHeadAttention):
    """Multi-head attention whose weights may sum to less than 1."""

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | str, rotary: None = None, cache: None = None
    ) -> Tensor:
        """[B, T, C] and two times [B, S, C] → [B, T, C]."""
        assert rotary is None, "positions are added to the embeddings"
        assert cache is None, "your own networks are decoded without a cache"
        q = regard.split_heads(self.q(query), self.heads)  # [B, H, T, D]
        k, v = self.keys_and_values(key, value)  # [B, H, S, D] each
        none = torch.zeros_like(k[..., :1, :])  # [B, H, 1, D]: a key and a value of zeros
        mask = regard.causal_mask(q.size(-2)).to(q.device) if isinstance(mask, str) else mask  # [..., T, S]
        mask = torch.cat([torch.ones_like(mask[..., :1]), mask], -1)  # [..., T, S + 1]: everyone sees the zeros
        output, _ = regard.attention(q, torch.cat([none, k], -2), torch.cat([none, v], -2), mask)  # [B, H, T, D]
        return self.out(regard.combine_heads(output))


def quiet_network(config: regard.ModelConfig) -> nn.Module:
    """Regard's network for this configuration, with another attention in every layer."""
    network = regard.build(config)
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if type(child) is regard.MultiHeadAttention:
                quiet = QuietAttention(config.d_model, config.heads, bias=child.q.bias is not None)
                quiet.load_state_dict(child.state_dict())  # the same initial weights
                setattr(module, name, quiet)
    return network


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--out", default="runs/attention")
    options = parser.parse_args()
    settings = {"data.petit": options.sentences, "train.steps": options.steps, "train.validate_every": options.steps}
    settings |= {"model.positions": "sinusoidal"}  # instead of the recipe's rotary positions, which change attention
    for label, network in (("usual", regard.build), ("quiet", quiet_network)):
        run = regard.train("petit-lm", f"{options.out}-{label}", overrides=settings, network=network)
        print(f"{label} attention: validation loss {run.history[-1]['loss']:.3f}")
