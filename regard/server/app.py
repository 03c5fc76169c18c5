"""The ASGI app: the page, the three APIs and /health, wrapped in the guards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Response
from pydantic import BaseModel, Field

from regard import __version__
from regard.server import (
    encoder_api,
    export_api,
    http_errors,
    inspect_api,
    labs_api,
    layers_api,
    libretranslate_api,
    openai_api,
    openai_embeddings,
    page_api,
    page_files,
    runs_api,
    text_tokens_api,
)
from regard.server.engine import EngineState
from regard.server.guards import AccessRules, App, guard_app
from regard.server.model_registry import ModelRegistry
from regard.server.runs_api import RunRegistry


class Health(BaseModel):
    """Whether every model can serve requests, and the number of queued texts."""

    status: Annotated[Literal["ok", "failing"], Field(description="`ok` if every model can serve requests.")]
    models: Annotated[
        dict[str, EngineState],
        Field(
            description="State of each model's thread: working, stuck in one step, failed too often, or shutting down."
        ),
    ]
    queued: Annotated[int, Field(description="Number of texts that are waiting.")]


_ROUTES = (
    page_api.routes,
    inspect_api.routes,
    encoder_api.routes,
    export_api.routes,
    layers_api.routes,
    text_tokens_api.routes,
    libretranslate_api.routes,
    openai_api.routes,
    openai_embeddings.routes,
)


def create_app(registry: ModelRegistry, rules: AccessRules, runs: RunRegistry | None = None) -> App:
    """The server as an ASGI app. It starts and stops the models' threads."""
    runs = runs or RunRegistry({})

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        registry.start()
        runs.engine.start()
        yield
        registry.stop()
        runs.engine.stop()
        await asyncio.to_thread(registry.join)
        await asyncio.to_thread(runs.engine.join)

    app = FastAPI(
        title="Regard",
        version=__version__,
        description="Translate, generate, classify and embed text, and inspect the attention of every head.",
        docs_url=None,  # FastAPI's documentation pages load their scripts from a CDN
        redoc_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    http_errors.install_handlers(app)

    responses = {
        **http_errors.error_responses("/health"),
        503: {"model": Health, "description": "At least one model cannot serve requests."},
    }

    @app.get("/health", summary="Check whether every model can serve requests", responses=responses)
    async def health(response: Response) -> Health:
        engines = {name: served.engine for name, served in registry.by_name.items()}
        states = {name: engine.state for name, engine in engines.items()}
        healthy = all(state == "ok" for state in states.values())
        response.status_code = 200 if healthy else 503
        queued = sum(engine.queued for engine in engines.values())
        return Health(status="ok" if healthy else "failing", models=states, queued=queued)

    for routes in _ROUTES:
        app.include_router(routes(registry))
    app.include_router(runs_api.routes(runs))
    app.include_router(labs_api.routes())
    app.include_router(page_files.routes())
    _remove_validation_errors(app)
    return guard_app(app, rules)


def _remove_validation_errors(app: FastAPI) -> None:
    """Remove the 422 responses that FastAPI documents for every path parameter: this server never sends one."""
    schema: dict[str, Any] = app.openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema.get("components", {}).get("schemas", {}).pop(name, None)
