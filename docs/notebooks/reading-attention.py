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
# # Reading attention
#
# What do the heads of a small translator attend to? The text of this notebook is `docs/tutorials/reading-attention.md`.
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
import torch

import regard

# %%
model = regard.load("petit-fr-en")
seen = model.attend("Le chat noir dort.")
seen  # in Jupyter, an interactive page

# %% [markdown]
# ## Cross-attention
#
# Each row is one step: the token that the decoder reads → the token that it writes.

# %%
cross = seen.maps["cross"]
weights = cross.open()  # [target, source]: the last layer, mean of its heads
for row, line in zip(cross.rows, weights, strict=True):
    print(f"{row:>14}  {cross.keys[line.argmax()]:<5} {line.max():.2f}")

# %% [markdown]
# ## Which heads look at the token before?
#
# A head with a large mean weight one position to the left is a "previous token" head.

# %%
decoder = seen.weights["decoder"]  # [layers, heads, target, target]
previous = decoder.diagonal(offset=-1, dim1=-2, dim2=-1).mean(-1)  # [layers, heads]
previous

# %% [markdown]
# ## Your own translation
#
# Under teacher forcing, the model reads a target that you give it.

# %%
other = model.attend("Le chat noir dort.", target="The cat is black.")
other.maps["cross"].rows

# %% [markdown]
# ## The logit lens
#
# The token that each layer would predict if it were the last.

# %%
lens = model.attend("Le chat noir dort.", lens=1).lens
for state, predictions in zip(lens.states, lens.top, strict=True):
    print(f"{state:>10}", *(top[0][0] for top in predictions))

# %% [markdown]
# ## Any network
#
# `regard.watch` collects the weights of every attention in a network, here an untrained one.

# %%
network = regard.build("tiny").eval()
with regard.watch(network) as collected, torch.inference_mode():
    network(torch.tensor([[1, 2, 3]]), torch.tensor([[4, 5]]))
{name: list(weights[0].shape) for name, weights in collected.items()}
