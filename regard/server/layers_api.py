"""The page's API for layers: the vectors of tokens in two dimensions, and what each layer would predict."""

from collections.abc import Sequence
from typing import Any

import torch
from fastapi import APIRouter, Request
from fastapi.responses import Response
from torch import Tensor

from regard.decoding.attention_maps import Observation
from regard.decoding.logit_lens import LENS_TOKENS, PROBABILITY_DECIMALS, final_token_probabilities
from regard.decoding.token_labels import token_labels
from regard.decoding.vector_projection import project_apart, project_together
from regard.errors import ModelError
from regard.model.transformer import EncoderDecoder
from regard.server import limits
from regard.server.attention_data import max_target_tokens, to_json
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.page_api import AttendedTarget, AttendedText, ModelName, PageRequest, body_schema
from regard.server.request_body import JSON_TYPE, parse_request


class LayersRequest(PageRequest):
    """A text whose layers are shown. A translator without a target translates the source first."""

    model: ModelName = None
    source: AttendedText
    target: AttendedTarget = None


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of the API for layers."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    @router.post(
        "/layers",
        summary="Get the vectors of every layer in two dimensions, and the logit lens",
        response_model=dict[str, Any],
        openapi_extra=body_schema(LayersRequest),
    )
    async def layers(request: Request) -> Response:
        params = await parse_request(request, LayersRequest)
        served = registry.first(params.model)
        size = limits.ATTENTION_COST * (len(params.source) + len(params.target or ""))
        work = served.engine.call(size, lambda: to_json(layers_data(served, params)).encode())
        return Response(await cancel_on_disconnect(request, work), media_type=JSON_TYPE)

    return router


def layers_data(served: ServedModel, params: LayersRequest) -> dict[str, Any]:
    """The layers of a model on a text as JSON data."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    max_target = max_target_tokens(served, tokenizer, params.source, params.target)
    target = params.target
    if target is None and served.translates:
        target = model.translate(params.source, max_tokens=max_target) or "."
    observed = model.observe(params.source, target, lens=LENS_TOKENS if model.predicts_tokens else 0)
    attention = observed.attention
    stacks = []
    if isinstance(model.network, EncoderDecoder):
        encoder = model.hidden(params.source)
        stacks.append(stack_data("encoder", encoder.tokens, (), encoder.vectors))
    last = attention.maps["decoder"] if "decoder" in attention.maps else attention.maps["encoder"]
    kind = "decoder" if "decoder" in attention.maps else "encoder"
    stacks.append(stack_data(kind, last.queries, last.writes, torch.cat(observed.states).cpu()))
    return {
        "model": served.name,
        "source": attention.source,
        "target": attention.target,
        "special": list(attention.special),
        "ends": list(token_labels(tokenizer.target_side, model.special.end)),
        "stacks": stacks,
        **({} if attention.lens is None else {"lens": attention.lens.to_json(), "final": final_data(served, observed)}),
    }


def stack_data(kind: str, tokens: Sequence[str], writes: Sequence[str], vectors: Tensor) -> dict[str, Any]:
    """The projections of one stack."""
    return {
        "kind": kind,
        "tokens": list(tokens),
        "writes": list(writes),
        "states": ["embedding", *(f"layer {number}" for number in range(len(vectors) - 1))],
        "together": project_together(vectors).to_json(),
        "apart": project_apart(vectors).to_json(),
    }


def final_data(served: ServedModel, observed: Observation) -> list[list[float]]:
    """For each state and position, the probability of the token that the last state predicts there."""
    probabilities = final_token_probabilities(served.model.network, observed.states).double()
    if not probabilities.isfinite().all():
        raise ModelError
    factor = 10**PROBABILITY_DECIMALS
    rounded: list[list[float]] = ((probabilities * factor).round() / factor).tolist()
    return rounded
