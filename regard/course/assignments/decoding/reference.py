"""A correct solution."""

import torch


def greedy(model, prompt, eos, max_new):
    """The prompt, followed by the likeliest token in each step."""
    tokens = prompt  # [length]
    for _ in range(max_new):
        best = model(tokens[None])[0].argmax(dim=-1)
        tokens = torch.cat([tokens, best[None]])
        if best == eos:
            break
    return tokens


def top_k(logits, k):
    """Keep the k highest logits of each row; the others become -inf."""
    kth = logits.topk(min(k, logits.shape[-1])).values[..., -1:]  # [batch, 1]
    return logits.masked_fill(logits < kth, float("-inf"))


def top_p(logits, p):
    """Keep the smallest set of best tokens whose probabilities add up to at least p; the others become -inf."""
    ordered, ids = logits.sort(dim=-1, descending=True)  # [batch, vocab]
    probs = ordered.softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs  # the total probability of all better tokens
    removed = before >= p
    removed = removed.scatter(-1, ids, removed)  # from the sorted order back to the vocabulary's
    return logits.masked_fill(removed, float("-inf"))


def next_probabilities(logits, temperature=1.0, k=0, p=1.0):
    """Probabilities of the next token: temperature, then top-k, then top-p."""
    if temperature == 0:
        logits, temperature = top_k(logits, 1), 1.0
    scaled = logits / temperature
    if k > 0:
        scaled = top_k(scaled, k)
    if p < 1:
        scaled = top_p(scaled, p)
    return scaled.softmax(dim=-1)


def sample(model, prompt, eos, max_new, draw, temperature=1.0, k=0, p=1.0):
    """The prompt, followed by tokens that `draw` chooses by their probabilities."""
    written = prompt  # [length]
    for _ in range(max_new):
        logits = model(written[None])[0]  # [vocab]
        token = draw(next_probabilities(logits, temperature, k, p))
        written = torch.cat([written, torch.tensor([token])])
        if token == eos:
            break
    return written


def length_penalty(length, alpha):
    """What the log-probability of `length` tokens is divided by."""
    return ((5 + length) / 6) ** alpha


def beam_search(model, prompt, eos, max_new, beams, alpha):
    """All final hypotheses, best first, each with its score."""
    live, totals, finished = prompt[None], torch.zeros(1), []
    for _ in range(max_new):
        log_probs = model(live).log_softmax(dim=-1)  # [live, vocab]
        candidates = totals[:, None] + log_probs  # [live, vocab]
        room = min(beams - len(finished), candidates.numel())
        totals, index = candidates.flatten().topk(room)  # [live] after this step
        parents, chosen = index // log_probs.shape[1], index % log_probs.shape[1]
        live = torch.cat([live[parents], chosen[:, None]], dim=1)  # [live, length]
        ended = chosen == eos
        finished += zip(live[ended], totals[ended], strict=True)
        live, totals = live[~ended], totals[~ended]
        if len(live) == 0:
            break
    hypotheses = [*finished, *zip(live, totals, strict=True)]
    scored = [(tokens, total / length_penalty(len(tokens) - len(prompt), alpha)) for tokens, total in hypotheses]
    return sorted(scored, key=lambda hypothesis: hypothesis[1], reverse=True)
