"""The page's API: translations with alternatives, attention maps, and the distribution of the next token."""

from typing import Annotated, Any, Literal

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from regard.decoding.capabilities import TextTask
from regard.decoding.interventions import AttentionChanges, HeadName, WeightChange
from regard.decoding.language_guess import language_warning
from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.decoding.sampling import keep_top_k, keep_top_p
from regard.decoding.token_labels import readable
from regard.errors import ModelError
from regard.model.transformer import Decoder
from regard.server import limits
from regard.server.attention_data import attention_data, decoder_layers, to_json
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import HttpError, error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.request_body import JSON_INTEGER, JSON_TYPE, parse_request, request_schema


class PageRequest(BaseModel):
    """Base class of requests: unknown fields and non-finite numbers are rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


ModelName = Annotated[
    str | None, Field(max_length=64, description="Name of a served model. The default is the first suitable one.")
]
AttendedText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=limits.MAX_ATTENTION_CHARACTERS,
        pattern=r"\S",
        description="Text that the model reads.",
    ),
]
AttendedTarget = Annotated[
    AttendedText | None,
    Field(
        description="Text that follows the source: the translation, or a language model's continuation. Without one, a "
        "translator translates the source first."
    ),
]


class PageTranslateRequest(PageRequest):
    """A text to translate."""

    model: ModelName = None
    text: Annotated[str, Field(max_length=limits.MAX_REQUEST_CHARACTERS, description="Text to translate.")]
    beam: Annotated[int, Field(ge=1, le=limits.MAX_BEAM, description="Beam width."), *JSON_INTEGER] = DEFAULT_BEAM
    n_best: Annotated[
        int,
        Field(ge=1, le=limits.MAX_BEAM, description="Number of translations. The beam is widened to it if necessary."),
        *JSON_INTEGER,
    ] = DEFAULT_BEAM


class RankedTranslation(BaseModel):
    """A translation with its score."""

    model_config = ConfigDict(allow_inf_nan=False)
    text: Annotated[str, Field(description="The translation.")]
    score: Annotated[float, Field(description="Sum of the tokens' log-probabilities.")]
    penalised: Annotated[float, Field(description="The score with the length penalty, by which translations rank.")]


class PageTranslateResponse(BaseModel):
    """Distinct translations, best first."""

    model: Annotated[str, Field(description="Name of the model that answered.")]
    translations: Annotated[list[RankedTranslation], Field(description="The translations, best first.")]
    warning: Annotated[
        str | None, Field(description="Set if the text is clearly in another language than the model translates from.")
    ] = None


Number = Annotated[int, Field(ge=0, le=100_000), *JSON_INTEGER]
TokenIds = Annotated[
    list[Annotated[int, Field(ge=0, le=2**31), *JSON_INTEGER]], Field(max_length=limits.MAX_GIVEN_TOKENS)
]


class HeadField(PageRequest):
    """A head, counted from 0."""

    kind: Annotated[Literal["encoder", "decoder", "cross"], Field(description="Kind of attention.")]
    layer: Annotated[Number, Field(description="Layer, counted from 0.")]
    head: Annotated[Number, Field(description="Head, counted from 0.")]

    @property
    def name(self) -> HeadName:
        """The head as `regard.decoding.interventions` names it."""
        return HeadName(self.kind, self.layer, self.head)


class WeightField(HeadField):
    """A new attention weight. The other weights of its row are rescaled."""

    row: Annotated[Number, Field(description="Position of the token that attends.")]
    column: Annotated[Number, Field(description="Position of the token that is attended to.")]
    weight: Annotated[float, Field(ge=0, le=1, strict=False, description="The new weight.")]


class ChangesField(PageRequest):
    """What is changed in the attention of the model for this request."""

    silenced: Annotated[
        list[HeadField], Field(max_length=limits.MAX_SILENCED_HEADS, description="Heads whose output becomes zero.")
    ] = Field(default_factory=list)
    hidden: Annotated[
        list[Number],
        Field(
            max_length=limits.MAX_ATTENTION_CHARACTERS,
            description="Positions of tokens of the source that nothing may attend to.",
        ),
    ] = Field(default_factory=list)
    weights: Annotated[
        list[WeightField],
        Field(
            max_length=limits.MAX_WEIGHT_CHANGES,
            description="New attention weights. The other weights of each row are rescaled to keep its sum.",
        ),
    ] = Field(default_factory=list)

    def changes(self) -> AttentionChanges:
        """The same as `regard.decoding.interventions` takes it."""
        weights = (WeightChange(each.name, each.row, each.column, each.weight) for each in self.weights)
        return AttentionChanges(tuple(head.name for head in self.silenced), tuple(self.hidden), tuple(weights))


class AttendRequest(PageRequest):
    """A text whose attention is shown. A translator without a target translates the source first."""

    model: ModelName = None
    source: AttendedText
    target: AttendedTarget = None
    beginning: Annotated[
        TokenIds, Field(description="Ids that the translation must begin with, if no target is given.")
    ] = Field(default_factory=list)
    changes: Annotated[ChangesField, Field(description="Changes to the attention that apply to this request only.")] = (
        Field(default_factory=ChangesField)
    )


class NextTokenRequest(PageRequest):
    """A text and the sampling options for the token after it."""

    model: ModelName = None
    text: Annotated[str, Field(min_length=1, max_length=limits.MAX_REQUEST_CHARACTERS, description="Text to continue.")]
    temperature: Annotated[
        float,
        Field(
            ge=0,
            le=100,
            strict=False,
            description="0 is greedy; otherwise sample: 1 uses the model's distribution, lower values sharpen it.",
        ),
    ] = 1.0
    top_k: Annotated[
        int,
        Field(ge=0, le=1_000_000, description="Sample from the k most likely tokens only; 0 disables."),
        *JSON_INTEGER,
    ] = 0
    top_p: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            strict=False,
            description="Sample from the smallest set of tokens whose probabilities add up to at least p; 1 disables.",
        ),
    ] = 1.0
    show: Annotated[
        int, Field(ge=1, le=limits.MAX_DISTRIBUTION_TOKENS, description="Number of tokens to return."), *JSON_INTEGER
    ] = 40


class TokenProbability(BaseModel):
    """A token and its probability before and after the sampling options are applied."""

    model_config = ConfigDict(allow_inf_nan=False)
    id: Annotated[int, Field(description="Id of the token.")]
    text: Annotated[str, Field(description="The text that the token adds.")]
    token: Annotated[str, Field(description="The token as it is displayed.")]
    end: Annotated[bool, Field(description="Whether the token ends the text.")]
    p: Annotated[float, Field(description="The model's probability.")]
    kept_p: Annotated[float, Field(description="The probability with temperature, top_k and top_p applied.")]


class NextTokenResponse(BaseModel):
    """The most probable next tokens, and the tokens of the text."""

    model: Annotated[str, Field(description="Name of the model that answered.")]
    tokens: Annotated[list[TokenProbability], Field(description="The most probable next tokens, best first.")]
    text_tokens: Annotated[list[str], Field(description="The tokens of the text as they are displayed.")]


class ModelDescription(BaseModel):
    """A served model."""

    name: Annotated[str, Field(description="Name of the model on this server.")]
    kind: Annotated[str, Field(description="encoder, decoder or encoder-decoder.")]
    translates: Annotated[bool, Field(description="Whether it can translate.")]
    writes: Annotated[bool, Field(description="Whether it is a language model.")]
    tasks: Annotated[list[TextTask], Field(description="What else it can do: classify, tag, fill or embed.")]
    source: Annotated[str | None, Field(description="Language that the model reads, if its metadata names it.")]
    target: Annotated[str | None, Field(description="Target language of a translator.")]
    parameters: Annotated[int, Field(description="Number of parameters.")]
    layers: Annotated[int, Field(description="Number of layers; of an encoder-decoder, those of the encoder.")]
    decoder_layers: Annotated[int | None, Field(description="Number of decoder layers of an encoder-decoder.")]
    heads: Annotated[int, Field(description="Number of query heads in each attention.")]
    about: Annotated[str, Field(description="Languages and first score; without a score, the origin.")]
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
        "/translate",
        summary="Translate a text, with alternatives",
        response_model_exclude_none=True,
        openapi_extra=body_schema(PageTranslateRequest),
    )
    async def translate(request: Request) -> PageTranslateResponse:
        params = await parse_request(request, PageTranslateRequest)
        served = registry.translator(params.model)
        beam, n_best = (min(n, served.model.config.outputs) for n in (max(params.beam, params.n_best), params.n_best))
        work = served.engine.translate([params.text], Decoding(beam=beam, n_best=n_best))
        (translations,) = await cancel_on_disconnect(request, work)
        ranked = [
            RankedTranslation(text=candidate.text, score=candidate.score, penalised=candidate.penalised)
            for candidate in translations
        ]
        warning = language_warning([params.text], served.model.source_language)
        return PageTranslateResponse(model=served.name, translations=ranked, warning=warning)

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

        def attend_text() -> bytes:
            changes = params.changes.changes()
            data = attention_data(served, params.source, params.target, changes, params.beginning)
            warning = language_warning([params.source], served.model.source_language) if served.translates else None
            return to_json(data if warning is None else {**data, "warning": warning}).encode()

        work = served.engine.call(size, attend_text)
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
        decoder_layers=decoder_layers(served),
        heads=config.heads,
        about=served.summary,
    )


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
    text_tokens = [readable(piece) for piece in tokenizer.pieces(ids[len(tokenizer.before) :])]
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
