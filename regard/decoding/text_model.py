"""`regard.Model`: a network with its tokenizer, from loading to text.

Dimensions: N texts, B rows, K classes, C model width.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.config import ModelConfig, SpecialIds, check_token_count, check_token_counts, check_type
from regard.data.token_bytes import REPLACEMENT_CHARACTER
from regard.data.tokenizer import Tokenizer, check_text
from regard.data.tokenizer_pair import check_vocabularies
from regard.decoding.attention_maps import Attention, Observation, observe_attention
from regard.decoding.batching import batches_by_length, pad_rows
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.capabilities import TextTask, filled_mask, require_task, tasks_of
from regard.decoding.engine_registry import registered_engine
from regard.decoding.fast_copy import Precision, check_not_copy, make_fast_copy
from regard.decoding.filling import Filling, fill_masks, ids_with_masks
from regard.decoding.generate import generate, stream, stream_with_draft
from regard.decoding.hidden_vectors import HiddenVectors, hidden_vectors
from regard.decoding.language_guess import first_language, second_language
from regard.decoding.languages import (
    check_fixed_languages,
    check_target_language,
    chosen_languages,
    language_ids,
    set_languages,
)
from regard.decoding.options import (
    DEFAULT_BEAM,
    Decoding,
    DecodingOptions,
    make_decoding,
    make_translation_decoding,
    with_own_settings,
)
from regard.decoding.own_network import OwnNetwork, check_regards_own, wrap_module
from regard.decoding.scoring import ContextAndTarget, pair_rows, score_rows, text_rows
from regard.decoding.search import Hypothesis
from regard.decoding.search_tree import SearchNode, search_tree
from regard.decoding.sentence_vectors import Pooling, check_pooling, sentence_vectors
from regard.decoding.speculative import AcceptanceCount
from regard.decoding.tagging import TaggedWord, tag_words
from regard.decoding.text_stream import Decode, stream_text, text_before_stop
from regard.decoding.translator import BATCH_TOKENS, Progress, Translation, Translator, max_source_tokens
from regard.errors import RegardError, TextError
from regard.formatting import quoted
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, Network
from regard.storage.int8_weights import INT8
from regard.storage.model_folder import (
    about_rounded,
    check_dtype,
    check_writable,
    read_model_folder,
    write_model_files,
    write_model_folder,
)
from regard.storage.own_module_folder import read_own_module_folder, write_own_module_files
from regard.word_splitter import split_words


@dataclass
class Model:
    """A network with its tokenizer, ready for use.

    Methods that decode take the fields of `regard.Decoding` as keywords (beam, temperature, max_tokens, …), or a
    `Decoding` object as `decoding`, or both: keywords take precedence.
    """

    network: Network
    tokenizer: Tokenizer | None = None
    special: SpecialIds = field(default_factory=SpecialIds)
    about: dict[str, Any] = field(default_factory=dict)
    """Metadata in JSON types: "name", "recipe", "data", validation "scores", "origin" and "languages"; what it was
    "trained" for, its scores on "tests" (see `regard.storage.metadata`) and a "card" in Markdown, as `regard export`
    adds them; the names of its "classes"; its "generation" settings under Hugging Face's names; "notes" on
    limitations; "longest", the tokens of nearly all sources it was trained on at most; "head": "none" if it was loaded
    without one; the "model_type" of the Hugging Face folder that it was loaded from, by which a multilingual model is
    known; "tokenizer": the reason why it has none."""

    def __post_init__(self) -> None:
        """Check that source and target have separate vocabularies both in the network and in the tokenizer."""
        check_vocabularies(self.network.config, self.tokenizer)

    @classmethod
    def from_folder(cls, folder: Path | str, network: nn.Module | None = None) -> "Model":
        """Read a folder that `save` wrote, after checking every file against its manifest.

        `network` is the module whose weights the folder holds, if it is not one of Regard's; they are loaded into it.
        """
        if network is None:
            return cls(*read_model_folder(Path(folder)))
        parts = read_own_module_folder(Path(folder), network.state_dict())
        state, config, tokenizer, special, about = parts
        network.load_state_dict(state)
        return cls(wrap_module(network, config).eval(), tokenizer, special, about)

    def save(self, folder: Path | str, dtype: str | None = None, force: bool = False) -> None:
        """Write a folder that `regard.load` reads. It must be new or empty unless `force`, which replaces a model.

        `dtype` (float32, float16, bfloat16 or int8) rounds the weights in the file; by default they are written
        unchanged. In int8, each row of a matrix has a scale, and biases and norms stay in float32.
        """
        check_not_copy(self.network, "save or export")
        check_dtype(dtype)
        if dtype == INT8:
            check_regards_own(self.network, "dtype='int8'")
        folder = Path(folder)
        check_writable(folder, self.config, self.special, force)
        rounded = replace(self, about=about_rounded(self.about, self.network, dtype))
        write_model_folder(folder, lambda temporary: rounded.write_files(temporary, dtype), force)

    def write_files(self, folder: Path, dtype: str | None = None) -> None:
        """Write the files of `save`, without a manifest, into an existing folder."""
        network, parts = self.network, (self.tokenizer, self.special, self.about, dtype)
        if isinstance(network, OwnNetwork):
            state = network.module.state_dict()
            write_own_module_files(folder, network.name, network.config, state, *parts)
        else:
            write_model_files(folder, network, *parts)

    def __repr__(self) -> str:
        config, count = self.config, self.network.parameter_count
        if isinstance(self.network, OwnNetwork):
            return f"<Model: your own {self.network.name} as {config.kind}, {count:,} parameters>"
        return f"<Model: {config.kind}, {config.layers} layers, width {config.d_model}, {count:,} parameters>"

    @property
    def config(self) -> ModelConfig:
        """The architecture of the network."""
        return self.network.config

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.network.device

    @property
    def name(self) -> str:
        """The name in the metadata, or else a short description."""
        return str(self.about.get("name") or f"{self.config.kind} of {self.config.layers} layers")

    @property
    def tasks(self) -> list[TextTask]:
        """What the model can do with text, given a tokenizer."""
        return tasks_of(self.network, self.special)

    def can(self, task: TextTask) -> bool:
        """Whether the model can do a task, given a tokenizer."""
        return task in self.tasks

    def require(self, task: TextTask) -> None:
        """Raise a RegardError that names the alternatives if the model cannot do a task."""
        require_task(task, self.network, self.special, self.tokenizer is not None)

    def require_tokenizer(self) -> Tokenizer:
        """The tokenizer; raises a RegardError that says why if there is none."""
        if self.tokenizer is None:
            reason = self.about.get("tokenizer", "save one in its folder (tokenizer.json)")
            raise RegardError(f"this model has no tokenizer, so it reads ids only: {reason}")
        return self.tokenizer

    @property
    def source_language(self) -> str | None:
        """The language that the model translates from, if the metadata says so."""
        return first_language(self.about)

    @property
    def target_language(self) -> str | None:
        """The language that the model translates to, if the metadata says so."""
        return second_language(self.about)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Model":
        """Move the network to another device or precision, and return the model."""
        if device is not None or dtype is not None:
            check_not_copy(self.network, "move")
        self.network.to(device=device, dtype=dtype)
        return self

    def quick(
        self, precision: Precision = "auto", compiled: bool = False, engine: Literal["regard", "ctranslate2"] = "regard"
    ) -> "Model":
        """A copy of this model for decoding only: faster, and in bfloat16 where the device supports it well.

        On a CPU, `compiled` runs greedy decoding and beam search in C++, several times as fast. The sources are
        compiled once, which takes seconds and requires a C++ compiler; without one, there is a warning and PyTorch
        decodes. On a GPU, `compiled` compiles each shape of batch, which takes time and pays off for long inputs.

        `engine="ctranslate2"` translates with CTranslate2, if it is installed, in int8 unless the precision is float32.
        """
        if not isinstance(self.network, Decoder | EncoderDecoder) or self.config.classes:
            raise RegardError(
                f"quick() copies models that generate text, but this {self.config.kind} does not: use it as it is"
            )
        check_type("engine", engine, Literal["regard", "ctranslate2"])
        copy = make_fast_copy(self.network, precision, compiled)
        if engine != "regard":
            copy.search_engine = registered_engine(engine)(self, precision)
        return replace(self, network=copy)

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is an Iterable[str] too
        self,
        texts: str,
        *,
        source: str | None = None,
        target: str | None = None,
        decoding: Decoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        **options: Unpack[DecodingOptions],
    ) -> str: ...

    @overload
    def translate(
        self,
        texts: Iterable[str],
        *,
        source: str | None = None,
        target: str | None = None,
        decoding: Decoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        **options: Unpack[DecodingOptions],
    ) -> list[str]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        source: str | None = None,
        target: str | None = None,
        decoding: Decoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        **options: Unpack[DecodingOptions],
    ) -> str | list[str]:
        """The best translation of each text, in order; a single text gives a single translation.

        Texts may have any length and number: see `regard.decoding.translator`. The default beam is 4, as in the
        paper. `progress` is called with the number of texts done so far. `source` and `target` are the languages of a
        multilingual model, by its codes: see `for_languages`.
        """
        translator = self.for_languages(source, target).translator(decoding, batch_tokens, **options)
        best = [translations[0].text for translations in translator.translate_all(_text_list(texts), progress)]
        return best[0] if isinstance(texts, str) else best

    def translations(
        self,
        texts: Iterable[str],
        *,
        source: str | None = None,
        target: str | None = None,
        decoding: Decoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        **options: Unpack[DecodingOptions],
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, best first, with their scores; fewer if some have the same text."""
        translator = self.for_languages(source, target).translator(decoding, batch_tokens, **options)
        return translator.translate_all(_text_list(texts), progress)

    def translate_lines(
        self,
        lines: Iterable[str],
        *,
        source: str | None = None,
        target: str | None = None,
        decoding: Decoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        lines_per_batch: int | None = None,
        **options: Unpack[DecodingOptions],
    ) -> Iterator[str]:
        """The best translation of each line, as lines arrive: for inputs that do not fit into memory or never end.

        `lines_per_batch` lines are read before they are translated; 1 answers each line before the next is read.
        """
        translator = self.for_languages(source, target).translator(decoding, batch_tokens, **options)
        return (translations[0].text for translations in translator.translate_lines(lines, lines_per_batch))

    def translator(
        self,
        decoding: Decoding | None = None,
        batch_tokens: int = BATCH_TOKENS,
        **options: Unpack[DecodingOptions],
    ) -> Translator:
        """A `Translator` with this model and these options."""
        self.require("translate")
        self.require_target_language()
        assert isinstance(self.network, Decoder | EncoderDecoder)
        return Translator(
            self.network,
            self.require_tokenizer(),
            self.special,
            make_translation_decoding(decoding, options, self.config.outputs),
            batch_tokens,
            self.source_language,
            self.target_language,
            self.max_source_tokens,
        )

    @property
    def languages(self) -> list[str]:
        """The codes of the languages between which a multilingual model translates; empty for other models."""
        return list(self._language_ids)

    @property
    def _language_ids(self) -> dict[str, int]:
        return language_ids(self.config, self.tokenizer, self.about)

    def require_target_language(self, option: str = "model.for_languages(target=...)") -> None:
        """Raise a RegardError that names `option` if a multilingual model has no language to translate to."""
        check_target_language(self.special, self._language_ids, option)

    def for_languages(self, source: str | None = None, target: str | None = None) -> "Model":
        """This multilingual model for one pair of languages, by their codes (`languages`); None keeps the current one.
        Other models accept only the languages that they translate between.

        >>> model = regard.load("nllb-200-distilled-600M").for_languages("fra_Latn", "eng_Latn")  # doctest: +SKIP
        """
        if source is None and target is None:
            return self
        languages = self._language_ids
        if not languages:
            check_fixed_languages(self.about.get("languages"), source, target)
            return self
        tokenizer, special = set_languages(self.require_tokenizer(), self.special, languages, source, target)
        pair = list(chosen_languages(tokenizer, special, languages))
        return replace(self, tokenizer=tokenizer, special=special, about=self.about | {"languages": pair})

    @property
    def max_source_tokens(self) -> int:
        """Tokens of a source that are translated in one piece: longer sentences are split."""
        return max_source_tokens(self.config, self.about.get("longest"))

    def generate(
        self,
        prompt: str,
        *,
        decoding: Decoding | None = None,
        draft: "Model | None" = None,
        **options: Unpack[DecodingOptions],
    ) -> str:
        """The prompt and the text that the model generates after it.

        Without options, a model whose recipe or `generation_config.json` says how to sample is sampled in this way, and
        other models are decoded greedily. `draft` is a smaller model with the same tokenizer: it proposes tokens, which
        can be faster and does not change the text.
        """
        if draft is not None:
            return prompt + "".join(self.stream(prompt, decoding=decoding, draft=draft, **options))
        network, ids, chosen = self._generation(prompt, decoding, options)
        decode = self.continuation_decoder(ids)
        ((hypothesis,),) = generate(network, self.special, [ids], chosen, decode)
        return prompt + text_before_stop(decode(hypothesis.ids), chosen.stop)

    def stream(
        self,
        prompt: str,
        *,
        decoding: Decoding | None = None,
        draft: "Model | None" = None,
        count: AcceptanceCount | None = None,
        **options: Unpack[DecodingOptions],
    ) -> Iterator[str]:
        """The text that the model generates after the prompt, in pieces, as they are generated.

        The prompt is checked and read when this is called, not when the first piece is asked for. With a `draft`,
        `count` counts the tokens that it proposes and those that are accepted.
        """
        network, ids, chosen = self._generation(prompt, decoding, options)
        decode = self.continuation_decoder(ids)
        if draft is None:
            tokens = stream(network, self.special, ids, chosen, decode)
        else:
            drafting = self._draft_network(draft)
            tokens = stream_with_draft(network, drafting, self.special, ids, chosen, decode, count)
        return stream_text((token.token for token in tokens if token.reason != "end"), decode, chosen.stop)

    def _draft_network(self, draft: "Model") -> Decoder:
        """The network of a draft; raises a RegardError if its tokens are not those of this model."""
        draft.require("generate")
        assert isinstance(draft.network, Decoder)
        ours, theirs = self.require_tokenizer(), draft.require_tokenizer()
        outputs = self.config.outputs, draft.config.outputs
        if outputs[0] != outputs[1] or ours.pieces(range(outputs[0])) != theirs.pieces(range(outputs[1])):
            raise RegardError(
                f"the draft predicts other tokens ({outputs[1]:,} of them, this model {outputs[0]:,}): a draft must "
                "have the tokenizer of the model"
            )
        return draft.network

    def prompt_ids(self, prompt: str) -> list[int]:
        """The ids of a prompt as the model reads it; raises a RegardError if the model cannot continue it."""
        self.require("generate")
        tokenizer = self.require_tokenizer()
        if not isinstance(prompt, str):
            raise RegardError(f"a prompt is one text, not a {type(prompt).__name__}: call this once per prompt")
        check_text("the prompt", prompt)
        ids = [*tokenizer.before, *tokenizer.encode(prompt)]
        if not ids:
            raise RegardError("the prompt is empty, and this model has no start token: give it some text")
        check_token_count("the prompt", len(ids), self.config.max_positions)
        return ids

    def continuation_decoder(self, prompt: Sequence[int]) -> Decode:
        """A function from new ids to the text they add after a prompt.

        Ids are decoded together with the end of the prompt: some tokenizers drop the space before a first word.
        """
        decode = self.require_tokenizer().decode
        count = 8
        while count < len(prompt) and REPLACEMENT_CHARACTER in decode(list(prompt[-count:])):
            count *= 2  # the tail started within a character
        tail = list(prompt[-count:])
        tail_length = len(decode(tail))
        return lambda ids: decode([*tail, *ids])[tail_length:]

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[float]:
        """The log-probability of each target, including its end token, given its source.

        Without targets, the log-probability of each text in a language model: of all its tokens if the tokenizer puts
        a start token before every text, or else of all but the first. The end is not counted.
        """
        source_texts = _text_list(sources)
        if targets is None:
            return score_rows(self.network, self.special, self._text_rows(source_texts), with_end=False)
        target_texts = _text_list(targets)
        if len(target_texts) != len(source_texts):
            raise RegardError(
                f"{len(source_texts)} sources but {len(target_texts)} targets: each source needs one target"
            )
        return score_rows(self.network, self.special, self._pair_rows(source_texts, target_texts), with_end=True)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes in the order of the outputs; classes without names are numbered."""
        names = self.about.get("classes")
        if not isinstance(names, list) or len(names) != self.config.classes:
            names = range(self.config.classes)
        return list(map(str, names))

    def classify(self, texts: Iterable[str]) -> list[tuple[str, float]]:
        """The most likely class of each text and its probability; classes without names are numbered."""
        names, best = self.class_names, self.class_probabilities(texts).max(-1)  # [N] each
        return [
            (names[label], probability)
            for label, probability in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def class_probabilities(self, texts: Iterable[str]) -> Float[Tensor, "N K"]:
        """The probability of every class for each text, in the order of `class_names`."""
        self.require("classify")
        rows = self._text_ids(texts)
        probabilities = torch.empty(len(rows), self.config.classes)
        for batch in batches_by_length(dict(enumerate(map(len, rows))), BATCH_TOKENS):
            raise_if_cancelled()
            tokens, lengths = pad_rows([rows[number] for number in batch], self.device)
            with torch.inference_mode():
                logits = self.network(tokens, lengths)  # [B, K]
            probabilities[batch] = logits.float().softmax(-1).cpu()
        return probabilities

    @overload
    def embed(self, texts: str, pooling: Pooling = "mean") -> Float[Tensor, " C"]: ...

    @overload
    def embed(self, texts: Iterable[str], pooling: Pooling = "mean") -> Float[Tensor, "N C"]: ...

    def embed(self, texts: str | Iterable[str], pooling: Pooling = "mean") -> Tensor:
        """One vector for each text, [texts, d_model], on the CPU; a single text gives a single vector, [d_model].

        It is the mean of the last layer's vectors over all tokens, special tokens included, as sentence encoders use
        it; with pooling="cls", the vector of an encoder's first token. For an encoder-decoder, the encoder is used.
        Vectors are not normalised: cosine similarity is the product of `torch.nn.functional.normalize(vectors)`.
        """
        self.require("embed")
        check_pooling(self.network, pooling)
        vectors = sentence_vectors(self.network, self._text_ids(texts), pooling)
        return vectors[0] if isinstance(texts, str) else vectors

    def fill(self, text: str, k: int = 5) -> list[Filling] | list[list[Filling]]:
        """The k most likely tokens for the mask in a text, as in "Le chat <mask> sur la table.", best first.

        The mask is written as <mask> or as the tokenizer's own, such as [MASK]. A text with several masks gives a list
        for each of them; the masks are predicted independently.
        """
        if not isinstance(text, str):
            raise RegardError(f"fill takes one text, not a {type(text).__name__}: for several, call fillings(texts)")
        fillings = self.fillings(text, k)
        return fillings[0] if len(fillings) == 1 else fillings

    @overload
    def fillings(self, texts: str, k: int = 5) -> list[list[Filling]]: ...  # type: ignore[overload-overlap]

    @overload
    def fillings(self, texts: Iterable[str], k: int = 5) -> list[list[list[Filling]]]: ...

    def fillings(self, texts: str | Iterable[str], k: int = 5) -> list[list[Filling]] | list[list[list[Filling]]]:
        """Like `fill`, but for one or several texts, and always with a list for each mask."""
        self.require("fill")
        tokenizer, mask = self.require_tokenizer(), self.special.mask
        assert mask is not None  # otherwise the model could not fill
        assert isinstance(self.network, Encoder)
        fillings = fill_masks(self.network, tokenizer, mask, _text_list(texts), k)
        return fillings[0] if isinstance(texts, str) else fillings

    @overload
    def tag(self, texts: str) -> list[TaggedWord]: ...  # type: ignore[overload-overlap]  # a str is an Iterable[str] too

    @overload
    def tag(self, texts: Iterable[str | Sequence[str]]) -> list[list[TaggedWord]]: ...

    def tag(self, texts: str | Iterable[str | Sequence[str]]) -> list[TaggedWord] | list[list[TaggedWord]]:
        """The words of each text, each with its most likely label and the label's probability.

        A text is a string, which is split into words and punctuation, or a list of words, which is used as it is. A
        single string gives a single list.
        """
        self.require("tag")
        assert isinstance(self.network, Encoder)
        tagged = tag_words(self.network, self.require_tokenizer(), self.class_names, _word_lists(texts))
        return tagged[0] if isinstance(texts, str) else tagged

    @overload
    def hidden(self, texts: str) -> HiddenVectors: ...  # type: ignore[overload-overlap]  # a str is an Iterable[str] too

    @overload
    def hidden(self, texts: Iterable[str]) -> list[HiddenVectors]: ...

    def hidden(self, texts: str | Iterable[str]) -> HiddenVectors | list[HiddenVectors]:
        """The vectors of every layer for each text: `.vectors` [layers + 1, tokens, d_model] and `.tokens`.

        The embeddings come first. For an encoder-decoder, these are the vectors of the encoder. A single text gives a
        single result.
        Texts for a model that fills masks may have some, as in `fill`.
        """
        rows = self._text_ids(texts, filled_mask(self.network, self.special))
        vectors = hidden_vectors(self.network, self.require_tokenizer(), rows)
        return vectors[0] if isinstance(texts, str) else vectors

    def attend(self, source: str, target: str | None = None, lens: int = 0) -> Attention:
        """The attention weights of every layer and head as the model reads `source` and writes `target`.

        A translator without a `target` translates first; for a language model the target is a continuation. The
        source of a model that fills masks may have some, as in `fill`. With `lens`, the result's `.lens` has this many
        predictions of each layer at each position: the logit lens.
        """
        self.require("attend")
        return self.observe(source, target, lens=lens).attention

    def observe(
        self, source: str, target: str | None = None, written: Sequence[int] | None = None, lens: int = 0
    ) -> Observation:
        """Like `attend`, with the logits of the same pass: see `regard.decoding.attention_maps`."""
        tokenizer = self.require_tokenizer()
        self.require_target_language()
        check_type("lens", lens, int)
        if lens < 0:
            raise RegardError(f"lens={lens} is too small: give a number of tokens per layer, or 0 for no lens")
        if lens and not self.predicts_tokens:
            raise RegardError("the logit lens needs a head over the vocabulary, which this model does not have")
        return observe_attention(self.network, tokenizer, self.special, source, target, written, self.name, lens)

    @property
    def predicts_tokens(self) -> bool:
        """Whether the model has a head over the vocabulary."""
        return not self.config.classes and self.about.get("head") != "none"

    def search_tree(
        self, source: str, beam: int = DEFAULT_BEAM, max_tokens: int | None = None, beginning: Sequence[int] = ()
    ) -> tuple[Hypothesis, list[SearchNode]]:
        """The best translation and every hypothesis that beam search considered on the way to it.

        With the ids of a beginning, the best translation that begins with them.
        """
        self.require_target_language()
        check_type("beam", beam, int)
        options = Decoding(beam=min(beam, self.config.outputs), max_tokens=max_tokens)
        return search_tree(self.network, self.require_tokenizer(), self.special, source, options, beginning)

    def _generation(
        self, prompt: str, decoding: Decoding | None, options: DecodingOptions
    ) -> tuple[Decoder, list[int], Decoding]:
        """The network, the ids of the prompt, and the options to continue it with."""
        if decoding is None:
            options = with_own_settings(options, self.about.get("generation"))
        chosen = make_decoding(decoding, options)
        if chosen.n_best > 1:
            raise RegardError(f"n_best={chosen.n_best}: generate returns one text; for others, sample with other seeds")
        ids = self.prompt_ids(prompt)
        assert isinstance(self.network, Decoder)
        return self.network, ids, chosen

    def _text_ids(self, texts: Iterable[str], mask: int | None = None) -> list[list[int]]:
        """The ids of each text, with the template around it; with `mask`, masks in a text become this id."""
        tokenizer = self.require_tokenizer()
        rows = [ids_with_masks(tokenizer, mask, text) for text in _text_list(texts)]
        self._check_rows(rows)
        return rows

    def _text_rows(self, texts: list[str]) -> list[ContextAndTarget]:
        self.require("score texts")
        rows = text_rows(self.require_tokenizer(), texts)
        self._check_rows([context + target for context, target in rows])
        return rows

    def _pair_rows(self, sources: list[str], targets: list[str]) -> list[ContextAndTarget]:
        self.require("score pairs")
        self.require_target_language()
        is_pair = isinstance(self.network, EncoderDecoder)
        rows = pair_rows(self.require_tokenizer(), None if is_pair else self.special.separator, sources, targets)
        self._check_rows([context for context, _ in rows])
        self._check_rows([[0, *target] if is_pair else context + target for context, target in rows])
        return rows

    def _check_rows(self, rows: list[list[int]]) -> None:
        """Raise a RegardError for the first text that is empty or too long for learned positions."""
        for number, ids in enumerate(rows):
            if not ids:
                raise TextError(number, len(rows), "is empty: there is nothing to read")
        check_token_counts([len(ids) for ids in rows], self.config.max_positions)


def _text_list(texts: Iterable[str]) -> list[str]:
    """One text or several as a list, each checked to be a valid string."""
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
        raise RegardError(f"give a text or a list of texts, not a {type(texts).__name__}: {quoted(texts)}")
    listed = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(listed):
        check_text(f"text {number}", text)
    return listed


def _word_lists(texts: str | Iterable[str | Sequence[str]]) -> list[list[str]]:
    """The words of one text or several, each checked to be a valid string that is not empty."""
    if isinstance(texts, bytes | Mapping) or not isinstance(texts, Iterable):
        raise RegardError(f"give a text or a list of texts, not a {type(texts).__name__}: {quoted(texts)}")
    listed: list[list[str]] = []
    for number, text in enumerate([texts] if isinstance(texts, str) else texts):
        if not isinstance(text, str) and isinstance(text, list | tuple):
            for position, word in enumerate(text):
                check_text(f"word {position} of text {number}", word)
                if not word.strip():
                    raise RegardError(f"word {position} of text {number} is empty: remove it")
            listed.append(list(text))
        else:
            check_text(f"text {number}", text)
            listed.append(split_words(str(text)))
    return listed
