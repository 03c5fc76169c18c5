# %% [markdown]
# # BLEU by hand
#
# Is this translation good? People answer such questions slowly and expensively. In 2002, four researchers at IBM
# proposed a formula: count how many words and phrases of a translation also occur in translations by people. It is
# crude, it has been criticised for twenty years, and nearly every translation paper reports it, "Attention Is All You
# Need" included: 28.4 BLEU for English to German.
#
# You build it piece by piece, and each piece repairs a weakness of the one before. Fill in the gaps one after the
# other. Save the notebook and run `regard check` with its file name in a terminal whenever you like: what is written is
# checked.

# %% [markdown]
# ## Counting n-grams
#
# An **n-gram** is a run of n words. *the cat sat* has three 1-grams (the, cat, sat), two 2-grams (the cat, cat sat) and
# one 3-gram. Single words show whether the right words were chosen; longer n-grams show whether they are in the right
# order.

# %% starter="count_ngrams"

# %%
import matplotlib.pyplot as plt

hypothesis = "the cat sat on the mat".split()
for n in (1, 2, 3):
    print(n, dict(count_ngrams(hypothesis, n)))

# %% [markdown]
# ## Precision, and how to cheat
#
# The **precision** is the share of the hypothesis's n-grams that occur in a reference. A cheater writes *the the the
# the the the the*: every word occurs in the reference, so its precision is 7/7. The remedy is **clipping**: an n-gram
# counts at most as often as in the reference. (If there are several references: the one where it occurs most often.)

# %% starter="clipped_matches"

# %%
references = ["the cat is on the mat".split(), "there is a cat on the mat".split()]
cheater = ["the"] * 7
print("the cheater:", clipped_matches(cheater, references, 1), "and the paper's example says (2, 7)")
for n in (1, 2, 3):
    print(f"{n}-grams of the hypothesis:", clipped_matches(hypothesis, references, n))

# %% [markdown]
# A picture says which n-grams match. Here, each row is an n, and each box an n-gram of the hypothesis.

# %%
sentence = "the black cat sat on the mat today".split()
figure, axis = plt.subplots(figsize=(10, 3))
for n in (1, 2, 3):
    for start in range(len(sentence) - n + 1):
        words = sentence[start : start + n]
        found = any(tuple(words) in count_ngrams(reference, n) for reference in references)
        axis.barh(n, 0.95, left=start + (n - 1) / 2, color="lightgreen" if found else "lightgrey")
        axis.text(start + n / 2, n, "\n".join(words), ha="center", va="center", fontsize=8)
axis.set(yticks=[1, 2, 3], xticks=[], ylabel="n", title="green: in a reference")
axis.invert_yaxis()
plt.show()

# %% [markdown]
# ## The other way to cheat
#
# Write only what you are sure of: the hypothesis *the* has a precision of 1. The usual remedy would be recall, the
# share of the reference that was found. But with several references there is nothing to recall completely. So BLEU
# punishes brevity instead, with a factor that depends on the lengths:
#
# $$\text{BP} = \begin{cases} 1 & \text{if } h \geq r \\ e^{1 - r / h} & \text{if } h < r \end{cases}$$
#
# where $h$ is the length of the hypothesis, and $r$ that of the reference that is closest in length. So there are two
# functions to write: one finds $r$, the other computes the penalty.

# %% starter="brevity_penalty"

# %%
lengths = range(1, 31)
plt.figure(figsize=(6, 2.6))
plt.plot(lengths, [brevity_penalty(length, 20) for length in lengths])
plt.xlabel("length of the hypothesis (reference: 20 words)")
plt.ylabel("brevity penalty")
plt.show()

# %% [markdown]
# ## One number
#
# There is a precision for each n, and they fall quickly: a good translation may have 70% of the words right, but only
# 15% of the 4-grams. An arithmetic mean would be dominated by the single words. The **geometric mean**, the n-th root
# of the product, reacts to relative changes of each precision: halving any of them costs the same.

# %% starter="geometric_mean"

# %%
precisions = [0.7, 0.45, 0.28, 0.15]
print("geometric mean:", geometric_mean(precisions), " arithmetic mean:", sum(precisions) / 4)

# %% [markdown]
# ## The corpus
#
# BLEU is a score for a **corpus**. Matches and totals are added up over all sentences, and only then divided. This is
# not the mean of the sentences' scores: a long sentence has more n-grams and counts more.

# %% starter="corpus_bleu"

# %%
hypotheses = ["the cat sat on the mat".split(), "a dog saw the big cat there".split(), "he was not happy today".split()]
corpus_references = [
    ["the cat sat on the red mat".split()],
    ["a dog saw the big cat over there".split(), "the dog saw a big cat there".split()],
    ["he was not happy about it today".split()],
]
for max_n in (1, 2, 3, 4):
    print(f"n up to {max_n}: {corpus_bleu(hypotheses, corpus_references, max_n):.1f}")

# %% [markdown]
# ## A single sentence
#
# A single sentence often has no matching 4-gram at all. Its precision is 0, so the product is 0, however good the rest
# is. **Smoothing** helps: for n > 1, pretend that there was one more n-gram and that it matched.

# %% starter="sentence_bleu"

# %%
candidates = {
    "equal": "the cat is on the mat",
    "one word wrong": "the cat is on the rug",
    "other order": "on the mat is the cat",
    "too short": "the cat",
    "cheater": "the the the the the the the",
    "synonyms": "one feline lies upon that carpet",
}
scores = {name: sentence_bleu(text.split(), references) for name, text in candidates.items()}
plt.figure(figsize=(7, 2.6))
plt.barh(list(scores), list(scores.values()))
plt.gca().invert_yaxis()
plt.xlabel("BLEU")
plt.show()

# %% [markdown]
# ## Does it agree with the standard tool?
#
# Scores can be compared only if everybody computes the same. [sacreBLEU](https://github.com/mjpost/sacrebleu) is the
# tool that fixes every detail, how words are separated included. Regard uses it too, so it is installed. With words
# that are already separated, your score should be equal to its score.

# %%
import sacrebleu

texts = [" ".join(words) for words in hypotheses]
streams = [[" ".join(several[min(i, len(several) - 1)]) for several in corpus_references] for i in (0, 1)]
theirs = sacrebleu.corpus_bleu(texts, streams, tokenize="none", force=True, smooth_method="none").score
print(f"sacreBLEU: {theirs:.4f}  yours: {corpus_bleu(hypotheses, corpus_references):.4f}")

# %% [markdown]
# ## Questions to think about
#
# 1. The last candidate above means the same as the reference and scores 0. The third one is odd English and scores
#    well. What does BLEU measure, and what not?
# 2. Two systems score 28.4 and 28.1. Is the first one better? How could you find out without more references?
# 3. Why does the brevity penalty use the lengths of the whole corpus, instead of punishing each short sentence?
