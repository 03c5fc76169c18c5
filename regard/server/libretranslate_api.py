"""LibreTranslate's API, as its clients speak it: `POST /translate` and `GET /languages`.

Language by language: which model translates is decided by `source` and `target`, and the first that was named wins.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.server import html_markup as markup
from regard.server import limits as bounds
from regard.server import request_body as body
from regard.server.client_disconnect import while_here
from regard.server.http_errors import Refusal, described
from regard.server.model_registry import Served, Shelf

NAMES = dict(
    each.split("=")
    for each in (  # noqa: SIM905  # one line each would be long
        "ar=Arabic bg=Bulgarian cs=Czech da=Danish de=German el=Greek en=English es=Spanish et=Estonian "
        "fi=Finnish fr=French hi=Hindi hu=Hungarian it=Italian ja=Japanese ko=Korean lt=Lithuanian lv=Latvian "
        "nl=Dutch no=Norwegian pl=Polish pt=Portuguese ro=Romanian ru=Russian sk=Slovak sl=Slovenian "
        "sv=Swedish tr=Turkish uk=Ukrainian zh=Chinese"
    ).split()
)
"""in English, as LibreTranslate calls them"""
AUTO = "auto"

Text = Annotated[str, Field(max_length=bounds.CHARACTERS)]
Code = Annotated[str, Field(min_length=2, max_length=16)]


class Translate(BaseModel):
    """What LibreTranslate takes; what it takes beyond this is ignored."""

    model_config = ConfigDict(extra="ignore")

    q: Annotated[Text | list[Text], Field(description="A text, or several.")]
    source: Annotated[Code, Field(description="Its language; auto: the one that is translated from.")]
    target: Code
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0, lt=bounds.BEAM), body.NUMBER] = 0


class Detected(BaseModel):
    """The language that `auto` stood for; nothing is detected, so that confidence is 0."""

    confidence: float
    language: str


class Translated(BaseModel):
    """A text for a text, a list for a list."""

    translatedText: str | list[str]  # noqa: N815  # LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815


class Language(BaseModel):
    """A language, and those it is translated to."""

    code: str
    name: str
    targets: list[str]


def routes(shelf: Shelf) -> APIRouter:
    """The router of these models."""
    router = APIRouter(tags=["LibreTranslate"], responses=described("/"))
    schema = _schema(shelf)

    @router.post(
        "/translate",
        summary="Translate",
        response_model_exclude_none=True,
        openapi_extra=body.described(schema, _as_form(schema)),
    )
    async def translate(request: Request) -> Translated:
        asked = await body.read(request, Translate, forms=True)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        if len(texts) > bounds.BATCH:
            raise Refusal(400, f"{len(texts)} texts are too many: {bounds.BATCH} are the most of one request")
        body.check_length(texts)
        source, served = choose(shelf, asked.source, asked.target)
        found = await while_here(request, _translated(served, texts, asked.format == "html", asked.alternatives))
        best, others = [each[0] for each in found], [each[1:] for each in found]
        one = isinstance(asked.q, str)
        detected = Detected(confidence=0.0, language=source)
        return Translated(
            translatedText=best[0] if one else best,
            alternatives=(others[0] if one else others) if asked.alternatives else None,
            detectedLanguage=None if asked.source != AUTO else detected if one else [detected] * len(texts),
        )

    @router.get("/languages", summary="The languages")
    async def languages() -> list[Language]:
        pairs = shelf.pairs()
        codes = dict.fromkeys(code for pair in pairs for code in pair)
        return [
            Language(
                code=code, name=NAMES.get(code, code), targets=[code, *(b for a, b in pairs if a == code and b != code)]
            )
            for code in codes
        ]

    return router


def choose(shelf: Shelf, source: str, target: str) -> tuple[str, Served | None]:
    """The source language and the model for it; no model where nothing is to be done."""
    pairs = shelf.pairs()
    known = {code for pair in pairs for code in pair}
    for name, code in (("source", source), ("target", target)):
        if code not in known and (name, code) != ("source", AUTO):
            raise Refusal(400, f"{code} is not a language that is spoken here: {', '.join(sorted(known)) or 'none is'}")
    if source == AUTO:
        source = next((a for a, b in pairs if b == target), target)
    if source == target:
        return source, None
    if (source, target) not in pairs:
        there = ", ".join(f"{a} to {b}" for a, b in pairs)
        raise Refusal(400, f"{target} is not available as a target from {source}: here is {there}")
    return source, pairs[source, target]


async def _translated(served: Served | None, texts: list[str], tagged: bool, alternatives: int) -> list[list[str]]:
    """Each text's translations, as many as were asked for if the model has so many."""
    if served is None:
        return [[text] for text in texts]
    options = Decoding(beam=max(DEFAULT_BEAM, alternatives + 1), n_best=alternatives + 1)
    try:
        pages = [markup.parts(text) if tagged else [markup.Part(text, True)] for text in texts]
    except ValueError as error:
        raise Refusal(400, str(error)) from None
    said = [part.text for page in pages for part in page if part.said]
    found = iter(await served.engine.translate(said, options))
    answers = []
    for page in pages:
        pieces = [[each.text for each in next(found)] if part.said else [part.text] for part in page]
        count = max(map(len, pieces), default=1)
        shown = [
            [markup.escape(text) for text in piece] if tagged and part.said else piece
            for piece, part in zip(pieces, page, strict=True)
        ]
        answers.append(["".join(piece[min(n, len(piece) - 1)] for piece in shown) for n in range(count)])
    return answers


def _schema(shelf: Shelf) -> dict[str, Any]:
    """The shape of a request, with the languages that there are."""
    schema = Translate.model_json_schema()
    pairs = shelf.pairs()
    if pairs:
        targets = sorted({target for _, target in pairs})
        schema["properties"]["source"]["enum"] = [AUTO, *sorted({source for source, _ in pairs})]
        schema["properties"]["target"]["enum"] = targets
    return schema


def _as_form(schema: dict[str, Any]) -> dict[str, Any]:
    """The same for a form, whose fields are texts: several are sent by giving `q` again."""
    return {**schema, "properties": {**schema["properties"], "q": {"type": "string", "maxLength": bounds.CHARACTERS}}}
