import math

import torch


def learning_rate(step, width, warmup):
    ramp = step / warmup**1.5
    decay = 1 / math.sqrt(step)
    return min(ramp, decay) / math.sqrt(width)


def soft_targets(targets, vocab, eps):
    dist = torch.full((*targets.shape, vocab), eps / vocab)
    hot = torch.nn.functional.one_hot(targets, vocab)
    return dist + hot * (1 - eps)


def smoothed_loss(logits, targets, smoothing, pad):
    wanted = soft_targets(targets, logits.size(-1), smoothing)
    logp = logits - logits.logsumexp(dim=-1, keepdim=True)
    per_token = -torch.einsum("bsv,bsv->bs", wanted.to(logp.dtype), logp)
    mask = targets.ne(pad)
    return per_token.masked_fill(~mask, 0.0).sum(), int(mask.sum())


def grad_norm(grads):
    return torch.sqrt(sum(g.pow(2).sum() for g in grads))


def clip_gradients(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    total = grad_norm(grads)
    if total > max_norm:
        for g in grads:
            g.mul_(max_norm / total)
    return total


def groups_of(items, n):
    for start in range(0, len(items), n):
        yield items[start : start + n]


def set_rate(optimizer, rate):
    for group in optimizer.param_groups:
        group["lr"] = rate


def train(model, optimizer, batches, accumulate, width, warmup, max_norm, smoothing, pad):
    model.train()
    history = []
    for step, group in enumerate(groups_of(batches, accumulate), start=1):
        optimizer.zero_grad()
        parts = [smoothed_loss(model(x), y, smoothing, pad) for x, y in group]
        tokens = sum(n for _, n in parts)
        loss = sum(l for l, _ in parts) / tokens
        loss.backward()
        clip_gradients(model.parameters(), max_norm)
        set_rate(optimizer, learning_rate(step, width, warmup))
        optimizer.step()
        history.append(loss.item())
    return history
