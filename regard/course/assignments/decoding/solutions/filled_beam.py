"""A beam of constant size: copies start with -inf, and finished hypotheses stay in it but offer one continuation."""

import torch

NEVER = float("-inf")


def top_k(logits, k):
    values, ids = torch.topk(logits, min(k, logits.size(-1)), dim=-1)
    return torch.full_like(logits, NEVER).scatter(-1, ids, values)


def top_p(logits, p):
    probs = torch.softmax(logits, dim=-1)
    better = probs.unsqueeze(-2) > probs.unsqueeze(-1)  # [batch, vocab, vocab]
    mass_before = (better * probs.unsqueeze(-2)).sum(-1)  # [batch, vocab]
    return torch.where(mass_before < p, logits, torch.tensor(NEVER))


def next_probabilities(logits, temperature=1.0, k=0, p=1.0):
    if not temperature:
        return (logits == logits.amax(-1, keepdim=True)).to(logits)
    logits = logits.div(temperature)
    for active, keep, amount in ((k > 0, top_k, k), (p < 1, top_p, p)):
        logits = keep(logits, amount) if active else logits
    return logits.log_softmax(-1).exp()


def greedy(model, prompt, eos, max_new):
    return sample(model, prompt, eos, max_new, lambda probs: probs.argmax().item(), temperature=0)


def sample(model, prompt, eos, max_new, draw, temperature=1.0, k=0, p=1.0):
    token, tokens = None, prompt.unsqueeze(0)
    while token != eos and tokens.size(1) - prompt.size(0) < max_new:
        token = draw(next_probabilities(model(tokens), temperature, k, p)[0])
        tokens = torch.cat((tokens, torch.full((1, 1), token)), dim=1)
    return tokens[0]


def length_penalty(length, alpha):
    return pow((5 + length) / 6, alpha)


def beam_search(model, prompt, eos, max_new, beams, alpha):
    tokens = prompt.repeat(beams, 1)  # [beams, length]
    totals = torch.full((beams,), NEVER)
    totals[0] = 0.0
    done = torch.zeros(beams, dtype=torch.bool)
    lengths = torch.zeros(beams, dtype=torch.long)
    for _ in range(max_new):
        if done.all():
            break
        log_probs = torch.log_softmax(model(tokens), dim=-1)
        vocab = log_probs.size(1)
        candidates = totals.unsqueeze(1) + log_probs
        candidates[done] = NEVER
        # finished hypotheses keep their place, whatever the candidates are
        room = int((~done).sum())
        best, index = candidates.view(-1).sort(descending=True)
        best, index = best[:room], index[:room]
        grown = torch.cat([tokens[index // vocab], (index % vocab).unsqueeze(1)], 1)
        kept = torch.nn.functional.pad(tokens[done], (0, 1), value=eos)
        tokens = torch.cat([kept, grown])
        totals = torch.cat([totals[done], best])
        lengths = torch.cat([lengths[done], lengths[~done][:1].expand(room) + 1])
        done = torch.cat([done[done], index % vocab == eos])
    scores = totals / length_penalty(lengths, alpha)
    order = scores.argsort(descending=True)
    return [(tokens[i, : len(prompt) + lengths[i]], scores[i].item()) for i in order]
