"""Self-attention with several heads: every token attends to the tokens of its sequence in several ways at once.

Check your work with `regard check FILE`. Note the shape you expect in a comment at the end of a line that changes it,
such as `# [batch, heads, seq, head_size]`: wrong or missing shape comments cost a point. The dimension names are batch,
seq, input_size, heads, head_size and hidden. Write products as `batch*heads`. A correct solution with at most three
statements in forward gains a point.

When it is correct, `regard train petit-lm --set model.positions=learned --module FILE` trains a language model with
your code inside.
"""

from torch import nn


class MultiHeadSelfAttention(nn.Module):
    """Scaled dot-product attention in several heads, and a final layer that combines their outputs.

    Its layers are `.q`, `.k`, `.v` (from input_size to hidden features) and `.mix` (from hidden to hidden features),
    each an nn.Linear with a bias. The hidden features are divided among the heads in order: head 0 gets the first
    hidden / num_heads features, head 1 the next ones, and so on.

    causal:  if True, a token attends only to itself and to earlier tokens.
    dropout: the probability with which each attention weight is dropped in training. Nothing else is dropped.
    """

    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        """Raise a ValueError if num_heads does not divide hidden."""
        super().__init__()
        raise NotImplementedError("check the sizes and create the four layers")

    def forward(self, x, return_attention=False):
        """In each head and for each token, average the values of the tokens it attends to.

        x:       [batch, seq, input_size]
        returns: [batch, seq, hidden]

        With return_attention=True, return a pair: the output, and the attention weights [batch*heads, seq, seq], with
        all heads of the first sequence first, then all heads of the second, and so on.

        Sequences can have any length, and x can be on any device and have any floating-point dtype.
        """
        raise NotImplementedError("project, split into heads, compute the scores, mask, apply softmax, average, merge")
