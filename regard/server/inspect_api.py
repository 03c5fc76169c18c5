"""The page's API for a closer look: the computation inside one head, and how much each head and word matters."""

from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.attention_maps import Observation
from regard.decoding.head_effects import Effect, Removal, all_heads, measure_effects
from regard.decoding.head_vectors import head_vectors
from regard.decoding.interventions import attention_modules, check_head, intervene
from regard.decoding.token_labels import TokenLabels, word_numbers
from regard.errors import RegardError
from regard.server import limits
from regard.server.attention_data import max_target_tokens, to_json
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.page_api import AttendRequest, HeadField, TokenIds, body_schema
from regard.server.request_body import JSON_TYPE, parse_request


class WrittenRequest(AttendRequest):
    """A text and what the model writes for it, as a response of /api/attend has both."""

    written: Annotated[
        TokenIds | None, Field(description="Ids of a translation, its end included. By default, those of the target.")
    ] = None


class HeadRequest(WrittenRequest):
    """A head, and the text for which its computation is shown."""

    head: Annotated[HeadField, Field(description="The head whose computation is shown.")]


class HeadEffect(BaseModel):
    """What changes in the output if a head is silenced, or if a word of the source is hidden."""

    model_config = ConfigDict(allow_inf_nan=False)
    divergence: Annotated[
        float, Field(description="Kullback-Leibler divergence from the unchanged predictions in bits per token.")
    ]
    log_probability: Annotated[
        float | None, Field(description="Change of the log-probability of what the model wrote, in nats.")
    ]
    step: Annotated[int | None, Field(description="First step at which another token becomes the most likely one.")]
    token: Annotated[str | None, Field(description="The token that becomes the most likely one there.")]
    instead_of: Annotated[
        str | None,
        Field(description="The token that is the most likely one there otherwise. Beam search may choose another one."),
    ]


class NamedHeadEffect(HeadEffect):
    """The effect of silencing a head."""

    kind: Annotated[str, Field(description="Kind of attention: encoder, decoder or cross.")]
    layer: Annotated[int, Field(description="Layer, counted from 0.")]
    head: Annotated[int, Field(description="Head, counted from 0.")]


class WordEffect(HeadEffect):
    """The effect of hiding a word."""

    positions: Annotated[list[int], Field(description="Positions of the word's tokens.")]


class EffectsResponse(BaseModel):
    """The effect of every head, and of every word of the source; the largest divergence first."""

    model: Annotated[str, Field(description="Name of the model that answered.")]
    heads: Annotated[list[NamedHeadEffect], Field(description="The effect of silencing each head.")]
    words: Annotated[list[WordEffect], Field(description="The effect of hiding each word of the source.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of this API."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    @router.post(
        "/head",
        summary="Get the computation inside one head: vectors, scores, mask, weights and output",
        response_model=dict[str, Any],
        openapi_extra=body_schema(HeadRequest),
    )
    async def head(request: Request) -> Response:
        params = await parse_request(request, HeadRequest)
        served = registry.first(params.model)
        work = served.engine.call(_size(params), lambda: to_json(head_data(served, params)).encode())
        return Response(await cancel_on_disconnect(request, work), media_type=JSON_TYPE)

    @router.post(
        "/effects",
        summary="Measure how much the output changes without each head and each word of the source",
        openapi_extra=body_schema(WrittenRequest),
    )
    async def effects(request: Request) -> EffectsResponse:
        params = await parse_request(request, WrittenRequest)
        served = registry.first(params.model)
        size = _size(params) * limits.EFFECTS_COST // limits.ATTENTION_COST
        work = served.engine.call(size, lambda: effects_data(served, params))
        return await cancel_on_disconnect(request, work)

    return router


def _size(params: WrittenRequest) -> int:
    return limits.ATTENTION_COST * (len(params.source) + len(params.target or ""))


def head_data(served: ServedModel, params: HeadRequest) -> dict[str, Any]:
    """The computation inside one head as JSON data."""
    network = served.model.network
    check_head(attention_modules(network), params.head.name)
    changes = params.changes.changes()
    observed = observe(served, params)
    with intervene(network, changes):
        vectors = head_vectors(observed.forward, params.head.name)
    return {"model": served.name, **params.head.model_dump(), **vectors.to_json()}


def effects_data(served: ServedModel, params: WrittenRequest) -> EffectsResponse:
    """The effects of all heads and words, on a pass with the changes of the request."""
    model = served.model
    if not model.predicts_tokens and not model.config.classes:
        raise RegardError("this model predicts nothing, so there is no output that a head could change")
    observed = observe(served, params)
    heads = all_heads(model.network)
    words = [Removal(hidden=tuple(positions)) for positions in source_words(served, observed)]
    with intervene(model.network, params.changes.changes()):
        measured = measure_effects(observed, [*heads, *words])
    tokenizer = served.model.require_tokenizer()
    labels = TokenLabels.of(tokenizer, observed.written)

    def fields(effect: Effect) -> dict[str, Any]:
        change = effect.first_change if observed.written else None
        step, token, instead_of = None, None, None
        if change is not None:
            step = change.step
            token, instead_of = labels.among([change.after, change.before], *observed.written[max(0, step - 1) : step])
        return {
            "divergence": effect.divergence,
            "log_probability": effect.log_probability,
            "step": step,
            "token": token,
            "instead_of": instead_of,
        }

    head_effects = [
        NamedHeadEffect(**removal.head._asdict(), **fields(effect))
        for removal, effect in zip(heads, measured, strict=False)
        if removal.head is not None
    ]
    word_effects = [
        WordEffect(positions=list(removal.hidden), **fields(effect))
        for removal, effect in zip(words, measured[len(heads) :], strict=True)
    ]
    return EffectsResponse(
        model=served.name, heads=sorted(head_effects, key=lambda effect: -effect.divergence), words=word_effects
    )


def source_words(served: ServedModel, observed: Observation) -> list[list[int]]:
    """The positions of the tokens of each word of the text that is read."""
    tokenizer = served.model.require_tokenizer()
    ids = observed.forward.source or tuple(tokenizer.encode_with_template(observed.attention.source))
    words: dict[int, list[int]] = {}
    for position, number in enumerate(word_numbers(tokenizer.source_side, ids)):
        words.setdefault(number, []).append(position)
    return list(words.values())


def observe(served: ServedModel, params: WrittenRequest) -> Observation:
    """The pass over the text of a request, with its changes. A RegardError or HttpError if it is not possible."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    changes = params.changes.changes()
    changes.check(model.network, len(tokenizer.encode_with_template(params.source)))
    target, written = params.target, params.written
    if written is not None:
        if not served.translates or not written:
            raise RegardError("written ids are for translators, and there must be at least one: leave them out")
        if beyond := [id_ for id_ in written if id_ >= model.config.outputs]:
            raise RegardError(f"{beyond[0]} is not the id of a token: the model has {model.config.outputs} outputs")
        ended = written[-1] in model.special.end
        target = tokenizer.decode(written[:-1] if ended else written)
    max_target_tokens(served, tokenizer, params.source, target, written)
    with intervene(model.network, changes):
        return model.observe(params.source, target, written)
