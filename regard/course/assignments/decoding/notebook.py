# %% [markdown]
# # From probabilities to text: sampling and beam search
#
# A language model never writes a word. It reads a text and gives every word of its vocabulary a probability to come
# next. Somebody has to choose. Always take the most probable word? Roll dice? Keep several drafts and decide later? The
# same model can sound like a broken record, a drunk or a careful translator, depending on nothing but this choice.
#
# In this notebook you write all three ways. Fill in the gaps one after the other. Save the notebook and run `regard
# check` with its file name in a terminal whenever you like: what is written is checked.

# %% [markdown]
# ## A tiny language model
#
# To see what happens we need a model that fits on the screen. This one has read the story below, and has counted which
# word follows which two words. (A small random number is added to each count, so that nothing is impossible and there
# are no ties.) Real models are Transformers with billions of parameters, but what they return is the same:
# `model(tokens)` takes token ids `[rows, length]` and returns the logits `[rows, vocab]` of the next token.

# %%
import matplotlib.pyplot as plt
import torch

STORY = """
the cat sat on the mat . the dog sat on the log and sang . the cat saw the dog and ran away . then the dog ran to the
mat and sat on the mat . the cat was happy and the dog was happy . the bird sat on the log and sang . then the dog saw
the bird on the log and ran to the log . the bird was not happy and ran away . then the cat saw the bird on the mat and
sang . the dog was not happy . then the bird ran to the dog and the dog sang and the cat ran away .
""".split()
WORDS = sorted(set(STORY))
EOS = WORDS.index(".")

counts = 0.02 + 0.01 * torch.rand(len(WORDS), len(WORDS), len(WORDS), generator=torch.Generator().manual_seed(0))
for first, second, third in zip(STORY, STORY[1:], STORY[2:], strict=False):
    counts[WORDS.index(first), WORDS.index(second), WORDS.index(third)] += 1


def model(tokens):
    """Token ids [rows, length] → logits [rows, vocab] of the next token."""
    return counts[tokens[:, -2], tokens[:, -1]].log()


def encode(text):
    """Words → a 1-D tensor of token ids."""
    return torch.tensor([WORDS.index(word) for word in text.split()])


def decode(tokens):
    """Token ids → words."""
    return " ".join(WORDS[token] for token in tokens)


prompt = encode("and the")
probabilities = model(prompt[None])[0].softmax(dim=-1)
plt.figure(figsize=(9, 2.6))
plt.bar(WORDS, probabilities.tolist())
plt.xticks(rotation=60)
plt.title('What comes after "and the"?')
plt.show()

# %% [markdown]
# ## Greedy search
#
# The simplest choice: take the most probable token, append it, and ask again, until the model writes the
# end-of-sentence token. Here the full stop ends a sentence.

# %% starter="greedy"

# %%
for start in ("and the", "the bird", "then the"):
    print(decode(greedy(model, encode(start), EOS, 20)))

# %% [markdown]
# A broken record. The most probable continuation of a phrase is often a phrase that has just occurred, and then
# everything repeats. Large language models do the same, with longer loops. Greedy search also writes the same text
# every time, which is not what you want from a storyteller.
#
# ## Temperature
#
# So let us roll dice, weighted by the probabilities. How adventurous the dice are can be controlled: dividing the
# logits by a **temperature** before softmax makes the distribution flatter (above 1) or sharper (below 1). At 0, only
# the best token is left.

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for axis, temperature in zip(axes, (0.5, 1.0, 2.0), strict=True):
    axis.bar(WORDS, (model(prompt[None])[0] / temperature).softmax(dim=-1).tolist())
    axis.set_title(f"temperature {temperature}")
    axis.tick_params("x", rotation=90, labelsize=7)
plt.show()

# %% [markdown]
# ## Cutting off the tail
#
# Even at temperature 1 there is a problem. Each word that makes no sense has a tiny probability, but there are very
# many of them. In a vocabulary of 50,000, they may add up to a few percent, and in a text of 100 tokens, one of them is
# almost sure to be drawn. One absurd word is enough to derail the rest. Two filters remove the tail:
#
# - **top-k** keeps the k best tokens. Simple, but k = 3 is too many after "San" and too few after "I like".
# - **top-p** (nucleus sampling, [Holtzman et al. 2019](https://arxiv.org/abs/1904.09751)) keeps as many of the best
#   tokens as are needed to reach the probability p, so their number adapts to the context.
#
# The picture shows the running sum of the sorted probabilities. Where does it cross p = 0.8? How many tokens does top-p
# have to keep on the left, and how many on the right?

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 2.6), sharey=True)
for axis, context in zip(axes, ("sat on", "and the"), strict=True):
    ordered = model(encode(context)[None])[0].softmax(dim=-1).sort(descending=True)
    axis.bar([WORDS[token] for token in ordered.indices], ordered.values.tolist())
    axis.step(range(len(WORDS)), ordered.values.cumsum(dim=0).tolist(), where="mid", color="black")
    axis.axhline(0.8, color="red", linestyle=":")
    axis.set_title(f'after "{context}"')
    axis.tick_params("x", rotation=90, labelsize=7)
