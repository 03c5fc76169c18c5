"""The page's API for taking a view away: the Attention view as one self-contained, interactive HTML file."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from regard.decoding.attention_explanations import vectors_data
from regard.decoding.attention_maps import AttentionKind
from regard.decoding.interventions import intervene
from regard.page import attention_page
from regard.server import limits
from regard.server.attention_data import attention_data
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.page_api import AttendRequest, body_schema
from regard.server.request_body import JSON_INTEGER, parse_request

Index = Annotated[int | None, Field(ge=0, le=10_000, description="Counted from 0."), *JSON_INTEGER]


class AttentionPageRequest(AttendRequest):
    """A text whose attention is written to a file, and the kind, layer, head and cell that it shows first."""

    kind: Annotated[AttentionKind | None, Field(description="Kind of attention that the page shows first.")] = None
    layer: Index = None
    head: Annotated[Index, Field(description="Without a head, the mean of the layer's heads.")] = None
    row: Annotated[Index, Field(description="Row of the cell whose computation is shown first.")] = None
    column: Annotated[Index, Field(description="Column of this cell.")] = None


class AttentionPageResponse(BaseModel):
    """The file."""

    html: Annotated[str, Field(description="The complete HTML file.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of the API for files."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    @router.post(
        "/attention-page",
        summary="Get the attention of every head as one interactive HTML file",
        openapi_extra=body_schema(AttentionPageRequest),
    )
    async def page(request: Request) -> AttentionPageResponse:
        params = await parse_request(request, AttentionPageRequest)
        served = registry.first(params.model)
        size = limits.ATTENTION_COST * (len(params.source) + len(params.target or ""))
        work = served.engine.call(size, lambda: page_text(served, params))
        return AttentionPageResponse(html=await cancel_on_disconnect(request, work))

    return router


def page_text(served: ServedModel, params: AttentionPageRequest) -> str:
    """The file as text."""
    model, changes = served.model, params.changes.changes()
    data = attention_data(served, params.source, params.target, changes, params.beginning)
    if not changes.weights:  # the computation would not explain weights that were set by hand
        with intervene(model.network, changes):
            written = data["written"] if served.translates else None
            data |= vectors_data(model.observe(params.source, data["target"], written))
    if changes or params.beginning:
        data |= {"changes": params.changes.model_dump(), "beginning": params.beginning}
        if params.target is None and served.translates:
            data["usual"] = attention_data(served, params.source, None)["target"]
    opened = params.model_dump(include={"kind", "layer", "head"})
    if params.row is not None and params.column is not None:
        opened["cell"] = {"t": params.row, "s": params.column}
    return attention_page({**data, "open": opened})
