"""The configuration of a model: one frozen dataclass that validates itself, and the presets.

The docstring of each field is its documentation, here and in everything generated from it.
"""

import math
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from regard.errors import RegardError, TextError
from regard.formatting import MAX_QUOTED, quoted


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of an error message about an unknown word: the closest known word, or all of them."""
    known = list(known)
    word = word[:MAX_QUOTED]
    near = [name for name in known if len(word) > 2 and word in name] or get_close_matches(word, known, n=1)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else f"expected one of {', '.join(known)}"


def head_widths(
    d_model: int, heads: int, d_k: int | None, d_v: int | None, kv_heads: int | None
) -> tuple[int, int, int]:
    """Validate the widths of an attention; return d_k, d_v and the number of key/value heads."""
    for name, number in {"d_model": d_model, "heads": heads, "d_k": d_k, "d_v": d_v, "kv_heads": kv_heads}.items():
        check_type(name, number, int | None)
    require_at_least(1, d_model=d_model, heads=heads, d_k=d_k, d_v=d_v, kv_heads=kv_heads)
    if (d_k is None or d_v is None) and d_model % heads:
        raise RegardError(
            f"heads={heads} does not divide d_model={d_model}: choose heads that divide it, or give both d_k and d_v"
        )
    kv_heads = heads if kv_heads is None else kv_heads
    if heads % kv_heads:
        raise RegardError(
            f"kv_heads={kv_heads} does not divide heads={heads}: each must serve the same number of query heads"
        )
    return d_k or d_model // heads, d_v or d_model // heads, kv_heads


def input_widths(d_model: int, kdim: int | None, vdim: int | None, d_out: int | None) -> tuple[int, int, int]:
    """Validate the widths of keys, values and output of an attention, each by default `d_model`, and return them."""
    for name, number in {"kdim": kdim, "vdim": vdim, "d_out": d_out}.items():
        check_type(name, number, int | None)
    require_at_least(1, kdim=kdim, vdim=vdim, d_out=d_out)
    return kdim or d_model, vdim or d_model, d_out or d_model


def require_at_least(minimum: int, **numbers: int | None) -> None:
    """Raise a RegardError for the first of the named numbers that is set and smaller than `minimum`."""
    for name, number in numbers.items():
        if number is not None and number < minimum:
            raise RegardError(f"{name}={quoted(number)} is too small: it must be at least {minimum}")


def require_at_most(maxima: Mapping[str, int | float], numbers: Mapping[str, Any]) -> None:
    """Raise a RegardError for the first number whose magnitude exceeds the maximum given for its name."""
    for name, maximum in maxima.items():
        number = numbers.get(name)
        if number is not None and maximum < abs(number) < math.inf:  # infinity is reported elsewhere
            raise RegardError(f"{name}={quoted(number)} is too large: it must be at most {maximum:,}")


def check_probability(name: str, probability: float) -> None:
    """Raise a RegardError unless this is a dropout probability: at least 0 and below 1."""
    if not 0 <= probability < 1:
        raise RegardError(f"{name}={quoted(probability)} is not a probability: it must be at least 0 and below 1")


def check_keys(where: str, keys: Iterable[str], known: Collection[str]) -> None:
    """Raise a RegardError that suggests the nearest known key if a key is misspelt."""
    for key in keys:
        if key not in known:
            raise RegardError(f"{where} has no key {quoted(key)}: {did_you_mean(key, known)}")


class StrictConfig:
    """Base class of configurations that reject unknown keys, values of the wrong type and numbers that are too large.

    A subclass names the maxima of its numbers: `class Train(StrictConfig, maxima={"steps": 10**9})`. Error messages
    call it by its `label`, or else by the name of the class.
    """

    _maxima: ClassVar[Mapping[str, int | float]] = {}
    _label: ClassVar[str] = ""

    def __init_subclass__(cls, maxima: Mapping[str, int | float] | None = None, label: str = "") -> None:
        """Store the maxima and the label of the subclass."""
        cls._maxima = maxima or {}
        cls._label = label or cls.__name__

    def __new__(cls, *_args: Any, **options: Any) -> Any:
        """Reject an unknown key before the dataclass sees it, so that every caller gets the same error."""
        known = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # each subclass is a dataclass
        check_keys(cls._label, options, known)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check each value against the annotation of its field and against its maximum."""
        hints = get_type_hints(type(self))
        for field in fields(self):  # type: ignore[arg-type]  # each subclass is a dataclass
            check_type(f"{self._label}.{field.name}", getattr(self, field.name), hints[field.name])
        require_at_most(self._maxima, vars(self))


