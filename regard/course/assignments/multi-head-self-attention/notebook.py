# %% [markdown]
# # Self-attention with several heads
#
# *The animal did not cross the street because **it** was too tired.*
#
# To understand this *it*, you need two things at once: what *it* refers to (the animal), and what is said about it
# (tired). A single attention has one set of weights per word. It can look at the animal or at *tired*, or take half of
# each, but it cannot take one thing from here and another from there. Several **heads** can: each has its own queries,
# keys and values, and its own weights.
#
# In this notebook you extend self-attention by heads, by a causal mask, which hides the future, and by dropout. Save it
# and run `regard check` with its file name in a terminal whenever you like.

# %% [markdown]
# ## Heads share the features
#
# Eight heads of 64 features cost as much as one head of 512: the features are divided among the heads. Below, each row
# is a token and each column a feature, coloured by head. Head 0 gets the first features *of every token*.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

seq, heads, head_size = 5, 3, 4
owner = torch.arange(heads).repeat_interleave(head_size).expand(seq, -1)  # [seq, hidden]
figure, axes = plt.subplots(1, heads + 1, figsize=(9, 2.4), width_ratios=[heads] + [1] * heads)
axes[0].imshow(owner.numpy(), cmap="Set2", vmin=0, vmax=7)
axes[0].set(title="all features", xlabel="feature", ylabel="token")
for head in range(heads):
    axes[head + 1].imshow(owner[:, :head_size].numpy() * 0 + head, cmap="Set2", vmin=0, vmax=7)
    axes[head + 1].set(title=f"head {head}", xlabel="feature", yticks=[])
plt.show()

# %% [markdown]
# In PyTorch the head should become an axis of its own: from `[batch, seq, hidden]` to `[batch, heads, seq, head_size]`.
# Be careful here. Many operations produce this *shape*, and only some of them put the right numbers into it. A good
# test is a tensor whose numbers show where they come from:

# %%
features = torch.tensor([[[100 * token + feature for feature in range(6)] for token in range(3)]])  # [1, 3, 6]
print(features)
print("Head 1 of two heads should have the features 3, 4 and 5 of each token.")

# %% [markdown]
# After attention, the heads are merged back in the same order, and a last layer, `.mix`, lets their results interact.
#
# ## Hiding the future
#
# A model that writes text predicts each word from the words before it. In training the complete text is there, and a
# token that could look at the next one would simply copy it. The **causal mask** prevents this. A hidden score must be
# $-\infty$ *before* the softmax, so that its weight becomes 0 and the other weights still sum to 1.

# %%
scores = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
visible = torch.tensor([[column <= row for column in range(5)] for row in range(5)])
figure, axes = plt.subplots(1, 2, figsize=(6, 2.8))
for axis, picture, title in [(axes[0], scores, "scores"), (axes[1], visible, "what a token may see")]:
    axis.imshow(picture.float().numpy(), cmap="viridis")
    axis.set(title=title, xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# ## Your turn
#
# Write the class step by step. Start from your solution of `self-attention`, add the heads, check, then add the mask,
# the returned weights and the dropout. Note the shape you expect at the end of each line that changes one, such as
# `# [batch, heads, seq, head_size]`; `regard check` checks these comments too. The dimension names are batch, seq,
# input_size, heads, head_size and hidden. Write products as `batch*heads`.

# %% starter="MultiHeadSelfAttention"

# %% [markdown]
# ## Look at the heads
#
# An untrained attention with four heads. Each head has its own pattern, every row sums to 1, and with the causal mask
# everything right of the diagonal is 0.

# %%
torch.manual_seed(0)
attention = MultiHeadSelfAttention(input_size=16, hidden=16, num_heads=4, causal=True)
output, weights = attention(3 * torch.randn(1, 8, 16), return_attention=True)
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4))
for head, axis in enumerate(axes):
    axis.imshow(weights[head].detach().numpy(), vmin=0, vmax=1)
    axis.set(title=f"head {head}")
plt.show()

# %% [markdown]
# ## One head or two?
#
# A task that needs two places at once: each token should return one feature of the token before it and another feature
# of the first token. The tokens know their positions. Train the same number of weights with one head and with two.


# %%
def task(batch):
    """Inputs [batch, 6, 8] with positions and two random features, and the features to return [batch, 6, 2]."""
    content = torch.randn(batch, 6, 2)
    previous, first = content.roll(1, dims=1)[..., :1], content[:, :1, 1:].expand(-1, 6, -1)
    return torch.cat([torch.eye(6).expand(batch, 6, 6), content], -1), torch.cat([previous, first], -1)


trained = {}
for count, label in [(1, "one head"), (2, "two heads")]:
    torch.manual_seed(0)
    model = MultiHeadSelfAttention(8, 16, count)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    history = []
    for _ in range(100):
        x, wanted = task(32)
        loss = nn.functional.mse_loss(model(x)[..., :2], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    plt.semilogy(history, label=label)
    trained[count] = model
plt.xlabel("step")
plt.ylabel("error")
plt.legend()
plt.show()

# %% [markdown]
# And where do the trained heads look? With two heads there is one that looks at the token before, and one that looks at
# the first token. A single head has to compromise.

# %%
x, _ = task(1)
figure, axes = plt.subplots(1, 3, figsize=(9, 3))
maps = [trained[1](x, return_attention=True)[1][0], *trained[2](x, return_attention=True)[1]]
for axis, picture, title in zip(axes, maps, ["the only head", "head 0 of two", "head 1 of two"], strict=True):
    axis.imshow(picture.detach().numpy(), vmin=0, vmax=1)
    axis.set(title=title, xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# ## Questions to think about
#
# 1. Why are the scores divided by the root of `head_size` and not of `hidden`?
# 2. What would happen if hidden scores were set to 0 instead of $-\infty$?
# 3. Dropout sets some weights to 0 in training. Why are the others scaled up, and why not in evaluation?
#
# When your solution is correct, `regard train petit-lm --set model.positions=learned --module FILE` trains a language
# model with it.
