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
# # Your first translator in 10 minutes
#
# Train a small French–English Transformer, translate with it, score it, and look at its attention. The text of this
# notebook is `docs/tutorials/first-translator.md`.
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

STEPS = int(os.environ.get("NOTEBOOK_STEPS", "600"))  # a minute and a half of processor time

# %% [markdown]
# ## Train
#
# `petit-fr-en` is a bundled recipe; overrides change single settings. Petit is generated, so nothing is downloaded.

# %%
overrides = {"train.steps": STEPS, "train.validate_every": STEPS // 2}
run = regard.train("petit-fr-en", out="runs/first-notebook", overrides=overrides)

# %% [markdown]
# The history has the losses and scores of the run as dictionaries.

# %%
validations = [event for event in run.history if event["event"] == "Validated"]
[(event["step"], round(event["loss"], 3), event["score"]) for event in validations]

# %% [markdown]
# ## Translate

# %%
model = run.model
model.translate(["Le chat noir dort.", "Elle ne mange jamais de pommes."])

# %% [markdown]
# ## Score
#
# BLEU of a few sentences is only an illustration: `regard evaluate` scores the complete test set.

# %%
sources = ["Le chat noir dort.", "Elle ne mange jamais de pommes.", "Nous avons trois livres."]
references = ["The black cat is sleeping.", "She never eats apples.", "We have three books."]
scores = regard.evaluate(model, sources, references)
scores.bleu.value, scores.bleu.signature

# %% [markdown]
# ## Look at its attention
#
# In Jupyter, the value displays itself as an interactive page: every layer and head.

# %%
seen = model.attend("Le chat noir dort.")
seen

# %%
cross = seen.maps["cross"]
weights = cross.open()  # the last layer, mean of its heads: [target, source]
[(row, cross.keys[best]) for row, best in zip(cross.rows, weights.argmax(-1).tolist(), strict=True)]
