"""Counters, zip and statistics, in as few lines as possible."""

from collections import Counter
from functools import reduce
from math import exp
from operator import or_
from statistics import geometric_mean as positive_geometric_mean


def count_ngrams(tokens, n):
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def clipped_matches(hypothesis, references, n):
    counts = count_ngrams(hypothesis, n)
    allowed = reduce(or_, (count_ngrams(reference, n) for reference in references))
    return (counts & allowed).total(), counts.total()


def closest_length(hypothesis, references):
    return min(sorted(map(len, references)), key=lambda length: abs(length - len(hypothesis)))


def brevity_penalty(hypothesis_length, reference_length):
    if not hypothesis_length:
        return 0.0
    return exp(min(0, 1 - reference_length / hypothesis_length))


def geometric_mean(precisions):
    return positive_geometric_mean(precisions) if all(precisions) else 0.0


def corpus_bleu(hypotheses, references, max_n=4):
    pairs = list(zip(hypotheses, references, strict=True))
    statistics = [
        [sum(column) for column in zip(*(clipped_matches(*pair, n) for pair in pairs), strict=True)]
        for n in range(1, max_n + 1)
    ]
    precisions = [matches / max(total, 1) for matches, total in statistics]
    penalty = brevity_penalty(sum(map(len, hypotheses)), sum(closest_length(*pair) for pair in pairs))
    return 100 * penalty * geometric_mean(precisions)


def sentence_bleu(hypothesis, references, max_n=4):
    statistics = [clipped_matches(hypothesis, references, n) for n in range(1, max_n + 1)]
    words, *longer = statistics
    precisions = [words[0] / (words[1] or 1), *((matches + 1) / (total + 1) for matches, total in longer)]
    return 100 * brevity_penalty(len(hypothesis), closest_length(hypothesis, references)) * geometric_mean(precisions)
