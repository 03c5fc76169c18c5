"""A correct solution."""

import math
from collections import Counter


def count_ngrams(tokens, n):
    """How often each n-gram occurs."""
    return Counter(tuple(tokens[start : start + n]) for start in range(len(tokens) - n + 1))


def clipped_matches(hypothesis, references, n):
    """The number of n-grams of the hypothesis that are in a reference, and the number of all its n-grams."""
    counts, allowed = count_ngrams(hypothesis, n), Counter()
    for reference in references:
        allowed |= count_ngrams(reference, n)  # the maximum for each n-gram
    matches = sum(min(count, allowed[ngram]) for ngram, count in counts.items())
    return matches, sum(counts.values())


def closest_length(hypothesis, references):
    """The length of the reference that is closest to the hypothesis in length."""
    lengths = [len(reference) for reference in references]
    return min(lengths, key=lambda length: (abs(length - len(hypothesis)), length))


def brevity_penalty(hypothesis_length, reference_length):
    """A factor below 1 for hypotheses that are shorter than their references."""
    if hypothesis_length >= reference_length:
        return 1.0
    if hypothesis_length == 0:
        return 0.0
    return math.exp(1 - reference_length / hypothesis_length)


def geometric_mean(precisions):
    """The n-th root of the product of n numbers."""
    if min(precisions) == 0:
        return 0.0
    return math.exp(sum(math.log(precision) for precision in precisions) / len(precisions))


def corpus_bleu(hypotheses, references, max_n=4):
    """BLEU of a corpus, from 0 to 100."""
    precisions = []
    for n in range(1, max_n + 1):
        pairs = [clipped_matches(one, many, n) for one, many in zip(hypotheses, references, strict=True)]
        matches, total = (sum(column) for column in zip(*pairs, strict=True))
        precisions.append(matches / total if total else 0.0)
    length = sum(len(hypothesis) for hypothesis in hypotheses)
    target = sum(closest_length(one, many) for one, many in zip(hypotheses, references, strict=True))
    return 100 * brevity_penalty(length, target) * geometric_mean(precisions)


def sentence_bleu(hypothesis, references, max_n=4):
    """BLEU of one sentence, with smoothing, from 0 to 100."""
    smoothed = []
    for n in range(1, max_n + 1):
        matches, total = clipped_matches(hypothesis, references, n)
        extra = 1 if n > 1 else 0
        smoothed.append((matches + extra) / max(total + extra, 1))
    penalty = brevity_penalty(len(hypothesis), closest_length(hypothesis, references))
    return 100 * penalty * geometric_mean(smoothed)
