# %% [markdown]
# # Self-attention with one head
#
# *The trophy does not fit into the suitcase because **it** is too big.*
#
# To understand *it*, you look back at *trophy*. A Transformer does the same: each word looks at all words of its
# sentence, decides how important each one is, and takes a weighted average of what they offer. That is all that
# attention is, and in this notebook you write it.
#
# When you have filled in the gaps, save the notebook and run `regard check` with its file name in a terminal. It tells
# you whether your code is correct. If it is not, it says which mistake it makes and asks a question that leads you to
# it.

# %% [markdown]
# ## Comparing words
#
# Words are vectors. The dot product of two vectors is large when they point in the same direction, 0 when they are
# orthogonal, and negative when they point in opposite directions. Here are four words with two features each (a real
# model learns hundreds of features). Which word fits *it* best?

# %%
import matplotlib.pyplot as plt
import torch

words = ["trophy", "suitcase", "too big", "it"]
vectors = torch.tensor([[2.0, 0.5], [0.5, 1.5], [-1.0, 0.2], [1.6, -0.2]])

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
for word, (x, y) in zip(words, vectors.tolist(), strict=True):
    left.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "->"})
    left.annotate(word, (x, y))
left.set(xlim=(-1.5, 3), ylim=(-0.7, 2), title="four words")
products = vectors @ vectors.T
right.imshow(products.numpy(), cmap="Blues")
right.set(title="dot products", xticks=range(4), yticks=range(4), xticklabels=words, yticklabels=words)
for row in range(4):
    for column in range(4):
        right.text(column, row, f"{products[row, column]:.1f}", ha="center")
plt.show()

# %% [markdown]
# The table is symmetric: *it* is as interesting to *trophy* as *trophy* is to *it*. But *it* needs *trophy*, and
# *trophy* does not need *it*. So each word gets three vectors, computed by three layers with different weights:
#
# - a **query**: what am I looking for?
# - a **key**: what can I be found by?
# - a **value**: what do I pass on when I am found?
#
# The score of one word for another is the dot product of its query with the other word's key.
#
# ## From scores to weights
#
# The softmax turns the scores of each query into positive weights that sum to 1. How sharp the weights are depends on
# the size of the scores. The dot product of two random vectors with $h$ features has a standard deviation of
# $\sqrt{h}$, so with many features the softmax puts nearly all the weight on one word. It then passes on almost no
# gradient, and the model stops learning. The remedy is to divide the scores by $\sqrt{h}$.

# %%
torch.manual_seed(0)
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for axis, width in zip(axes, (4, 64, 1024), strict=True):
    scores = torch.randn(8, width) @ torch.randn(width)
    axis.bar(range(8), torch.softmax(scores, dim=0).tolist(), label="as they are")
    axis.bar(range(8), torch.softmax(scores / width**0.5, dim=0).tolist(), width=0.4, label="divided by √h")
    axis.set(title=f"h = {width}", xlabel="word")
axes[0].set_ylabel("weight")
axes[0].legend()
plt.show()

# %% [markdown]
# ## Your turn
#
# With the queries, keys and values of a sequence as the rows of $Q$, $K$ and $V$:
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{h}}\right) V$$
#
# Your class does this for a batch of sequences at once. Before you write a line, note the shape you expect at the end
# of it, such as `# [batch, seq, hidden]`. The dimension names are batch, seq, input_size and hidden, and `regard check`
# checks these comments too.

# %% starter="SelfAttention"

# %% [markdown]
# ## Try it
#
# Two sequences of five tokens come in with 8 features and should come out with 4.

# %%
torch.manual_seed(1)
attention = SelfAttention(input_size=8, hidden=4)
tokens = torch.randn(2, 5, 8)
attention(tokens).shape

# %% [markdown]
# Who influences whom? The picture shows how much each output changes when an input changes a little. In self-attention
# every token influences every token.

# %%
influence = torch.autograd.functional.jacobian(attention, tokens[:1])[0, :, :, 0]  # [seq, hidden, seq, input_size]
plt.imshow(influence.square().sum((1, 3)).sqrt().numpy())
plt.xlabel("token that changes")
plt.ylabel("output")
plt.colorbar(label="change of the output")
plt.show()

# %% [markdown]
# Attention does not know the order of the tokens: if the input is reversed, the output is reversed too, and otherwise
# the same. So "dog bites man" and "man bites dog" are the same to it. The assignment `positions` repairs this.

# %%
reversed_output = attention(tokens.flip(1)).flip(1)
torch.allclose(reversed_output, attention(tokens), atol=1e-6)

# %% [markdown]
# ## Questions to think about
#
# 1. Along which axis do your weights sum to 1, and what would it mean if they did so along another one?
# 2. The matrix of scores has as many rows and columns as there are tokens. How much memory does it need for a book?
# 3. What changes if all three layers have the same weights?
