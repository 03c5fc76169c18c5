"""Language models of characters, small enough to be trained within a lab: Petit's English, letter by letter.

Dimensions: B lines, T characters of a line, V letters of the alphabet.
"""

from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.labs.small_training import fit
from regard.model.transformer import build
from regard.petit import pairs, words


@dataclass(frozen=True)
class Letters:
    """A text, and what a model makes of it. A model is asked for logits [B, T, V] of letters [B, T]."""

    text: str

    @classmethod
    def of_petit(cls, sentences: int = 3000) -> "Letters":
        """So many English sentences, a line each."""
        return cls("\n".join(pair.english for pair in pairs(sentences)))

    @cached_property
    def alphabet(self) -> list[str]:
        """Every letter once."""
        return sorted(set(self.text))

    @cached_property
    def stream(self) -> Int[Tensor, " N"]:
        """The text as numbers of letters."""
        return torch.tensor([self.alphabet.index(letter) for letter in self.text])

    def lines(self, count: int, length: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """Pieces of the text from anywhere, and what comes next at each place: the same, shifted by one."""
        starts = torch.randint(len(self.stream) - length, (count, 1))
        pieces = self.stream[starts + torch.arange(length + 1)]  # [B, T + 1]
        return pieces[:, :-1], pieces[:, 1:]

    @torch.no_grad()
    def write(self, model: nn.Module, lines: int, length: int, sees: int) -> list[str]:
        """What the model writes from the beginning of a line, letter by letter, each from the last `sees`: drawn at
        temperature 0.7."""
        line = torch.full((lines, 1), self.alphabet.index("\n"))
        for _ in range(length):
            logits = model(line[:, -sees:])[:, -1]  # [B, V]
            line = torch.cat([line, (logits / 0.7).softmax(-1).multinomial(1)], 1)
        return ["".join(self.alphabet[i] for i in row[1:]) for row in line.tolist()]

    def share_of_words(self, written: list[str]) -> float:
        """The part of what was written that is in words, of two letters at least, which the text has."""
        known = {word for word in words(self.text) if len(word) > 1}
        found = sum(len(word) for each in written for word in words(each) if word in known)
        return found / sum(len(each) for each in written)


@dataclass(frozen=True)
class Learned:
    """What came of a language model."""

    losses: list[float]
    """step by step, where all of a line is there"""
    alone: float
    """the loss in the end where nothing is there but what has been written"""
    written: str
    real: float
    """how much of what it writes is in words of its text"""

    @property
    def trained(self) -> float:
        """The loss at the end of training."""
        return sum(self.losses[-20:]) / len(self.losses[-20:])


def learn(config: ModelConfig, letters: Letters, length: int, steps: int, seed: int) -> Learned:
    """Train a language model on lines of this length, 32 at a time, then let it write."""
    torch.manual_seed(seed)
    model = build(config)

    def fresh() -> Float[Tensor, ""]:
        line, next_ = letters.lines(32, length)
        return loss(model(line), next_)

    losses = fit(model, fresh, steps, lr=4e-3)
    line, next_ = letters.lines(32, length)
    written = letters.write(model, lines=8, length=100, sees=length)
    return Learned(losses, float(loss(logits_alone(model, line), next_)), written[0], letters.share_of_words(written))


def loss(logits: Float[Tensor, "B T V"], next_: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """The mean cross-entropy of the letters that come next, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), next_.flatten())


@torch.no_grad()
def logits_alone(model: nn.Module, line: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """What the model says at each place where nothing stands behind it, as when it writes."""
    return torch.stack([model(line[:, :t])[:, -1] for t in range(1, line.size(1) + 1)], 1)
