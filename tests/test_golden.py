"""Golden losses: a few steps of training on a fixed task, pinned, so that a change of behaviour cannot go unnoticed.

A change that is meant to move them says so, and why, in the commit that writes the new figures here.
"""

import pytest
import torch
import torch.nn.functional as F

from regard.model.transformer import build
from tests.test_model import SHAPES

GOLDEN = {
    "paper": [3.9320, 3.3235, 3.2222, 3.0570, 2.9510],
    "llama": [3.4923, 3.3316, 3.3541, 3.2661, 3.2550],
}
"""loss after 0, 10, 20, 30 and 40 steps of Adam at 0.003"""


@pytest.mark.parametrize("name", GOLDEN)
def test_losses_are_the_ones_known(name: str) -> None:
    model = build(SHAPES[name])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    losses = []
    for step in range(41):
        text = torch.randint(0, 30, (8, 6))  # reverse it: five look-ups, each at another place
        source, target = text, torch.cat([torch.full((8, 1), 30), text.flip(1)], 1)
        if name == "paper":
            logits = model(source, target[:, :-1])
        else:
            logits = model(torch.cat([source, target[:, :-1]], 1))[:, 6:]
        loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            losses.append(round(loss.item(), 4))
    assert losses == pytest.approx(GOLDEN[name], abs=2e-3)
