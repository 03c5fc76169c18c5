# %% [markdown]
# # Generation with a key-value cache
#
# A chat model answers word by word. For each word, the simple loop reads the *complete* conversation again: the system
# prompt, all questions, all answers so far, to get one more token. Then it throws everything away and starts over.
# Nobody would read a book like that.
#
# A key-value cache remembers what has been read. It is the reason why language models can answer quickly, and also why
# they need so much memory. You write one that gives exactly the same texts as before. Fill in the gaps one after the
# other. Save the notebook and run `regard check` with its file name in a terminal whenever you like: what is written is
# checked.

# %% [markdown]
# ## Given: a decoder without a cache
#
# Here is a small decoder, and `generate`, which reads everything again for each new token.

# %% starter="generate"

# %% [markdown]
# How much work is that? To write $n$ tokens after a prompt of $p$ tokens, it reads $p + (p + 1) + \dots$ tokens. The
# picture shows the total. With a cache, each token is read once.

# %%
import matplotlib.pyplot as plt

counts = range(1, 501)
plt.figure(figsize=(6, 2.8))
plt.plot(counts, [sum(range(50, 50 + count)) for count in counts], label="without a cache")
plt.plot(counts, [50 + count for count in counts], label="with a cache")
plt.xlabel("generated tokens (after a prompt of 50)")
plt.ylabel("tokens read")
plt.legend()
plt.show()

# %% [markdown]
# ## What has to be remembered?
#
# In a decoder, a token sees only itself and what comes before. So nothing about it can change when more tokens follow.
# Check this: the picture shows the difference between the hidden states of a text and of the same text with one more
# token, at the positions that they have in common.

# %%
torch.manual_seed(0)
model = Decoder(vocab=20, width=32, heads=4, layers=3, max_length=128)
tokens = torch.randint(20, (1, 12))


@torch.no_grad()
def hidden_states(tokens):
    """The input of each block, and the output of the last one: [layers + 1, seq, width]."""
    x = model.tokens(tokens) + model.positions(torch.arange(tokens.shape[1]))
    states = [x]
    for block in model.blocks:
        states.append(block(states[-1]))
    return torch.cat(states)


difference = (hidden_states(tokens)[:, :-1] - hidden_states(tokens[:, :-1])).abs().amax(dim=-1)
plt.figure(figsize=(6, 1.8))
plt.imshow(difference.numpy(), vmin=0, vmax=1)
plt.xlabel("position")
plt.ylabel("layer")
plt.colorbar(label="difference")
plt.show()

# %% [markdown]
# Nothing changes. And what do later tokens need from an earlier one? In attention, a query is compared with the
# **keys** of all earlier tokens, and takes a weighted average of their **values**. The earlier tokens' queries, and
# everything else about them, are never used again. So for each layer, the cache stores keys and values: two tensors
# `[batch, heads, length, head_size]`.
#
# It also has to know how many tokens there are, because a new token needs its position.

# %% starter="Cache"

# %% [markdown]
# ## One step
#
# `step` reads new tokens, one or several, that follow those in the cache. Three things are different from the decoder
# above:
#
# - The positions do not start at 0.
# - Queries come from the new tokens only; keys and values from all tokens.
# - The mask is not square: with 3 tokens in the cache and 2 new ones it has 2 rows and 5 columns. Which entries are
#   True?

# %% starter="step"

# %% [markdown]
# Read a text in pieces of different sizes, and compare with reading it at once. The difference should be rounding only.

# %%
with torch.no_grad():
    at_once = model(tokens)
for sizes in ([12], [1] * 12, [5, 1, 4, 2]):
    cache = Cache(len(model.blocks))
    pieces = [step(model, piece, cache) for piece in tokens.split(sizes, dim=1)]
    print(sizes, "largest difference:", (torch.cat(pieces, dim=1) - at_once).abs().max().item())

# %% [markdown]
# ## Generation
#
# The prompt is read in one step, which is called *prefill*. After that, each step reads a single token: the one that
# was just generated.

# %% starter="generate_cached"

# %%
prompts = torch.randint(20, (2, 8))
assert torch.equal(generate(model, prompts, 30), generate_cached(model, prompts, 30))
generate_cached(model, prompts, 30)

# %% [markdown]
# The same text. Is it faster? The small model here is dominated by the overhead of Python, but the trend is visible.

# %%
import time

seconds = {"without a cache": [], "with a cache": []}
lengths = (10, 40, 80)
for count in lengths:
    for name, function in (("without a cache", generate), ("with a cache", generate_cached)):
        start = time.perf_counter()
        function(model, prompts, count)
        seconds[name].append(time.perf_counter() - start)
plt.figure(figsize=(6, 2.6))
for name, values in seconds.items():
    plt.plot(lengths, values, "o-", label=name)
plt.xlabel("generated tokens")
plt.ylabel("seconds")
plt.legend()
plt.show()

# %% [markdown]
# ## The price
#
# The cache grows with every token. For each token and layer there is a key and a value, and each is as wide as the
# model. Here is the memory for a model of the size of Llama 2 7B (32 layers, width 4096, 2 bytes per number):

# %%
for length in (1_000, 10_000, 100_000):
    gigabytes = 2 * 32 * 4096 * 2 * length / 1e9
    print(f"{length:>7,} tokens: {gigabytes:6.1f} GB")

# %% [markdown]
# ## Questions to think about
#
# 1. Why are queries not cached?
# 2. An encoder (BERT) reads a text in both directions. Could it use a cache when a word is appended?
# 3. Newer models share keys and values between several heads (grouped-query attention). What does this change in the
#    table above, if 4 heads share one key and one value?
