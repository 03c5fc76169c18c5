"""LibreTranslate's API: `POST /translate` and `GET /languages`.

`source` and `target` select the model: the first on the command line that translates between these languages.
"""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.options import DEFAULT_BEAM, Decoding
from regard.server import limits
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.html_markup import HtmlSegment, escape, split_html
from regard.server.http_errors import HttpError, error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.request_body import NOT_BOOLEAN, TextOrEmpty, check_length, parse_request, request_schema

LANGUAGE_NAMES = dict(
    entry.split("=")
    for entry in (  # noqa: SIM905  # one line per language would be long
        "ar=Arabic bg=Bulgarian cs=Czech da=Danish de=German el=Greek en=English es=Spanish et=Estonian "
        "fi=Finnish fr=French hi=Hindi hu=Hungarian it=Italian ja=Japanese ko=Korean lt=Lithuanian lv=Latvian "
        "nl=Dutch no=Norwegian pl=Polish pt=Portuguese ro=Romanian ru=Russian sk=Slovak sl=Slovenian "
        "sv=Swedish tr=Turkish uk=Ukrainian zh=Chinese"
    ).split()
)
"""English names of languages, as LibreTranslate spells them."""
AUTO_LANGUAGE = "auto"

LanguageCode = Annotated[str, Field(min_length=2, max_length=16)]


class LibreTranslateRequest(BaseModel):
    """The parameters of LibreTranslate. Unknown ones are ignored."""

    model_config = ConfigDict(extra="ignore")

    q: Annotated[TextOrEmpty | list[TextOrEmpty], Field(description="The text to translate, or a list of texts.")]
    source: Annotated[
        LanguageCode,
        Field(description="Source language. `auto` selects the language of the first model for the target."),
    ]
    target: Annotated[LanguageCode, Field(description="Target language.")]
    format: Annotated[Literal["text", "html"], Field(description="Format of the texts.")] = "text"
    alternatives: Annotated[
        int, Field(ge=0, lt=limits.MAX_BEAM, description="Number of alternative translations."), NOT_BOOLEAN
    ] = 0


class DetectedLanguage(BaseModel):
    """The language that `auto` selected. The text is not analysed, so the confidence is 0."""

    confidence: Annotated[float, Field(description="Always 0.")]
    language: Annotated[str, Field(description="Code of the language.")]


class LibreTranslateResponse(BaseModel):
    """The translations: one value if `q` was a text, a list if it was a list."""

    translatedText: Annotated[str | list[str], Field(description="The translation, or a list of them.")]  # noqa: N815  # LibreTranslate's name
    alternatives: Annotated[
        list[str] | list[list[str]] | None,
        Field(description="Alternative translations of each text, if they were requested."),
    ] = None
    detectedLanguage: Annotated[  # noqa: N815
        DetectedLanguage | list[DetectedLanguage] | None,
        Field(description="The source language, if the request has `auto`."),
    ] = None


class LanguageInfo(BaseModel):
    """A language and the target languages that it can be translated to."""

    code: Annotated[str, Field(description="Code of the language.")]
    name: Annotated[str, Field(description="Name of the language.")]
    targets: Annotated[list[str], Field(description="Codes of its target languages.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of LibreTranslate's API."""
    router = APIRouter(tags=["LibreTranslate"], responses=error_responses("/"))
    schema = _request_schema(registry)

    @router.post(
        "/translate",
        summary="Translate texts",
        response_model_exclude_none=True,
        openapi_extra=request_schema(schema, _form_schema(schema)),
    )
    async def translate(request: Request) -> LibreTranslateResponse:
        params = await parse_request(request, LibreTranslateRequest, allow_forms=True)
        texts = [params.q] if isinstance(params.q, str) else params.q
        if len(texts) > limits.MAX_TEXTS:
            raise HttpError(400, f"the request has {len(texts)} texts; the maximum is {limits.MAX_TEXTS}")
        check_length(texts)
        source, served = select_model(registry, params.source, params.target)
        work = _translate(served, texts, params.format == "html", params.alternatives)
        translations = await cancel_on_disconnect(request, work)
        best, others = [ranked[0] for ranked in translations], [ranked[1:] for ranked in translations]
        is_single = isinstance(params.q, str)
        detected = DetectedLanguage(confidence=0.0, language=source)
        detected_languages = detected if is_single else [detected] * len(texts)
        return LibreTranslateResponse(
            translatedText=best[0] if is_single else best,
            alternatives=(others[0] if is_single else others) if params.alternatives else None,
            detectedLanguage=detected_languages if params.source == AUTO_LANGUAGE else None,
        )

    @router.get("/languages", summary="List the languages")
    async def languages() -> list[LanguageInfo]:
        pairs = registry.language_pairs()
        codes = dict.fromkeys(code for pair in pairs for code in pair)
        targets = {code: [target for source, target in pairs if source == code and target != code] for code in codes}
        return [
            LanguageInfo(code=code, name=LANGUAGE_NAMES.get(code, code), targets=[code, *targets[code]])
            for code in codes
        ]

    return router


def select_model(registry: ModelRegistry, source: str, target: str) -> tuple[str, ServedModel | None]:
    """The source language and the model for it, or None if source and target are the same language."""
    pairs = registry.language_pairs()
    available = {code for pair in pairs for code in pair}
    for name, code in (("source", source), ("target", target)):
        if code not in available and (name, code) != ("source", AUTO_LANGUAGE):
            languages = ", ".join(sorted(available)) or "none"
            raise HttpError(400, f"{name}: the language {code} is not available; available languages: {languages}")
    if source == AUTO_LANGUAGE:
        source = next((a for a, b in pairs if b == target), target)
    if source == target:
        return source, None
    if (source, target) not in pairs:
        directions = ", ".join(f"{a} to {b}" for a, b in pairs)
        raise HttpError(400, f"translation from {source} to {target} is not available; available: {directions}")
    return source, pairs[source, target]


async def _translate(served: ServedModel | None, texts: list[str], is_html: bool, alternatives: int) -> list[list[str]]:
    """The translations of each text, best first: 1 + `alternatives` of them if the model finds as many."""
    if served is None:
        return [[text] for text in texts]
    options = Decoding(beam=max(DEFAULT_BEAM, alternatives + 1), n_best=alternatives + 1)
    pages = [split_html(text) if is_html else [HtmlSegment(text, True)] for text in texts]
    sources = [segment.text for page in pages for segment in page if segment.translatable]
    translations = iter(await served.engine.translate(sources, options))
    responses = []
    for page in pages:
        segments: list[list[str]] = []  # the translations of each segment; markup has one
        for segment in page:
            ranked = [translation.text for translation in next(translations)] if segment.translatable else []
            segments.append([escape(text) if is_html else text for text in ranked] or [segment.text])
        count = max(map(len, segments), default=1)
        responses.append(["".join(ranked[min(n, len(ranked) - 1)] for ranked in segments) for n in range(count)])
    return responses


def _request_schema(registry: ModelRegistry) -> dict[str, Any]:
    """The schema of a request, with the available languages."""
    schema = LibreTranslateRequest.model_json_schema()
    pairs = registry.language_pairs()
    if pairs:
        schema["properties"]["source"]["enum"] = [AUTO_LANGUAGE, *sorted({source for source, _ in pairs})]
        schema["properties"]["target"]["enum"] = sorted({target for _, target in pairs})
    return schema


def _form_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a form, whose fields are texts. Several texts are sent by repeating `q`."""
    text = {"type": "string", "maxLength": limits.MAX_REQUEST_CHARACTERS}
    return {**schema, "properties": {**schema["properties"], "q": text}}
