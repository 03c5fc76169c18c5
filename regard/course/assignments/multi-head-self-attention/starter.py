"""Self-attention with several heads: every token looks at the tokens of its sequence in several ways at once.

Check your work with `regard check FILE`. A comment such as `# [batch, heads, seq, head_size]` behind a line says which
shape you expect there; it is checked too. The words are batch, seq, input_size, heads, head_size and hidden; a product
is written `batch*heads`.
"""

from torch import nn


class MultiHeadSelfAttention(nn.Module):
    """Scaled dot-product attention in each of several heads, and one more layer that mixes what they found.

    Its layers are `.q`, `.k`, `.v` (from input_size features to hidden ones) and `.mix` (from hidden to hidden): each
    an nn.Linear with a bias. The heads share out the hidden features in their order: head 0 has the first
    hidden / num_heads of them, head 1 the next, and so on.

    causal:  a token sees itself and the tokens before it, none behind it.
    dropout: how likely each attention probability is dropped in training; nothing else is dropped.
    """

    def __init__(self, input_size, hidden, num_heads, causal=False, dropout=0):
        """A ValueError when num_heads does not divide hidden."""
        super().__init__()
        raise NotImplementedError("check the sizes, make the four layers")

    def forward(self, x, return_attention=False):
        """Mix the values of the tokens that each token may see, in each head.

        x:        [batch, seq, input_size]
        returned: [batch, seq, hidden]

        With return_attention, a pair is returned: the output, and the attention probabilities [batch*heads, seq, seq],
        all heads of the first sequence, then all heads of the second, and so on.

        Any length of sequence will do; x may be on any device and of any floating type.
        """
        raise NotImplementedError("project, split into heads, compare, hide, weigh, mix, put the heads together")
