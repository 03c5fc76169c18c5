"""One token after the other, without any function that does several things at once."""

import torch


def learning_rate(step, width, warmup):
    peak = (width * warmup) ** -0.5
    return peak * (step / warmup if step <= warmup else (warmup / step) ** 0.5)


def smoothed_loss(logits, targets, smoothing, pad):
    total, count = logits.new_zeros(()), 0
    for row, words in zip(logits, targets.tolist(), strict=True):
        for scores, word in zip(row, words, strict=True):
            if word != pad:
                log_probs = scores - scores.logsumexp(0)
                total = total - (1 - smoothing) * log_probs[word]
                for log_prob in log_probs:
                    total = total - smoothing / len(log_probs) * log_prob
                count += 1
    return total, count


def clip_gradients(parameters, max_norm):
    parameters, squares = list(parameters), 0.0
    for parameter in parameters:
        if parameter.grad is not None:
            squares += float((parameter.grad**2).sum())
    norm = squares**0.5
    factor = max_norm / norm if norm > max_norm else 1.0
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad.data = factor * parameter.grad.data
    return norm


def train(model, optimizer, batches, accumulate, width, warmup, max_norm, smoothing, pad):
    losses = []
    for step in range(1, -(-len(batches) // accumulate) + 1):
        model.train()
        model.zero_grad()
        chosen = batches[(step - 1) * accumulate : step * accumulate]
        tokens = sum(int(torch.count_nonzero(targets != pad)) for _, targets in chosen)
        mean = 0
        for inputs, targets in chosen:
            loss = smoothed_loss(model(inputs), targets, smoothing, pad)[0] / tokens
            loss.backward()
            mean += float(loss.detach())
        clip_gradients(model.parameters(), max_norm)
        rate = learning_rate(step, width, warmup)
        for group in optimizer.param_groups:
            group.update(lr=rate)
        optimizer.step()
        losses.append(mean)
    return losses
