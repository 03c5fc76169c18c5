"""A correct solution."""

import re
from collections import Counter
from itertools import pairwise


def split_words(text):
    """Given: the words of a text, each with the space before it. Joined, they are the text again."""
    return re.findall(r" ?\S+|\s+", text)


def count_pairs(words):
    """How often each pair of neighbouring ids occurs in words {(id, id, …): count}."""
    pairs = Counter()
    for ids, count in words.items():
        for pair in pairwise(ids):
            pairs[pair] += count
    return pairs


def merge(ids, pair, new):
    """The ids as a list, with each occurrence of the pair replaced by the id `new`, from left to right."""
    merged, i = [], 0
    while i < len(ids):
        if tuple(ids[i : i + 2]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(ids[i])
            i += 1
    return merged


def train(text, count):
    """The first `count` merges of a text, each as a pair of ids, or fewer if there is nothing left to merge."""
    words = Counter(tuple(word.encode()) for word in split_words(text))
    merges = []
    while len(merges) < count:
        pairs = count_pairs(words)
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        new = 256 + len(merges)
        words = {tuple(merge(ids, best, new)): n for ids, n in words.items()}
        merges.append(best)
    return merges


def encode(text, merges):
    """The ids of a text."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    ids = []
    for word in split_words(text):
        symbols = list(word.encode())
        while known := [pair for pair in pairwise(symbols) if pair in ranks]:
            best = min(known, key=ranks.get)
            symbols = merge(symbols, best, 256 + ranks[best])
        ids += symbols
    return ids


def decode(ids, merges):
    """The text of ids. Bytes that are not valid UTF-8 become �."""
    tokens = [bytes([byte]) for byte in range(256)]
    for left, right in merges:
        tokens.append(tokens[left] + tokens[right])
    return b"".join(tokens[i] for i in ids).decode(errors="replace")
