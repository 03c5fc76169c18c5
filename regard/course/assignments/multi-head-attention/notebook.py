# %% [markdown]
# # Multi-head attention
#
# *Le chat noir dort.* → *The black cat sleeps.*
#
# To write *black*, a translator looks at *noir*, and to write *cat*, at *chat*. In a Transformer this is attention too,
# but the queries come from one sentence and the keys and values from another. Here you write the general form, the one
# of the paper: queries, keys and values are three separate inputs. If all three are the same sentence, it is
# self-attention. If the queries come from the translation and the rest from the source, it is cross-attention.
#
# Save the notebook and run `regard check` with its file name in a terminal whenever you like.

# %% [markdown]
# ## Two lengths
#
# The translation has $T$ tokens so far, the source has $S$. Each of the $T$ queries has a score for each of the $S$
# keys, so the weights are a rectangle: one row per query, and each row sums to 1. A human would fill in the weights of
# our sentence like this:

# %%
import matplotlib.pyplot as plt
import torch

source, translation = ["Le", "chat", "noir", "dort", "."], ["The", "black", "cat", "sleeps"]
alignment = torch.zeros(4, 5)
alignment[[0, 1, 2, 3], [0, 2, 1, 3]] = 1
plt.imshow(alignment.numpy(), cmap="Blues")
plt.xticks(range(5), source)
plt.yticks(range(4), translation)
plt.xlabel("keys: the source, S = 5")
plt.ylabel("queries: the translation, T = 4")
plt.show()

# %% [markdown]
# ## Masks
#
# Not every query may see every key. A mask says where it may: `True` means visible.
#
# - **Padding**: sentences of a batch have different lengths. The short ones are filled up with padding, which nobody
#   should look at. Shape `[B, 1, 1, S]`: the same for all heads and all queries.
# - **The future**: while it writes, a model must not see the words that come next. Shape `[T, S]`: the same for all
#   sentences and heads.
#
# Axes of size 1, and missing ones, are repeated as needed ("broadcast"). So your code needs no special cases: any mask
# that broadcasts to `[B, heads, T, S]` works.

# %%
lengths = torch.tensor([5, 3])
padding = (torch.arange(5) < lengths[:, None])[:, None, None]  # [B, 1, 1, S]
future = torch.arange(5) <= torch.arange(5)[:, None]  # [T, S]
both = padding & future  # [B, 1, T, S]
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4))
pictures = [padding[1, 0].expand(5, 5), future, both[0, 0], both[1, 0]]
titles = ["padding, row 2", "future", "both, row 1", "both, row 2"]
for axis, picture, title in zip(axes, pictures, titles, strict=True):
    axis.imshow(picture.numpy(), cmap="Greys_r", vmin=0, vmax=1)
    axis.set(title=title, xlabel="key", xticks=[], yticks=[])
axes[0].set_ylabel("query")
plt.show()

# %% [markdown]
# One case needs care: a query that may see *nothing*. All of its scores are $-\infty$, and the softmax divides 0 by 0.
# The result is NaN, which spreads through the model and ruins the training. Your attention should return zeros.
#
# ## Your turn
#
# In each head, queries and keys have `qk_length` features and values have `value_length`, which need not be the same.
# Note the shape you expect at the end of each line that changes one, such as `# [B, heads, T, qk_length]`; `regard
# check` checks these comments too. The dimension names are B, heads, T (queries), S (keys and values), qk_length,
# value_length and embedding_dim. Write products as `heads*qk_length`.

# %% starter="MultiHeadAttention"

# %% [markdown]
# ## Try it
#
# Four queries, five keys and values. The output has the shape of the queries.

# %%
torch.manual_seed(0)
attention = MultiHeadAttention(num_heads=2, embedding_dim=8, qk_length=3, value_length=5)
queries, keys = torch.randn(2, 4, 8), torch.randn(2, 5, 8)
attention(queries, keys, keys).shape

# %% [markdown]
# If the mask works, what is hidden has no effect: change the padding, and nothing else may change. And a query that may
# see nothing gets no NaN.

# %%
changed = keys.clone()
changed[1, 3:] = 100.0
before, after = (attention(queries, source_keys, source_keys, padding) for source_keys in (keys, changed))
print("padding has no effect:", torch.allclose(before, after, atol=1e-5))
print(
    "without a mask it has:", not torch.allclose(attention(queries, keys, keys), attention(queries, changed, changed))
)
nothing = torch.zeros(4, 5, dtype=torch.bool)
print("no NaN:", not attention(queries, keys, keys, nothing).isnan().any().item())

# %% [markdown]
# ## Learning to align
#
# A toy translation: the words of a sentence in the opposite order. The queries know only their own positions, so the
# attention has to learn where to look. Instead of words there are random vectors.

# %%
length, width = 6, 4
places = torch.eye(length).expand(32, length, length)


def sentences():
    """Sources [32, length, length + width] with their positions, and the words in the opposite order."""
    words = torch.randn(32, length, width)
    return torch.cat([places, words], dim=-1), words.flip(1)


torch.manual_seed(0)
attention = MultiHeadAttention(num_heads=1, embedding_dim=length + width, qk_length=8, value_length=8)
optimizer = torch.optim.Adam(attention.parameters(), lr=0.03)
queries = torch.cat([places, torch.zeros(32, length, width)], dim=-1)
history = []
for _ in range(120):
    encoded, wanted = sentences()
    loss = (attention(queries, encoded, encoded)[..., length:] - wanted).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
plt.semilogy(history)
plt.xlabel("step")
plt.ylabel("error")
plt.show()

# %% [markdown]
# Where does it look now? The picture shows how much each output depends on each word of the source. The attention has
# found the alignment by itself.

# %%
encoded, _ = sentences()
encoded.requires_grad_()
rows = []
for position in range(length):
    total = attention(queries, encoded, encoded)[:, position, length:].sum()
    (slope,) = torch.autograd.grad(total, encoded)
    rows.append(slope[:, :, length:].abs().mean((0, 2)))
plt.imshow(torch.stack(rows).numpy(), cmap="Blues")
plt.xlabel("word of the source")
plt.ylabel("word of the translation")
plt.show()

# %% [markdown]
# ## Questions to think about
#
# 1. Why can `qk_length` and `value_length` differ, but not the lengths of queries and keys?
# 2. In cross-attention, does the order of the source's tokens matter to the result, if keys and values move together?
# 3. Which of the two masks does a translator need in its encoder, in its decoder, and between the two?
#
# When your solution is correct, `regard train petit-fr-en --module FILE` trains a real translator with it.
