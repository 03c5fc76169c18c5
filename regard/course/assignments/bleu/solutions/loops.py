"""Plain dictionaries and loops."""

import math


def count_ngrams(tokens, n):
    counts = {}
    for i in range(len(tokens)):
        ngram = tuple(tokens[i : i + n])
        if len(ngram) == n:
            counts[ngram] = counts.get(ngram, 0) + 1
    return counts


def clipped_matches(hypothesis, references, n):
    matches, total = 0, 0
    tables = [count_ngrams(reference, n) for reference in references]
    for ngram, count in count_ngrams(hypothesis, n).items():
        best = 0
        for table in tables:
            if table.get(ngram, 0) > best:
                best = table[ngram]
        matches += count if count < best else best
        total += count
    return matches, total


def closest_length(hypothesis, references):
    best = len(references[0])
    for reference in references:
        distance, best_distance = abs(len(reference) - len(hypothesis)), abs(best - len(hypothesis))
        if distance < best_distance or (distance == best_distance and len(reference) < best):
            best = len(reference)
    return best


def brevity_penalty(hypothesis_length, reference_length):
    if hypothesis_length == 0:
        return 0
    return min(1, math.e ** (1 - reference_length / hypothesis_length))


def geometric_mean(precisions):
    product = 1
    for precision in precisions:
        product *= precision
    return product ** (1 / len(precisions))


def corpus_bleu(hypotheses, references, max_n=4):
    matches, totals = [0] * max_n, [0] * max_n
    length, reference_length = 0, 0
    for i in range(len(hypotheses)):
        length += len(hypotheses[i])
        reference_length += closest_length(hypotheses[i], references[i])
        for n in range(max_n):
            found = clipped_matches(hypotheses[i], references[i], n + 1)
            matches[n] += found[0]
            totals[n] += found[1]
    precisions = [0 if totals[n] == 0 else matches[n] / totals[n] for n in range(max_n)]
    return geometric_mean(precisions) * brevity_penalty(length, reference_length) * 100


def sentence_bleu(hypothesis, references, max_n=4):
    precisions = []
    for n in range(1, max_n + 1):
        matches, total = clipped_matches(hypothesis, references, n)
        if n == 1:
            precisions.append(matches / total if total > 0 else 0)
        else:
            precisions.append((matches + 1) / (total + 1))
    bp = brevity_penalty(len(hypothesis), closest_length(hypothesis, references))
    return bp * geometric_mean(precisions) * 100
