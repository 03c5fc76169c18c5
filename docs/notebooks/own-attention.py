# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Your own attention
#
# Write attention, compare it with Regard's, and train a language model with it. The text of this notebook is
# `docs/tutorials/own-attention.md`. `regard check` names the mistake in a solution of an assignment; this notebook
# shows how to compare by hand.
#
# **In Colab**, upload Regard's wheel in the Files panel (the folder icon on the left) before you run the first cell,
# which installs it. `make dist` in a copy of the repository writes the wheel to `dist/regard-*.whl`. A GPU is not
# needed.

# %%
# Install Regard where it is missing: from its wheel next to this notebook, or else from the copy of the repository that
# this notebook is in.
import importlib.util
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("regard") is None:
    source = max(Path().glob("regard-*.whl"), default=Path("../.."))
    if source.is_dir() and not (source / "pyproject.toml").is_file():
        raise FileNotFoundError("no regard-*.whl here: upload it next to this notebook, then run this cell again")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", f"{source.resolve()}[plot]"], check=True)

# %%
import os

import torch
from torch import nn

import regard

STEPS = int(os.environ.get("NOTEBOOK_STEPS", "300"))  # half a minute of processor time

# %% [markdown]
# ## One head
#
# Each query is compared with every key; the weights of the values are the softmax of the scaled scores.


# %%
def my_attention(q, k, v, mask=None):
    """[..., T, D], [..., S, D], [..., S, E] → [..., T, E]."""
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # [..., T, S]
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)  # True in a mask means "may attend"
    return scores.softmax(-1) @ v


torch.manual_seed(0)
q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 5, 16), torch.randn(2, 4, 5, 16)
expected, weights = regard.attention(q, k, v, regard.causal_mask(5))
torch.testing.assert_close(my_attention(q, k, v, regard.causal_mask(5)), expected)

# %% [markdown]
# Without the division, the softmax is much sharper. That is the mistake that `regard check` calls `no-scaling`.

# %%
unscaled, sharp = regard.attention(q * 4, k, v)  # 4 = √16 undoes the division
_, soft = regard.attention(q, k, v)
sharp.max(-1).values.mean(), soft.max(-1).values.mean()

# %% [markdown]
# ## Several heads, in a language model
#
# `network` is a function from the recipe's configuration to a module that returns logits. Regard's loop trains it,
# validates it and samples from it.


# %%
class MyLanguageModel(nn.Module):
    """One layer of multi-head attention."""

    def __init__(self, config):
        super().__init__()
        self.heads, width = config.heads, config.d_model
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.positions = nn.Embedding(config.max_positions or 1024, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.output = nn.LayerNorm(width), nn.Linear(width, config.vocab_size)

    def forward(self, tokens):  # [B, T]
        x = self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]  # [B, T, C]
        q, k, v = (regard.split_heads(part, self.heads) for part in self.qkv(x).chunk(3, -1))  # [B, H, T, D]
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool, device=tokens.device).tril()
        x = x + self.out(regard.combine_heads(my_attention(q, k, v, mask)))  # [B, T, C]
        return self.output(self.norm(x))  # [B, T, V]


overrides = {"train.steps": STEPS, "train.validate_every": STEPS}
run = regard.train("petit-lm", out="runs/my-attention-notebook", overrides=overrides, network=MyLanguageModel)
run.history[-1]["loss"]

# %%
run.model.generate("Le chat", max_tokens=12)
