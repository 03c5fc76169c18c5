# %% [markdown]
# # A language model, and a translator built from it
#
# GPT is a decoder: it reads a text from left to right, and at every position it predicts which token comes next. That
# is its whole training. But whoever can continue any text can do much more. Continue *"chat noir = "* correctly, and
# you have translated.
#
# You write such a model, its loss, and the loop that makes it write. At the end of the notebook it translates phrases
# that it has never seen. Fill in the gaps one after the other. Save the notebook and run `regard check` with its file
# name in a terminal whenever you like: what is written is checked.

# %% [markdown]
# ## Given: attention and a block
#
# You know attention from the earlier assignments, so it is given here, and so is the block that combines it with a
# feed-forward network. Have a look at the `mask` argument: it is what makes a decoder of it.

# %% starter="Block"

# %% [markdown]
# ## Hiding the future
#
# The model predicts the next token at **all** positions at once: a sentence of 20 tokens gives 20 exercises for the
# price of one. But then the solution of every exercise is in the input, one position to the right. Attention must not
# look there. The mask is True where the position of the row may see the position of the column.

# %% starter="causal_mask"

# %%
import matplotlib.pyplot as plt

plt.figure(figsize=(3, 3))
plt.imshow(causal_mask(8).numpy(), cmap="Greys_r")
plt.xlabel("position that is seen")
plt.ylabel("position that looks")
plt.title("white: may see")
plt.show()

# %% [markdown]
# ## The model
#
# Token embeddings plus position embeddings, through the blocks, a last norm, and a linear layer that gives every token
# of the vocabulary a score. No softmax: the loss contains it.

# %% starter="DecoderLM"

# %% [markdown]
# Does the mask work? Change one token, and see at which positions the output changes. In the picture, everything to the
# left of the changed token must be exactly 0. If it is not, your model can cheat.

# %%
torch.manual_seed(0)
model = DecoderLM(vocab=10, width=16, heads=4, layers=2, max_length=16)
tokens = torch.randint(10, (1, 8))
with torch.no_grad():
    rows = []
    for position in range(8):
        changed = tokens.clone()
        changed[0, position] = (changed[0, position] + 1) % 10
        rows.append((model(changed) - model(tokens))[0].norm(dim=-1))
plt.figure(figsize=(3.6, 3))
plt.imshow(torch.stack(rows).numpy())
plt.xlabel("position of the output")
plt.ylabel("position of the changed token")
plt.colorbar(label="change")
plt.show()

# %% [markdown]
# ## The loss
#
# The output at position $t$ predicts the token at position $t + 1$:
#
# | position | 0 | 1 | 2 | 3 |
# |---|---|---|---|---|
# | reads | the | cat | sat | down |
# | predicts | cat | sat | down | ? |
#
# So outputs and tokens are shifted against each other by one. The last output has no target, and nothing predicts the
# first token. Padding does not count either, and since 0 is also an ordinary token here, only the lengths say what is
# padding.

# %% starter="next_token_loss"

# %% [markdown]
# A model that has learned nothing gives all tokens about the same probability, so its loss should be close to
# log(vocab). This is a good first test of every new model.

# %%
tokens, lengths = torch.randint(10, (64, 8)), torch.full((64,), 8)
with torch.no_grad():
    print(f"loss: {next_token_loss(model, tokens, lengths):.2f}  log(10): {math.log(10):.2f}")

# %% [markdown]
# ## A translator
#
# Each exercise is one text: `source separator target end`. The model reads it all, but only the target and its end
# count in the loss: we do not want it to learn how to write French sources.

# %% starter="translation_loss"

# %% [markdown]
# Our language has six nouns and six adjectives. In French the adjective follows the noun: *chat noir*, *black cat*. Six
# of the 36 phrases are kept for the test.

# %%
NOUNS = {"chat": "cat", "chien": "dog", "livre": "book", "arbre": "tree", "train": "train", "jardin": "garden"}
ADJECTIVES = {"noir": "black", "vert": "green", "rouge": "red", "lent": "slow", "ancien": "old", "calme": "quiet"}
words = ["=", ".", *sorted({*NOUNS, *NOUNS.values(), *ADJECTIVES, *ADJECTIVES.values()})]
SEPARATOR, END = 0, 1


def encode(text):
    """Words → token ids."""
    return [words.index(word) for word in text.split()]


phrases = [
    (f"{noun} {adjective}", f"{ADJECTIVES[adjective]} {NOUNS[noun]}") for noun in NOUNS for adjective in ADJECTIVES
]
test = phrases[::7]
training = [phrase for phrase in phrases if phrase not in test]

# %%
{"for training": training[:3], "for the test": test}

# %%
torch.manual_seed(0)
translator = DecoderLM(len(words), width=32, heads=4, layers=2, max_length=8)
optimizer = torch.optim.Adam(translator.parameters(), lr=0.01)
pairs = [(encode(source), encode(target)) for source, target in training]
test_pairs = [(encode(source), encode(target)) for source, target in test]
losses, test_losses = [], []
for _ in range(60):
    loss = translation_loss(translator, pairs, SEPARATOR, END)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    with torch.no_grad():
        test_losses.append(translation_loss(translator, test_pairs, SEPARATOR, END).item())
plt.figure(figsize=(6, 2.6))
plt.plot(losses, label="training")
plt.plot(test_losses, label="phrases that it has never seen")
plt.xlabel("step")
plt.ylabel("loss")
plt.legend()
plt.show()

# %% [markdown]
# ## Writing
#
# To write, predict the next token, append it, and ask again.

# %% starter="translate"

# %%
for source, target in test:
    written = " ".join(words[token] for token in translate(translator, encode(source), SEPARATOR, END, 5))
    print(f"{source:15} → {written:15} (should be: {target})")

# %% [markdown]
# Where does the model look when it translates? The picture shows the attention weights of the first block: each row is
# a position that looks. Can you find a head in which `=` looks at the adjective, and the English adjective at the noun?

# %%
source, target = test[1]
text = [*source.split(), "=", *target.split()]
tokens = torch.tensor([encode(" ".join(text))])
block = translator.blocks[0]
with torch.no_grad():
    x = block.attention_norm(translator.tokens(tokens) + translator.positions(torch.arange(5)))
    q, k = (layer(x).view(5, 4, 8).transpose(0, 1) for layer in (block.attention.q, block.attention.k))
    scores = (q @ k.transpose(1, 2) / math.sqrt(8)).masked_fill(~causal_mask(5), float("-inf"))
figure, axes = plt.subplots(1, 4, figsize=(10, 2.8))
for head, axis in enumerate(axes):
    axis.imshow(scores.softmax(dim=-1)[head].numpy(), vmin=0, vmax=1)
    axis.set_xticks(range(5), text, rotation=90)
    axis.set_yticks(range(5), text if head == 0 else [""] * 5)
    axis.set_title(f"head {head}")
plt.show()

# %% [markdown]
# ## Questions to think about
#
# 1. The loss of the phrases that it has never seen falls too. What has the model learned, apart from the 30 phrases?
# 2. What happens if the source counts in the loss as well? Is it harmful?
# 3. Why does the model need position embeddings to translate *chat noir*, although the mask already distinguishes the
#    past from the future?
#
# To train your model on a real corpus, next to Regard's own, save it as a `.py` file and run `regard train petit-lm
# --module my_model.py`.
