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
# # "Attention Is All You Need", annotated
#
# This page walks through [the paper](https://arxiv.org/abs/1706.03762) (Vaswani et al., 2017) in its own order, with
# code that runs: Regard's real modules, not copies made for teaching. At the end, the model that the page assembles
# has learned to translate French. Every number and picture below was computed by the cell above it.
#
# The text assumes that you know what a neural network and a gradient are. It does not assume that you have read the
# paper.
#
# **In Colab**, where this page is a notebook, upload Regard's wheel in the Files panel (the folder icon on the left)
# before you run the first cell, which installs it. `make dist` in a copy of the repository writes the wheel to
# `dist/regard-*.whl`. A GPU is not needed.

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
import inspect
import math
import os
import time

import matplotlib.pyplot as plt
import torch
import torch.nn.functional as F

import regard

torch.manual_seed(0)
torch.set_num_threads(1)  # the model is so small that several threads mostly wait for each other
torch.set_printoptions(precision=2, sci_mode=False)
STEPS = int(os.environ.get("ANNOTATED_STEPS", "700"))  # training steps in section 5

# %% [markdown]
# ## 1–2 Introduction and background: what problem did the paper solve?
#
# **The task is machine translation.** In 2017 the best systems were *recurrent* networks (GNMT, Google's production
# system) and *convolutional* ones (ByteNet, ConvS2S). All of them had an encoder that reads the source and a decoder
# that writes the target one token at a time. In GNMT and ConvS2S, *attention* connected the two: for each word that it
# wrote, the decoder looked back at the source. The paper removes the recurrence and the convolutions, and keeps the
# attention.
#
# | | how a position learns about others | sequential steps in training | path between two words | attention |
# |---|---|---|---|---|
# | GNMT | a recurrent state, passed from word to word | one per word | their distance | decoder to encoder |
# | ConvS2S | convolutions: windows of k words | one per layer | linear in the distance | decoder to encoder |
# | ByteNet | dilated convolutions, wider in each layer | one per layer | logarithm of the distance | none |
# | Transformer | every word attends to every word | one per layer | 1 | everywhere |
#
# There are two consequences. A GPU can process all positions of a sentence at the same time, so training is much
# faster. And one layer connects any two words, so dependencies between distant words are easier to learn.
#
# **What was new?** Not attention between decoder and encoder, which Bahdanau et al. introduced in 2014, nor positions
# added to the embeddings, which ConvS2S learned. Self-attention had been used too, mostly together with recurrent
# layers. New were self-attention as the *only* way to move information between the positions of a text, several heads
# in parallel, scores divided by √d_k, and positions computed from sines and cosines.
#
# **The data** is that of the WMT 2014 workshop: news, parliamentary speeches and web pages. English–German has 4.5
# million sentence pairs and a byte-pair vocabulary of about 37,000 pieces shared by both languages; English–French has
# 36 million pairs and 32,000 word pieces. Design choices were compared on the validation set newstest2013; the results
# are BLEU scores on the test set newstest2014, sentences from newspapers. A second task, parsing English sentences,
# shows that the model is not limited to translation (section 6.3).

# %% [markdown]
# ## 3 Model architecture
#
# The encoder maps the source tokens to vectors. The decoder maps the target tokens so far, and the encoder's
# vectors, to the probabilities of the next token.
#
# All tensors have the shape **(batch, time, channels)**: sentence, position, feature. Why this order? A linear layer
# transforms the last dimension, so it applies to every position of every sentence without any reshaping. Attention
# multiplies over the last two dimensions, (time, channels) × (channels, time), and treats all dimensions before them
# as a batch: sentences, and later heads. Padding and masks concern time, which is never mixed with anything else.
# (Recurrent networks preferred (time, batch, channels), because they walk along the first dimension.)
#
# Here is the complete model, small enough to train on this page:

# %%
config = regard.ModelConfig(
    kind="encoder-decoder", vocab_size=2_049, d_model=128, heads=4, layers=2, d_ff=512, dropout=0.0, norm="pre"
)
network = regard.build(config)
print(f"{sum(p.numel() for p in network.parameters()):,} parameters")

