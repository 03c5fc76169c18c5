"""Multi-head attention: queries look at keys and values of the same sequence, or of another.

Check your work with `regard check FILE`. A comment such as `# [B, heads, T, qk_length]` behind a line says which shape
you expect there; it is checked too. The words are B, heads, T (queries), S (keys and values), qk_length, value_length
and embedding_dim; a product is written `heads*qk_length`. With `regard train RECIPE --attention FILE`, a translator is
trained with what you wrote inside.
"""

from torch import nn


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in each of several heads, and a projection of what they found.

    There are four projections, layers or plain matrices, called as you like, with a bias or without: of the queries, of
    the keys, of the values, and of the heads' outputs, which brings them back to embedding_dim features. A head's
    queries and keys have qk_length features, its values value_length.
    """

    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        raise NotImplementedError("make the four projections")

    def split_heads(self, x, vec_length):
        """Share out the features among the heads, in their order: the first vec_length go to head 0.

        x:        [B, T, heads*vec_length]
        returned: [B, heads, T, vec_length]
        """
        raise NotImplementedError("split")

    def combine_heads(self, x):
        """Undo `split_heads`.

        x:        [B, heads, T, vec_length]
        returned: [B, T, heads*vec_length]
        """
        raise NotImplementedError("put together again")

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        """Mix the values that each query may see (section 3.2.1 of the paper), in each head.

        Q, K, V:  [B, heads, T, qk_length], [B, heads, S, qk_length], [B, heads, S, value_length]
        mask:     True where a query may look at a key, False where not: [T, S], or any shape that broadcasts to
                  [B, heads, T, S]; None: every query sees every key
        returned: [B, heads, T, value_length]

        A query that may see nothing must not end in NaN: give zeros.
        """
        raise NotImplementedError("compare, hide, weigh, mix")

    def forward(self, Q, K, V, mask=None):
        """Project, split, attend, combine, project.

        Q, K, V:  [B, T, embedding_dim], [B, S, embedding_dim], [B, S, embedding_dim]
        returned: [B, T, embedding_dim]
        """
        raise NotImplementedError("put the parts to work")
