"""The page's API for the tokens of a text: how likely a language model finds each of them."""

from typing import Annotated

import torch
from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.token_labels import readable
from regard.errors import ModelError
from regard.server import limits
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.page_api import ModelName, PageRequest, body_schema
from regard.server.request_body import parse_request


class TextTokensRequest(PageRequest):
    """A text whose tokens are scored."""

    model: ModelName = None
    text: Annotated[
        str, Field(min_length=1, max_length=limits.MAX_SCORED_CHARACTERS, description="Text whose tokens are scored.")
    ]


class ScoredToken(BaseModel):
    """A token of a text. The first one has no probability if nothing precedes it."""

    model_config = ConfigDict(allow_inf_nan=False)
    label: Annotated[str, Field(description="The token as it is displayed.")]
    start: Annotated[
        int | None, Field(description="Characters before the token; null if it starts within a character.")
    ]
    probability: Annotated[float | None, Field(description="Probability after the tokens before it.")]
    rank: Annotated[int | None, Field(description="1 for the most likely token at this position.")]


class TextTokensResponse(BaseModel):
    """The tokens of the text."""

    model: Annotated[str, Field(description="Name of the model that answered.")]
    tokens: Annotated[list[ScoredToken], Field(description="The tokens in order.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of the API for the tokens of a text."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    @router.post(
        "/tokens",
        summary="Get the probability of each token of a text",
        openapi_extra=body_schema(TextTokensRequest),
    )
    async def tokens(request: Request) -> TextTokensResponse:
        params = await parse_request(request, TextTokensRequest)
        served = registry.language_model(params.model)
        work = served.engine.call(len(params.text), lambda: scored_tokens(served, params.text))
        return await cancel_on_disconnect(request, work)

    return router


@torch.inference_mode()
def scored_tokens(served: ServedModel, text: str) -> TextTokensResponse:
    """The tokens of the text with their probabilities and ranks."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    ids = model.prompt_ids(text)
    logits = model.network(torch.tensor([ids], device=model.device))[0].double()  # [T, V]
    following = torch.tensor(ids[1:], device=logits.device)[:, None]  # [T - 1, 1]
    chosen = logits[:-1].gather(-1, following)
    probabilities = (chosen - logits[:-1].logsumexp(-1, keepdim=True)).exp()[:, 0]
    if not probabilities.isfinite().all():
        raise ModelError
    ranks = 1 + (logits[:-1] > chosen).sum(-1)
    scores: list[tuple[float | None, int | None]] = [(None, None)]
    scores += list(zip(probabilities.tolist(), ranks.tolist(), strict=True))
    labels = [readable(piece) for piece in tokenizer.pieces(ids)]
    start = len(tokenizer.before)
    tokens = [
        ScoredToken(label=label, start=_start(text, tokenizer.decode(ids[start:i])), probability=score, rank=rank)
        for i, (label, (score, rank)) in enumerate(zip(labels, scores, strict=True))
        if i >= start
    ]
    return TextTokensResponse(model=served.name, tokens=tokens)


def _start(text: str, before: str) -> int | None:
    """The number of characters before a token, if the text begins with what the tokens before it say."""
    return len(before) if before and text.startswith(before) else None
