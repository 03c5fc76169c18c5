"""`load`, and the handle that people use.

Dimensions: B rows, T tokens, V outputs, K classes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import did_you_mean
from regard.data.tokenizer import check_text
from regard.decoding.attention_maps import Attention, attend
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.capabilities import require
from regard.decoding.fast_copy import Precision, quick
from regard.decoding.generate import generate, padded, stream
from regard.decoding.options import Decoding
from regard.decoding.text_stream import BROKEN, Decode, cut, stream_text
from regard.decoding.translator import BATCH_TOKENS, Progress, Translation, Translator, in_batches, tokenizer_of
from regard.errors import RegardError
from regard.formatting import quoted
from regard.interop.gguf_file import load_gguf
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import Decoder, EncoderDecoder
from regard.models import SHIPPED, folder_of
from regard.models import bundled as bundled  # beside `load`, which takes these names
from regard.storage import model_folder as store
from regard.storage.model_folder import Stored
from regard.storage.weights import is_pickle, pickle_refusal, read_json

SCORE_TOKENS = 2_048
"""places of a batch that is scored: each has logits over the whole vocabulary"""


class Model(Stored):
    """A model with its tokenizer, ready for use.

    `**options` are the fields of `regard.decoding.options.Decoding`, each documented there: beam, temperature,
    max_tokens and so on. An unknown one is an error that names its neighbour.
    """

    def attend(self, source: str, target: str | None = None) -> Attention:
        """What every head of every layer looks at; without a `target` a translator translates first."""
        require(self, "attend")
        return attend(self, source, target)

    def __repr__(self) -> str:
        config, count = self.config, sum(parameter.numel() for parameter in self.network.parameters())
        return f"<Model: {config.kind}, {config.layers} layers, width {config.d_model}, {count:,} parameters>"

    def save(self, folder: Path | str, dtype: str | None = None, force: bool = False) -> None:
        """Write it as a folder that `load` reads: a new or an empty one, or with `force` in place of another model.

        `dtype`, float32, float16 or bfloat16, is what weights are rounded to in the files; else they stay as they are.
        """
        store.save(self, Path(folder), dtype, force)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> "Model":
        """Move it to another device or precision."""
        if device is not None or dtype is not None:
            self.network.check_whole("move")
        self.network.to(device=device, dtype=dtype)
        return self

    def quick(self, precision: Precision = "auto", compiled: bool = False) -> "Model":
        """The same model as a copy made for decoding: bfloat16 where the device does it well, or as asked for.

        `compiled`, on a GPU, takes a while for each shape of batch and pays for long inputs.
        """
        if not isinstance(self.network, Decoder | EncoderDecoder) or self.config.classes:
            raise RegardError(
                f"quick() copies models that write text, and this {self.config.kind} does not: use it as it is"
            )
        return Model(quick(self.network, precision, compiled), self.tokenizer, self.special, self.about)

    @overload
    def translate(self, texts: str, **options: Any) -> str: ...

    @overload
    def translate(self, texts: Iterable[str], **options: Any) -> list[str]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        **options: Any,
    ) -> str | list[str]:
        """The best translation of each text, in their order; of one text given alone, its translation alone.

        Texts may be of any length and number: see `regard.decoding.translator`. The default beam is 4, as in the
        paper. `progress` is called with the number of texts done.
        """
        translator = self._translator(batch_tokens, options)
        best = [translations[0].text for translations in translator.all(_listed(texts), progress)]
        return best[0] if isinstance(texts, str) else best

    def translations(
        self,
        texts: Iterable[str],
        *,
        batch_tokens: int = BATCH_TOKENS,
        progress: Progress | None = None,
        **options: Any,
    ) -> list[list[Translation]]:
        """The `n_best` translations of each text, best first, with their scores."""
        return self._translator(batch_tokens, options).all(_listed(texts), progress)

    def translate_lines(
        self, lines: Iterable[str], *, batch_tokens: int = BATCH_TOKENS, at_once: int | None = None, **options: Any
    ) -> Iterator[str]:
        """The best translation of each line, as they come: for inputs that do not fit into memory, or never end.

        With `at_once`, so many lines are read before they are translated; 1 answers each line before the next is read.
        """
        translator = self._translator(batch_tokens, options)
        return (translations[0].text for translations in translator.lines(lines, at_once))

    def generate(self, prompt: str, **options: Any) -> str:
        """The prompt and what the model says behind it."""
        ids, chosen = self._prompt(prompt, options)
        behind = self.text_behind(ids)
        (found,) = generate(self.network, self.special, [ids], chosen, behind)  # type: ignore[arg-type]  # checked
        return prompt + cut(behind(found[0].ids), chosen.stop)

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """What the model says behind the prompt, piece by piece as it comes: together, what `generate` adds.

        The prompt is read at once, so that a mistake does not wait for the first piece.
        """
        ids, chosen = self._prompt(prompt, options)
        behind = self.text_behind(ids)
        said = stream(self.network, self.special, ids, chosen, behind)  # type: ignore[arg-type]  # checked
        return stream_text((each.token for each in said if each.reason != "end"), behind, chosen.stop)

    def prompt_ids(self, prompt: str) -> list[int]:
        """A prompt as the model reads it; a ValueError if it is not one that this model can go on from."""
        require(self, "generate")
        tokenizer = tokenizer_of(self)
        if not isinstance(prompt, str):
            raise RegardError(f"a prompt is one text, and this is a {type(prompt).__name__}: call it for each")
        check_text("the prompt", prompt)
        ids = [*tokenizer.before, *tokenizer.encode(prompt)]
        if not ids:
            raise RegardError("the prompt is empty, and this model has no id that starts a text: give it some words")
        self._check_lengths([ids])
        return ids

    def text_behind(self, prompt: Sequence[int]) -> Decode:
        """What ids add to a text behind a prompt's: some decoders drop the space before the first word of a text."""
        decode = tokenizer_of(self).decode
        few = 8
        while few < len(prompt) and BROKEN in decode(prompt[-few:]):  # it begins within a character
            few *= 2
        tail = list(prompt[-few:])
        told = len(decode(tail))
        return lambda ids: decode([*tail, *ids])[told:]

    def score(self, sources: Iterable[str], targets: Iterable[str] | None = None) -> list[float]:
        """The log-probability of each target, its end included, given its source.

        Without targets, of each text in a language model: of all its tokens but the first or, where the tokenizer puts
        an id before every text, of all. Its end is not counted: it might go on.
        """
        given, wanted = _listed(sources), None if targets is None else _listed(targets)
        if wanted is not None and len(wanted) != len(given):
            raise RegardError(f"{len(given)} sources but {len(wanted)} targets: each must have its counterpart")
        texts = self._texts(given) if wanted is None else self._pairs(given, wanted)
        rows_of = {(i, 0): source + target for i, (source, target) in enumerate(texts)}
        found: dict[int, float] = {}
        for batch in in_batches(rows_of, SCORE_TOKENS):
            raise_if_cancelled()
            rows = [i for i, _ in batch]
            sums = self._log_probs([texts[i] for i in rows], ends=wanted is not None)
            found |= dict(zip(rows, sums, strict=True))
        return [found[i] for i in range(len(given))]

    def classify(self, texts: Iterable[str]) -> list[tuple[str, float]]:
        """The likeliest class of each text, and its probability; a class without a name is called by its number."""
        require(self, "classify")
        tokenizer = tokenizer_of(self)
        ids = {(i, 0): tokenizer.framed(text) for i, text in enumerate(_listed(texts))}
        self._check_lengths(list(ids.values()))
        names = self.about.get("classes") or range(self.config.classes)
        found: dict[int, tuple[str, float]] = {}
        for batch in in_batches(ids, BATCH_TOKENS):
            raise_if_cancelled()
            tokens, lengths = padded(self.network, [ids[place] for place in batch])
            with torch.inference_mode():
                best = self.network(tokens, lengths).float().softmax(-1).max(-1)  # [B]
            answers = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            found |= {i: (str(names[class_]), p) for (i, _), (class_, p) in zip(batch, answers, strict=True)}
        return [found[i] for i in range(len(ids))]

    def _translator(self, batch_tokens: int, options: dict[str, Any]) -> Translator:
        """The options, with the paper's beam where none is given and none would be wrong."""
        require(self, "translate")
        drawn = bool(options.get("temperature"))
        wide = 1 if drawn else max(4, n if isinstance(n := options.get("n_best", 1), int) else 1)
        beam = min(wide, self.config.outputs)
        return Translator(self, decoding(**{"beam": beam} | options), batch_tokens)

    def _prompt(self, prompt: str, options: dict[str, Any]) -> tuple[list[int], Decoding]:
        """The ids of a prompt, and how to go on from it."""
        chosen = decoding(**options)
        if chosen.n_best > 1:
            raise RegardError(f"n_best={chosen.n_best}: one text is given; for others draw with another seed")
        return self.prompt_ids(prompt), chosen

    def _texts(self, texts: list[str]) -> list[tuple[list[int], list[int]]]:
        """What a language model is given of each text, and what it must say."""
        require(self, "score texts")
        tokenizer = tokenizer_of(self)
        rows = [[*tokenizer.before, *tokenizer.encode(text)] for text in texts]
        self._check_lengths(rows)
        start = max(1, len(tokenizer.before))
        return [(row[:start], row[start:]) for row in rows]

    def _pairs(self, sources: list[str], targets: list[str]) -> list[tuple[list[int], list[int]]]:
        """What a translator is given of each pair, and what it must say."""
        require(self, "score pairs")
        tokenizer, separator = tokenizer_of(self), self.special.separator
        pair = isinstance(self.network, EncoderDecoder)
        encode = tokenizer.encode_target
        between = [] if pair or separator is None else [separator]
        rows = [[*tokenizer.framed(source), *between] for source in sources]
        said = [encode(target) for target in targets]
        read = [[0, *ids] for ids in said] if pair else [row + ids for row, ids in zip(rows, said, strict=True)]
        self._check_lengths(rows)
        self._check_lengths(read)
        return list(zip(rows, said, strict=True))

    @torch.inference_mode()
    def _log_probs(self, texts: list[tuple[list[int], list[int]]], ends: bool) -> list[float]:
        """The log-probability of what is said behind what is given, and of its end if that counts."""
        given, said = zip(*texts, strict=True)
        if isinstance(self.network, EncoderDecoder):
            source, source_lengths = padded(self.network, given)
            target, lengths = padded(self.network, [[self.special.start or 0, *ids] for ids in said])
            logits, first = self.network(source, target, source_lengths, lengths), [0] * len(said)  # [B, T, V]
        else:
            tokens, lengths = padded(self.network, [a + b for a, b in texts])
            first = [len(ids) - 1 for ids in given]
            prefix = [lengths.new_tensor([len(ids) for ids in given])] * self.config.prefix
            logits = self.network(tokens, lengths, *prefix)
        return [self._sum(rows[n:], ids, ends) for rows, n, ids in zip(logits, first, said, strict=True)]

    def _sum(self, logits: Float[Tensor, "T V"], said: list[int], ends: bool) -> float:
        log_probs = logits[: len(said) + 1].double().log_softmax(-1)  # [t, V]
        places = torch.arange(len(said), device=logits.device)
        total = float(log_probs[places, torch.tensor(said, dtype=torch.long, device=logits.device)].sum())
        end = [id_ for id_ in self.special.end if id_ < self.config.outputs]
        return total + float(log_probs[len(said), end].max()) if ends and end else total

    def _check_lengths(self, rows: list[list[int]]) -> None:
        """A ValueError for the first text that is empty or longer than learned positions allow."""
        most = self.config.max_length
        for number, ids in enumerate(rows):
            if not ids:
                raise RegardError(f"text {number} is empty: there is nothing to read")
            if self.config.positions == "learned" and len(ids) > most:
                raise RegardError(f"text {number} has {len(ids):,} tokens, and the model reads {most:,}: shorten it")