plt.show()

# %% [markdown]
# Removed tokens get the logit $-\infty$: softmax turns it into a probability of exactly 0, and the others share what is
# left. Your filters get a batch of rows, `[batch, vocab]`, and each row must be treated on its own.

# %% starter="top_p"

# %%
row = torch.tensor([[0.1, 0.6, 0.3]]).log()
print("top-k, k=2:  ", top_k(row, 2).softmax(dim=-1).tolist())
print("top-p, p=0.7:", top_p(row, 0.7).softmax(dim=-1).tolist())
print("top-p, p=0.5:", top_p(row, 0.5).softmax(dim=-1).tolist())

# %% [markdown]
# Now everything together. The order matters: the temperature changes the probabilities that top-p adds up.

# %% starter="next_probabilities"

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), sharey=True)
for axis, settings in zip(axes, ({"k": 3}, {"p": 0.8}, {"temperature": 3.0, "p": 0.8}), strict=True):
    axis.bar(WORDS, next_probabilities(model(prompt[None]), **settings)[0].tolist())
    axis.set_title(", ".join(f"{name} = {value}" for name, value in settings.items()))
    axis.tick_params("x", rotation=90, labelsize=7)
plt.show()

# %% [markdown]
# `sample` draws from these probabilities. The dice are an argument, `draw`, so that you (and the checker) can use
# loaded ones.

# %% starter="sample"

# %%
torch.manual_seed(0)


def draw(probabilities):
    """A random token id."""
    return torch.multinomial(probabilities, 1).item()


for settings in ({"temperature": 3.0}, {"temperature": 1.0}, {"temperature": 1.0, "p": 0.8}, {"temperature": 0}):
    print(settings, "→", decode(sample(model, encode("then the"), EOS, 20, draw, **settings)))

# %% [markdown]
# ## Beam search
#
# A translator has another problem. There, we want *the* most probable sentence, and greedy search does not find it: a
# word that is best now may lead to a place where every continuation is improbable. Trying all sentences is impossible,
# as there are (vocabulary)^(length) of them. **Beam search** is the compromise: keep the `beams` best drafts, extend
# each one by every token, keep the best again.
#
# Scores are sums of log-probabilities, because the probability of a sentence is the product of its tokens'
# probabilities. So every additional token makes the score worse, and the shortest sentence wins. Google's translator of
# 2016 ([Wu et al.](https://arxiv.org/abs/1609.08144)) divides by a **length penalty** at the end:
#
# $$\text{score} = \frac{\log p}{\left(\frac{5 + \text{length}}{6}\right)^\alpha}$$

# %% starter="length_penalty"

# %%
lengths = range(1, 30)
for alpha in (0.0, 0.6, 1.0):
    plt.plot(lengths, [length_penalty(length, alpha) for length in lengths], label=f"α = {alpha}")
plt.xlabel("new tokens")
plt.ylabel("length penalty")
plt.legend()
plt.show()

# %% [markdown]
# Before you write the search, draw one step on paper. There are two live drafts with the totals -1 and -2, and three
# tokens. How many candidates are there? If you flatten their totals into a single row, which draft does the candidate
# with index 4 continue, and by which token?

# %% starter="beam_search"

# %%
for alpha in (0.0, 1.0):
    print(f"α = {alpha}")
    for tokens, score in beam_search(model, encode("then the"), EOS, 15, 4, alpha):
        print(f"  {float(score):6.2f}  {decode(tokens)}")

# %% [markdown]
# A wider beam usually finds more probable sentences, though there is no guarantee, and the gain becomes smaller. The
# picture shows the log-probability of the best sentence, without a length penalty.

# %%
widths = range(1, 9)
totals = [float(beam_search(model, encode("and the"), EOS, 15, width, 0.0)[0][1]) for width in widths]
plt.plot(widths, totals, "o-")
plt.xlabel("beams")
plt.ylabel("log-probability of the best text")
plt.show()

# %% [markdown]
# ## Questions to think about
#
# 1. For which tasks would you use greedy search, sampling and beam search? Think of translation, a story, a password
#    and a program.
# 2. If `temperature` goes to infinity, what are the probabilities? What does top-p keep then?
# 3. With a very wide beam and α = 0, translators produce worse and shorter translations. Why, although their
#    probability is higher?
