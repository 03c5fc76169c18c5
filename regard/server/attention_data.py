"""The attention of a model on a text, and what it considered while it wrote, as JSON data for the page."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.data.tokenizer import Tokenizer
from regard.decoding.attention_maps import Attention, ForwardPass
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.head_patterns import PATTERN_RULES, map_patterns
from regard.decoding.interventions import AttentionChanges, changed_maps, intervene
from regard.decoding.logit_lens import LENS_TOKENS
from regard.decoding.search_tree import StepCandidates, step_candidates
from regard.decoding.token_labels import token_labels, word_numbers
from regard.errors import ModelError, RegardError
from regard.model.transformer import EncoderDecoder
from regard.server import limits
from regard.server.http_errors import HttpError
from regard.server.model_registry import ServedModel
from regard.server.petit_gold import gold_links

NO_CHANGES = AttentionChanges()


def attention_data(
    served: ServedModel,
    source: str,
    target: str | None,
    changes: AttentionChanges = NO_CHANGES,
    beginning: Sequence[int] = (),
) -> dict[str, Any]:
    """Attention as JSON data, with the logit lens, the candidates of each step, the beam search tree and Petit's gold
    alignment; all of it with changed attention, if there are changes."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    max_target = max_target_tokens(served, tokenizer, source, target)
    changes.check(model.network, len(tokenizer.encode_with_template(source)))
    if beginning and (target is not None or not served.translates):
        raise RegardError("a beginning is for translators that are given no target: leave one of them out")
    tree: dict[str, Any] = {}
    target_ids: list[int] | None = None
    with intervene(model.network, changes):
        if target is None and served.translates and model.config.outputs > 1:
            best, nodes = model.search_tree(source, max_tokens=max_target, beginning=beginning)
            target_ids = [*best.ids, *(model.special.end[:1] if best.reason == "end" else ())]
            target = tokenizer.decode(best.ids)
            tree = {"beam": {"nodes": [vars(node) for node in nodes]}}
        lens = LENS_TOKENS if model.predicts_tokens else 0
        observed = model.observe(source, target, target_ids, lens)
    attention = replace(observed.attention, maps=changed_maps(observed.attention.maps, changes.weights))
    steps = [] if observed.logits is None else step_candidates(tokenizer, observed.logits, observed.written)
    data = {
        **attention.to_json(),
        "model": served.name,
        "steps": [_step(step) for step in steps],
        "written": list(observed.written),
        "words": _words(tokenizer, observed.forward),
        "ends": list(token_labels(tokenizer.target_side, model.special.end)),
        "patterns": {
            kind: [[vars(head) for head in layer] for layer in map_patterns(kind, each, attention.special)]
            for kind, each in attention.maps.items()
        },
        "pattern_rules": PATTERN_RULES,
        **tree,
    }
    links = _gold(tokenizer, attention) if isinstance(model.network, EncoderDecoder) else None
    return data if links is None else {**data, "gold": links}


def _words(tokenizer: Tokenizer, forward: ForwardPass) -> dict[str, list[int]]:
    """The number of the word that each token of the source and of the target belongs to."""
    source = {"source": word_numbers(tokenizer.source_side, forward.source)} if forward.source else {}
    return {**source, "target": word_numbers(tokenizer.target_side, forward.read)}


def to_json(data: Any) -> str:
    """Compact JSON, as `json.dumps` writes it, but encoded piece by piece. All items of a list have the same type.

    Encoding a million numbers at once would block all other threads. It stops when the request is cancelled.

    >>> to_json({"a": [[[1, 2], [3]]], "b": None})
    '{"a":[[[1,2],[3]]],"b":null}'
    """
    if isinstance(data, dict):
        return f"{{{','.join(f'{json.dumps(key)}:{to_json(value)}' for key, value in data.items())}}}"
    if isinstance(data, list) and data and isinstance(data[0], list | dict):
        raise_if_cancelled()
        return f"[{','.join(map(to_json, data))}]"
    try:
        return json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise ModelError from None


def _gold(tokenizer: Tokenizer, attention: Attention) -> list[list[int]] | None:
    links = gold_links(tokenizer, attention.source, attention.target or "")
    rows, columns = (len(side) for side in (attention.maps["cross"].queries, attention.maps["cross"].keys))
    if links is None or any(row >= rows or column >= columns for row, column in links):
        return None
    return [list(link) for link in links]


def max_target_tokens(
    served: ServedModel, tokenizer: Tokenizer, source: str, target: str | None, written: Sequence[int] | None = None
) -> int | None:
    """The maximum length of the translation whose attention can be shown, for a translator without a target.

    An HttpError, before anything is computed, if the response would exceed `MAX_ATTENTION_WEIGHTS`. A source is
    rejected only if a translation of its own length could not be shown. `written` are the ids of a given target.
    """
    limit = limits.MAX_ATTENTION_WEIGHTS
    s = len(tokenizer.encode_with_template(source))
    if target is None and served.translates:
        longest = 2 * s + 10  # the maximum length of a translation
        fitting = max((t for t in range(s, longest + 1) if count_weights(served, s, t) <= limit), default=0)
        if fitting:
            return fitting
        shorter = max((n for n in range(1, s) if count_weights(served, n, n) <= limit), default=0)
        raise _too_many_weights(f"{s} tokens", f"about {shorter} tokens and as many of its translation")
    if written is not None:
        t = len(written)
    else:
        t = 0 if target is None else len(tokenizer.encode_target(target)) + (1 if served.translates else 0)
    if count_weights(served, s, t) > limit:
        total = s + t
        counts = ((n, count_weights(served, n * s // total, n * t // total)) for n in range(1, total))
        shorter = max((n for n, count in counts if count <= limit), default=0)
        raise _too_many_weights(f"{s} + {t} tokens" if t else f"{s} tokens", f"about {shorter} tokens")
    return None


def count_weights(served: ServedModel, s: int, t: int) -> int:
    """The number of attention weights for `s` source tokens and `t` target tokens."""
    config, depth = served.model.config, decoder_layers(served)
    if depth is None:
        return config.heads * config.layers * (s + t) ** 2
    return config.heads * (config.layers * s * s + depth * t * (t + s))


def _too_many_weights(length: str, maximum: str) -> HttpError:
    return HttpError(
        400,
        f"the text has {length}; a response contains at most {limits.MAX_ATTENTION_WEIGHTS:,} attention weights, which "
        f"for this model is {maximum}: shorten the text",
    )


def _step(step: StepCandidates) -> dict[str, Any]:
    tops = zip(step.top, step.ids, strict=True)
    top = [{"token": token, "p": round(probability, 6), "id": id_} for (token, probability), id_ in tops]
    return {"token": step.token, "p": round(step.probability, 6), "top": top}


def decoder_layers(served: ServedModel) -> int | None:
    """Number of decoder layers of an encoder-decoder; None for other models."""
    if not isinstance(served.model.network, EncoderDecoder):
        return None
    return served.model.config.decoder_depth
