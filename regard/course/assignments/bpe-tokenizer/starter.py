"""A byte-pair tokenizer, as in GPT-2: it learns from a text which bytes belong together, and turns any text into ids.

Check your work with `regard check FILE`. You can write the functions one after the other: those that are written are
checked.

The ids 0 to 255 are the bytes of UTF-8. The first merge creates the id 256, the second one 257, and so on. A pair can
contain ids that earlier merges have created.
"""

import re


def split_words(text):
    """Given: the words of a text, each with the space before it. Joined, they are the text again."""
    return re.findall(r" ?\S+|\s+", text)


def count_pairs(words):
    """Return how often each pair of neighbouring ids occurs, as a dictionary {(left, right): count}.

    words: a dictionary {(id, id, …): count} with the ids of each word and the number of times that the word occurs
    """
    raise NotImplementedError("go through the words, and through the neighbours in each word")


def merge(ids, pair, new):
    """Return a new list of ids in which each occurrence of the pair is replaced by the id `new`, from left to right.

    ids:  a list or tuple of ids, which is not changed
    pair: a tuple of two ids

    merge([1, 2, 3, 1, 2], (1, 2), 9) is [9, 3, 9], and merge([1, 1, 1], (1, 1), 9) is [9, 1].
    """
    raise NotImplementedError("go from left to right, and skip what was merged")


def train(text, count):
    """Return the first `count` merges of a text: a list of pairs (left, right), in the order in which they are made.

    Each merge is the most frequent pair of ids within the words of the text (see split_words), after all earlier merges
    have been applied. Of pairs that are equally frequent, the smallest one is taken, as Python compares tuples. If no
    pairs are left, there are fewer merges.
    """
    raise NotImplementedError("count the pairs, choose the best one, merge it in all words, repeat")


def encode(text, merges):
    """Return the ids of a text as a list.

    Each word (see split_words) starts as its UTF-8 bytes. Of the pairs that occur in the word, the one that comes first
    in merges is merged, again and again, until none is left.
    """
    raise NotImplementedError("split into words and bytes, then merge in the order of training")


def decode(ids, merges):
    """Return the text of a list of ids. Bytes that are not valid UTF-8 become �, as with errors="replace"."""
    raise NotImplementedError("find the bytes of each id, join them, then decode")