def check_type(name: str, value: object, annotation: Any) -> None:
    """Raise a RegardError unless `value` matches `annotation`: a type, Literal, list, tuple, dict or union."""
    options = get_args(annotation) if get_origin(annotation) in (types.UnionType, Union) else (annotation,)
    if any(_fits(value, option) for option in options):
        return
    choices = [str(choice) for option in options if get_origin(option) is Literal for choice in get_args(option)]
    if choices:
        choices += ["true", "false"] if bool in options else []
        raise RegardError(f"{name}={quoted(value)} is not a valid choice: {did_you_mean(_word(value), choices)}")
    wanted = " or ".join(_type_name(option) for option in options)
    raise RegardError(f"{name}={quoted(value)} has type {type(value).__name__}: expected {wanted}")


def _word(value: object) -> str:
    return value if isinstance(value, str) else quoted(value)


def _type_name(option: Any) -> str:
    if get_origin(option) in (tuple, list):
        return f"a list of {get_args(option)[0].__name__}"
    if get_origin(option) is dict:
        return "names and values"
    return "none" if option is types.NoneType else str(option.__name__)


def _fits(value: object, option: Any) -> bool:
    if get_origin(option) is Literal:
        return value in get_args(option)
    if get_origin(option) in (tuple, list):
        return isinstance(value, get_origin(option)) and all(_fits(item, get_args(option)[0]) for item in value)
    if get_origin(option) is dict:
        return isinstance(value, dict) and all(_fits(key, get_args(option)[0]) for key in value)
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if option is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, option)


def check_token_count(what: str, tokens: int, limit: int | None) -> None:
    """Raise a RegardError if a text has more tokens than the model has learned positions."""
    if limit is not None and tokens > limit:
        raise RegardError(f"{what} {_too_many_tokens(tokens, limit)}")


def check_token_counts(counts: Sequence[int], limit: int | None) -> None:
    """Raise a TextError for the first of several texts that has more tokens than the model has learned positions."""
    for number, tokens in enumerate(counts):
        if limit is not None and tokens > limit:
            raise TextError(number, len(counts), _too_many_tokens(tokens, limit))


def _too_many_tokens(tokens: int, limit: int) -> str:
    return f"has {tokens:,} tokens, but this model reads at most {limit:,}: shorten it"


MAX_LAYERS = 1_000
"""Maximum number of layers of an encoder or a decoder: ten times more than the deepest model in use."""
MAX_PARAMETERS = 10**12
"""Maximum number of parameters of a model."""
MODEL_MAXIMA = {
    "vocab_size": 10_000_000,
    "target_vocab_size": 10_000_000,
    "d_model": 131_072,
    "heads": 65_536,
    "kv_heads": 65_536,
    "d_k": 131_072,
    "d_v": 131_072,
    "layers": MAX_LAYERS,
    "decoder_layers": MAX_LAYERS,
    "d_ff": 1_048_576,
    "max_length": 100_000_000,
    "window": 100_000_000,
    "rotary_base": 1e15,
    "relative_buckets": 1_000_000,
    "relative_distance": 100_000_000,
    "attention_scale": 1e6,
    "classes": 10_000_000,
}
"""Maxima of a model's numbers: far above any model in use, yet small enough that the rest is rejected quickly."""


SCALING_MAXIMA = {
    "factor": 1e6,
    "original_length": 100_000_000,
    "low_frequency": 1e6,
    "high_frequency": 1e6,
    "beta_fast": 1e6,
    "beta_slow": 1e6,
    "magnitude": 1e6,
}


