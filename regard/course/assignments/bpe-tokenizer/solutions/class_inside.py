"""A class does the work, and the functions use it."""

import re


class Tokenizer:
    def __init__(self, merges=()):
        self.merges = {}
        for pair in merges:
            self.add(pair)

    def add(self, pair):
        self.merges[tuple(pair)] = 256 + len(self.merges)

    def bytes_of(self, token):
        if token < 256:
            return bytes([token])
        left, right = next(pair for pair, new in self.merges.items() if new == token)
        return self.bytes_of(left) + self.bytes_of(right)

    def encode_word(self, word):
        ids = [*word.encode()]
        while len(ids) >= 2:
            pair = min(count_pairs({tuple(ids): 1}), key=lambda pair: self.merges.get(pair, float("inf")))
            if pair not in self.merges:
                break
            ids = merge(ids, pair, self.merges[pair])
        return ids


def split_words(text):
    return re.findall(r" ?\S+|\s+", text)


def count_pairs(words):
    pairs = {}
    for word, count in words.items():
        for left, right in zip(word[:-1], word[1:], strict=True):
            pairs[(left, right)] = pairs.get((left, right), 0) + count
    return pairs


def merge(ids, pair, new):
    out = []
    skip = False
    for i, symbol in enumerate(ids):
        if skip:
            skip = False
        elif i + 1 < len(ids) and symbol == pair[0] and ids[i + 1] == pair[1]:
            out.append(new)
            skip = True
        else:
            out.append(symbol)
    return out


def train(text, count):
    tokenizer = Tokenizer()
    words = split_words(text)
    for _ in range(count):
        counts = {}
        for word in words:
            ids = tuple(tokenizer.encode_word(word))
            counts[ids] = counts.get(ids, 0) + 1
        pairs = count_pairs(counts)
        if not pairs:
            break
        best = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[0][0]
        tokenizer.add(best)
    return list(tokenizer.merges)


def encode(text, merges):
    tokenizer = Tokenizer(merges)
    return [i for word in split_words(text) for i in tokenizer.encode_word(word)]


def decode(ids, merges):
    tokenizer = Tokenizer(merges)
    return b"".join(map(tokenizer.bytes_of, ids)).decode("utf-8", errors="replace")
