"""The results of the labs, read from the JSON files and figures of the gallery that `regard lab all` wrote."""

from functools import cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter
from fastapi import Path as PathParameter
from fastapi.responses import Response
from pydantic import BaseModel, Field

import regard
from regard.labs.lab import NAMES
from regard.labs.lab_record import FULL_SUFFIX, LabRecord, read_record
from regard.server.http_errors import HttpError, error_responses

GALLERY_FOLDER = Path(regard.__file__).parent / "labs" / "gallery"
"""The bundled gallery. `regard lab all --out regard/labs/gallery --force` regenerates it in a checkout."""


class ClaimResponse(BaseModel):
    """A conclusion, and whether the measurement confirmed it."""

    text: Annotated[str, Field(description="The conclusion.")]
    holds: Annotated[bool, Field(description="Whether the measurement confirmed it.")]


class TableResponse(BaseModel):
    """A table of measurements."""

    title: Annotated[str, Field(description="Title of the table.")]
    head: Annotated[list[str], Field(description="Headings of the columns.")]
    rows: Annotated[list[list[str]], Field(description="Cells of each row.")]


class LabResponse(BaseModel):
    """A lab: its question, the experiment and the results."""

    name: Annotated[str, Field(description="Name of the lab.")]
    question: Annotated[str, Field(description="The question that it answers.")]
    about: Annotated[list[str], Field(description="Paragraphs about the experiment.")]
    claims: Annotated[list[ClaimResponse], Field(description="The conclusions.")]
    tables: Annotated[list[TableResponse], Field(description="The measurements.")]
    notes: Annotated[list[str], Field(description="What to know about the measurements.")]
    picture: Annotated[str, Field(description="Path of the figure on this server.")]
    command: Annotated[str, Field(description="Command that produced the results.")]


def routes(folder: Path = GALLERY_FOLDER) -> APIRouter:
    """Return the router that serves the gallery in `folder`; without a gallery, the list of labs is empty."""
    router = APIRouter(tags=["Regard"], responses=error_responses("/api"))

    @cache
    def responses() -> list[LabResponse]:
        return [_response(record) for record in gallery_records(folder)]

    @router.get("/api/labs", summary="The labs")
    async def labs() -> list[LabResponse]:
        return responses()

    @router.get(
        "/labs/{name}.png",
        summary="A lab's picture",
        response_class=Response,
        responses={200: {"content": {"image/png": {}}}},
    )
    async def picture(name: Annotated[str, PathParameter(description="Name of the lab.")]) -> Response:
        if name not in {lab.name for lab in responses()}:
            raise HttpError(404, "there is no lab of this name")
        return Response((folder / f"{name}.png").read_bytes(), media_type="image/png")

    return router


def gallery_records(folder: Path) -> list[LabRecord]:
    """Read the records that have a figure, in the order of the labs; a full form follows its lab."""
    names = [name for lab in NAMES for name in (lab, f"{lab}{FULL_SUFFIX}")]
    return [
        read_record(folder / f"{name}.json")
        for name in names
        if (folder / f"{name}.json").is_file() and (folder / f"{name}.png").is_file()
    ]


def _response(record: LabRecord) -> LabResponse:
    return LabResponse(
        name=record.name,
        question=record.question,
        about=[text.removeprefix("- ") for text in record.about],
        claims=[ClaimResponse(text=claim.text, holds=claim.holds) for claim in record.claims],
        tables=[
            TableResponse(title=table.title, head=list(table.columns), rows=[list(row) for row in table.rows])
            for table in record.tables
        ],
        notes=list(record.notes),
        picture=f"/labs/{record.name}.png",
        command=record.command,
    )
