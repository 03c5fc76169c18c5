"""Positions: the sinusoids of the paper (section 3.5), and the rotations that most models use today.

Check your work with `regard check FILE`. You can write the functions one after the other: those that are written are
checked. You can note the shape you expect in a comment at the end of a line, such as `# [seq, width]`; shape comments
are checked too. The dimension names are batch, seq, width, pairs (half of the width), vocab, heads, head_size and new.
"""


def frequencies(width):
    """Return how fast each pair of features turns, in radians per position.

    width:   an even number of features
    returns: [pairs]; the frequency of pair i is 1 / 10000^(2i / width), for i = 0, 1, …, width / 2 - 1
    """
    raise NotImplementedError("one frequency per pair of features")


def sinusoids(positions, width):
    """Return the sinusoidal encoding of these positions, which need not be 0, 1, 2, ….

    positions: [seq], integers
    returns:   [seq, width]; feature 2i is the sine and feature 2i + 1 the cosine of position times frequency i
    """
    raise NotImplementedError("multiply positions by frequencies, then alternate sines and cosines")


def embed(tokens, table):
    """Return the embeddings of the tokens, multiplied by √width, plus the sinusoids of their positions.

    tokens:  [batch, seq], rows of the table; the first token of each sequence has position 0
    table:   [vocab, width]
    returns: [batch, seq, width]
    """
    raise NotImplementedError("look up, scale, add the positions")


def rotate(x, positions):
    """Return x with each pair of features rotated by position times frequency, as in Llama.

    x:         [batch, heads, seq, head_size]; it is not changed
    positions: [seq], integers, which need not be 0, 1, 2, …
    returns:   [batch, heads, seq, head_size]

    Pair i consists of the features i and i + head_size / 2. A rotation by the angle a turns (x, y) into
    (x cos a - y sin a, y cos a + x sin a).
    """
    raise NotImplementedError("compute the angles, split the features into halves, rotate")


def attend(q, k, v):
    """Return the scaled dot-product attention of rotated queries and keys, without a mask.

    q:       [batch, heads, new, head_size], the queries of the last `new` tokens
    k, v:    [batch, heads, seq, head_size], the keys and values of all tokens, at the positions 0, 1, …, seq - 1
    returns: [batch, heads, new, head_size]
    """
    raise NotImplementedError("rotate what has to be rotated, then attend")