# %% [markdown]
# The next diagram shows its classes. It is drawn from the network itself: an arrow leads from a class to each of its
# parts, and ×N means that it has N of them.

# %%
from collections import Counter

from torch import nn


def parts(module: nn.Module) -> Counter:
    """Count the classes of a module's direct parts. Containers of torch are replaced by their contents."""
    counts = Counter()
    for child in module.children():
        if type(child) in (nn.ModuleList, nn.Sequential, nn.Identity):
            counts += parts(child)
        else:
            counts[type(child)] += 1
    return counts


def class_diagram(root: nn.Module):
    """Draw a box for each class of a network, one row per level, with arrows to its parts."""
    example = {type(module): module for module in reversed(list(root.modules()))}
    level, todo = {type(root): 0}, [type(root)]
    while todo:
        cls = todo.pop(0)
        for part in parts(example[cls]):
            if level.get(part, -1) < level[cls] + 1:
                level[part] = level[cls] + 1
                todo.append(part)
    rows = [[cls for cls in level if level[cls] == depth] for depth in range(max(level.values()) + 1)]
    place = {cls: ((i + 0.5) / len(row), -depth) for depth, row in enumerate(rows) for i, cls in enumerate(row)}
    figure, axes = plt.subplots(figsize=(9, 1.25 * len(rows)))
    for cls, (x, y) in place.items():
        own = sum(p.numel() for p in example[cls].parameters())
        label = f"{cls.__name__}\n{own:,} parameters" if own else cls.__name__
        axes.text(x, y, label, ha="center", va="center", bbox={"boxstyle": "round,pad=0.5", "fc": "#eef3fb"}, zorder=3)
        for part, count in parts(example[cls]).items():
            to_x, to_y = place[part]
            axes.annotate("", (to_x, to_y + 0.3), (x, y - 0.25), arrowprops={"arrowstyle": "->", "color": "#7a8aa0"})
            if count > 1:
                axes.text(0.35 * x + 0.65 * to_x, 0.35 * y + 0.65 * to_y, f"×{count}", fontsize=9, zorder=4)
    axes.set(xlim=(0, 1), ylim=(0.6 - len(rows), 0.5))
    axes.axis("off")
    return figure


class_diagram(network)
plt.show()

# %% [markdown]
# ### 3.1 Encoder and decoder stacks
#
# **Encoder.** A stack of equal layers (6 in the paper). Each has two parts: self-attention, which moves information
# *between* positions, and a feed-forward network, which transforms *each* position by itself. Around each part there
# is a residual connection and a layer normalisation: LayerNorm(x + Sublayer(x)).
#
# **Decoder.** The same, with a third part between the two: attention over the encoder's output. Its self-attention
# is masked, so that position *i* cannot see the words after it, which it must predict.
#
# In Regard both are one class. `cross` makes it a decoder layer; `norm="post"` is the paper's order, `norm="pre"`
# normalises before each part instead, which trains without a long warm-up and is used on this page:

# %%
layer = network.decoder.layers[0]
print(inspect.getsource(type(layer).forward))
print(inspect.getsource(type(layer).residual))

# %% [markdown]
# ### 3.2 Attention
#
# #### Scaled dot-product attention
#
# A *query* describes what a position looks for, a *key* what a position offers, a *value* what it passes on. The
# output is the average of the values, weighted by how well each key fits the query:
#
# > Attention(Q, K, V) = softmax(QK<sup>T</sup> / √d<sub>k</sub>) V

# %%
print(inspect.getsource(regard.attention))

# %% [markdown]
# Two queries, three keys, by hand. The first query equals the first key, so it takes mostly the first value:

# %%
q = torch.tensor([[2.0, 0.0], [0.0, 0.0]])  # [queries, d_k]
k = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0]])  # [keys, d_k]
v = torch.tensor([[1.0], [10.0], [100.0]])  # [keys, d_v]
out, weights = regard.attention(q, k, v)
print("weights\n", weights)
print("output\n", out)  # the second query is zero: all keys fit equally, and the output is the plain average

# %% [markdown]
# **Why divide by √d_k?** If the components of q and k are independent with mean 0 and variance 1, their dot product
# has variance d_k (footnote 4 of the paper). Large scores make the softmax almost 0 or 1, where its gradient
# vanishes. Measured:

