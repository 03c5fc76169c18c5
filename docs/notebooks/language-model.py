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
# # A language model
#
# Train a decoder that writes short French sentences. The text of this notebook is `docs/tutorials/language-model.md`.
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

import regard

STEPS = int(os.environ.get("NOTEBOOK_STEPS", "300"))  # a minute of processor time

# %%
overrides = {"train.steps": STEPS, "train.validate_every": STEPS}
run = regard.train("petit-lm", out="runs/lm-notebook", overrides=overrides)
model = run.model

# %% [markdown]
# ## Write
#
# Temperature 0 is greedy decoding, which always gives the same text. Otherwise tokens are sampled; without
# `temperature`, at that of the recipe, 0.8.

# %%
model.generate("Le chat", max_tokens=12, temperature=0)

# %%
[model.generate("Le chat", max_tokens=12, seed=seed) for seed in range(3)]

# %% [markdown]
# `stream` yields the text in pieces as it is generated.

# %%
for piece in model.stream("Les enfants", max_tokens=12, seed=1):
    print(piece, end="", flush=True)

# %% [markdown]
# ## Measure
#
# A sentence is more likely than its words in another order.

# %%
scores = model.score(["Le chat dort.", "Chat dort le."])
scores

# %%
measured = regard.evaluate(model, ["Le chat dort.", "Les enfants mangent des pommes."])
measured.perplexity, measured.bits_per_byte
