"""What does the causal mask prevent?

The first part shows the mask itself. Three sentences of 3, 4 and 7 tokens are padded to one batch and pass through
three heads of attention with random weights, with and without the mask, step by step from scores to weights.

The second part shows what it is for. Two character-level language models of the same shape are trained on Petit's
English to predict the next character at all positions of a line at once. One is a decoder. The other has no mask (it is
an encoder), so it can attend to the character that it must predict. Both are then evaluated with only the preceding
characters as input, which is all there is during generation.
"""

# Dimensions: B lines, T characters of a line, V characters of the alphabet, S tokens of a sentence.

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor, nn

from regard.config import ModelConfig, preset
from regard.labs.lab import Claim, LabResult, ResultTable
from regard.labs.lab_figures import BLUE, ORANGE, heatmap, legend, panel
from regard.labs.small_training import fit
from regard.model.attention import MultiHeadAttention, split_heads
from regard.model.masks import causal_mask, padding_mask
from regard.model.transformer import build
from regard.petit import pairs, words

SENTENCES = ("She sings .", "The cat sleeps .", "We never eat bread with them .")
AttentionSteps = dict[str, Float[Tensor, "3 3 S S"]]
"""Scores and weights by name: sentences, heads, queries, keys."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the language models' training."""

    steps: int = 300
    """Training steps of each language model."""
    length: int = 24
    """Number of characters in a line; a batch has 32 lines."""
    seed: int = 0
    """Seed of the random numbers."""


@dataclass(frozen=True)
class TextSampler:
    """A text, from which lines are drawn and against which generated text is compared."""

    text: str

    @classmethod
    def from_petit(cls, sentences: int = 3000) -> "TextSampler":
        """Use English sentences of Petit, one per line."""
        return cls("\n".join(pair.english for pair in pairs(sentences)))

    @cached_property
    def alphabet(self) -> list[str]:
        """All characters of the text, sorted."""
        return sorted(set(self.text))

    @cached_property
    def character_ids(self) -> Int[Tensor, " N"]:
        """The text as indices into the alphabet."""
        return torch.tensor([self.alphabet.index(character) for character in self.text])

    def lines(self, count: int, length: int) -> tuple[Int[Tensor, "B T"], Int[Tensor, "B T"]]:
        """Draw pieces of the text, and the next character at each position."""
        starts = torch.randint(len(self.character_ids) - length, (count, 1))
        pieces = self.character_ids[starts + torch.arange(length + 1)]  # [B, T + 1]
        return pieces[:, :-1], pieces[:, 1:]

    @torch.no_grad()
    def generate(self, model: nn.Module, lines: int, length: int, context: int) -> list[str]:
        """Sample lines character by character at temperature 0.7, each character from the last `context` ones."""
        line = torch.full((lines, 1), self.alphabet.index("\n"))
        for _ in range(length):
            logits = model(line[:, -context:])[:, -1]  # [B, V]
            line = torch.cat([line, (logits / 0.7).softmax(-1).multinomial(1)], 1)
        return ["".join(self.alphabet[i] for i in row[1:]) for row in line.tolist()]

    def real_word_share(self, generated: list[str]) -> float:
        """Return the share of the generated characters that are in words of the text with at least two letters."""
        known = {word for word in words(self.text) if len(word) > 1}
        in_words = sum(len(word) for line in generated for word in words(line) if word in known)
        return in_words / sum(len(line) for line in generated)


@dataclass(frozen=True)
class TrainedCharacterModel:
    """The results of a trained language model."""

    losses: list[float]
    """Loss of each training step, with the complete line as input."""
    causal_loss: float
    """Loss after training, with only the preceding characters as input."""
    generated: str
    real_words: float
    """Share of the generated characters that are in words of the training text."""

    @property
    def training_loss(self) -> float:
        """Mean loss of the last training steps."""
        return sum(self.losses[-20:]) / len(self.losses[-20:])


