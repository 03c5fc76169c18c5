"""OpenAI's embeddings API: `POST /v1/embeddings`.

Vectors are the mean over the tokens of a text and, as OpenAI's, have length 1, so that their product is the cosine
similarity. Texts of simultaneous requests are processed in one batch.
"""

import base64
from typing import Annotated, Literal

import torch.nn.functional as F
from fastapi import APIRouter, Request
from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from regard.errors import ModelError
from regard.server import limits
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import HttpError, error_responses
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.request_body import JSON_INTEGER, Text, check_length, parse_request, request_schema


class EmbeddingsRequest(BaseModel):
    """The parameters of OpenAI's embeddings. Token ids as input are rejected: they depend on the tokenizer."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=64, description="Name of a served model.")]
    input: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, max_length=limits.MAX_TEXTS)],
        Field(union_mode="smart", description="The text to embed, or a list of texts."),
    ]
    encoding_format: Annotated[
        Literal["float", "base64"],
        Field(description="A list of numbers, or the bytes of 32-bit little-endian floats in Base64."),
    ] = "float"
    dimensions: Annotated[
        Annotated[int, Field(ge=1), *JSON_INTEGER] | None,
        Field(description="Must be the width of the model if it is given: vectors cannot be shortened."),
    ] = None
    user: Annotated[Annotated[str, Field(max_length=256)] | None, Field(description="Accepted and ignored.")] = None

    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.input] if isinstance(self.input, str) else self.input


class TextEmbedding(BaseModel):
    """The vector of a text."""

    model_config = ConfigDict(allow_inf_nan=False)
    object: Annotated[Literal["embedding"], Field(description="Type of the object.")] = "embedding"
    index: Annotated[int, Field(description="Position of the text in the request.")]
    embedding: Annotated[
        list[float] | str,
        Field(description="The vector, of length 1: a list of numbers, or base64 of float32 numbers."),
    ]


class EmbeddingsUsage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: Annotated[int, Field(description="Number of tokens of all texts.")]
    total_tokens: Annotated[int, Field(description="The same number.")]


class EmbeddingsResponse(BaseModel):
    """The vectors of all texts."""

    object: Annotated[Literal["list"], Field(description="Type of the object.")] = "list"
    data: Annotated[list[TextEmbedding], Field(description="The vector of each text.")]
    model: Annotated[str, Field(description="Name of the model that answered.")]
    usage: Annotated[EmbeddingsUsage, Field(description="Numbers of tokens.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of OpenAI's embeddings API."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=error_responses("/v1/"))

    @router.post(
        "/embeddings", summary="Embed texts", openapi_extra=request_schema(EmbeddingsRequest.model_json_schema())
    )
    async def embeddings(request: Request) -> EmbeddingsResponse:
        params = await parse_request(request, EmbeddingsRequest)
        texts = params.texts()
        check_length(texts)
        served = registry.for_task("embed", params.model)
        width = served.model.config.d_model
        if params.dimensions not in (None, width):
            raise HttpError(400, f"dimensions: the vectors of {served.name} have {width} and cannot be shortened")
        work = served.engine.answer(texts, "embed", lambda batch: unit_vectors(served, batch), numbered=True)
        answers = await cancel_on_disconnect(request, work)
        vectors = [vector.tolist() if params.encoding_format == "float" else to_base64(vector) for vector, _ in answers]
        data = [TextEmbedding(index=i, embedding=vector) for i, vector in enumerate(vectors)]
        tokens = sum(count for _, count in answers)
        usage = EmbeddingsUsage(prompt_tokens=tokens, total_tokens=tokens)
        return EmbeddingsResponse(data=data, model=served.name, usage=usage)

    return router


def unit_vectors(served: ServedModel, texts: list[str]) -> list[tuple[Float[Tensor, " C"], int]]:
    """The vector of each text, of length 1, and its number of tokens."""
    tokenizer = served.model.require_tokenizer()
    vectors = F.normalize(served.model.embed(texts).float())  # [texts, C]
    if not vectors.isfinite().all():
        raise ModelError
    return [(vector, len(tokenizer.encode_with_template(text))) for text, vector in zip(texts, vectors, strict=True)]


def to_base64(vector: Float[Tensor, " C"]) -> str:
    """The bytes of a vector as 32-bit little-endian floats, in Base64."""
    return base64.b64encode(vector.numpy().astype("<f4").tobytes()).decode()
