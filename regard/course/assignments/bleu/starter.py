"""BLEU by hand: how translations have been scored since 2002 (Papineni et al., "BLEU: a Method for Automatic
Evaluation of Machine Translation").

A hypothesis is a translation that a system produced, a list of words. References are correct translations of the same
sentence by people, a list of lists of words. BLEU counts which n-grams (runs of n words) of the hypothesis also occur
in a reference, and punishes hypotheses that are too short.

Each function is checked separately, so you can start with any of them and leave others for later. Use your functions
from above in those below.

Run `regard check THIS_FILE` after each part: what is written is checked, and the rest is listed as still to write.
"""

import math
from collections import Counter


def count_ngrams(tokens, n):
    """A list of words → a dictionary: how often each run of n words occurs. The keys are tuples of n words.

    If there are fewer than n words, it is empty. Words are compared as they are: "The" is not "the".
    """
    raise NotImplementedError("write count_ngrams")


def clipped_matches(hypothesis, references, n):
    """A pair of integers (matches, total) for the n-grams of a hypothesis.

    total is the number of n-grams in the hypothesis. An n-gram of the hypothesis is a match if it occurs in a
    reference, but at most as often as in the reference where it occurs most often.
    """
    raise NotImplementedError("write clipped_matches")


def closest_length(hypothesis, references):
    """The length of the reference whose length is closest to the hypothesis's; of two equally close, the shorter."""
    raise NotImplementedError("write closest_length")


def brevity_penalty(hypothesis_length, reference_length):
    """1 if the hypothesis is at least as long as the reference, else exp(1 - reference_length / hypothesis_length).

    An empty hypothesis gets 0.
    """
    raise NotImplementedError("write brevity_penalty")


def geometric_mean(precisions):
    """The n-th root of the product of n numbers; 0 if one of them is 0."""
    raise NotImplementedError("write geometric_mean")


def corpus_bleu(hypotheses, references, max_n=4):
    """BLEU of a corpus, from 0 to 100. `references[i]` are the references of `hypotheses[i]`.

    The precision of n-grams is the number of matches in all sentences, divided by the number of n-grams in all
    hypotheses (0 if there are none). BLEU is the geometric mean of the precisions for n = 1 … max_n, times the brevity
    penalty of the total length of all hypotheses and the sum of their closest lengths, times 100.
    """
    raise NotImplementedError("write corpus_bleu")


def sentence_bleu(hypothesis, references, max_n=4):
    """BLEU of one sentence, from 0 to 100.

    A single sentence often has no matching 4-gram, and its BLEU would be 0. So the precisions are smoothed: for n > 1,
    1 is added to the number of matches and to the total. The precision of single words (n = 1) is not smoothed, and is
    0 for an empty hypothesis.
    """
    raise NotImplementedError("write sentence_bleu")
