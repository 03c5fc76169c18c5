"""Hypotheses as objects with methods; probabilities in NumPy's manner."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass
class Hypothesis:
    tokens: list
    prompt_length: int
    log_prob: float = 0.0

    def extended(self, token, log_prob):
        return Hypothesis([*self.tokens, token], self.prompt_length, self.log_prob + log_prob)

    def ends_with(self, eos):
        return len(self.tokens) > self.prompt_length and self.tokens[-1] == eos

    def score(self, alpha):
        return self.log_prob / length_penalty(len(self.tokens) - self.prompt_length, alpha)


def _keep(logits, mask):
    return logits + torch.where(mask, 0.0, -torch.inf)


def top_k(logits, k):
    ranks = logits.argsort(dim=-1, descending=True).argsort(dim=-1)
    return _keep(logits, ranks < k)


def top_p(logits, p):
    probs = F.softmax(logits, dim=-1)
    sorted_probs, order = torch.sort(probs, dim=-1, descending=True)
    remove = sorted_probs.cumsum(-1) >= p
    remove[..., 1:] = remove[..., :-1].clone()  # the token that reaches p stays
    remove[..., 0] = False
    unsorted = torch.zeros_like(remove)
    unsorted.scatter_(-1, order, remove)
    return _keep(logits, ~unsorted)


def next_probabilities(logits, temperature=1.0, k=0, p=1.0):
    if temperature == 0:
        temperature, k, p = 1.0, 1, 1.0
    scaled = logits / temperature
    scaled = top_k(scaled, k) if k else scaled
    scaled = top_p(scaled, p) if p < 1.0 else scaled
    return F.softmax(scaled, dim=-1)


def _tokens(model, prompt, eos, max_new, choose):
    """Yield new tokens until the end."""
    text = prompt.clone()
    for _ in range(max_new):
        token = choose(model(text.view(1, -1)).view(-1))
        yield token
        if token == eos:
            return
        text = torch.hstack([text, torch.tensor(token)])


def greedy(model, prompt, eos, max_new):
    new = list(_tokens(model, prompt, eos, max_new, lambda logits: int(torch.argmax(logits))))
    return torch.tensor(prompt.tolist() + new)


def sample(model, prompt, eos, max_new, draw, temperature=1.0, k=0, p=1.0):
    def choose(logits):
        return int(draw(next_probabilities(logits, temperature, k, p)))

    return torch.tensor(prompt.tolist() + list(_tokens(model, prompt, eos, max_new, choose)))


def length_penalty(length, alpha):
    return ((length + 5.0) / 6.0) ** alpha


def beam_search(model, prompt, eos, max_new, beams, alpha):
    live, finished = [Hypothesis(prompt.tolist(), len(prompt))], []
    steps = 0
    while live and steps < max_new:
        steps += 1
        logits = model(torch.tensor([hypothesis.tokens for hypothesis in live]))
        candidates = []
        for hypothesis, row in zip(live, F.log_softmax(logits, dim=-1), strict=True):
            candidates += [hypothesis.extended(token, row[token].item()) for token in range(len(row))]
        best = sorted(candidates, key=lambda hypothesis: hypothesis.log_prob)[-(beams - len(finished)) :]
        live = [hypothesis for hypothesis in best if not hypothesis.ends_with(eos)]
        finished.extend(hypothesis for hypothesis in best if hypothesis.ends_with(eos))
    ranked = sorted(live + finished, key=lambda hypothesis: hypothesis.score(alpha), reverse=True)
    return [(torch.tensor(hypothesis.tokens), hypothesis.score(alpha)) for hypothesis in ranked]
