"""The page's API: translations with alternatives, attention maps, and the distribution of the next token."""

import json
from typing import Annotated, Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from regard.data.tokenizer import Tokenizer
from regard.decoding.attention_maps import Attention
from regard.decoding.cancellation import raise_if_cancelled
from regard.decoding.capabilities import TextTask
from regard.decoding.logit_lens import LENS_TOKENS
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.decoding.sampling import keep_top_k, keep_top_p
from regard.decoding.search_tree import StepCandidates, step_candidates
from regard.decoding.token_labels import readable
from regard.errors import ModelError
from regard.model.transformer import Decoder, EncoderDecoder
from regard.server import limits
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import HttpError, error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.petit_gold import gold_links
from regard.server.request_body import JSON_INTEGER, JSON_TYPE, parse_request, request_schema


class PageRequest(BaseModel):
    """Base class of requests: unknown fields and non-finite numbers are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


ModelName = Annotated[
    str | None, Field(max_length=64, description="Name of a served model. The default is the first suitable one.")
]
AttendedText = Annotated[str, Field(min_length=1, max_length=limits.MAX_ATTENTION_CHARACTERS, pattern=r"\S")]


class PageTranslateRequest(PageRequest):
    """A text to translate."""

    model: ModelName = None
    text: Annotated[str, Field(max_length=limits.MAX_REQUEST_CHARACTERS)]
    beam: Annotated[int, Field(ge=1, le=limits.MAX_BEAM, description="Beam width."), *JSON_INTEGER] = DEFAULT_BEAM
    n_best: Annotated[
        int,
        Field(ge=1, le=limits.MAX_BEAM, description="Number of translations. The beam is widened to it if necessary."),
        *JSON_INTEGER,
    ] = DEFAULT_BEAM


class RankedTranslation(BaseModel):
    """A translation with its score."""

    model_config = ConfigDict(allow_inf_nan=False)
    text: str
    score: Annotated[float, Field(description="Sum of the tokens' log-probabilities.")]
    penalised: Annotated[float, Field(description="The score with the length penalty, by which translations rank.")]


class PageTranslateResponse(BaseModel):
    """Distinct translations, best first."""

    model: str
    translations: list[RankedTranslation]


class AttendRequest(PageRequest):
    """A text whose attention is shown. A translator without a target translates the source first."""

    model: ModelName = None
    source: AttendedText
    target: AttendedText | None = None


class NextTokenRequest(PageRequest):
    """A text and the sampling options for the token after it."""

    model: ModelName = None
    text: Annotated[str, Field(min_length=1, max_length=limits.MAX_REQUEST_CHARACTERS)]
    temperature: Annotated[float, Field(ge=0, le=100, strict=False)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000, description="0 keeps all tokens."), *JSON_INTEGER] = 0
    top_p: Annotated[float, Field(gt=0, le=1, strict=False)] = 1.0
    show: Annotated[
        int, Field(ge=1, le=limits.MAX_DISTRIBUTION_TOKENS, description="Number of tokens to return."), *JSON_INTEGER
    ] = 40


class TokenProbability(BaseModel):
    """A token and its probability before and after the sampling options are applied."""

    model_config = ConfigDict(allow_inf_nan=False)
    id: int
    text: Annotated[str, Field(description="The text that the token adds.")]
    token: Annotated[str, Field(description="The token as it is displayed.")]
    end: Annotated[bool, Field(description="Whether the token ends the text.")]
    p: Annotated[float, Field(description="The model's probability.")]
    kept_p: Annotated[float, Field(description="The probability with temperature, top_k and top_p applied.")]


class NextTokenResponse(BaseModel):
    """The most probable next tokens, and the tokens of the text."""

    model: str
    tokens: list[TokenProbability]
    text_tokens: list[str]


class ModelDescription(BaseModel):
    """A served model."""

    name: str
    kind: str
    translates: bool
    writes: Annotated[bool, Field(description="Whether it is a language model.")]
    tasks: Annotated[list[TextTask], Field(description="What else it can do: classify, tag, fill or embed.")]
    source: Annotated[str | None, Field(description="Language that the model reads, if its metadata names it.")]
    target: Annotated[str | None, Field(description="Target language of a translator.")]
    parameters: int
    layers: Annotated[int, Field(description="Number of layers; of an encoder-decoder, those of the encoder.")]
    decoder_layers: Annotated[int | None, Field(description="Number of decoder layers of an encoder-decoder.")]
    heads: int
    about: Annotated[str, Field(description="Languages, origin and first score.")]
    look_at_most: Annotated[
        int, Field(description="Maximum length in characters of a text whose attention is shown.")
    ] = limits.MAX_ATTENTION_CHARACTERS


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of the page's API."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    @router.get("/models", summary="List the models")
    async def models() -> list[ModelDescription]:
        return [describe_model(served) for served in registry.by_name.values()]

    @router.post(
        "/translate", summary="Translate a text, with alternatives", openapi_extra=body_schema(PageTranslateRequest)
    )
    async def translate(request: Request) -> PageTranslateResponse:
        params = await parse_request(request, PageTranslateRequest)
        served = registry.translator(params.model)
        beam, n_best = (min(n, served.model.config.outputs) for n in (max(params.beam, params.n_best), params.n_best))
        work = served.engine.translate([params.text], Decoding(beam=beam, n_best=n_best))
        (translations,) = await cancel_on_disconnect(request, work)
        distinct: dict[str, RankedTranslation] = {}
        for candidate in translations:  # different tokens may have the same text
            ranked = RankedTranslation(text=candidate.text, score=candidate.score, penalised=candidate.penalised)
            distinct.setdefault(candidate.text, ranked)
        return PageTranslateResponse(model=served.name, translations=list(distinct.values()))

    @router.post(
        "/attend",
        summary="Get the attention of every head",
        response_model=dict[str, Any],
        openapi_extra=body_schema(AttendRequest),
    )
    async def attend(request: Request) -> Response:
        params = await parse_request(request, AttendRequest)
        served = registry.first(params.model)
        size = limits.ATTENTION_COST * (len(params.source) + len(params.target or ""))
        work = served.engine.call(size, lambda: to_json(attention_data(served, params.source, params.target)).encode())
        return Response(await cancel_on_disconnect(request, work), media_type=JSON_TYPE)

    @router.post("/next", summary="Get the distribution of the next token", openapi_extra=body_schema(NextTokenRequest))
    async def next_token(request: Request) -> NextTokenResponse:
        params = await parse_request(request, NextTokenRequest)
        served = registry.language_model(params.model)
        work = served.engine.call(len(params.text), lambda: next_token_distribution(served, params))
        return await cancel_on_disconnect(request, work)

    return router


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a JSON body."""
    return request_schema(model.model_json_schema())


