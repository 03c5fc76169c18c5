"""The training loop: learning rate schedule, label smoothing, gradient clipping and gradient accumulation.

Check your work with `regard check FILE`. You can write the functions one after the other: those that are written are
checked. You can note the shape you expect in a comment at the end of a line, such as `# [batch, seq, vocab]`; shape
comments are checked too. The dimension names are batch, seq and vocab.
"""


def learning_rate(step, width, warmup):
    """Return the learning rate of section 5.3 of the paper, a number.

    step:   the number of the update, 1 for the first one
    width:  d_model
    warmup: the number of updates during which the rate rises

    rate = width^(-1/2) · min(step^(-1/2), step · warmup^(-3/2))
    """
    raise NotImplementedError("the rate rises linearly, then falls with the root of the step")


def smoothed_loss(logits, targets, smoothing, pad):
    """Return the sum of the losses of all targets that are not padding, and the number of these targets.

    logits:    [batch, seq, vocab]
    targets:   [batch, seq], token ids
    smoothing: ε; the model should give the probability 1 - ε to the target, and the rest, ε, evenly to all tokens of
               the vocabulary, including the target
    pad:       the id of padding, which is in the vocabulary but does not count

    The loss of a token is the cross-entropy between these wanted probabilities and the model's.
    """
    raise NotImplementedError("log-probabilities, then the loss of each token, then the sum without padding")


def clip_gradients(parameters, max_norm):
    """Multiply all gradients by the same factor, in place, so that their norm is at most max_norm.

    parameters: an iterable of parameters, such as model.parameters(); those without a gradient are left out
    returns:    the norm before clipping: the root of the sum of the squares of all numbers in all gradients

    Gradients whose norm is smaller already are not changed.
    """
    raise NotImplementedError("compute the norm of all gradients together, then scale them")


def train(model, optimizer, batches, accumulate, width, warmup, max_norm, smoothing, pad):
    """Train on a list of batches, in training mode, with one update of the weights for every `accumulate` batches.

    batches: pairs of inputs and targets, [batch, seq] each; model(inputs) returns logits [batch, seq, vocab]
    returns: a list with the mean loss per token of each update, as numbers

    An update must do exactly what one large batch would do: the loss is the mean over all tokens of the `accumulate`
    batches that are not padding. If a few batches are left at the end, they make a smaller update. In each update the
    gradients are clipped to max_norm, and the learning rate of all of the optimizer's param_groups is that of
    learning_rate, with steps counted from 1.
    """
    raise NotImplementedError("for each update: zero the gradients, accumulate, clip, set the rate, step")
