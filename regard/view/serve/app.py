"""The app: the page, the three APIs and /health, behind the guards."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from regard import __version__
from regard.view.serve import completions, errors, labs, libre, look, pages
from regard.view.serve.guards import App, Rules, guarded
from regard.view.serve.served import Shelf


class Health(BaseModel):
    """That the server lives, what it serves, and how much waits."""

    status: str
    models: list[str]
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

    @app.get("/health", summary="Whether the server lives", responses=errors.described("/health"))
    async def health() -> Health:
        waiting = sum(served.engine.queued for served in shelf.by_name.values())
        return Health(status="ok", models=list(shelf.by_name), queued=waiting)

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
