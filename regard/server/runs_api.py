"""The page's API for training runs: their curves, validation samples, and the attention of each snapshot."""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import Field

from regard.config import did_you_mean
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.server import limits
from regard.server.attention_data import max_target_tokens, to_json
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.engine import Engine
from regard.server.http_errors import HttpError, error_responses
from regard.server.model_registry import ServedModel
from regard.server.page_api import AttendedTarget, AttendedText, PageRequest, body_schema
from regard.server.request_body import JSON_INTEGER, JSON_TYPE, parse_request
from regard.server.run_history import RunReader, RunResponse, RunSummary

RunName = Annotated[str, Field(min_length=1, max_length=64, description="Name of a run.")]


class RunRequest(PageRequest):
    """A run to describe."""

    run: RunName


class FrameRequest(PageRequest):
    """A text whose attention in one snapshot of a run is shown. A translator without a target translates the source."""

    run: RunName
    step: Annotated[int, Field(ge=0, le=10**9, description="Step of the snapshot."), *JSON_INTEGER]
    source: AttendedText
    target: AttendedTarget = None


class RunRegistry:
    """The runs that the server was started with, by name, and the thread that computes with their snapshots."""

    def __init__(self, folders: Mapping[str, Path], threads: int = 1) -> None:
        self.by_name = {name: RunReader(name, folder) for name, folder in folders.items()}
        self.engine = Engine(None, threads)
        self.frames: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()

    def find(self, name: str) -> RunReader:
        """The run of this name. An HttpError if there is none."""
        if name not in self.by_name:
            advice = did_you_mean(name, self.by_name) if self.by_name else "this server has no runs"
            raise HttpError(404, f"there is no run of this name: {advice}")
        return self.by_name[name]

    def frame(self, run: RunReader, step: int, source: str, target: str | None) -> bytes:
        """The attention of a text in a snapshot as JSON. The most recent ones are cached."""
        key = (run.name, step, source, target, folder := run.snapshot(step))
        if folder is None:
            raise HttpError(404, f"{run.name} has no snapshot of step {step:,}")
        if key not in self.frames:
            try:
                model = Model.from_folder(folder)
            except (RegardError, OSError) as error:
                if folder.exists():
                    raise
                raise HttpError(404, f"the run has removed the checkpoint of step {step:,}: {error}") from None
            served = ServedModel(run.name, model, self.engine)
            self.frames[key] = to_json({"step": step, **frame_data(served, source, target)}).encode()
        self.frames.move_to_end(key)
        while len(self.frames) > 1 and sum(map(len, self.frames.values())) > limits.FRAME_CACHE_BYTES:
            self.frames.popitem(last=False)
        return self.frames[key]


def frame_data(served: ServedModel, source: str, target: str | None) -> dict[str, Any]:
    """The attention of a text as JSON data, and the model's own output for it, if it writes text."""
    model, tokenizer = served.model, served.model.require_tokenizer()
    max_target = max_target_tokens(served, tokenizer, source, target)
    output = None
    if served.translates:
        output = model.translate(source, beam=1, max_tokens=max_target)
    elif served.generates:
        output = model.generate(source, temperature=0, max_tokens=limits.MAX_CONTINUATION_TOKENS)
    if target is None and served.translates:
        target = output or "."  # an untrained model may end at once
    return {"output": output, **model.attend(source, target).to_json()}


def routes(registry: RunRegistry) -> APIRouter:
    """The router of the API for runs."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    @router.get("/runs", summary="List the training runs")
    async def runs() -> list[RunSummary]:
        return await asyncio.to_thread(lambda: [run.summary() for run in registry.by_name.values()])

    @router.post("/run", summary="Get the curves and validations of a run", openapi_extra=body_schema(RunRequest))
    async def run(request: Request) -> RunResponse:
        params = await parse_request(request, RunRequest)
        return await asyncio.to_thread(registry.find(params.run).describe)

    @router.post(
        "/frame",
        summary="Get the attention of every head in a snapshot of a run",
        response_model=dict[str, Any],
        openapi_extra=body_schema(FrameRequest),
    )
    async def frame(request: Request) -> Response:
        params = await parse_request(request, FrameRequest)
        reader = registry.find(params.run)
        size = limits.ATTENTION_COST * (len(params.source) + len(params.target or ""))
        work = registry.engine.call(size, lambda: registry.frame(reader, params.step, params.source, params.target))
        return Response(await cancel_on_disconnect(request, work), media_type=JSON_TYPE)

    return router
