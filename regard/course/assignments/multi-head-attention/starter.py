"""Multi-head attention: queries attend to the keys and values of the same sequence or of another one.

Check your work with `regard check FILE`. Note the shape you expect in a comment at the end of a line that changes it,
such as `# [B, heads, T, qk_length]`: wrong or missing shape comments cost a point. The dimension names are B, heads, T
(queries), S (keys and values), qk_length, value_length and embedding_dim. Write products as `heads*qk_length`. A
correct solution with at most three statements in forward gains a point.

When it is correct, `regard train RECIPE --module FILE` trains a translator with your code inside.
"""

from torch import nn


class MultiHeadAttention(nn.Module):
    """Scaled dot-product attention in several heads, followed by an output projection.

    There are four projections: of the queries, of the keys, of the values, and of the outputs of all heads, which maps
    them back to embedding_dim features. They can be layers or plain matrices with any names, with or without a bias. In
    each head, queries and keys have qk_length features and values have value_length features.
    """

    def __init__(self, num_heads, embedding_dim, qk_length, value_length):
        super().__init__()
        raise NotImplementedError("create the four projections")

    def split_heads(self, x, vec_length):
        """Divide the features among the heads in order: the first vec_length features go to head 0.

        x:       [B, T, heads*vec_length]
        returns: [B, heads, T, vec_length]
        """
        raise NotImplementedError("split the features into heads")

    def combine_heads(self, x):
        """Undo `split_heads`.

        x:       [B, heads, T, vec_length]
        returns: [B, T, heads*vec_length]
        """
        raise NotImplementedError("merge the heads")

    def scaled_dot_product_attention(self, Q, K, V, mask=None):
        """In each head, average the values of the keys that each query may see (section 3.2.1 of the paper).

        Q, K, V: [B, heads, T, qk_length], [B, heads, S, qk_length], [B, heads, S, value_length]
        mask:    True where a query may see a key, False where it may not: [T, S], or any shape that broadcasts to
                 [B, heads, T, S]. None means that every query sees every key.
        returns: [B, heads, T, value_length]

        For a query that may see nothing, return zeros, not NaN.
        """
        raise NotImplementedError("compute the scores, mask, apply softmax, average the values")

    def forward(self, Q, K, V, mask=None):
        """Project, split, attend, combine, project.

        Q, K, V: [B, T, embedding_dim], [B, S, embedding_dim], [B, S, embedding_dim]
        returns: [B, T, embedding_dim]
        """
        raise NotImplementedError("combine the methods above")
