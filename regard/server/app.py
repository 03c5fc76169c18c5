"""The app: the page, the three APIs and /health, behind the guards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from fastapi import FastAPI, Response
from pydantic import BaseModel

from regard import __version__
from regard.server import http_errors as errors
from regard.server import labs_api as labs
from regard.server import libretranslate_api as libre
from regard.server import openai_api as completions
from regard.server import page_api as look
from regard.server import page_files as pages
from regard.server.engine import State
from regard.server.guards import App, Rules, guarded
from regard.server.model_registry import Shelf


class Health(BaseModel):
    """Whether every model can serve requests, and how much waits."""

    status: Literal["ok", "failing"]
    models: dict[str, State]
    """each model and the state of its thread"""
    queued: int


def create_app(shelf: Shelf, rules: Rules) -> App:
    """The whole server as an ASGI app; the models' threads begin and end with it."""

    @asynccontextmanager
    async def alive(_: FastAPI) -> AsyncIterator[None]:
        shelf.start()
        yield
        shelf.end()
        await asyncio.to_thread(shelf.join)

    app = FastAPI(
        title="Regard",
        version=__version__,
        description="Translate, write, and see what every head looks at.",
        docs_url=None,  # its scripts would come from elsewhere
        redoc_url=None,
        lifespan=alive,
        redirect_slashes=False,
    )
    errors.install(app)

    unhealthy = {**errors.described("/health"), 503: {"model": Health, "description": "A model cannot serve requests."}}

    @app.get("/health", summary="Whether every model can serve requests", responses=unhealthy)
    async def health(response: Response) -> Health:
        states = {name: served.engine.state for name, served in shelf.by_name.items()}
        well = all(state == "ok" for state in states.values())
        response.status_code = 200 if well else 503
        waiting = sum(served.engine.queued for served in shelf.by_name.values())
        return Health(status="ok" if well else "failing", models=states, queued=waiting)

    for router in (look.routes(shelf), libre.routes(shelf), completions.routes(shelf), labs.routes(), pages.routes()):
        app.include_router(router)
    _describe_truthfully(app)
    return guarded(app, rules)


def _describe_truthfully(app: FastAPI) -> None:
    """FastAPI tells of a 422 wherever a path has a parameter; here there is none."""
    schema: dict[str, Any] = app.openapi()
    for path in schema["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema.get("components", {}).get("schemas", {}).pop(name, None)
