# %% [markdown]
# # Positions: sinusoids and rotations
#
# *Dog bites man* is not news. *Man bites dog* is. But attention computes a weighted average over a **set** of words,
# and a set has no order: for attention, the two sentences are the same. So the order has to be put into the vectors.
#
# You write the two ways that matter: the sinusoids of "Attention Is All You Need", which are added to the embeddings,
# and the rotations (RoPE) of most of today's models, which turn queries and keys. Fill in the gaps one after the other.
# Save the notebook and run `regard check` with its file name in a terminal whenever you like: what is written is
# checked.

# %% [markdown]
# ## Why not just number the words?
#
# We could add the position itself to each vector, 0, 1, 2, …. At position 500 it would drown out the word. We could
# divide by the length of the sentence, but then the distance between two neighbours would depend on the length.
#
# Think of a binary counter instead. The last digit changes with every number, the next one half as often, and so on:
# a few digits that stay between 0 and 1 are enough to count very far.

# %%
import matplotlib.pyplot as plt
import torch

numbers = torch.arange(32)
digits = torch.stack([numbers // 2**digit % 2 for digit in range(5)], dim=1)
plt.figure(figsize=(9, 2))
plt.imshow(digits.T.numpy(), aspect="auto", cmap="Greys")
plt.xlabel("position")
plt.ylabel("binary digit")
plt.show()

# %% [markdown]
# Sinusoids are the smooth version of this counter: waves, each slower than the one before. The frequency of pair
# $i$ of `width` features is
#
# $$\omega_i = \frac{1}{10000^{2i / \text{width}}}$$
#
# The first pair turns by 1 radian per position, so it repeats after 2π ≈ 6.3 positions. The last one needs nearly
# 63,000 positions for one turn.

# %% starter="frequencies"

# %% [markdown]
# Plotted with a logarithmic axis, the frequencies of your function should lie on a straight line from 1 to nearly 1 /
# 10000.

# %%
plt.semilogy(frequencies(64).tolist(), "o")
plt.xlabel("pair of features")
plt.ylabel("radians per position")
plt.show()

# %% [markdown]
# ## Sinusoids
#
# A single wave is ambiguous: a sine is 0 at the beginning and after each half turn. A sine and a cosine together are
# the position of a hand on a clock, and that is unique. So each frequency gets two features:
#
# $$\text{PE}(p, 2i) = \sin(p\,\omega_i) \qquad \text{PE}(p, 2i + 1) = \cos(p\,\omega_i)$$

# %% starter="sinusoids"

# %% [markdown]
# On the left: each row is a position. On the right: how similar position 30 is to all others. The similarity depends
# on the distance only, and the nearest positions are the most similar ones.

# %%
encoding = sinusoids(torch.arange(60), 64)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4))
left.imshow(encoding.numpy(), aspect="auto", cmap="RdBu")
left.set(xlabel="feature", ylabel="position")
right.plot((encoding @ encoding[30]).tolist())
right.set(xlabel="position", ylabel="dot product with position 30")
plt.show()

# %% [markdown]
# ## Adding them to the words
#
# The embeddings are multiplied by $\sqrt{\text{width}}$ first. They are small when training begins, and without the
# factor the sines and cosines would be much larger than the words.

# %% starter="embed"

# %%
tokens = torch.tensor([[3, 1, 2], [2, 1, 3]])  # dog bites man, man bites dog
table = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)) / 8**0.5
embedded = embed(tokens, table)
print("shape:", tuple(embedded.shape))
print("man is the same at both positions:", torch.allclose(embedded[0, 2], embedded[1, 0]))

# %% [markdown]
# ## Rotations
#
# Sinusoids are added once, at the bottom, and the model has to find out by itself how to compare them. But all that
# attention does with positions is to compare queries with keys. So why not build the positions into this comparison?
#
# Take two features of a query as a point in the plane, and turn it by an angle proportional to its position. Do the
# same with the key. Their dot product depends on the angle between them, and that is now shifted by the *difference* of
# the two positions:

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), subplot_kw={"aspect": "equal"})
for axis, (query_position, key_position) in zip(axes, [(0, 0), (4, 2), (6, 4)], strict=True):
    for label, angle, position in [("query", 0.2, query_position), ("key", 1.4, key_position)]:
        turned = torch.tensor(angle + 0.3 * position)
        axis.annotate("", (turned.cos(), turned.sin()), (0, 0), arrowprops={"arrowstyle": "->"})
        axis.text(1.1 * turned.cos(), 1.1 * turned.sin(), label, ha="center")
    axis.set(xlim=(-1.4, 1.4), ylim=(-0.2, 1.4), title=f"positions {query_position} and {key_position}")
plt.show()

# %% [markdown]
# The second and the third picture are the same except for a common rotation, which does not change the dot product: the
# distance is 2 in both.
#
# With many features there are many pairs, each with its own frequency. Pair $i$ consists of the features $i$ and
# $i + \text{head\_size} / 2$. (Other implementations pair neighbours, $2i$ and $2i + 1$. Both work, but not with each
# other's weights.) A rotation by the angle $a$ turns
#
# $$(x, y) \quad \text{into} \quad (x \cos a - y \sin a,\; y \cos a + x \sin a)$$

# %% starter="rotate"

# %% [markdown]
# Two tests that a rotation must pass: it keeps the length of every vector, and at position 0 it changes nothing.

# %%
x = torch.randn(1, 1, 4, 6, generator=torch.Generator().manual_seed(1))
turned = rotate(x, torch.tensor([0, 5, 17, 100]))
print("lengths kept:", torch.allclose(turned.norm(dim=-1), x.norm(dim=-1)))
print("unchanged at position 0:", torch.allclose(turned[:, :, 0], x[:, :, 0]))

# %% [markdown]
# ## Attention with rotations
#
# Which of queries, keys and values have to be rotated? Positions should decide where to look, not what is found there.
#
# The queries may be fewer than the keys: a model that generates with a cache has the keys of all tokens and the query
# of the last one. The queries are then those of the *last* tokens.

# %% starter="attend"

# %% [markdown]
# All tokens have the same query and the same key here, so only the distance counts. Each row shows the weights of one
# query: the pattern moves along with the query.

# %%
same = torch.ones(1, 1, 40, 32) / 32**0.25
weights = attend(3 * same, same, torch.eye(40)[None, None])[0, 0]
plt.imshow(weights.numpy(), cmap="viridis")
plt.xlabel("key")
plt.ylabel("query")
plt.colorbar(label="weight")
plt.show()

# %% [markdown]
# ## Questions to think about
#
# 1. A model was trained on texts of at most 2,000 tokens and is given 4,000. Which of its pairs of features meet angles
#    that they have never seen?
# 2. Why does it not matter for the scores whether positions start at 0 or at 1 when they are rotated, and why does it
#    matter when they are added?
# 3. Llama 3 uses 500,000 instead of 10,000. What does that change, and for which texts?
