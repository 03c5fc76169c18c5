"""Hypotheses and texts as Python lists, with loops."""

import math

import torch


def top_k(logits, k):
    kept = torch.full_like(logits, -math.inf)
    for row in range(logits.shape[0]) if logits.dim() == 2 else [...]:
        best = sorted(range(logits.shape[-1]), key=lambda token: -logits[row][token].item())[:k]
        for token in best:
            kept[row][token] = logits[row][token]
    return kept


def top_p(logits, p):
    rows = logits if logits.dim() == 2 else logits[None]
    filtered = []
    for row in rows:
        probabilities = row.softmax(-1).tolist()
        total, kept = 0.0, set()
        for token in sorted(range(len(probabilities)), key=lambda token: -probabilities[token]):
            kept.add(token)
            total += probabilities[token]
            if total >= p:
                break
        filtered.append([value if token in kept else -math.inf for token, value in enumerate(row.tolist())])
    return torch.tensor(filtered).view(logits.shape)


def next_probabilities(logits, temperature=1.0, k=0, p=1.0):
    if temperature == 0:
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    logits = logits / temperature
    if k:
        logits = top_k(logits, k)
    logits = top_p(logits, p)
    return torch.exp(logits) / torch.exp(logits).sum(-1, keepdim=True)


def _write(model, prompt, eos, max_new, choose):
    text = prompt.tolist()
    while len(text) < len(prompt) + max_new:
        logits = model(torch.tensor([text]))
        text.append(int(choose(logits[0])))
        if text[-1] == eos:
            return torch.tensor(text)
    return torch.tensor(text)


def greedy(model, prompt, eos, max_new):
    return _write(model, prompt, eos, max_new, lambda logits: logits.argmax())


def sample(model, prompt, eos, max_new, draw, temperature=1.0, k=0, p=1.0):
    return _write(
        model, prompt, eos, max_new, lambda logits: draw(next_probabilities(logits[None], temperature, k, p)[0])
    )


def length_penalty(length, alpha):
    return (5 + length) ** alpha / 6**alpha


def beam_search(model, prompt, eos, max_new, beams, alpha):
    start = prompt.tolist()
    beam = [(0.0, start)]
    for _ in range(max_new):
        done = [item for item in beam if len(item[1]) > len(start) and item[1][-1] == eos]
        live = [item for item in beam if item not in done]
        if not live:
            break
        candidates = []
        for total, tokens in live:
            log_probabilities = torch.log_softmax(model(torch.tensor([tokens]))[0], -1).tolist()
            candidates += [(total + value, [*tokens, token]) for token, value in enumerate(log_probabilities)]
        candidates.sort(key=lambda candidate: candidate[0], reverse=True)
        beam = done + candidates[: beams - len(done)]
    results = [
        (torch.tensor(tokens), total / length_penalty(len(tokens) - len(start), alpha)) for total, tokens in beam
    ]
    return sorted(results, key=lambda result: -result[1])
