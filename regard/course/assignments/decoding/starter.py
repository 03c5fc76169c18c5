"""From next-token probabilities to text: greedy search, sampling and beam search.

A language model gives a score (a logit) to every possible next token. Which token to write is a decision of its own,
and that is what this assignment is about.

The model is a function: model(tokens) takes token ids [rows, length] and returns the logits [rows, vocab] of the token
that follows each row. A prompt is a 1-D tensor of token ids. `eos` is the id of the end-of-sentence token: a text ends
after it. All texts that you return start with the prompt, and contain the `eos` that ended them.

Each function is checked separately, so you can start with any of them and leave others for later.

Run `regard check THIS_FILE` after each part: what is written is checked, and the rest is listed as still to write.
"""

import torch


def greedy(model, prompt, eos, max_new):
    """The prompt followed by at most `max_new` tokens, each the most probable one; ends after `eos`. 1-D → 1-D."""
    raise NotImplementedError("write greedy")


def top_k(logits, k):
    """[batch, vocab] → [batch, vocab]: the k highest logits of each row; all others become -inf.

    If k is larger than the vocabulary, all logits are kept.
    """
    raise NotImplementedError("write top_k")


def top_p(logits, p):
    """[batch, vocab] → [batch, vocab]: the logits of the most probable tokens of each row; all others become -inf.

    Kept is the smallest set of best tokens whose probabilities add up to at least p (0 < p <= 1). It is never empty.
    """
    raise NotImplementedError("write top_p")


def next_probabilities(logits, temperature=1.0, k=0, p=1.0):
    """[batch, vocab] → [batch, vocab]: the probabilities from which the next token is drawn; each row sums to 1.

    In this order: divide the logits by the temperature, then top-k (0 disables it), then top-p (1 disables it), then
    softmax. A temperature of 0 gives the best token the probability 1. Use your functions from above.
    """
    raise NotImplementedError("write next_probabilities")


def sample(model, prompt, eos, max_new, draw, temperature=1.0, k=0, p=1.0):
    """Like greedy, but each token is drawn from your next_probabilities. 1-D → 1-D.

    draw: a function that takes the probabilities [vocab] of one row and returns a random token id, for example
          lambda probabilities: torch.multinomial(probabilities, 1).item(). Call it once for each new token.
    """
    raise NotImplementedError("write sample")


def length_penalty(length, alpha):
    """What the log-probability of a hypothesis with `length` new tokens is divided by: ((5 + length) / 6) ** alpha."""
    raise NotImplementedError("write length_penalty")


def beam_search(model, prompt, eos, max_new, beams, alpha):
    """The `beams` hypotheses that the search ends with, best first: a list of pairs (tokens, score).

    The search starts with one live hypothesis, the prompt, whose log-probability is 0. Each step extends every live
    hypothesis by every token, and keeps the candidates with the highest log-probabilities: as many as `beams` minus
    the number of finished hypotheses. Those that end with `eos` are finished; the others are the new live ones. The
    search ends when none is live, or after `max_new` steps. Then the finished hypotheses and those still live are
    sorted by their score: the log-probability of the new tokens, divided by the length_penalty of their number. The
    `eos` is one of the new tokens; the prompt is not.
    """
    raise NotImplementedError("write beam_search")
