"""Counts and precisions as tensors, with a function that corpus and sentence scores share."""

import torch


def count_ngrams(tokens, n):
    counts = {}
    for ngram in (tuple(tokens[start : start + n]) for start in range(max(0, len(tokens) - n + 1))):
        counts[ngram] = counts.setdefault(ngram, 0) + 1
    return counts


def clipped_matches(hypothesis, references, n):
    counts = count_ngrams(hypothesis, n)
    if not counts:
        return 0, 0
    own = torch.tensor(list(counts.values()))
    theirs = torch.tensor([[count_ngrams(reference, n).get(ngram, 0) for ngram in counts] for reference in references])
    return int(torch.minimum(own, theirs.amax(0)).sum()), int(own.sum())


def closest_length(hypothesis, references):
    lengths = torch.tensor(sorted(len(reference) for reference in references))
    return int(lengths[(lengths - len(hypothesis)).abs().argmin()])


def brevity_penalty(hypothesis_length, reference_length):
    if hypothesis_length == 0:
        return torch.tensor(0.0)
    return torch.tensor(1 - reference_length / hypothesis_length, dtype=torch.float64).clamp(max=0).exp()


def geometric_mean(precisions):
    return torch.as_tensor(precisions, dtype=torch.float64).log().mean().exp()


def _score(statistics, length, reference_length, smoothing):
    matches, totals = torch.tensor(statistics, dtype=torch.float64).T
    extra = torch.full_like(matches, smoothing)
    extra[0] = 0
    precisions = (matches + extra) / (totals + extra).clamp(min=1)
    return (100 * brevity_penalty(length, reference_length) * geometric_mean(precisions)).item()


def corpus_bleu(hypotheses, references, max_n=4):
    found = torch.tensor(
        [
            [clipped_matches(hypothesis, several, n) for n in range(1, max_n + 1)]
            for hypothesis, several in zip(hypotheses, references, strict=True)
        ]
    )  # [sentences, max_n, 2]
    lengths = [len(hypothesis) for hypothesis in hypotheses]
    closest = [closest_length(hypothesis, several) for hypothesis, several in zip(hypotheses, references, strict=True)]
    return _score(found.sum(0).tolist(), sum(lengths), sum(closest), 0)


def sentence_bleu(hypothesis, references, max_n=4):
    found = [clipped_matches(hypothesis, references, n) for n in range(1, max_n + 1)]
    return _score(found, len(hypothesis), closest_length(hypothesis, references), 1)
