"""The page's own API: translate, look into a model, and the distribution of the next token."""

import json
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from regard.data.tokenizer import Tokenizer
from regard.decoding.attention_maps import NOT_FINITE, Attention, readable
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.decoding.sampling import keep_top_k, keep_top_p
from regard.decoding.search_tree import Considered, considered
from regard.errors import RegardError
from regard.model.transformer import Decoder, EncoderDecoder
from regard.server import limits as bounds
from regard.server import request_body as body
from regard.server.client_disconnect import while_here
from regard.server.http_errors import Refusal, described
from regard.server.model_registry import Served, Shelf
from regard.server.petit_gold import gold_links


class Strict(BaseModel):
    """Names that are not known are refused, and numbers are finite."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


Name = Annotated[str | None, Field(max_length=64, description="A served model; the first that can, if not given.")]
LookedAt = Annotated[str, Field(min_length=1, max_length=bounds.LOOKED_AT, pattern=r"\S")]


class Translate(Strict):
    """A text to be translated."""

    model: Name = None
    text: Annotated[str, Field(max_length=bounds.CHARACTERS)]
    beam: Annotated[int, Field(ge=1, le=bounds.BEAM), *body.WHOLE] = DEFAULT_BEAM
    n_best: Annotated[int, Field(ge=1, le=bounds.BEAM, description="A wider beam if need be."), *body.WHOLE] = (
        DEFAULT_BEAM
    )


class OneTranslation(BaseModel):
    """A translation, the sum of its tokens' log-probabilities, and that sum length-penalised: what ranks it."""

    model_config = ConfigDict(allow_inf_nan=False)
    text: str
    score: float
    penalised: float


class Translations(BaseModel):
    """Best first, each text once."""

    model: str
    translations: list[OneTranslation]


class Attend(Strict):
    """A text to look at; a translator that is given no target translates first."""

    model: Name = None
    source: LookedAt
    target: LookedAt | None = None


class Next(Strict):
    """A text, and how the token behind it would be drawn."""

    model: Name = None
    text: Annotated[str, Field(min_length=1, max_length=bounds.CHARACTERS)]
    temperature: Annotated[float, Field(ge=0, le=100, strict=False)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000, description="0: all."), *body.WHOLE] = 0
    top_p: Annotated[float, Field(gt=0, le=1, strict=False)] = 1.0
    show: Annotated[int, Field(ge=1, le=bounds.SHOWN), *body.WHOLE] = 40


class Likely(BaseModel):
    """A token, its probability, and what is left of it when unlikely ones are cut."""

    model_config = ConfigDict(allow_inf_nan=False)
    id: int
    text: str
    """what it adds to the text"""
    token: str
    """how it is shown"""
    end: bool
    """whether the model would end the text with it"""
    p: float
    kept_p: float


class Distribution(BaseModel):
    """The likeliest tokens behind a text, and the tokens of the text."""

    model: str
    tokens: list[Likely]
    text_tokens: list[str]


class Told(BaseModel):
    """A served model."""

    name: str
    kind: str
    translates: bool
    writes: bool
    source: str | None
    target: str | None
    parameters: int
    layers: int
    decoder_layers: int | None
    """of an encoder–decoder, whose `layers` are its encoder's"""
    heads: int
    about: str
    look_at_most: int = bounds.LOOKED_AT
    """characters of a text whose attention is shown"""


