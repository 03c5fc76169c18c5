"""What is to be trained, on what, and how: a recipe, in TOML, of five sections.

The string under each field is its documentation, here and wherever the field is shown to a user.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.config import Strict, check_probability, require_at_least
from regard.decode.options import Decoding
from regard.text.corpus import Corpus
from regard.text.prepared import Documents
from regard.text.tokenizer import Kind


@dataclass(frozen=True, kw_only=True)
class Data(Strict):
    """Which text. A corpus is `{ files = ["a.fr", "a.en"] }`, one file a side; or one file with `columns` or `keys`."""

    task: Literal["translation", "language", "classification"] = "translation"
    """translate the first side into the second; foretell a text; or name the class (second side) of a text"""
    languages: tuple[str, ...] = ()
    """codes of the source's and the target's language, for the model card: ["fr", "en"]"""
    folder: str = ""
    """where the files lie, if not where the command is run"""
    train: tuple[Corpus, ...] = ()
    """corpora to learn from, one behind the other"""
    validation: Corpus | None = None
    """text to try the model on while it learns"""
    held_out: float = 0.0
    """without `validation`: this share of the training text, its end, is kept for it"""
    petit: int = 0
    """instead of files: so many pairs of Petit, the French–English world that comes with Regard"""
    documents: Documents = "line"
    """for language: what one text is: a line, lines up to a blank one, or the whole file"""
    skip_bad: bool = False
    """leave out lines that cannot be used, and count them, where otherwise the first is an error"""


@dataclass(frozen=True, kw_only=True)
class TokenizerSection(Strict):
    """How text becomes ids. Fine-tuning takes the tokenizer of the model it starts from."""

    kind: Kind = "bpe"
    """byte-level BPE, or characters"""
    vocab_size: int = 8_000
    """ids at most, rounded up to a multiple of 64"""


@dataclass(frozen=True, kw_only=True)
class Train(Strict):
    """How it learns. The defaults are the paper's, for a smaller batch."""

    steps: int = 10_000
    """updates of the weights"""
    batch_tokens: int = 16_000
    """tokens of a batch on its larger side, over all devices; accumulated batches are counted one by one"""
    accumulate: int = 1
    """batches whose gradients are summed before each update"""
    max_length: int = 256
    """longer examples are left out; for language, the tokens of a block"""
    packed: bool | None = None
    """several sentences in a row, kept apart: no padding. If not given, on GPUs where the model allows it"""
    optimizer: Literal["adam", "adamw"] = "adam"
    """adamw shrinks matrices by lr × weight_decay in each step"""
    lr: float | None = None
    """the highest learning rate; if not given, the paper's: (d_model × warmup)^-0.5"""
    schedule: Literal["inverse-sqrt", "cosine", "linear", "constant"] = "inverse-sqrt"
    """how the learning rate falls behind the warm-up, to which it rises linearly"""
    warmup: int = 4_000
    """steps of warm-up"""
    lr_end: float = 0.0
    """cosine and linear: the share of `lr` that is left at the last step"""
    beta1: float = 0.9
    """how much of the mean gradient is kept from step to step"""
    beta2: float = 0.98
    """how much of the mean squared gradient is kept"""
    eps: float = 1e-9
    """added to the root of the latter"""
    weight_decay: float = 0.0
    """for adamw"""
    clip: float = 0.0
    """the largest norm a gradient may have; 0 lets it be"""
    label_smoothing: float = 0.1
    """probability that is spread over all outputs"""
    average: int = 1
    """the model that is validated and kept is the mean of the weights at so many last validations"""
    validate_every: int = 1_000
    """steps between validations"""
    validation_sentences: int = 500
    """translations of the validation text that are scored by BLEU; 0 goes by the loss alone"""
    best_by: Literal["loss", "score"] = "loss"
    """which validation is the best: the lowest loss, or the highest BLEU or accuracy"""
    patience: int = 0
    """stop after so many validations without a better one; 0 goes on to the last step"""
    checkpoint_every: int = 1_000
    """steps between checkpoints, from which a run can go on"""
    log_every: int = 50
    """steps between lines of the log"""
    seed: int = 0
    """the same seed, data and device give the same model"""
    device: str = "auto"
    """auto, cpu or cuda; auto takes a GPU where there is one"""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """of the arithmetic; auto takes bfloat16 on GPUs that do it well, float16 on others, float32 on CPUs"""
    compile: bool | None = None
    """torch.compile: a minute at the start, and then much faster. If not given, on GPUs"""
    parallel: Literal["ddp", "fsdp"] = "ddp"
    """under torchrun: each device holds the whole model, or a share of it"""

    def __post_init__(self) -> None:
        """Check what the fields must be."""
        super().__post_init__()
        require_at_least(
            1,
            steps=self.steps,
            batch_tokens=self.batch_tokens,
            accumulate=self.accumulate,
            max_length=self.max_length,
            average=self.average,
            validate_every=self.validate_every,
            checkpoint_every=self.checkpoint_every,
            log_every=self.log_every,
        )
        require_at_least(
            0,
            warmup=self.warmup,
            patience=self.patience,
            validation_sentences=self.validation_sentences,
            seed=self.seed,
        )
        for name in ("label_smoothing", "beta1", "beta2"):
            check_probability(name, getattr(self, name))
        for name in ("eps", "weight_decay", "clip", "lr_end", "lr"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{name}={value} is not possible: it must be at least 0 and finite")
        if self.lr == 0:
            raise ValueError("lr=0 would change nothing: it must be above 0")


@dataclass(frozen=True, kw_only=True)
class Recipe(Strict):
    """The five sections, and the recipe's name."""

    name: str
    data: Data
    tokenizer: TokenizerSection = field(default_factory=TokenizerSection)
    model: dict[str, Any] = field(default_factory=dict)
    """fields of `ModelConfig`, and `preset`: the name of one to begin with; or `start`: a model to go on from, of
    which only `dropout` and `attention_dropout` can be changed. What follows from the text (vocab_size, pad, classes)
    is filled in"""
    train: Train = field(default_factory=Train)
    decode: Decoding = field(default_factory=lambda: Decoding(beam=4))
    """how the finished model is asked when it is scored"""
