"""The page's API for encoders: classes of texts, labels of words, and tokens for masks.

Texts of simultaneous requests are processed in one batch.
"""

import math
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.capabilities import TextTask
from regard.decoding.filling import masked_ids
from regard.decoding.text_model import Model
from regard.errors import ModelError, RegardError
from regard.server import limits
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.page_api import ModelName, PageRequest, body_schema
from regard.server.request_body import JSON_INTEGER, Text, check_length, parse_request

T = TypeVar("T")
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class TextsRequest(PageRequest):
    """Texts to classify or tag."""

    model: ModelName = None
    texts: Annotated[
        list[Text], Field(min_length=1, max_length=limits.MAX_TEXTS, description="Texts to classify or tag.")
    ]


class FillRequest(PageRequest):
    """A text with masks."""

    model: ModelName = None
    text: Annotated[
        str,
        Field(min_length=1, max_length=limits.MAX_FILL_CHARACTERS, description="Each <mask> is filled."),
    ]
    k: Annotated[
        int,
        Field(
            ge=1,
            le=limits.MAX_FILLINGS,
            description=f"Number of tokens for each mask; at most {limits.MAX_FILLINGS_PER_TEXT} for all masks.",
        ),
        *JSON_INTEGER,
    ] = 5


class ClassProbability(BaseModel):
    """A class and its probability."""

    label: Annotated[str, Field(description="Name of the class.")]
    probability: Annotated[Probability, Field(description="Probability of the class.")]


class ClassifyResponse(BaseModel):
    """The classes of each text, most likely first."""

    model_config = ConfigDict(json_schema_extra={"description": f"At most {limits.MAX_CLASSES} classes per text."})
    model: Annotated[str, Field(description="Name of the model that answered.")]
    results: Annotated[list[list[ClassProbability]], Field(description="The classes of each text, most likely first.")]


class WordLabel(BaseModel):
    """A word with its most likely label."""

    word: Annotated[str, Field(description="The word or punctuation mark.")]
    label: Annotated[str, Field(description="Its most likely label.")]
    probability: Annotated[Probability, Field(description="Probability of the label.")]


class TagResponse(BaseModel):
    """The words of each text with their labels."""

    model: Annotated[str, Field(description="Name of the model that answered.")]
    results: Annotated[list[list[WordLabel]], Field(description="The words of each text, in order.")]


class MaskFilling(BaseModel):
    """A token for a mask, and the text with this token."""

    token: Annotated[str, Field(description="The token as it is displayed.")]
    probability: Annotated[Probability, Field(description="Probability of the token.")]
    text: Annotated[str, Field(description="The text with this token in place of the mask.")]


class FillResponse(BaseModel):
    """The most likely tokens for each mask of the text."""

    model: Annotated[str, Field(description="Name of the model that answered.")]
    masks: Annotated[list[list[MaskFilling]], Field(description="The tokens for each mask, most likely first.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of the API for encoders."""
    router = APIRouter(prefix="/api", tags=["Regard"], responses=error_responses("/api"))

    async def answer_texts(
        request: Request, task: TextTask, answers: Callable[[ServedModel, list[str]], list[T]]
    ) -> tuple[str, list[T]]:
        """The name of the model that serves a task, and its answer to each text of the request."""
        params = await parse_request(request, TextsRequest)
        check_length(params.texts)
        served = registry.for_task(task, params.model)
        work = served.engine.answer(params.texts, task, lambda texts: answers(served, texts), numbered=True)
        return served.name, await cancel_on_disconnect(request, work)

    @router.post("/classify", summary="Classify texts", openapi_extra=body_schema(TextsRequest))
    async def classify(request: Request) -> ClassifyResponse:
        model, results = await answer_texts(request, "classify", classes)
        return ClassifyResponse(model=model, results=results)

    @router.post("/tag", summary="Tag the words of texts", openapi_extra=body_schema(TextsRequest))
    async def tag(request: Request) -> TagResponse:
        model, results = await answer_texts(request, "tag", labels)
        return TagResponse(model=model, results=results)

    @router.post("/fill", summary="Fill the masks of a text", openapi_extra=body_schema(FillRequest))
    async def fill(request: Request) -> FillResponse:
        params = await parse_request(request, FillRequest)
        served = registry.for_task("fill", params.model)
        work = served.engine.answer([params.text], ("fill", params.k), lambda texts: fillings(served, texts, params.k))
        (masks,) = await cancel_on_disconnect(request, work)
        return FillResponse(model=served.name, masks=masks)

    return router


def classes(served: ServedModel, texts: list[str]) -> list[list[ClassProbability]]:
    """The classes of each text, most likely first."""
    names, probabilities = served.model.class_names, served.model.class_probabilities(texts)  # [texts, classes]
    top = probabilities.topk(min(limits.MAX_CLASSES, len(names)))
    require_finite(top.values.flatten().tolist())
    return [
        [ClassProbability(label=names[i], probability=min(p, 1.0)) for i, p in zip(*row, strict=True)]
        for row in zip(top.indices.tolist(), top.values.tolist(), strict=True)
    ]


def labels(served: ServedModel, texts: list[str]) -> list[list[WordLabel]]:
    """The words of each text with their labels."""
    tagged = served.model.tag(texts)
    require_finite(word.probability for words in tagged for word in words)
    return [[WordLabel(**word._asdict()) for word in words] for words in tagged]


def fillings(served: ServedModel, texts: list[str], k: int) -> list[list[list[MaskFilling]]]:
    """The most likely tokens for each mask of each text."""
    model = served.model
    for text in texts:
        check_filling_count(model, text, k)
    predictions = model.fillings(texts, min(k, model.config.outputs))
    require_finite(filling.probability for masks in predictions for mask in masks for filling in mask)
    return [[[MaskFilling(**filling._asdict()) for filling in mask] for mask in masks] for masks in predictions]


def check_filling_count(model: Model, text: str, k: int) -> None:
    """Raise a RegardError if the response would be too large: it has the complete text for each filling."""
    mask = model.special.mask
    assert mask is not None  # otherwise the model could not fill
    count = masked_ids(model.require_tokenizer(), mask, text).count(mask)
    if count * k > (maximum := limits.MAX_FILLINGS_PER_TEXT):
        raise RegardError(
            f"{count} masks × k={k} are {count * k:,} fillings; the maximum is {maximum}: reduce k or the masks"
        )


def require_finite(values: Iterable[float]) -> None:
    """Raise a ModelError if a value is not finite: the weights are damaged."""
    if not all(map(math.isfinite, values)):
        raise ModelError