# %%
print(f"{'d_k':>5} {'std of q·k':>11} {'after ÷√d_k':>12} {'largest weight of 16':>21} {'after ÷√d_k':>12}")
for d_k in (4, 64, 1024):
    q, k = torch.randn(2000, 1, d_k), torch.randn(2000, 16, d_k)
    scores = (q @ k.mT).squeeze(1)  # [2000, 16]
    scaled = scores / math.sqrt(d_k)
    largest = [x.softmax(-1).amax(-1).mean() for x in (scores, scaled)]
    print(f"{d_k:5} {scores.std():11.2f} {scaled.std():12.2f} {largest[0]:21.2f} {largest[1]:12.2f}")

# %% [markdown]
# #### Multi-head attention
#
# One attention computes one average. Several heads compute several, each in its own subspace: queries, keys and values
# are projected h times to d_model / h dimensions, attended, concatenated and projected back. The cost is about that of
# one head of full width.

# %%
mha = regard.MultiHeadAttention(d_model=128, heads=4)
x = torch.randn(2, 7, 128)  # [batch, time, channels]
print("input ", list(x.shape))
heads = regard.split_heads(mha.q(x), 4)
print("heads ", list(heads.shape), "= batch, heads, time, channels per head")
out, weights = mha(x, x, x, return_weights=True)
print("weights", list(weights.shape), "= batch, heads, query, key")
print("output", list(out.shape))
reference = nn.MultiheadAttention(128, 4, batch_first=True)
with torch.no_grad():  # the same weights in PyTorch's own module give the same output
    reference.in_proj_weight.copy_(torch.cat([mha.q.weight, mha.k.weight, mha.v.weight]))
    reference.in_proj_bias.copy_(torch.cat([mha.q.bias, mha.k.bias, mha.v.bias]))
    reference.out_proj.weight.copy_(mha.out.weight)
    reference.out_proj.bias.copy_(mha.out.bias)
print("equal to torch.nn.MultiheadAttention:", torch.allclose(out, reference(x, x, x)[0], atol=1e-6))

# %% [markdown]
# #### Applications of attention in the model
#
# The same module is used three ways. What differs is where queries, keys and values come from, and the mask:
#
# | | queries | keys and values | mask |
# |---|---|---|---|
# | encoder self-attention | source | source | hides padding |
# | decoder self-attention | target | target | hides padding and the future |
# | encoder–decoder attention | target | source | hides padding of the source |

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(7, 3))
left.imshow(regard.causal_mask(8).numpy(), cmap="Blues")
left.set(title="causal mask", xlabel="key", ylabel="query")
right.imshow(regard.padding_mask(torch.tensor([8, 5, 3]), 8).view(3, 8).numpy(), cmap="Blues")
right.set(title="padding mask of three sentences", xlabel="key", ylabel="sentence", yticks=[0, 1, 2])
plt.tight_layout()
plt.show()

# %% [markdown]
# Blue means *may attend*. The causal mask makes it possible to train on all positions of a target in parallel: none
# of them sees the token that it must predict. To test the mask, change a later token: no earlier output may change.

# %%
source, target = torch.randint(0, 2_000, (1, 6)), torch.randint(0, 2_000, (1, 9))
changed = target.clone()
changed[0, 5] += 1
with torch.no_grad():
    difference = (network(source, target) - network(source, changed)).abs().amax(-1)[0]
print("change of the output at each position:", difference)

# %% [markdown]
# ### 3.3 Position-wise feed-forward networks
#
# Two linear layers with a ReLU between them, the same for every position: FFN(x) = max(0, xW₁ + b₁)W₂ + b₂. The
# inner layer is four times as wide as the model. Two thirds of the parameters of a layer without cross-attention are
# here.

# %%
encoder_layer = network.encoder.layers[0]
for name, part in encoder_layer.named_children():
    print(f"{name:20} {sum(p.numel() for p in part.parameters()):>8,} parameters")

# %% [markdown]
# ### 3.4 Embeddings and softmax
#
# Each token id has a learned vector. As in the paper, the same matrix serves source, target and, transposed, the output
# layer, which is possible because both languages share one vocabulary. Embeddings are multiplied by √d_model; the paper
# does not say why. In Regard, it gives them the same magnitude as the positions that are added to them, because the
# matrix is initialised with variance 1/d_model.

