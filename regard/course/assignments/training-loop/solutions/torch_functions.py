"""With the functions that PyTorch offers for each part."""

import torch
import torch.nn.functional as F


def learning_rate(step, width, warmup):
    if step < warmup:
        return step / (width * warmup**3) ** 0.5
    return 1 / (width * step) ** 0.5


def smoothed_loss(logits, targets, smoothing, pad):
    total = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=pad, label_smoothing=smoothing, reduction="sum"
    )
    return total, targets.ne(pad).sum()


def clip_gradients(parameters, max_norm):
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)


def train(model, optimizer, batches, accumulate, width, warmup, max_norm, smoothing, pad):
    model.train()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: learning_rate(done + 1, width, warmup))
    history = []
    optimizer.zero_grad()
    while batches:
        group, batches = batches[:accumulate], batches[accumulate:]
        sums = [smoothed_loss(model(inputs), targets, smoothing, pad) for inputs, targets in group]
        mean = sum(loss for loss, _ in sums) / sum(count for _, count in sums)
        mean.backward()
        clip_gradients(model.parameters(), max_norm)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        history.append(mean.item())
    return history