def routes(shelf: Shelf) -> APIRouter:
    """The router of these models."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=described("/api"))

    @router.get("/models", summary="The served models")
    async def models() -> list[Told]:
        return [Told(**each.told(), decoder_layers=_decoder_layers(each)) for each in shelf.by_name.values()]

    @router.post("/translate", summary="Translate, with alternatives", openapi_extra=_body(Translate))
    async def translate(request: Request) -> Translations:
        asked = await body.read(request, Translate)
        served = shelf.translator(asked.model)
        options = Decoding(beam=_width(served, max(asked.beam, asked.n_best)), n_best=_width(served, asked.n_best))
        (found,) = await while_here(request, served.engine.translate([asked.text], options))
        told: dict[str, OneTranslation] = {}
        for each in found:  # other tokens, or other pieces of a long text, may come to the same text
            told.setdefault(each.text, OneTranslation(text=each.text, score=each.score, penalised=each.penalised))
        return Translations(model=served.name, translations=list(told.values()))

    @router.post(
        "/attend",
        summary="What every head looks at",
        response_model=dict[str, Any],
        openapi_extra=_body(Attend),
    )
    async def look(request: Request) -> Response:
        asked = await body.read(request, Attend)
        served = shelf.choose(asked.model, lambda _: True, "can be looked into")
        size = bounds.LOOK_COST * (len(asked.source) + len(asked.target or ""))
        told = served.engine.call(size, lambda: json_of(looked(served, asked.source, asked.target)).encode())
        return Response(await while_here(request, told), media_type=body.JSON)

    @router.post("/next", summary="The next token's distribution", openapi_extra=_body(Next))
    async def following(request: Request) -> Distribution:
        asked = await body.read(request, Next)
        served = shelf.writer(asked.model)
        return await while_here(request, served.engine.call(len(asked.text), lambda: distribution(served, asked)))

    return router


def _body(shape: type[BaseModel]) -> dict[str, Any]:
    return body.described(shape.model_json_schema())


def _width(served: Served, beam: int) -> int:
    return min(beam, served.model.config.outputs)


def _decoder_layers(served: Served) -> int | None:
    if not isinstance(served.model.network, EncoderDecoder):
        return None
    return served.model.config.decoder_depth


def looked(served: Served, source: str, target: str | None) -> dict[str, Any]:
    """Attention as JSON, with what was considered at each step, the beam's tree, and Petit's gold links."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    room = written_at_most(served, tokenizer, source, target)
    tree: dict[str, Any] = {}
    written: list[int] | None = None
    if target is None and served.translates and model.config.outputs > 1:
        found, nodes = model.search_tree(source, max_tokens=room)
        written = [*found.ids, *(model.special.end[:1] if found.reason == "end" else ())]
        target = tokenizer.decode(found.ids)
        tree = {"beam": {"nodes": [vars(node) for node in nodes]}}
    seen = model.observe(source, target, written)
    steps = [] if seen.logits is None else considered(tokenizer, seen.logits, seen.written)
    told = {**seen.attention.to_json(), "model": served.name, "steps": [_step(each) for each in steps], **tree}
    links = _gold(tokenizer, seen.attention) if isinstance(model.network, EncoderDecoder) else None
    return told if links is None else {**told, "gold": links}


def json_of(told: Any) -> str:
    """As `json.dumps`, without spaces and a little at a time: all at once, a million numbers would keep every other
    thread waiting. It stops when nobody waits for the answer. The items of a list are of one kind.

    >>> json_of({"a": [[[1, 2], [3]]], "b": None})
    '{"a":[[[1,2],[3]]],"b":null}'
    """
    if isinstance(told, dict):
        return f"{{{','.join(f'{json.dumps(key)}:{json_of(value)}' for key, value in told.items())}}}"
    if isinstance(told, list) and told and isinstance(told[0], list | dict):
        raise_if_cancelled()
        return f"[{','.join(map(json_of, told))}]"
    try:
        return json.dumps(told, separators=(",", ":"), allow_nan=False)
    except ValueError:
        raise RegardError(NOT_FINITE) from None


def _gold(tokenizer: Tokenizer, seen: Attention) -> list[list[int]] | None:
    links = gold_links(tokenizer, seen.source, seen.target or "")
    rows, columns = (len(side) for side in (seen.maps["cross"].queries, seen.maps["cross"].keys))
    fits = links is not None and all(row < rows and column < columns for row, column in links)
    return [list(link) for link in links] if links is not None and fits else None


