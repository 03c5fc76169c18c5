"""Self-attention with one head: every token of a sequence attends to every token of the sequence.

Check your work with `regard check FILE`. Note the shape you expect in a comment at the end of a line that changes it,
such as `# [batch, seq, hidden]`: wrong or missing shape comments cost a point. The dimension names are batch, seq,
input_size and hidden. A correct solution with at most three statements in forward gains a point.
"""

from torch import nn


class SelfAttention(nn.Module):
    """Scaled dot-product attention (section 3.2.1 of the paper) within each sequence of a batch.

    It has three layers, `.q`, `.k` and `.v`, each an nn.Linear with a bias.
    """

    def __init__(self, input_size, hidden):
        super().__init__()
        raise NotImplementedError("create the three layers, each from input_size to hidden features")

    def forward(self, x):
        """For each token, return the weighted average of the values of all tokens.

        x:       [batch, seq, input_size]
        returns: [batch, seq, hidden]

        There is no mask, no dropout and no output layer. Those come in the next assignment.
        """
        raise NotImplementedError("project, compute the scores, apply softmax, average the values")