def run(sizes: Sizes) -> LabResult:
    """Apply the mask to three sentences, then train a language model with it and one without it."""
    steps = attention_steps(sizes.seed)
    free, masked = steps["without mask"], steps["with mask"]
    future = ~causal_mask(free.size(-1))
    leaked, given_away = float(masked.masked_select(future).max()), 1 - float(free[:, :, 0, 0].mean())
    past = free.masked_fill(future, 0)
    difference = float((past / past.sum(-1, keepdim=True) - masked).abs().max())
    sampler = TextSampler.from_petit()
    size = len(sampler.alphabet)
    shape = preset("tiny", kind="decoder", vocab_size=size, pad=None, norm="pre", dropout=0.0)
    causal = train_character_model(shape, sampler, sizes.length, sizes.steps, sizes.seed)
    unmasked = train_character_model(replace(shape, kind="encoder"), sampler, sizes.length, sizes.steps, sizes.seed)
    claims = (
        Claim(
            f"With the mask the largest weight on a later token is {leaked:g}; without it, a first token gives "
            f"{given_away:.0%} of its weight to later tokens",
            leaked == 0 and given_away > 0.2,
        ),
        Claim(
            f"The remaining weights keep their proportions (up to {difference:.0e}): the mask only removes tokens",
            difference < 1e-5,
        ),
        Claim(
            f"Without the mask, a language model seems to learn everything: its training loss is "
            f"{unmasked.training_loss:.2f}, compared with {causal.training_loss:.2f} with the mask",
            unmasked.training_loss < 0.4 and causal.training_loss > 1,
        ),
        Claim(
            f"But it has only learned to copy the next character. Without that character in its input, its loss is "
            f"{unmasked.causal_loss:.1f}, worse than guessing ({math.log(size):.1f}); with the mask it is "
            f"{causal.causal_loss:.2f}, as in training",
            unmasked.causal_loss > math.log(size) and abs(causal.causal_loss - causal.training_loss) < 0.4,
        ),
        Claim(
            f"So it cannot generate text: {unmasked.real_words:.0%} of its output is in words that exist, compared "
            f"with {causal.real_words:.0%} with the mask",
            unmasked.real_words < 0.3 * causal.real_words,
        ),
    )
    tables = (weights_table(steps), models_table({"without mask": unmasked, "with mask": causal}))
    note = "Both models train for seconds only; with more steps, the text generated with the mask improves."
    return LabResult(tables, claims, lambda figure: draw(figure, steps, unmasked, causal), (10.0, 9.0), (note,))


def attention_steps(seed: int) -> AttentionSteps:
    """Compute the scores, masked scores and weights of three heads on the three sentences."""
    torch.manual_seed(seed)
    lengths = torch.tensor([len(sentence.split()) for sentence in SENTENCES])
    x = 2 * torch.randn(3, 7, 24)  # long vectors, so that the heads have clear preferences
    heads = MultiHeadAttention(d_model=24, heads=3)
    padding = padding_mask(lengths, 7)
    mask = causal_mask(7) & padding
    with torch.no_grad():
        q, k = split_heads(heads.q(x), 3), split_heads(heads.k(x), 3)  # [3, 3, S, 8] each
        scores = q @ k.mT / math.sqrt(q.size(-1))  # [3, 3, S, S]
        free, masked = (heads(x, x, x, allowed, return_weights=True)[1] for allowed in (padding, mask))
    masked_scores = scores.masked_fill(~mask, -math.inf)
    return {"scores": scores, "masked scores": masked_scores, "with mask": masked, "without mask": free}


def train_character_model(
    config: ModelConfig, sampler: TextSampler, length: int, steps: int, seed: int
) -> TrainedCharacterModel:
    """Train a language model on batches of 32 lines, evaluate it on preceding characters only, and generate text."""
    torch.manual_seed(seed)
    model = build(config)

    def batch_loss() -> Float[Tensor, ""]:
        line, following = sampler.lines(32, length)
        return next_character_loss(model(line), following)

    losses = fit(model, batch_loss, steps, lr=4e-3)
    line, following = sampler.lines(32, length)
    generated = sampler.generate(model, lines=8, length=100, context=length)
    causal_loss = float(next_character_loss(causal_logits(model, line), following))
    return TrainedCharacterModel(losses, causal_loss, generated[0], sampler.real_word_share(generated))


