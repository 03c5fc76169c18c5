"""Self-attention with one head: every token of a sequence looks at every token of it.

Check your work with `regard check FILE`. A comment such as `# [batch, seq, hidden]` behind a line says which shape
you expect there; it is checked too. The words are batch, seq, input_size and hidden.
"""

from torch import nn


class SelfAttention(nn.Module):
    """Scaled dot-product attention (section 3.2.1 of the paper), for each sequence of a batch.

    Its layers are `.q`, `.k` and `.v`: each an nn.Linear with a bias.
    """

    def __init__(self, input_size, hidden):
        super().__init__()
        raise NotImplementedError("make the three layers: from input_size features to hidden ones")

    def forward(self, x):
        """Mix the values of all tokens, for each token.

        x:        [batch, seq, input_size]
        returned: [batch, seq, hidden]

        No mask, no dropout and no layer behind: the next assignment has those.
        """
        raise NotImplementedError("project, compare, weigh, mix")
