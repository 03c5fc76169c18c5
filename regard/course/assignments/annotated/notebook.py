# %% [markdown]
# # The complete Transformer, part by part
#
# In 2017, eight researchers, most of them at Google, published "[Attention Is All You
# Need](https://arxiv.org/abs/1706.03762)". They wanted to translate faster. What they built is now in every chat model,
# in protein folding, in image generators. The model fits into one notebook: this one.
#
# You write all of it, in the order of the paper, with the names of [The Annotated
# Transformer](https://nlp.seas.harvard.edu/annotated-transformer/). Every part is checked on its own: save the notebook
# and run `regard check` with its file name in a terminal whenever you like. At the end you train your Transformer.
#
# Some details are fixed here because implementations differ:
#
# - The norm comes before each sublayer, x + dropout(sublayer(norm(x))), and once more at the end of the encoder and of
#   the decoder. (The paper normalises the sum after each sublayer; most later models do it as we do here.)
# - Masks are True (or 1) where a position may look, and False (or 0) where it may not.
# - Keep the names of the layers: the checker sets their weights by name.

# %% [markdown]
# ## Copies and masks
#
# The paper stacks 6 equal layers. Equal in structure, not in weights: each one needs parameters of its own.

# %% starter="clones"

# %% [markdown]
# The decoder may not look ahead, or it could copy the word that it should predict.

# %% starter="subsequent_mask"

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(3, 3))
plt.imshow(subsequent_mask(10)[0].numpy(), cmap="Greys_r")
plt.xlabel("may look at (white)")
plt.ylabel("position")
plt.show()

# %% [markdown]
# ## Attention
#
# The heart of it. Each query is compared with all keys; softmax turns the scores into weights; the output is the
# weighted average of the values:
#
# $$\text{Attention}(Q, K, V) = \text{softmax}\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V$$
#
# Divided by $\sqrt{d_k}$, because dot products of long vectors are large, and a softmax of large numbers is almost 0 or
# 1 everywhere, with almost no gradient.

# %% starter="attention"

# %%
torch.manual_seed(0)
query, key, value = torch.randn(1, 1, 4, 8), torch.randn(1, 1, 6, 8), torch.randn(1, 1, 6, 8)
mixed, weights = attention(query, key, value)
print("output:", list(mixed.shape), " weights:", list(weights.shape), " sums:", weights.sum(-1).flatten().tolist())

# %% [markdown]
# One attention can look at one thing at a time: its weights sum to 1. **Several heads** can look at several things,
# each in its own part of the features. Which axis has to be split, and which two have to be swapped?

# %% starter="MultiHeadedAttention"

# %%
layer = MultiHeadedAttention(h=4, d_model=32)
layer.eval()
x = torch.randn(1, 10, 32)
layer(x, x, x, subsequent_mask(10))
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4))
for head, axis in enumerate(axes):
    axis.imshow(layer.attn[0, head].detach().numpy(), vmin=0, vmax=1)
    axis.set_title(f"head {head}")
plt.show()

# %% [markdown]
# ## The other parts of a layer
#
# Attention mixes positions. The feed-forward network works on each position separately, and holds two thirds of a
# layer's parameters.

# %% starter="PositionwiseFeedForward"

# %% [markdown]
# ## From words to vectors
#
# Embeddings are multiplied by $\sqrt{d_\text{model}}$, so that they are not drowned out by the positions that are added
# next. The positions are sines and cosines, from fast to slow:
#
# $$PE_{(pos, 2i)} = \sin\left(pos / 10000^{2i / d_\text{model}}\right) \qquad
# PE_{(pos, 2i + 1)} = \cos\left(pos / 10000^{2i / d_\text{model}}\right)$$

# %% starter="PositionalEncoding"

# %%
positions = PositionalEncoding(32, 0.0)(torch.zeros(1, 100, 32))[0]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 2.8))
left.imshow(positions.T.numpy(), aspect="auto", cmap="RdBu")
left.set(xlabel="position", ylabel="feature", title="the encoding")
right.plot(positions[:, :8:3].numpy())
right.set(xlabel="position", title="features 0, 3 and 6")
plt.show()

# %% [markdown]
# ## Making it deep
#
# Two tricks make it possible to train many layers. The **norm** keeps the numbers in a reasonable range. The **residual
# connection** adds the input of a sublayer to its output, so that information and gradients have a direct way through.

# %% starter="SublayerConnection"

# %% [markdown]
# ## Encoder and decoder
#
# The encoder reads the source. In each of its layers, all words of the source look at each other.

# %% starter="Encoder"

# %% [markdown]
# The decoder writes the target. Each of its layers has three sublayers: the target looks at itself (only at the past),
# then at the encoder's output (**memory**), then comes the feed-forward network. Where do the queries of the second
# attention come from, and where its keys and values?

# %% starter="Decoder"

# %% [markdown]
# ## The model
#
# The generator turns the decoder's vectors into log-probabilities. `EncoderDecoder` connects everything, and
# `make_model` builds it from numbers. The base model of the paper has N=6, d_model=512, d_ff=2048 and h=8.

# %% starter="make_model"

# %%
paper = sum(parameter.numel() for parameter in make_model(1000, 1000, N=1).parameters()) / 1e6
print(f"one layer on each side, with the paper's widths: {paper:.1f} million parameters")

# %% [markdown]
# ## Training
#
# The first task of The Annotated Transformer: copy a sequence. Every position of the target has to find the right
# position of the source, so attention must learn to line them up. Token 0 starts each sequence.

# %%
torch.manual_seed(0)
model = make_model(11, 11, N=1, d_model=32, d_ff=64, h=4, dropout=0.0)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
source_mask = torch.ones(1, 1, 5, dtype=torch.bool)
losses = []
for _ in range(70):
    source = torch.randint(1, 11, (64, 5))
    target = torch.cat([torch.zeros(64, 1, dtype=torch.long), source], dim=1)
    states = model(source, target[:, :-1], source_mask, subsequent_mask(5))
    log_probs = model.generator(states)
    loss = -log_probs.gather(-1, target[:, 1:, None]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
plt.figure(figsize=(6, 2.4))
plt.plot(losses)
plt.xlabel("step")
plt.ylabel("loss")
plt.show()

# %% [markdown]
# What has it learned? Here are the weights with which the decoder looks at the source. If a head has a bright diagonal,
# it copies position by position.

# %%
model.eval()
source = torch.tensor([[3, 1, 4, 1, 5]])
with torch.no_grad():
    memory = model.encode(source, source_mask)
    written = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(5):
        states = model.decode(memory, source_mask, written, subsequent_mask(written.shape[1]))
        written = torch.cat([written, model.generator(states[:, -1:]).argmax(dim=-1)], dim=1)
print("source: ", source[0].tolist())
print("written:", written[0, 1:].tolist())
figure, axes = plt.subplots(1, 4, figsize=(9, 2.4))
for head, axis in enumerate(axes):
    axis.imshow(model.decoder.layers[0].src_attn.attn[0, head].numpy(), vmin=0, vmax=1)
    axis.set_title(f"head {head}")
plt.show()

# %% [markdown]
# To train a real translator with your code, save it as a `.py` file and run `regard train petit-fr-en --module
# my_model.py`.
#
# ## Questions to think about
#
# 1. The model has attention in three places. What are the lengths of queries and keys in each of them?
# 2. Without residual connections, what is the first thing that the copy task would lose?
# 3. The paper shares the embedding matrix between source, target and output. What does that save here, and what must be
#    true of the vocabularies?