@dataclass(frozen=True, kw_only=True)
class RotaryScaling(StrictConfig, maxima=SCALING_MAXIMA, label="rotary_scaling"):
    """How rotary positions are stretched, so that a model reads texts longer than those it was pretrained on."""

    kind: Literal["linear", "llama3", "yarn"]
    """Which frequencies are divided by `factor`: all (linear), or only low ones, with the limits of Llama 3 or YaRN."""
    factor: float
    """How many times longer the texts may be."""
    original_length: int = 8192
    """Maximum length of a text in pretraining, for llama3 and yarn."""
    low_frequency: float = 1.0
    """For llama3: frequencies that turn fewer times than this within `original_length` are divided by `factor`."""
    high_frequency: float = 4.0
    """For llama3: frequencies that turn more often than this within `original_length` are unchanged."""
    beta_fast: float = 32.0
    """For yarn: frequencies that turn more often than this within `original_length` are unchanged."""
    beta_slow: float = 1.0
    """For yarn: frequencies that turn fewer times than this within `original_length` are divided by `factor`."""
    magnitude: float | None = None
    """For yarn: factor of queries and keys. Default: 0.1 ln(factor) + 1."""

    def __post_init__(self) -> None:
        """Check that the numbers are positive and in order."""
        super().__post_init__()
        require_at_least(1, original_length=self.original_length)
        for name in ("factor", "low_frequency", "high_frequency", "beta_fast", "beta_slow", "magnitude"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise RegardError(f"rotary_scaling.{name}={quoted(value)} must be above 0 and finite")
        if self.low_frequency >= self.high_frequency:
            raise RegardError(
                f"rotary_scaling.low_frequency={self.low_frequency} must be below high_frequency={self.high_frequency}"
            )


ModelKind = Literal["encoder", "decoder", "encoder-decoder"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig(StrictConfig, maxima=MODEL_MAXIMA):
    """A Transformer's architecture. The defaults are the base model of "Attention Is All You Need"."""

    kind: ModelKind = "encoder-decoder"
    """Which of the three Transformers this is."""
    vocab_size: int
    """Number of token ids, including <pad>: of source and target, which share one vocabulary, or only of the source if
    `target_vocab_size` is set."""
    target_vocab_size: int | None = None
    """Number of target ids, including <pad>, of an encoder-decoder with separate vocabularies, whose source and target
    have their own embeddings. Default: one shared vocabulary."""
    pad: int | None = -1
    """Id of <pad>; negative ids count from the end, so -1 is the last id of either vocabulary. A <pad> that is the last
    id is never predicted, and its embedding stays zero."""
    d_model: int = 512
    """Width of the vectors between layers."""
    heads: int = 8
    """Number of query heads in each attention."""
    kv_heads: int | None = None
    """Number of key and value heads, each shared by heads ÷ kv_heads query heads. Default: heads."""
    d_k: int | None = None
    """Width of each head's queries and keys. Default: d_model ÷ heads."""
    d_v: int | None = None
    """Width of each head's values. Default: d_model ÷ heads."""
    layers: int = 6
    """Number of layers of the encoder, or of the decoder in a decoder-only model."""
    decoder_layers: int | None = None
    """Number of decoder layers of an encoder-decoder. Default: layers."""
    d_ff: int = 2048
    """Inner width of the position-wise feed-forward network."""
    activation: Literal["relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu-tanh"] = "relu"
    """Non-linearity of the feed-forward network; swiglu (silu, as in Llama) and geglu-tanh (gelu-tanh, as in T5 v1.1)
    add a gate."""
    bias: bool = True
    """Whether the linear layers of attention and feed-forward network have biases."""
    attention_bias: bool | Literal["qkv"] | None = None
    """Whether the four projections of attention have biases. Default: bias. The paper's formulas have biases only in
    the feed-forward network: bias = true, attention_bias = false. With "qkv", all but the output projection have
    them, as in Qwen2."""
    qk_norm: bool = False
    """Whether each head's queries and keys are normalised before they are rotated and compared, as in Qwen3."""
    norm: Literal["post", "pre"] = "post"
    """Where to normalise: after each residual sum (post, as in the paper), or before each sub-layer (pre)."""
    final_norm: bool | None = None
    """Whether a norm follows the last layer of each stack. Default: with pre-norm layers only. torch's `nn.Transformer`
    has it with both."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """Kind of normalisation: LayerNorm or RMSNorm."""
    norm_eps: float = 1e-5
    """Value added to the variance in each norm."""
    positions: Literal["sinusoidal", "learned", "rotary", "alibi", "t5", "none"] = "sinusoidal"
    """How positions are encoded: added to the embeddings (sinusoidal, learned), by rotating queries and keys (rotary),
    or by a bias on the scores, which falls with the distance (alibi) or is learned for each distance (t5)."""
    sinusoids: Literal["paper", "fairseq"] = "paper"
    """Which sinusoidal positions: the paper's, or those of fairseq and M2M100, whose lowest frequency is exactly
    1 / 10000 and whose positions are counted from 2."""
    separate_positions: bool = False
    """Whether the decoder of an encoder-decoder has its own learned positions and embedding norm, as in BART."""
    max_length: int = 1024
    """Maximum sequence length; only learned positions enforce it."""
    window: int | None = None
    """Number of positions that each position of a decoder sees: itself and the window - 1 before it, as in Mistral.
    Default: all before it."""
    rotary_base: float = 10_000.0
    """Base of the rotary wavelengths."""
    rotary_pairs: Literal["halves", "adjacent"] = "halves"
    """Which dimensions of a head are rotated together: i and i + d_k/2 (halves, as in Hugging Face's Llama), or 2i and
    2i + 1 (adjacent, as in RoFormer and Meta's Llama)."""
    rotary_scaling: RotaryScaling | None = None
    """How rotary positions are stretched for longer texts. Default: not at all."""
    relative_buckets: int = 32
    """Number of distance buckets of T5's bias."""
    relative_distance: int = 128
    """Distances of at least this share the last bucket of T5's bias."""
    attention_scale: float | None = None
    """Factor of the attention scores. Default: 1 / √d_k, as in the paper; T5 has 1."""
    scale_embeddings: bool = True
    """Whether embeddings are multiplied by √d_model, as in the paper."""
    embedding_norm: bool = False
    """Whether the sum of embeddings and positions is normalised, as in BERT."""
    tied: bool = True
    """Whether the output layer shares the weights of the embedding: with separate vocabularies, of the target's."""
    output_bias: bool = False
    """Whether the output layer over the vocabulary has a bias, as in Marian and BERT."""
    output_transform: bool = False
    """Whether a dense layer, activation and norm precede the output layer over the vocabulary, as in BERT."""
    dropout: float = 0.1
    """Dropout probability on each sub-layer's output and on the embeddings, as in the paper."""
    attention_dropout: float = 0.0
    """Dropout probability on the attention weights; must be 0 with packed batches."""
    feed_forward_dropout: float = 0.0
    """Dropout probability between the two layers of the feed-forward network, as in torch's `nn.Transformer`."""
    prefix: bool = False
    """Whether the prefix of a decoder-only model (the source of a translation) attends to itself in both directions."""
    classes: int = 0
    """Number of classes: 0 predicts tokens of the vocabulary; otherwise classes are predicted."""
    classes_per: Literal["sequence", "token"] = "sequence"
    """What a class is predicted for: each sequence (a classifier), or each token (a tagger, which is an encoder)."""
    classifier_activation: Literal["tanh", "relu"] = "tanh"
    """Activation of the dense layer before the classes of an encoder: tanh as in BERT, relu as in DistilBERT."""

    def __post_init__(self) -> None:
        """Check that the fields fit together."""
        scaling: object = self.rotary_scaling
        if isinstance(scaling, dict):  # as read from a file
            object.__setattr__(self, "rotary_scaling", RotaryScaling(**scaling))
        super().__post_init__()
        require_at_least(
            1,
            layers=self.layers,
            decoder_layers=self.decoder_layers,
            d_ff=self.d_ff,
            max_length=self.max_length,
            window=self.window,
        )
        require_at_least(2, vocab_size=self.vocab_size, target_vocab_size=self.target_vocab_size)
        require_at_least(0, classes=self.classes)
        d_k, _, _ = self.widths
        check_probability("dropout", self.dropout)
        check_probability("attention_dropout", self.attention_dropout)
        check_probability("feed_forward_dropout", self.feed_forward_dropout)
        if not (0 < self.norm_eps < 1 and 0 < self.rotary_base < math.inf):
            raise RegardError(f"norm_eps={self.norm_eps} and rotary_base={self.rotary_base} must be above 0 and finite")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise RegardError(f"sinusoidal positions need an even width: d_model={self.d_model} is odd")
        if self.sinusoids != "paper" and (self.positions != "sinusoidal" or self.d_model < 4):
            raise RegardError(
                f"sinusoids={self.sinusoids!r} needs positions='sinusoidal' and d_model of at least 4: "
                f"positions={self.positions!r}, d_model={self.d_model}"
            )
        if self.separate_positions and not (
            self.kind == "encoder-decoder" and (self.positions == "learned" or self.embedding_norm)
        ):
            raise RegardError(
                "separate_positions is for an encoder-decoder with positions='learned' or embedding_norm=True: "
                f"kind={self.kind!r}, positions={self.positions!r}"
            )
        if self.positions == "rotary" and d_k % 2:
            raise RegardError(f"rotary positions rotate pairs of dimensions: d_k={d_k} is odd but must be even")
        if self.positions != "rotary" and (self.rotary_scaling or self.rotary_pairs != "halves"):
            raise RegardError(f"rotary_scaling and rotary_pairs need positions='rotary': positions={self.positions!r}")
        self._check_scores()
        if self.decoder_layers is not None and self.kind != "encoder-decoder":
            raise RegardError(
                f"decoder_layers is for an encoder-decoder: {self.kind_with_article} has only layers={self.layers}"
            )
        if self.target_vocab_size is not None and self.kind != "encoder-decoder":
            raise RegardError(
                f"target_vocab_size is for an encoder-decoder: {self.kind_with_article} has only "
                f"vocab_size={self.vocab_size}"
            )
        if self.prefix and self.kind != "decoder":
            raise RegardError(f"prefix is for a decoder: an {self.kind} attends in both directions anyway")
        if self.window is not None and (self.kind != "decoder" or self.prefix):
            raise RegardError(
                f"window={self.window} needs kind='decoder' and prefix=False: it limits how far positions look back"
            )
        if self.classes and self.kind == "encoder-decoder":
            raise RegardError(f"classes={self.classes}: classification needs kind 'encoder' or 'decoder'")
        if self.classes_per == "token" and (self.kind != "encoder" or not self.classes):
            raise RegardError(
                f"classes_per='token' needs an encoder with classes: kind={self.kind!r}, classes={self.classes}"
            )
        if self.classifier_activation != "tanh" and not (self.kind == "encoder" and self.is_classifier):
            raise RegardError(
                f"classifier_activation={self.classifier_activation!r} needs an encoder that classifies sequences: "
                f"kind={self.kind!r}, classes={self.classes}, classes_per={self.classes_per!r}"
            )
        if self.classes and (self.output_bias or self.output_transform):
            raise RegardError(f"output_bias and output_transform need classes=0: classes={self.classes}")
        smallest = min(self.vocab_size, self.output_vocab_size)
        if self.pad is not None and not -smallest <= self.pad < smallest:
            raise RegardError(f"pad={quoted(self.pad)} is outside the vocabulary of {smallest} ids")
        if self.min_parameters > MAX_PARAMETERS:
            raise RegardError(
                f"a model with d_model={self.d_model}, d_ff={self.d_ff}, heads={self.heads} and layers={self.layers} "
                f"has at least {self.min_parameters:,} parameters: at most {MAX_PARAMETERS:,} allowed"
            )

    def _check_scores(self) -> None:
        """Check the settings of the attention scores."""
        scale, buckets, distance = self.attention_scale, self.relative_buckets, self.relative_distance
        if scale is not None and not 0 < scale < math.inf:
            raise RegardError(f"attention_scale={quoted(scale)} must be above 0 and finite")
        if self.positions != "t5" and (buckets, distance) != (32, 128):
            raise RegardError(
                f"relative_buckets and relative_distance need positions='t5': positions={self.positions!r}"
            )
        if buckets < 4 or buckets % 2 or distance <= buckets // 2:
            raise RegardError(
                f"relative_buckets={buckets} must be even and at least 4, and relative_distance={distance} more than "
                "half of it"
            )

    @property
    def widths(self) -> tuple[int, int, int]:
        """The width of a head's queries and keys, the width of its values, and the number of key/value heads."""
        return head_widths(self.d_model, self.heads, self.d_k, self.d_v, self.kv_heads)

    @property
    def is_gated(self) -> bool:
        """Whether the feed-forward network has a gate."""
        return self.activation in ("swiglu", "geglu-tanh")

    @property
    def kind_with_article(self) -> str:
        """The kind in a sentence: "a decoder", "an encoder-decoder"."""
        return f"a {self.kind}" if self.kind == "decoder" else f"an {self.kind}"

    @property
    def decoder_depth(self) -> int:
        """Number of decoder layers: `decoder_layers`, or `layers` if that is not set."""
        return self.layers if self.decoder_layers is None else self.decoder_layers

    @property
    def projection_bias(self) -> bool:
        """Whether queries, keys and values have biases: by `attention_bias`, or `bias` if that is not set."""
        return self.bias if self.attention_bias is None else bool(self.attention_bias)

    @property
    def out_projection_bias(self) -> bool:
        """Whether the output projection of attention has a bias: like the others, but not with "qkv"."""
        return self.projection_bias and self.attention_bias != "qkv"

    @property
    def has_final_norm(self) -> bool:
        """Whether a norm follows the last layer: `final_norm`, or if that is not set, whether layers are pre-norm."""
        return self.norm == "pre" if self.final_norm is None else self.final_norm

    @property
    def has_usual_final_norm(self) -> bool:
        """Whether a norm follows the last layer exactly if layers are pre-norm, as other engines expect."""
        return self.has_final_norm == (self.norm == "pre")

    @property
    def min_parameters(self) -> int:
        """A lower bound of the number of parameters: all but biases and norms."""
        d_k, d_v, kv_heads = self.widths
        attention = self.d_model * (self.heads * (d_k + d_v) + kv_heads * (d_k + d_v))
        feed_forward = self.d_model * self.d_ff * (3 if self.is_gated else 2)
        layers, attentions = self.layers, self.layers
        if self.kind == "encoder-decoder":
            layers, attentions = layers + self.decoder_depth, attentions + 2 * self.decoder_depth
        rows = self.vocab_size + (0 if self.tied or self.classes else self.outputs) + self.classes
        rows += self.max_positions or 0
        if self.target_vocab_size is not None:
            rows += self.target_vocab_size
        if self.target_vocab_size is not None or self.separate_positions:
            rows += self.max_positions or 0
        return attentions * attention + layers * feed_forward + rows * self.d_model

    @property
    def output_vocab_size(self) -> int:
        """Number of ids of the vocabulary that is predicted: `target_vocab_size`, or else `vocab_size`."""
        return self.vocab_size if self.target_vocab_size is None else self.target_vocab_size

    @property
    def vocabulary_sizes(self) -> str:
        """The size of the vocabulary in words, such as "320 ids", or both sizes if they are separate."""
        if self.target_vocab_size is None:
            return f"{self.vocab_size:,} ids"
        return f"{self.vocab_size:,} source and {self.target_vocab_size:,} target ids"

    @property
    def pad_id(self) -> int | None:
        """The id of <pad>, never negative; with separate vocabularies, in that of the source."""
        return None if self.pad is None else self.pad % self.vocab_size

    @property
    def output_pad_id(self) -> int | None:
        """The id of <pad> in the vocabulary that is predicted, never negative."""
        return None if self.pad is None else self.pad % self.output_vocab_size

    @property
    def inputs(self) -> int:
        """The number of ids of the input vocabulary (the source's), without a <pad> that is the last id."""
        return self.vocab_size - (self.pad_id == self.vocab_size - 1)

    @property
    def pad_is_last(self) -> bool:
        """Whether <pad> is the last id, as in the tokenizers that Regard trains; then it is never predicted."""
        return self.output_pad_id == self.output_vocab_size - 1

    @property
    def max_positions(self) -> int | None:
        """Maximum number of tokens in a sequence; None where positions are computed rather than learned."""
        return self.max_length if self.positions == "learned" else None

    @property
    def outputs(self) -> int:
        """The number of ids that the model can predict, all except a <pad> that is the last id; of a tagger, the number
        of classes."""
        return self.classes if self.is_tagger else self.output_vocab_size - self.pad_is_last

    @property
    def is_classifier(self) -> bool:
        """Whether the model predicts one class for each sequence."""
        return self.classes > 0 and self.classes_per == "sequence"

    @property
    def is_tagger(self) -> bool:
        """Whether the model predicts one class for each token."""
        return self.classes_per == "token"


@dataclass(frozen=True, kw_only=True)
class SpecialIds(StrictConfig):
    """The ids that control generation instead of being text; a loaded model keeps its own. With separate vocabularies,
    they are ids of the target vocabulary; the ids around a source are in its tokenizer's template."""

    end: tuple[int, ...] = ()
    """Ids that end a text."""
    start: int | None = None
    """Id that starts every target of an encoder-decoder."""
    first: int | None = None
    """Id that every target of an encoder-decoder begins with, after `start`: the language that a multilingual
    translator writes."""
    separator: int | None = None
    """Id that separates source and target in a decoder-only translator."""
    mask: int | None = None
    """Id that replaces a token which a masked language model predicts."""
    suppressed: tuple[int, ...] = ()
    """Ids that are never generated."""

    @property
    def target_start(self) -> tuple[int, ...]:
        """The ids that the decoder of an encoder-decoder reads before a target."""
        return tuple(id_ for id_ in (self.start, self.first) if id_ is not None)

    def check(self, config: ModelConfig) -> None:
        """Raise a RegardError unless every id is in the vocabulary of a model with this configuration."""
        single = {"start": self.start, "first": self.first, "separator": self.separator, "mask": self.mask}
        given = {name: (id_,) for name, id_ in single.items()} | {"end": self.end, "suppressed": self.suppressed}
        for name, ids in given.items():
            for id_ in ids:
                if id_ is not None and not 0 <= id_ < config.output_vocab_size:
                    raise RegardError(
                        f"the {name} id {quoted(id_)} is outside the vocabulary of {config.output_vocab_size} ids"
                    )
        if config.kind != "encoder-decoder" and self.first is not None:
            raise RegardError("forced_bos_token_id is only for encoder-decoders")
        if config.kind == "encoder-decoder" and self.start is None:
            raise RegardError("an encoder-decoder needs an id that starts its targets (decoder_start_token_id)")


_PAPER_BASE: dict[str, Any] = {"vocab_size": 37_057}  # 37,000 pieces, rounded up to a multiple of 64, and <pad>

PRESETS: dict[str, dict[str, Any]] = {
    # Small enough for tests, with every part of the paper's model.
    "tiny": {"vocab_size": 513, "d_model": 64, "heads": 4, "layers": 2, "d_ff": 256},
    # Vaswani et al. 2017, Table 3: 65 and 213 million parameters. attention_bias=False would match its formulas.
    "paper-base": _PAPER_BASE,
    "paper-big": _PAPER_BASE | {"d_model": 1024, "heads": 16, "d_ff": 4096, "dropout": 0.3},
    # Radford et al. 2019, the smallest: 124 million parameters.
    "gpt2-small": {
        "kind": "decoder",
        "vocab_size": 50_257,
        "pad": None,
        "d_model": 768,
        "heads": 12,
        "layers": 12,
        "d_ff": 3072,
        "activation": "gelu-tanh",
        "norm": "pre",
        "positions": "learned",
        "scale_embeddings": False,
    },
    # Llama's parts (RMSNorm, rotary, SwiGLU, grouped heads, no biases) at GPT-2's size.
    "llama-small": {
        "kind": "decoder",
        "vocab_size": 32_000,
        "pad": None,
        "d_model": 768,
        "heads": 12,
        "kv_heads": 4,
        "layers": 12,
        "d_ff": 2048,
        "activation": "swiglu",
        "bias": False,
        "norm": "pre",
        "norm_kind": "rms",
        "positions": "rotary",
        "max_length": 2048,
        "scale_embeddings": False,
        "dropout": 0.0,
    },
    # Turc et al. 2019, BERT-Small: 29 million parameters.
    "bert-small": {
        "kind": "encoder",
        "vocab_size": 30_522,
        "pad": 0,
        "layers": 4,
        "activation": "gelu",
        "norm_eps": 1e-12,
        "positions": "learned",
        "max_length": 512,
        "scale_embeddings": False,
        "embedding_norm": True,
    },
}


def preset(name: str, **changes: Any) -> ModelConfig:
    """Return a preset configuration, with `changes` to its fields.

    >>> preset("paper-base", vocab_size=8_001).d_model
    512
    """
    if name not in PRESETS:
        raise RegardError(f"no preset {name!r}: {did_you_mean(name, PRESETS)}")
    return ModelConfig(**PRESETS[name] | changes)
