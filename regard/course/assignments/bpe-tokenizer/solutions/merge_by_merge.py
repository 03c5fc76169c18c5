"""Words are kept apart from their ids, and merges are applied one after the other."""

import re
from collections import Counter, defaultdict


def split_words(text):
    return re.findall(r" ?\S+|\s+", text)


def count_pairs(words):
    found = defaultdict(int)
    for word in words:
        for i in range(len(word) - 1):
            found[word[i], word[i + 1]] += words[word]
    return dict(found)


def merge(ids, pair, new):
    ids = list(ids)
    result = []
    while ids:
        first = ids.pop(0)
        if ids and (first, ids[0]) == tuple(pair):
            ids.pop(0)
            result.append(new)
        else:
            result.append(first)
    return result


def train(text, count):
    words, merges = Counter(split_words(text)), []
    ids = {word: list(word.encode("utf-8")) for word in words}
    for number in range(count):
        totals = count_pairs({tuple(ids[word]): words[word] for word in words})
        if len(totals) == 0:
            return merges
        top = max(totals.values())
        pair = sorted(pair for pair in totals if totals[pair] == top)[0]
        merges.append(pair)
        ids = {word: merge(symbols, pair, 256 + number) for word, symbols in ids.items()}
    return merges


def table(merges):
    known = {i: bytes((i,)) for i in range(256)}
    for number, (a, b) in enumerate(merges, 256):
        known[number] = known[a] + known[b]
    return known


def encode(text, merges):
    out = []
    for word in split_words(text):
        ids = list(word.encode("utf-8"))
        for number, pair in enumerate(merges):
            ids = merge(ids, pair, 256 + number)
        out.extend(ids)
    return out


def decode(ids, merges):
    known = table(merges)
    return bytes(byte for i in ids for byte in known[i]).decode("utf-8", "replace")
