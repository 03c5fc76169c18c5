"""A correct solution."""

import torch


def learning_rate(step, width, warmup):
    """The learning rate of an update; the first update has step 1."""
    return width**-0.5 * min(step**-0.5, step * warmup**-1.5)


def smoothed_loss(logits, targets, smoothing, pad):
    """The sum of the losses of all targets [batch, seq] that are not padding, and the number of these targets."""
    log_probs = torch.log_softmax(logits, dim=-1)  # [batch, seq, vocab]
    of_target = log_probs.gather(-1, targets[..., None]).squeeze(-1)  # [batch, seq]
    of_all = log_probs.mean(-1)  # [batch, seq]
    losses = -(1 - smoothing) * of_target - smoothing * of_all  # [batch, seq]
    real = targets != pad  # [batch, seq]
    return losses[real].sum(), real.sum()


def clip_gradients(parameters, max_norm):
    """Scale all gradients so that their common norm is at most max_norm. Returns the norm that they had."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt()  # []
    scale = (max_norm / norm).clamp(max=1)  # []
    for gradient in gradients:
        gradient.mul_(scale)
    return norm


def train(model, optimizer, batches, accumulate, width, warmup, max_norm, smoothing, pad):
    """Update the weights once for every `accumulate` batches. Returns the mean loss per token of each update."""
    model.train()
    means = []
    for start in range(0, len(batches), accumulate):
        group = batches[start : start + accumulate]
        count = sum(int((targets != pad).sum()) for _, targets in group)
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in group:
            loss, _ = smoothed_loss(model(inputs), targets, smoothing, pad)
            (loss / count).backward()
            total += loss.item()
        clip_gradients(model.parameters(), max_norm)
        for options in optimizer.param_groups:
            options["lr"] = learning_rate(len(means) + 1, width, warmup)
        optimizer.step()
        means.append(total / count)
    return means