# %%
print(
    "embedding and output share one matrix:",
    network.output_weight.data_ptr() == network.embedding.tokens.weight.data_ptr(),
)

# %% [markdown]
# ### 3.5 Positional encoding
#
# Attention itself does not know the order of its keys: shuffled inputs give shuffled outputs. The order is added to
# the embeddings, as sines and cosines of different wavelengths:
#
# > PE<sub>(pos, 2i)</sub> = sin(pos / 10000<sup>2i/d</sup>),
# > PE<sub>(pos, 2i+1)</sub> = cos(pos / 10000<sup>2i/d</sup>)

# %%
from regard.model.positions import sinusoids

encoding = sinusoids(torch.arange(100), 20)  # [100, 20]
figure, axes = plt.subplots(figsize=(8, 3))
for dimension in (4, 5, 6, 7):
    axes.plot(encoding[:, dimension], label=f"dimension {dimension}")
axes.set(xlabel="position", title="positional encoding of width 20")
axes.legend(loc="lower left")
plt.show()

# %% [markdown]
# The encoding of position p + k is a rotation of that of p, by angles that depend on k only. So the dot product of
# two encodings depends on their distance, not on where they are:

# %%
wide = sinusoids(torch.arange(512), 128)
for distance in (0, 1, 10, 100):
    products = [(wide[p] @ wide[p + distance]).item() for p in (0, 50, 400)]
    print(
        f"distance {distance:3}: {products[0]:7.3f} {products[1]:7.3f} {products[2]:7.3f}   at positions 0, 50 and 400"
    )

# %% [markdown]
# ## 4 Why self-attention
#
# Table 1 of the paper compares the layers, for n positions of width d, a convolution of k positions and attention that
# is restricted to a neighbourhood of r positions. The operations are per layer, and leave out the projections of
# attention. The path length of the convolutions is that of dilated ones; others need n/k layers:
#
# | layer | operations per layer | sequential operations | maximum path length |
# |---|---|---|---|
# | self-attention | O(n² · d) | O(1) | O(1) |
# | recurrent | O(n · d²) | O(n) | O(n) |
# | convolutional | O(k · n · d²) | O(1) | O(log_k n) |
# | self-attention, restricted | O(r · n · d) | O(1) | O(n / r) |
#
# The last column can be measured: how many rounds of a layer does it take until the last position depends on the
# first? Whether it does is read from a gradient.

# %%
from regard.labs.complexity import attention_round, path_length, rnn_round

print(f"{'n':>4} {'attention':>10} {'restricted to 4':>16} {'RNN':>5}")
for n in (5, 17, 33):
    lengths = [path_length(step, n, 8) for step in (attention_round(8), attention_round(8, 4), rnn_round(8))]
    print(f"{n:4} {lengths[0]:10} {lengths[1]:16} {lengths[2]:5}")

# %% [markdown]
# ## 5 Training
#
# ### 5.1 Training data and batching
#
# The paper trains on millions of WMT pairs. This page uses Petit, a small French–English corpus that Regard
# generates itself; each sentence has exactly one correct translation. Both languages share one byte-pair vocabulary,
# as in the paper.

# %%
from regard.petit import pairs

training = [(pair.french, pair.english) for pair in pairs(8_000)]
test = [(pair.french, pair.english) for pair in pairs(100, split="dev")]
for french, english in training[:3]:
    print(f"{french}  →  {english}")
tokenizer = regard.train_tokenizer([text for pair in training for text in pair], vocab_size=2_000)
print(tokenizer.pieces(tokenizer.encode(training[0][0])))

# %% [markdown]
# The decoder reads the target *shifted* by one position: its input begins with a start token, and its output ends with
# an end token. (Regard uses `<pad>` as the start token; it is never predicted.) One forward pass trains all positions.
#
#     reads:     <pad>  The   cat   sleeps  .
#     predicts:  The    cat   sleeps  .    </s>
#
# A batch contains sentences of similar length, so that little of it is padding. Its size is limited by the number of
# tokens: about 25,000 per side in the paper, 2,000 here.

