# %% [markdown]
# # Masks and batches
#
# A GPU is fast if it computes many sentences at once, as one rectangle of numbers. But sentences have different
# lengths. So short ones are filled up with a meaningless token, **padding**, and from then on everybody has to pretend
# that it is not there. Nearly every "my model is strangely bad" in a Transformer comes from a place where somebody
# forgot to.
#
# You write the parts that keep padding, and the future, out of the computation. Fill in the gaps one after the other.
# Save the notebook and run `regard check` with its file name in a terminal whenever you like: what is written is
# checked.

# %% [markdown]
# ## Padding
#
# Four sentences, as words and as token ids. `<pad>` has the id 1 here, and 0 is an ordinary word. (Which id is padding
# depends on the tokenizer. Code that assumes 0 works until the day that it does not.)

# %%
import matplotlib.pyplot as plt
import torch

WORDS = ["cats", "<pad>", "<s>", "</s>", "dogs", "like", "and", "sleep", "milk", "all", "day"]
PAD = 1
texts = [
    "<s> cats sleep </s>",
    "<s> dogs </s>",
    "<s> cats like milk and sleep all day </s>",
    "<s> dogs and cats sleep </s>",
]
sequences = [[WORDS.index(word) for word in text.split()] for text in texts]
sequences

# %% starter="pad"

# %%
tokens = pad(sequences, PAD)
plt.figure(figsize=(9, 2.4))
plt.imshow((tokens == PAD).numpy(), cmap="Greys", aspect="auto", vmax=2)
for row in range(tokens.shape[0]):
    for column in range(tokens.shape[1]):
        plt.text(column, row, WORDS[tokens[row, column]], ha="center", va="center")
plt.axis("off")
plt.show()

# %% [markdown]
# ## Two rules for attention
#
# In attention, each position (a **query**) looks at all positions (the **keys**) of its sentence. The scores have the
# shape `[batch, queries, keys]`. A mask says who may look where: True means "may look".
#
# **Rule 1: nobody looks at padding.** Whether a key is padding does not depend on who is asking, so the mask has the
# shape `[batch, 1, keys]`, and the axis of size 1 is broadcast over all queries.

# %% starter="padding_mask"

# %% [markdown]
# **Rule 2: nobody looks into the future.** A decoder learns to predict the next token at all positions at once. If a
# position could see the next token, it would only have to copy it: the loss would be wonderful, and the model useless.

# %% starter="causal_mask"

# %% [markdown]
# A decoder has to obey both rules. How do you combine them?

# %% starter="target_mask"

# %%
masks = {
    "padding": padding_mask(tokens, PAD)[0].expand(9, 9),
    "causal": causal_mask(9),
    "both": target_mask(tokens, PAD)[0],
}
figure, axes = plt.subplots(1, 3, figsize=(9, 3))
for axis, (title, mask) in zip(axes, masks.items(), strict=True):
    axis.imshow(mask.numpy(), cmap="Greys_r", vmin=0, vmax=1)
    axis.set(title=f"{title} (white: may look)", xlabel="key", ylabel="query")
plt.show()

# %% [markdown]
# ## Softmax with a mask
#
# Hidden keys must get the weight 0, and the visible ones must still sum to 1. If you set weights to 0 *after* softmax,
# they do not: hidden keys have already taken their share. So the scores of hidden keys are set to $-\infty$ before
# softmax, since $e^{-\infty} = 0$.
#
# There is a trap. What is the softmax of a row that is $-\infty$ everywhere? This happens, for example, if a batch is
# filled up with an empty sentence. Try it:

# %%
torch.full((3,), float("-inf")).softmax(dim=-1)

# %% [markdown]
# One NaN in the output becomes NaN in the loss, then in the gradient, and then in every parameter of the model.

# %% starter="masked_softmax"

# %%
scores = torch.randn(4, 9, 9, generator=torch.Generator().manual_seed(0))
weights = masked_softmax(scores, target_mask(tokens, PAD))
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8))
for axis, row, text in zip(axes, weights, texts, strict=True):
    axis.imshow(row.numpy(), vmin=0, vmax=1)
    axis.set_title(text[4:18] + " …", fontsize=8)
plt.show()

# %% [markdown]
# ## Inputs and labels
#
# From one target sentence we need two things: what the decoder reads, and what it should predict. At each position the
# label is the **next** token:
#
# | position | 0 | 1 | 2 |
# |---|---|---|---|
# | input | `<s>` | cats | sleep |
# | label | cats | sleep | `</s>` |

# %% starter="shift"

# %%
inputs, labels = shift(tokens)
for row in (0, 1):
    print("input:", *(WORDS[token] for token in inputs[row]))
    print("label:", *(WORDS[token] for token in labels[row]))

# %% [markdown]
# ## The loss
#
# Some labels are padding. They must not count: neither in the sum nor in the number that it is divided by. And the mean
# is taken over all tokens of the batch, not over sentences, so that every token counts the same.
#
# Here is an experiment: the same sentence with more and more padding. A correct loss is a horizontal line. The other
# line is what happens if padding counts.

# %% starter="masked_loss"

# %%
generator = torch.Generator().manual_seed(0)
logits = torch.randn(1, 40, len(WORDS), generator=generator)
logits[:, 3:, PAD] += 5  # a model that has learned to write padding
correct, with_padding = [], []
for length in range(3, 41):
    row = torch.full((1, length), PAD)
    row[0, :3] = torch.tensor([0, 7, 3])
    correct.append(masked_loss(logits[:, :length], row, PAD).item())
    with_padding.append(masked_loss(logits[:, :length], row, -1).item())
plt.plot(range(3, 41), correct, label="without padding")
plt.plot(range(3, 41), with_padding, label="padding counts")
plt.xlabel("length of the batch")
plt.ylabel("loss")
plt.legend()
plt.show()

# %% [markdown]
# ## Less padding
#
# Padding costs time even if it is masked. If a batch contains sentences of 3 and of 60 words, most of it is padding. So
# sentences of similar length are put together, and a batch gets as many sentences as fit into a number of tokens: many
# short ones or a few long ones.

# %% starter="make_batches"

# %%
lengths = (5 + 20 * torch.rand(300, generator=generator) ** 3 * 4).int().tolist()


def padding_share(batches):
    """The share of padding in all batches."""
    sizes = [max(lengths[index] for index in batch) * len(batch) for batch in batches]
    return 1 - sum(lengths) / sum(sizes)


sorted_batches = make_batches(lengths, 512)
random_batches = [list(range(start, min(start + 16, 300))) for start in range(0, 300, 16)]
print(f"padding: {padding_share(random_batches):.0%} in random batches, {padding_share(sorted_batches):.0%} in yours")
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for axis, batches, title in zip(axes, (random_batches, sorted_batches), ("random", "yours"), strict=True):
    order = [index for batch in batches for index in batch]
    longest = [max(lengths[index] for index in batch) for batch in batches for _ in batch]
    axis.bar(range(300), longest, width=1, color="lightgrey", label="padding")
    axis.bar(range(300), [lengths[index] for index in order], width=1, label="tokens")
    axis.set(title=title, xlabel="sentence", ylabel="tokens")
axes[0].legend()
plt.show()

# %% [markdown]
# ## Questions to think about
#
# 1. What do the outputs of attention at padded positions look like, and why do they not matter?
# 2. If all batches are sorted by length, a model sees only short sentences at first. How would you avoid this without
#    giving up the similar lengths?
# 3. A mask of `[batch, seq]` instead of `[batch, 1, seq]` sometimes works without an error. When, and what happens
#    then?