def next_character_loss(logits: Float[Tensor, "B T V"], following: Int[Tensor, "B T"]) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the next characters, in nats."""
    return F.cross_entropy(logits.flatten(0, 1), following.flatten())


@torch.no_grad()
def causal_logits(model: nn.Module, line: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
    """Return the logits at each position with only the characters up to there as input, as in generation."""
    return torch.stack([model(line[:, :t])[:, -1] for t in range(1, line.size(1) + 1)], 1)


def weights_table(steps: AttentionSteps) -> ResultTable:
    """Return the first head's scores and weights on the first sentence, with a row for each query."""
    names = ("scores", "masked scores", "with mask")
    cells = [[" ".join(f"{x:.2f}" for x in row) for row in steps[name][0, 0, :3, :3].tolist()] for name in names]
    rows = zip(SENTENCES[0].split(), *([cell.replace("-inf", "−∞") for cell in row] for row in cells), strict=True)
    return ResultTable(("token", "scores", "masked scores", "weights"), tuple(rows), "From scores to weights, one head")


def models_table(models: dict[str, TrainedCharacterModel]) -> ResultTable:
    """Return the losses and the generated text of the language models."""
    rows = [
        (
            *(name, f"{model.training_loss:.2f}", f"{model.causal_loss:.2f}"),
            *(f"{model.real_words:.0%}", repr(model.generated[:24])),
        )
        for name, model in models.items()
    ]
    columns = ("language model", "loss in training", "loss on preceding characters only", "in real words", "generated")
    return ResultTable(columns, tuple(rows), "Two language models")


def draw(figure: Figure, steps: AttentionSteps, unmasked: TrainedCharacterModel, causal: TrainedCharacterModel) -> None:
    """Draw the way from scores to weights, three heads on three sentences, and the results of the models."""
    titles = {"scores": "scores, head 1", "masked scores": "→ masked scores, head 1", "with mask": "→ weights, head 1"}
    for number, (name, title) in enumerate(titles.items(), start=1):
        axes = panel(figure, 3, number, title, rows=4)
        low, high = (0.0, 1.0) if name == "with mask" else (-3.0, 3.0)
        heatmap(axes, steps[name][1, 0, :4, :4], low, high, digits=1)
        label_queries(axes, 1)
    for number in range(6):
        name, row, n = ("without mask", "with mask")[number // 3], number % 3, len(SENTENCES[number % 3].split())
        axes = panel(figure, 3, number + 4, f"{name}, three heads", rows=4)
        heatmap(axes, torch.cat([*steps[name][row, :, :n, :n]], 1))  # heads side by side
        label_queries(axes, row)
        for edge in (n, 2 * n):
            axes.axvline(edge - 0.5, color="#222222", linewidth=1)
    axes = panel(figure, 3, 10, "loss in training", "step", rows=4)
    models = ((unmasked, "without mask", ORANGE), (causal, "with mask", BLUE))
    for model, name, colour in models:
        axes.plot(model.losses, color=colour, label=name)
    legend(axes)
    losses = panel(figure, 3, 11, "loss on preceding characters only", rows=4)
    shares = panel(figure, 3, 12, "generated text in real words", rows=4)
    for model, name, colour in models:
        losses.bar_label(losses.bar([name], [model.causal_loss], color=colour), fmt="%.1f", fontsize=8)
        shares.bar_label(shares.bar([name], [model.real_words], color=colour), fmt="{:.0%}", fontsize=8)


def label_queries(axes: Axes, sentence: int) -> None:
    """Label the rows of a heatmap with the tokens of a sentence."""
    tokens = SENTENCES[sentence].split()
    axes.set_xticks([])
    axes.set_yticks(range(len(tokens)), tokens)