# %%
IGNORED = -100  # the label of padding, which the loss leaves out


def padded(rows: list[list[int]], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def make_batches(sentence_pairs, batch_tokens=2_000):
    ids = [([*tokenizer.encode(s), tokenizer.end], tokenizer.encode(t)) for s, t in sentence_pairs]
    ids.sort(key=lambda pair: max(map(len, pair)))
    batches, batch = [], []
    for pair in ids:
        if (len(batch) + 1) * (max(map(len, pair)) + 1) > batch_tokens:
            batches.append(batch)
            batch = []
        batch.append(pair)
    return [
        {
            "source": padded([s for s, _ in batch], tokenizer.pad),
            "source_lengths": torch.tensor([len(s) for s, _ in batch]),
            "target": padded([[tokenizer.pad, *t] for _, t in batch], tokenizer.pad),
            "target_lengths": torch.tensor([len(t) + 1 for _, t in batch]),
            "labels": padded([[*t, tokenizer.end] for _, t in batch], IGNORED),
        }
        for batch in [*batches, batch]
    ]


batches = make_batches(training)
print(len(batches), "batches;", "the first:", {name: list(tensor.shape) for name, tensor in batches[0].items()})

# %% [markdown]
# ### 5.2–5.3 Hardware, schedule, optimizer
#
# The paper trained on 8 P100 GPUs: the base model 100,000 steps of 0.4 s (12 hours), the big one 300,000 steps of
# 1.0 s (3.5 days). The optimizer is Adam with β₁ = 0.9, β₂ = 0.98 and ε = 10⁻⁹, and a learning rate that rises
# linearly for `warmup` steps, then falls with the square root of the step. With three settings, as in The Annotated
# Transformer:


# %%
def learning_rate(step: int, d_model: int, warmup: int) -> float:
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


figure, axes = plt.subplots(figsize=(8, 3))
for d_model, warmup in ((512, 4_000), (512, 8_000), (256, 4_000)):
    axes.plot(
        range(1, 20_000),
        [learning_rate(step, d_model, warmup) for step in range(1, 20_000)],
        label=f"{d_model}:{warmup}",
    )
axes.set(xlabel="step", ylabel="learning rate")
axes.legend(title="d_model:warmup")
plt.show()

# %% [markdown]
# ### 5.4 Regularization
#
# The paper announces three kinds of regularization and describes these: *residual dropout* with a rate of 0.1 in the
# base model, on the output of each sub-layer before the residual sum and the norm, and on the sums of embeddings and
# positions, in both stacks; and *label smoothing* with ε = 0.1. It gives no formula for the latter. Usually, as here, ε
# of the target probability is spread evenly over the vocabulary, and the rest goes to the correct token. The paper
# reports that the model learns to be less certain, which makes perplexity worse but improves accuracy and BLEU. The
# picture shows the loss of a prediction that becomes more and more certain of the right token. Without smoothing the
# loss keeps falling; with smoothing it rises again when the model is too certain.

# %%
certainty = torch.arange(1, 100).float()
logits = torch.stack([torch.zeros_like(certainty)] * 3 + [(certainty + 3).log()], 1)  # the last of 4 tokens is right
labels = torch.full((99,), 3)
probability = logits.softmax(-1)[:, 3]
figure, axes = plt.subplots(figsize=(8, 3))
for smoothing in (0.0, 0.1, 0.4):
    losses = F.cross_entropy(logits, labels, reduction="none", label_smoothing=smoothing)
    axes.plot(probability, losses, label=f"ε = {smoothing}")
axes.set(xlabel="probability of the right token", ylabel="loss")
axes.legend()
plt.show()

# %% [markdown]
# ### The training loop
#
# The loop combines everything above. `regard train` does the same with checkpoints, validation, mixed precision and
# several GPUs.


# %%
def train(network, batches, steps, peak_rate=3e-3, warmup=100, smoothing=0.1):
    optimizer = torch.optim.Adam(network.parameters(), betas=(0.9, 0.98), eps=1e-9)
    order = torch.Generator().manual_seed(0)
    network.train()
    losses, step, start = [], 0, time.perf_counter()
    while step < steps:
        for index in torch.randperm(len(batches), generator=order).tolist():
            step += 1
            batch = batches[index]
            for group in optimizer.param_groups:  # the shape of equation 3, with a peak for a small model
                group["lr"] = peak_rate * min(step / warmup, (warmup / step) ** 0.5)
            logits = network(batch["source"], batch["target"], batch["source_lengths"], batch["target_lengths"])
            loss = F.cross_entropy(
                logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED, label_smoothing=smoothing
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if step % max(1, steps // 5) == 0 or step == steps:
                recent = losses[-50:]
                print(f"step {step:5}   loss {sum(recent) / len(recent):.3f}   {time.perf_counter() - start:4.0f} s")
            if step == steps:
                break
    network.eval()
    return losses


torch.manual_seed(1)
network = regard.build(
    regard.ModelConfig(
        kind="encoder-decoder",
        vocab_size=tokenizer.size,
        d_model=128,
        heads=4,
        layers=2,
        d_ff=512,
        dropout=0.0,
        norm="pre",
    )
)
losses = train(network, batches, STEPS)

# %% [markdown]
# ## 6 Results
#
# ### 6.1 Machine translation
#
# #### Greedy search
#
# The simplest way to translate: give the decoder the start token, append the most probable next token to its input, and
# repeat until that is the end token. Here without a cache, one sentence at a time:


# %%
@torch.no_grad()
def translate_greedily(sentence: str, longest: int = 60) -> str:
    source = torch.tensor([[*tokenizer.encode(sentence), tokenizer.end]])
    target = [tokenizer.pad]
    while len(target) < longest:
        best = network(source, torch.tensor([target]))[0, -1].argmax().item()
        if best == tokenizer.end:
            break
        target.append(best)
    return tokenizer.decode(target[1:])


for french, english in test[:4]:
    print(f"{french}\n  model:     {translate_greedily(french)}\n  reference: {english}")

# %% [markdown]
# #### Beam search
#
# The paper keeps the 4 best partial translations instead of one, and divides the log-probability of each by ((5 +
# length) / 6)^0.6, because longer translations have lower probabilities. It also averages the weights of the last 5
# checkpoints (20 for the big model), which this page does not. Regard's search translates batches, with a cache of keys
# and values, so that each step computes only one new position. `regard.Model` is a network with its tokenizer:

# %%
special = regard.SpecialIds(start=tokenizer.pad, end=(tokenizer.end,))
model = regard.Model(network, tokenizer, special)
sources, references = zip(*test, strict=True)
for beam in (1, 4):
    translations = model.translate(list(sources), beam=beam)
    right = sum(a == b for a, b in zip(translations, references, strict=True))
    print(f"beam {beam}: {right} of {len(test)} exactly right")
scores = regard.evaluate(model, list(sources), list(references))
print(f"BLEU {scores.bleu.value:.1f}, chrF2++ {scores.chrf.value:.1f}   ({scores.bleu.signature})")

# %% [markdown]
# #### Table 2
#
# Table 2 of the paper gives BLEU on newstest2014 and the training cost in floating-point operations:
#
# | model | BLEU En–De | BLEU En–Fr | cost En–De | cost En–Fr |
# |---|---|---|---|---|
# | ByteNet | 23.75 | | | |
# | Deep-Att + PosUnk | | 39.2 | | 1.0 · 10²⁰ |
# | GNMT + RL | 24.6 | 39.92 | 2.3 · 10¹⁹ | 1.4 · 10²⁰ |
# | ConvS2S | 25.16 | 40.46 | 9.6 · 10¹⁸ | 1.5 · 10²⁰ |
# | MoE | 26.03 | 40.56 | 2.0 · 10¹⁹ | 1.2 · 10²⁰ |
# | Deep-Att + PosUnk, ensemble | | 40.4 | | 8.0 · 10²⁰ |
# | GNMT + RL, ensemble | 26.30 | 41.16 | 1.8 · 10²⁰ | 1.1 · 10²¹ |
# | ConvS2S, ensemble | 26.36 | 41.29 | 7.7 · 10¹⁹ | 1.2 · 10²¹ |
# | Transformer (base) | 27.3 | 38.1 | 3.3 · 10¹⁸ | 3.3 · 10¹⁸ |
# | Transformer (big) | 28.4 | 41.8 | 2.3 · 10¹⁹ | 2.3 · 10¹⁹ |
#
# (In section 6.1, the big model has 41.0 on English–French, the figure of the paper's first version.) A single big
# model is better than all earlier ensembles, at a fraction of their training cost. On English–German, the base model is
# also better than all of them, at about a fiftieth of the cost of the GNMT ensemble. The authors estimate operations as
# training time × number of GPUs × the sustained rate of a GPU. For the base model, with 9.5 TFLOPS for a P100:

# %%
print(f"{12 * 3600 * 8 * 9.5e12:.1e} operations")

# %% [markdown]
# ### 6.2 Model variations
#
# Table 3 of the paper changes one thing at a time in the base model and reports BLEU on newstest2013 (English–German),
# where the base model has 25.8:
#
# | | change | BLEU |
# |---|---|---|
# | A | 1, 4, 16 or 32 heads instead of 8, at the same cost | 24.9, 25.5, 25.8, 25.4 |
# | B | keys of width 16 or 32 instead of 64 | 25.1, 25.4 |
# | C | 2, 4 or 8 layers instead of 6 | 23.7, 25.3, 25.5 |
# | C | d_model of 256 or 1,024 instead of 512 (keys and values of 32 or 128) | 24.5, 26.0 |
# | C | d_ff of 1,024 or 4,096 instead of 2,048 | 25.4, 26.2 |
# | D | no dropout, or 0.2 instead of 0.1 | 24.6, 25.5 |
# | D | no label smoothing, or 0.2 instead of 0.1 | 25.3, 25.7 |
# | E | learned positions instead of sinusoids | 25.7 |
# | big | d_model 1,024, d_ff 4,096, 16 heads, dropout 0.3, 300,000 steps | 26.4 |
#
# One head is worse than eight, and so are too many. Larger models are better if dropout keeps them from overfitting.
# Learned positions are as good as sinusoids; the authors chose sinusoids because they might extend to longer sentences
# than those in training. `regard lab ablation` makes such a table with small models.
#
# ### 6.3 English constituency parsing
#
# To show that the model is not limited to translation, the paper trains one with 4 layers and d_model = 1,024 to write
# the parse tree of an English sentence as a sequence of brackets. On section 23 of the Wall Street Journal, it reaches
# an F1 of 91.3 with only the 40,000 sentences of the Penn Treebank, and 92.7 with 17 million more sentences that
# were parsed automatically: better than most earlier parsers, without a design for the task. Regard has no parser.
#
# ## 7 Conclusion
#
# The paper calls the Transformer the first sequence transduction model based entirely on attention. As future work, it
# names other kinds of data (images, audio and video), attention restricted to a neighbourhood for long inputs, and
# less sequential generation. Section 4 of this page measured the path length of restricted attention.

# %% [markdown]
# ## Appendix: attention visualizations
#
# The paper ends with pictures of encoder self-attention: heads that follow distant dependencies, resolve a pronoun, and
# reflect the structure of a sentence. Below is the encoder–decoder attention of the model from this page. It shows
# which source tokens (columns) the decoder attends to when it writes each token (rows).

# %%
seen = model.attend(test[3][0]).maps["cross"]  # weights: [layers, heads, target, source]
figure, panels = plt.subplots(1, seen.weights.shape[1], figsize=(13, 4), sharey=True)
for head, panel in enumerate(panels):
    panel.imshow(seen.weights[-1, head].numpy(), cmap="Blues", vmin=0, vmax=1)
    panel.set(title=f"last layer, head {head + 1}", xticks=range(len(seen.keys)), yticks=range(len(seen.writes)))
    panel.set_xticklabels(seen.keys, rotation=90)
    panel.set_yticklabels(seen.writes)
plt.tight_layout()
plt.show()

# %% [markdown]
# ## Where to go from here
#
# - [The paper, section by section](../paper.md) has the line of code for each section, and every deliberate difference
#   from the paper.
# - [Common questions](../questions.md) links each answer to a line of code, and the labs measure the paper's claims
#   (`regard lab`).
# - Write these parts yourself: `regard course start annotated`; `regard check` names your mistake.
# - Train the paper's own models: `regard train paper-base`.
