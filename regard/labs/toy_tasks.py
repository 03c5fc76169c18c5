"""Tasks that one part of attention decides: two look-ups at once (heads), which of two words comes first (positions).

Dimensions: B rows, H heads, C width, N words with their marks.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.labs.small_training import fit
from regard.model.attention import MultiHeadAttention
from regard.model.transformer import build


class Boxes(nn.Module):
    """Eight boxes, eight kinds of things, one attention from the question to the boxes."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__()
        self.place, self.thing = nn.Embedding(8, d_model), nn.Embedding(8, d_model)
        self.first, self.second = nn.Embedding(8, d_model), nn.Embedding(8, d_model)
        self.attention = MultiHeadAttention(d_model, heads)
        self.answers = nn.Linear(d_model, 16)

    def forward(
        self, things: Int[Tensor, "B 8"], asked: Int[Tensor, "B 2"]
    ) -> tuple[Float[Tensor, "B 8 2"], Float[Tensor, "B H 8"]]:
        """Logits of the things in both boxes asked for, and where each head looked."""
        boxes = self.thing(things) + self.place.weight  # [B, 8, C]
        query = self.first(asked[:, :1]) + self.second(asked[:, 1:])  # [B, 1, C]
        found, weights = self.attention(query, boxes, boxes, return_weights=True)  # [B, 1, C], [B, H, 1, 8]
        return self.answers(found[:, 0]).unflatten(-1, (8, 2)), weights[:, :, 0]


@dataclass(frozen=True)
class Found:
    """What a number of heads made of the task."""

    losses: list[float]
    right: tuple[float, float]
    """how often the first answer is right, and the second"""
    both: float
    weights: Float[Tensor, "H 8"]
    """where the heads look when asked for the third box and the sixth"""


def look_up(d_model: int, heads: int, steps: int, seed: int) -> Found:
    """Train so many heads to say what two boxes hold."""
    torch.manual_seed(seed)
    model = Boxes(d_model, heads)

    def draw(rows: int) -> tuple[Int[Tensor, "B 8"], Int[Tensor, "B 2"]]:
        return torch.randint(8, (rows, 8)), torch.randint(8, (rows, 2))

    def loss() -> Float[Tensor, ""]:
        things, asked = draw(128)
        return F.cross_entropy(model(things, asked)[0], things.gather(1, asked))

    losses = fit(model, loss, steps, lr=3e-3)
    with torch.no_grad():
        things, asked = draw(2000)
        right = (model(things, asked)[0].argmax(1) == things.gather(1, asked)).double()  # [B, 2]
        _, weights = model(things[:64], torch.tensor([[2, 5]]).expand(64, 2))
    first, second = right.mean(0).tolist()
    return Found(losses, (first, second), float(right.prod(1).mean()), weights.mean(0))


@dataclass(frozen=True)
class Ordered:
    """What a model made of the order of words."""

    losses: list[float]
    right: float
    """how often it tells which of two words comes first, in sentences and the same read backwards"""
    difference: float
    """the largest between its logits for a sentence and for the same read backwards"""


def put_in_order(config: ModelConfig, steps: int, seed: int) -> Ordered:
    """Train a model to tell, of each word once in any order, whether word 0 comes before word 1.

    The last id of the config marks beginning and end, and is what the head for the whole sequence reads.
    """
    torch.manual_seed(seed)
    model, words = build(config), config.vocab_size - 1

    def draw(rows: int) -> tuple[Int[Tensor, "B N"], Int[Tensor, " B"]]:
        order = torch.rand(rows, words).argsort(1)  # [B, N - 2]
        first = (order == 0).int().argmax(1) < (order == 1).int().argmax(1)  # [B]
        return F.pad(order, (1, 1), value=words), first.long()

    def loss() -> Float[Tensor, ""]:
        sentences, first = draw(64)
        return F.cross_entropy(model(sentences), first)

    losses = fit(model, loss, steps, lr=3e-3)
    with torch.no_grad():
        sentences, first = draw(500)
        there, back = model(sentences), model(sentences.flip(1))  # [B, 2] each
    right = torch.cat([there.argmax(1) == first, back.argmax(1) == 1 - first])
    return Ordered(losses, float(right.double().mean()), float((there - back).abs().max()))