def written_at_most(served: Served, tokenizer: Tokenizer, source: str, target: str | None) -> int | None:
    """The maximum length of the translation whose attention can be shown, for a translator without a target.

    A Refusal, before anything is computed, if the answer would hold more than `bounds.WEIGHTS` weights. A source is
    refused only if a translation as long as itself could not be shown.
    """
    s = len(tokenizer.encode_with_template(source))
    if target is None and served.translates:
        longest = 2 * s + 10  # as long as a translation gets
        room = max((t for t in range(s, longest + 1) if weights_shown(served, s, t) <= bounds.WEIGHTS), default=0)
        if room:
            return room
        most = max((n for n in range(1, s) if weights_shown(served, n, n) <= bounds.WEIGHTS), default=0)
        raise _too_many(f"the text has {s} tokens", f"about {most} tokens and as many of its translation")
    t = 0 if target is None else len(tokenizer.encode_target(target)) + (1 if served.translates else 0)
    if weights_shown(served, s, t) > bounds.WEIGHTS:
        parts = f"{s} + {t} tokens" if t else f"{s} tokens"
        shorter = ((n, weights_shown(served, n * s // (s + t), n * t // (s + t))) for n in range(1, s + t))
        most = max((n for n, count in shorter if count <= bounds.WEIGHTS), default=0)
        raise _too_many(f"the text has {parts}", f"about {most} tokens")
    return None


def weights_shown(served: Served, s: int, t: int) -> int:
    """The number of attention weights in an answer for `s` tokens of a source and `t` written ones."""
    config, decoders = served.model.config, _decoder_layers(served)
    count = config.layers * (s + t) ** 2 if decoders is None else config.layers * s * s + decoders * t * (t + s)
    return count * config.heads


def _too_many(what: str, most: str) -> Refusal:
    return Refusal(
        400, f"{what}, and an answer holds at most {bounds.WEIGHTS:,} weights, of this model {most}: shorten the text"
    )


def _step(considered: Considered) -> dict[str, Any]:
    top = [{"token": token, "p": round(p, 6)} for token, p in considered.top]
    return {"token": considered.token, "top": top}


def distribution(served: Served, asked: Next) -> Distribution:
    """The likeliest tokens behind a text, as they are and as they would be drawn."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    ids = model.prompt_ids(asked.text)
    if len(ids) > bounds.PLACES:
        raise Refusal(400, f"{len(ids):,} tokens are too many: {bounds.PLACES:,} are the most")
    assert isinstance(model.network, Decoder)
    with torch.inference_mode():
        logits = served.prefixes.next_logits(model.network, ids)[None].double()  # [1, V]
        if not torch.isfinite(logits.amax()):
            raise RegardError(NOT_FINITE)
        kept = logits if asked.temperature == 0 else (logits - logits.amax()) / asked.temperature  # [1, V]
        kept = (
            keep_top_k(kept, 1 if asked.temperature == 0 else asked.top_k)
            if asked.top_k or not asked.temperature
            else kept
        )
        kept = keep_top_p(kept, asked.top_p) if asked.top_p < 1 else kept
        plain, drawn = logits.softmax(-1)[0], kept.softmax(-1)[0]
        p, best = plain.topk(min(asked.show, len(plain)))
    text, end = model.continuation_decoder(ids), model.special.end
    pieces = tokenizer.pieces(best.tolist())
    told = zip(best.tolist(), pieces, p.tolist(), drawn[best].tolist(), strict=True)
    tokens = [
        Likely(id=id_, text="" if id_ in end else text([id_]), token=piece, end=id_ in end, p=p, kept_p=kept_p)
        for id_, piece, p, kept_p in told
    ]
    return Distribution(
        model=served.name, tokens=tokens, text_tokens=[readable(each) for each in tokenizer.pieces(ids)]
    )
