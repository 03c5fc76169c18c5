# %% [markdown]
# # A byte-pair tokenizer
#
# A model reads numbers, not letters. What should the numbers stand for? **Words** are too many: every name, every
# inflection and every typing error would need a number of its own. **Bytes** are only 256, but texts become very long,
# and a model has to spell everything.
#
# Byte-pair encoding is the compromise that nearly all language models use. It starts from bytes and joins what often
# stands together: first *t* and *h*, then *th* and *e*, and soon ` the` is a single token, while a rare word is
# spelled with a few. It can encode every text in every language, because in the worst case there are always the bytes.
#
# In this notebook you write such a tokenizer from scratch. Save it and run `regard check` with its file name in a
# terminal whenever you like: what is written is checked.

# %% [markdown]
# ## Bytes
#
# UTF-8 turns every text into bytes, numbers from 0 to 255. English letters take one byte each, others take up to four.

# %%
for character in ["a", "é", "語", "🙂"]:
    print(character, list(character.encode()))

# %% [markdown]
# ## Words and pairs
#
# Merges should not run across words: a token with the end of one word and the beginning of the next would be of little
# use elsewhere. So the text is split into words first. Each word keeps the space before it, and nothing is lost. The
# function for that is given. Then you need to know which ids stand next to each other, and how often.

# %% starter="count_pairs"

# %% [markdown]
# The most frequent pairs of a short text, as your function counts them. `·` is a space. Which one would you merge?

# %%
from collections import Counter

import matplotlib.pyplot as plt

text = """The cat sat on the mat. The other cat, the fat cat, sat on the hat that the rat had left on the mat.
Then the rat sat on the cat that had sat on the hat, and that was that."""
words = Counter(tuple(word.encode()) for word in split_words(text))
frequent = sorted(count_pairs(words).items(), key=lambda item: -item[1])[:12]
plt.figure(figsize=(9, 2.4))
plt.bar([bytes(pair).decode().replace(" ", "·") for pair, _ in frequent], [count for _, count in frequent])
plt.ylabel("count")
plt.show()

# %% [markdown]
# ## One merge
#
# To merge a pair means to replace each of its occurrences by one new id. Go from left to right: of three equal ids in a
# row, the first two are merged.

# %% starter="merge"

# %%
print(merge([1, 2, 3, 1, 2], (1, 2), 9), "should be [9, 3, 9]")
print(merge([1, 1, 1], (1, 1), 9), "should be [9, 1]")

# %% [markdown]
# ## Training
#
# Count the pairs, merge the most frequent one in all words, and start again. The new id can be part of the next pair,
# so tokens grow from two bytes to whole words. The list of merges, in their order, is the trained tokenizer: nothing
# else has to be stored.

# %% starter="train"

# %% [markdown]
# The tokens that your tokenizer learns, one after the other:

# %%
merges = train(text, 40)
tokens = [bytes([byte]) for byte in range(256)]
for left_id, right_id in merges:
    tokens.append(tokens[left_id] + tokens[right_id])
print(" | ".join(token.decode(errors="replace").replace(" ", "·") for token in tokens[256:]))

# %% [markdown]
# ## Encoding
#
# A new text is encoded by repeating the merges in the order in which they were learned. The order matters: a model has
# seen the text that it was trained on in exactly these pieces, and it knows no others.

# %% starter="encode"

# %% [markdown]
# The same sentence with more and more merges. Each box is one token.

# %%
sentence = "The cat that sat on the hat"
figure, axes = plt.subplots(4, 1, figsize=(9, 3))
for axis, count in zip(axes, (0, 5, 15, 40), strict=True):
    position = 0
    ids = encode(sentence, merges[:count])
    for number, token in enumerate(ids):
        piece = tokens[token].decode(errors="replace").replace(" ", "·")
        axis.barh(0, len(piece), left=position, color=f"C{number % 10}", alpha=0.35)
        axis.text(position + len(piece) / 2, 0, piece, ha="center", va="center", family="monospace")
        position += len(piece)
    axis.set(xlim=(0, position), title=f"{count} merges: {len(ids)} tokens")
    axis.axis("off")
figure.tight_layout()
plt.show()

# %% [markdown]
# More merges make texts shorter, and each further merge helps less. Real tokenizers have 30,000 to 250,000 tokens. Why
# not more? Each token needs an embedding, and rare tokens are seen too rarely to learn it.

# %%
lengths = [len(encode(text, merges[:count])) for count in range(41)]
plt.figure(figsize=(6, 2.6))
plt.plot(lengths)
plt.xlabel("merges")
plt.ylabel("tokens of the text")
plt.ylim(0)
plt.show()

# %% [markdown]
# ## Decoding
#
# Back to text: look up the bytes of each id, join all of them, and decode. A model may also produce bytes that are not
# valid UTF-8, such as half of a character. They become �.

# %% starter="decode"

# %% [markdown]
# Whatever the text, it must come back unchanged:

# %%
for original in [text, "Où est le café ?", "  two  spaces\n\n", "語🙂"]:
    print(decode(encode(original, merges), merges) == original)

# %% [markdown]
# ## Questions to think about
#
# 1. Your tokenizer was trained on English. How many tokens does it need for a sentence in another language, compared
#    with an English one of the same length? Who pays for that, if a service charges by the token?
# 2. ` cat` and `cat` are different tokens. When does a model see one, and when the other?
# 3. Why do many models find it hard to count the letters of a word?