def decoding(**options: Any) -> Decoding:
    """The way to decode; `stop` may be one text or a list of them."""
    stop = options.get("stop", ())
    if isinstance(stop, str | list):
        options["stop"] = (stop,) if isinstance(stop, str) else tuple(stop)
    return Decoding(**options)


def _listed(texts: Iterable[str]) -> list[str]:
    """The texts as a list, each of them a text."""
    if not isinstance(texts, Iterable) or isinstance(texts, bytes | Mapping):
        raise RegardError(f"give a text, or a list of texts, and not a {type(texts).__name__}: {quoted(texts)}")
    found = [texts] if isinstance(texts, str) else list(texts)
    for number, text in enumerate(found):
        check_text(f"text {number}", text)
    return found


def load(path: Path | str, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Model:
    """The model of a run or folder (Regard's own, or Hugging Face's of a known shape), of a GGUF file, or a bundled one
    by its name.

    Weights come in float32, whatever the file holds, unless `dtype` asks for another; on the CPU, unless `device` does.
    """
    loaded = Model(**vars(_stored(find(path))))
    return loaded.to(device, dtype)


def find(path: Path | str) -> Path:
    """Where the model lies that `load` takes for this: a file, a model's folder, or that of a run, which may go on.

    What is here comes before what is bundled, and a name with a separator (./fr-en) is never a bundled one's.
    """
    here, is_name = Path(path), isinstance(path, str) and Path(path).name == path
    if here.is_file() or (here / "config.json").is_file() or _is_run(here) or _only_gguf(here) is not None:
        return here
    if is_name and path in {*bundled(), *SHIPPED}:  # even where a folder of that name holds something else
        return folder_of(str(path))
    if here.is_dir():
        raise RegardError(f"{path} is no model's folder: it has no config.json")
    names = bundled()
    beside = list(here.parent.glob("*/config.json")) if here.parent.is_dir() else []
    known = [*names, *(str(each.parent) for each in beside)]
    near = f"{did_you_mean(str(path), known)} " if get_close_matches(str(path), known, 1) else ""
    raise RegardError(
        f"there is no model at {path}: {near}name a run, a model's folder (Regard's or Hugging Face's), a GGUF file"
        + (f", or a bundled model ({', '.join(names)})" if names else "")
    )


def _is_run(folder: Path) -> bool:
    return (folder / "checkpoints").is_dir() or (folder / store.RECIPE).is_file()


def _only_gguf(folder: Path) -> Path | None:
    """The GGUF file of a folder that has one."""
    files = list(folder.glob("*.gguf"))
    return files[0] if len(files) == 1 else None


def _stored(place: Path) -> Stored:
    """What lies where `find` says."""
    file = place if place.is_file() else _only_gguf(place)
    if (place / "config.json").is_file():
        ours = read_json(place / "config.json").get("model_type") == "regard"
        return store.load(place) if ours else load_huggingface(place)
    return _best_so_far(place) if file is None else _from_file(file)


def _best_so_far(run: Path) -> Stored:
    """The newest whole model of a run that goes on, or was ended. It may be replaced meanwhile: then look again."""
    damage: dict[Path, str] = {}
    while left := sorted(set(run.glob("checkpoints/best-*")) - damage.keys()):
        try:
            return store.load(left[-1])
        except (ValueError, OSError) as error:
            damage[left[-1]] = str(error)
    why = "; ".join(damage.values()) or "no model has been validated yet"
    raise RegardError(f"{run} is a run without a model to load: {why}")


def _from_file(path: Path) -> Stored:
    with path.open("rb") as file:
        magic = file.read(4)
    if magic == b"GGUF":
        return load_gguf(path)
    if is_pickle(path):
        raise RegardError(pickle_refusal(path))
    raise RegardError(f"{path} is no GGUF file; for safetensors name the folder that holds it with its config.json")
