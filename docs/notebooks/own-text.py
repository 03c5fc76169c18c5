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
# # Your own text
#
# From aligned sentences to a scored translator. The text of this notebook is `docs/tutorials/own-text.md`.
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

STEPS = int(os.environ.get("NOTEBOOK_STEPS", "600"))  # ten seconds of processor time

# %% [markdown]
# ## Write the files
#
# Replace `pairs` with your own sentences: at least 1,000. Here a few patterns stand in for them.

# %%
subjects = {"Le chat": "The cat", "Le chien": "The dog", "La femme": "The woman", "L'homme": "The man"}
verbs = {"dort": "is sleeping", "mange": "is eating", "chante": "is singing", "court": "is running"}
places = {"ici": "here", "dans le jardin": "in the garden", "à Paris": "in Paris", "sous la pluie": "in the rain"}
pairs = [(f"{s} {v} {p}.", f"{subjects[s]} {verbs[v]} {places[p]}.") for s in subjects for v in verbs for p in places]
test, dev, train = pairs[::8], pairs[1::8], [pair for i, pair in enumerate(pairs) if i % 8 > 1]

folder = Path("patterns")
folder.mkdir(exist_ok=True)
for name, part in (("train", train), ("dev", dev), ("test", test)):
    for side, language in enumerate(("fr", "en")):
        lines = "".join(f"{pair[side]}\n" for pair in part)
        (folder / f"{name}.{language}").write_text(lines, encoding="utf-8")
len(train), len(dev), len(test)

# %% [markdown]
# In a terminal, `regard data check patterns` would now report bad lines, and test sentences that are in the training
# text.
#
# ## Train
#
# `small-corpus` is for 1,000 to 50,000 pairs. These settings suit a CPU and a tiny corpus.

# %%
overrides = {
    "data.folder": "patterns",
    "data.languages": ["fr", "en"],
    "tokenizer.vocab_size": 384,
    "model.d_model": 64,
    "model.layers": 1,
    "model.d_ff": 128,
    "model.dropout": 0.0,
    "tokenizer.dropout": 0.0,
    "train.batch_tokens": 500,
    "train.lr": 3e-3,
    "train.warmup": 50,
    "train.steps": STEPS,
    "train.validate_every": STEPS,
}
run = regard.train("small-corpus", out="runs/patterns", overrides=overrides)

# %% [markdown]
# ## Score, once
#
# The test sentences combine known words in new ways.

# %%
sources, references = [pair[0] for pair in test], [pair[1] for pair in test]
scores = regard.evaluate(run.model, sources, references)
scores.bleu.value, scores.bleu.interval

# %%
list(zip(sources, run.model.translate(sources), strict=True))[:4]
