"""The task of remembering, and who learns it: two letters, blanks, and twice the sign to say the letters.

Dimensions: B rows, T tokens, V ids.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import preset
from regard.labs.small_training import fit
from regard.model.transformer import build

LETTERS, BLANK, SAY, IDS = 8, 8, 9, 10


class Recurrent(nn.Module):
    """An LSTM between an embedding and an output layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(IDS, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.output = nn.Linear(width, IDS)

    def forward(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits for each token."""
        hidden, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.output(hidden)
        return logits


def transformer(width: int) -> nn.Module:
    """A fresh decoder of two layers."""
    shape = {"vocab_size": IDS, "pad": None, "d_model": width, "d_ff": 2 * width, "layers": 2, "dropout": 0.0}
    return build(preset("tiny", kind="decoder", norm="pre", positions="rotary", **shape))


def recurrent(like: nn.Module) -> Recurrent:
    """A fresh LSTM of as many parameters, as nearly as its width allows."""
    wanted, width = parameters(like), 1
    with torch.device("meta"):  # to count there need be no numbers
        while parameters(Recurrent(width + 1)) <= wanted:
            width += 1
    return Recurrent(width)


def parameters(model: nn.Module) -> int:
    """How many it has."""
    return sum(each.numel() for each in model.parameters())


def sequences(rows: int, distance: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B 2"]]:
    """Two letters, as many blanks as the distance, and twice the sign to say the letters; and the letters."""
    letters = torch.randint(LETTERS, (rows, 2))
    return torch.cat([letters, torch.full((rows, distance), BLANK), torch.full((rows, 2), SAY)], 1), letters


def loss(model: nn.Module, rows: int, distance: int) -> Float[Tensor, ""]:
    """Of the letters that are said, in sequences drawn anew."""
    tokens, letters = sequences(rows, distance)
    return F.cross_entropy(model(tokens)[:, -2:].flatten(0, 1), letters.flatten())


def learned(model: nn.Module, rows: int, distance: int, steps: int) -> float:
    """Train; then, how many letters of new sequences are said rightly."""
    fit(model, lambda: loss(model, rows, distance), steps, lr=5e-3)
    with torch.no_grad():
        tokens, letters = sequences(512, distance)
        return float((model(tokens)[:, -2:].argmax(-1) == letters).double().mean())