def describe_model(served: ServedModel) -> ModelDescription:
    """The description of a model that the page displays."""
    _, target = served.languages or (None, None)
    config = served.model.config
    return ModelDescription(
        name=served.name,
        kind=config.kind,
        translates=served.translates,
        writes=served.generates,
        tasks=list(served.abilities),
        source=served.model.source_language,
        target=target,
        parameters=served.parameters,
        layers=config.layers,
        decoder_layers=_decoder_layers(served),
        heads=config.heads,
        about=served.summary,
    )


def _decoder_layers(served: ServedModel) -> int | None:
    if not isinstance(served.model.network, EncoderDecoder):
        return None
    return served.model.config.decoder_depth


def attention_data(served: ServedModel, source: str, target: str | None) -> dict[str, Any]:
    """Attention as JSON data, with the logit lens, the candidates of each step, the beam search tree and Petit's gold
    alignment."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    max_target = max_target_tokens(served, tokenizer, source, target)
    tree: dict[str, Any] = {}
    target_ids: list[int] | None = None
    if target is None and served.translates and model.config.outputs > 1:
        best, nodes = model.search_tree(source, max_tokens=max_target)
        target_ids = [*best.ids, *(model.special.end[:1] if best.reason == "end" else ())]
        target = tokenizer.decode(best.ids)
        tree = {"beam": {"nodes": [vars(node) for node in nodes]}}
    lens = LENS_TOKENS if model.predicts_tokens else 0
    observed = model.observe(source, target, target_ids, lens)
    steps = [] if observed.logits is None else step_candidates(tokenizer, observed.logits, observed.written)
    data = {**observed.attention.to_json(), "model": served.name, "steps": [_step(step) for step in steps], **tree}
    links = _gold(tokenizer, observed.attention) if isinstance(model.network, EncoderDecoder) else None
    return data if links is None else {**data, "gold": links}


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


def max_target_tokens(served: ServedModel, tokenizer: Tokenizer, source: str, target: str | None) -> int | None:
    """The maximum length of the translation whose attention can be shown, for a translator without a target.

    An HttpError, before anything is computed, if the response would exceed `MAX_ATTENTION_WEIGHTS`. A source is
    rejected only if a translation of its own length could not be shown.
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
    t = 0 if target is None else len(tokenizer.encode_target(target)) + (1 if served.translates else 0)
    if count_weights(served, s, t) > limit:
        total = s + t
        counts = ((n, count_weights(served, n * s // total, n * t // total)) for n in range(1, total))
        shorter = max((n for n, count in counts if count <= limit), default=0)
        raise _too_many_weights(f"{s} + {t} tokens" if t else f"{s} tokens", f"about {shorter} tokens")
    return None


def count_weights(served: ServedModel, s: int, t: int) -> int:
    """The number of attention weights for `s` source tokens and `t` target tokens."""
    config, decoder_layers = served.model.config, _decoder_layers(served)
    if decoder_layers is None:
        return config.heads * config.layers * (s + t) ** 2
    return config.heads * (config.layers * s * s + decoder_layers * t * (t + s))


def _too_many_weights(length: str, maximum: str) -> HttpError:
    return HttpError(
        400,
        f"the text has {length}; a response contains at most {limits.MAX_ATTENTION_WEIGHTS:,} attention weights, which "
        f"for this model is {maximum}: shorten the text",
    )


def _step(step: StepCandidates) -> dict[str, Any]:
    top = [{"token": token, "p": round(probability, 6)} for token, probability in step.top]
    return {"token": step.token, "top": top}


def next_token_distribution(served: ServedModel, params: NextTokenRequest) -> NextTokenResponse:
    """The most probable next tokens, with their probabilities before and after the sampling options are applied."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    ids = model.prompt_ids(params.text)
    if len(ids) > limits.MAX_CACHE_TOKENS:
        raise HttpError(400, f"the text has {len(ids):,} tokens; the maximum is {limits.MAX_CACHE_TOKENS:,}")
    assert isinstance(model.network, Decoder)
    with torch.inference_mode():
        logits = served.prefix_cache.next_logits(model.network, ids)[None].double()  # [1, V]
        if not torch.isfinite(logits.amax()):
            raise ModelError
        probabilities, kept = logits.softmax(-1)[0], _apply_sampling(logits, params).softmax(-1)[0]  # [V]
        top, top_ids = probabilities.topk(min(params.show, len(probabilities)))
    text_after, end_ids = model.continuation_decoder(ids), model.special.end
    pieces = tokenizer.pieces(top_ids.tolist())
    rows = zip(top_ids.tolist(), pieces, top.tolist(), kept[top_ids].tolist(), strict=True)
    tokens = [
        TokenProbability(
            id=id_,
            text="" if id_ in end_ids else text_after([id_]),
            token=piece,
            end=id_ in end_ids,
            p=probability,
            kept_p=kept_probability,
        )
        for id_, piece, probability, kept_probability in rows
    ]
    text_tokens = [readable(piece) for piece in tokenizer.pieces(ids)]
    return NextTokenResponse(model=served.name, tokens=tokens, text_tokens=text_tokens)


def _apply_sampling(logits: Float[Tensor, "1 V"], params: NextTokenRequest) -> Float[Tensor, "1 V"]:
    """The logits with temperature, top_k and top_p applied. Temperature 0 keeps only the best token."""
    if params.temperature == 0:
        kept, top_k = logits, 1
    else:
        kept, top_k = (logits - logits.amax()) / params.temperature, params.top_k
    if top_k:
        kept = keep_top_k(kept, top_k)
    return keep_top_p(kept, params.top_p) if params.top_p < 1 else kept
