"""Recursion instead of loops where possible."""

import re
from collections import Counter
from functools import reduce


def split_words(text):
    return re.findall(r" ?\S+|\s+", text)


def count_pairs(words):
    return sum((Counter({p: n * c for p, c in Counter(zip(w, w[1:])).items()}) for w, n in words.items()), Counter())


def merge(ids, pair, new):
    if len(ids) < 2:
        return list(ids)
    if (ids[0], ids[1]) == pair:
        return [new] + merge(ids[2:], pair, new)
    return [ids[0]] + merge(ids[1:], pair, new)


def train(text, count, merges=None, words=None):
    merges = merges or []
    words = words or Counter(tuple(word.encode()) for word in split_words(text))
    pairs = count_pairs(words)
    if len(merges) >= count or not pairs:
        return merges
    most = max(pairs.values())
    best = min(pair for pair, n in pairs.items() if n == most)
    words = {tuple(merge(word, best, 256 + len(merges))): n for word, n in words.items()}
    return train(text, count, [*merges, best], words)


def encode(text, merges):
    def apply(ids, numbered):
        return merge(ids, *numbered)

    numbered = [(pair, 256 + number) for number, pair in enumerate(merges)]
    return sum((reduce(apply, numbered, list(word.encode())) for word in split_words(text)), [])


def decode(ids, merges):
    def expand(i):
        return [i] if i < 256 else expand(merges[i - 256][0]) + expand(merges[i - 256][1])

    return bytes(sum(map(expand, ids), [])).decode(errors="replace")
