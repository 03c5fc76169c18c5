"""OpenAI's completions API: `POST /v1/completions`, streamed or not, and `GET /v1/models`."""

import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.options import Decoding
from regard.server import limits
from regard.server.client_disconnect import cancel_on_disconnect
from regard.server.http_errors import HttpError, error_body, error_responses, to_http_error
from regard.server.model_registry import ModelRegistry, ServedModel
from regard.server.request_body import JSON_INTEGER, Text, check_length, parse_request, request_schema
from regard.server.text_generation import GeneratedToken, GenerationPrompt

SERVER_START = int(time.time())
"""Unix time reported as the creation time of every model."""
DEFAULT_MAX_TOKENS = 16
"""OpenAI's default for max_tokens."""
SEED_BITS = 48
"""Number of bits of a random seed."""
StopString = Annotated[str, Field(min_length=1, max_length=limits.MAX_STOP_CHARACTERS)]
Unsupported = Field(description="Not supported: only the default value is accepted.")


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="ignore")
    include_usage: Annotated[bool, Field(description="Whether the last piece has the numbers of tokens.")] = False


class CompletionRequest(BaseModel):
    """The parameters of OpenAI's completions. An unsupported parameter that would change the text is rejected."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=64, description="Name of a served model.")]
    prompt: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, max_length=limits.MAX_TEXTS)],
        Field(union_mode="smart", description="The text to continue, or a list of texts."),
    ]
    max_tokens: Annotated[
        Annotated[int, Field(ge=1, le=limits.MAX_NEW_TOKENS), *JSON_INTEGER] | None,
        Field(description="Maximum number of new tokens, the end token included."),
    ] = DEFAULT_MAX_TOKENS
    temperature: Annotated[
        Annotated[float, Field(ge=0, le=2)] | None,
        Field(description="0 is greedy; otherwise sample: 1 uses the model's distribution, lower values sharpen it."),
    ] = 1.0
    top_p: Annotated[
        Annotated[float, Field(gt=0, le=1)] | None,
        Field(
            description="Sample from the smallest set of tokens whose probabilities add up to at least p; 1 disables."
        ),
    ] = 1.0
    n: Annotated[
        Annotated[int, Field(ge=1, le=limits.MAX_TEXTS), *JSON_INTEGER] | None,
        Field(description="Number of completions of each prompt."),
    ] = 1
    stop: Annotated[
        StopString | Annotated[list[StopString], Field(max_length=limits.MAX_STOP_STRINGS)] | None,
        Field(description="Strings that end the text; the text is cut before the first of them. One string or a list."),
    ] = None
    seed: Annotated[
        Annotated[int, Field(ge=0, le=2**53), *JSON_INTEGER] | None,
        Field(
            description="Seed for sampling. The same seed and prompt give the same text, whatever else is in the "
            "batch. The default is random."
        ),
    ] = None
    stream: Annotated[bool | None, Field(description="Whether to send the text in pieces, as server-sent events.")] = (
        False
    )
    stream_options: Annotated[StreamOptions | None, Field(description="Options of a stream.")] = None
    echo: Annotated[bool | None, Field(description="Whether the text begins with the prompt.")] = False
    logprobs: Annotated[
        Literal[0] | None,
        Field(description="0 returns the log-probability of each generated token. Alternatives are not supported."),
    ] = None
    user: Annotated[Annotated[str, Field(max_length=256)] | None, Field(description="Accepted and ignored.")] = None
    best_of: Annotated[Literal[1] | None, Unsupported] = None
    frequency_penalty: Annotated[Literal[0] | None, Unsupported] = None
    presence_penalty: Annotated[Literal[0] | None, Unsupported] = None

    def prompts(self) -> list[str]:
        """The prompts as a list."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def decoding(self) -> Decoding:
        """The options shared by all prompts. Seeds and lengths differ per prompt, so that requests can be batched."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        temperature = 1.0 if self.temperature is None else self.temperature
        top_p = 1.0 if self.top_p is None or temperature == 0 else self.top_p
        return Decoding(temperature=temperature, top_p=top_p, stop=stop)


class CompletionUsage(BaseModel):
    """Numbers of tokens."""

    prompt_tokens: Annotated[int, Field(description="Number of tokens of all prompts.")]
    completion_tokens: Annotated[int, Field(description="Number of generated tokens.")]
    total_tokens: Annotated[int, Field(description="The sum of both.")]


class CompletionLogProbs(BaseModel):
    """The generated tokens, their log-probabilities, and their offsets in the text."""

    model_config = ConfigDict(allow_inf_nan=False)
    tokens: Annotated[list[str], Field(description="The generated tokens as they are displayed.")]
    token_logprobs: Annotated[list[float], Field(description="Log-probability of each token.")]
    top_logprobs: Annotated[None, Field(description="Always null: alternatives are not supported.")] = None
    text_offset: Annotated[list[int], Field(description="Offset of each token in the text, in characters.")]


class CompletionChoice(BaseModel):
    """The text generated for a prompt."""

    index: Annotated[int, Field(description="Position among all choices. Those of the same prompt follow each other.")]
    text: Annotated[str, Field(description="The generated text; with `echo`, the prompt precedes it.")]
    logprobs: Annotated[CompletionLogProbs | None, Field(description="Log-probabilities, if they were requested.")] = (
        None
    )
    finish_reason: Annotated[
        Literal["stop", "length"] | None,
        Field(description="`stop` after an end token or stop text, `length` after `max_tokens`; null before."),
    ]


class CompletionResponse(BaseModel):
    """The complete response, or one event of a stream."""

    id: Annotated[str, Field(description="Identifier of the request.")]
    object: Annotated[Literal["text_completion"], Field(description="Type of the object.")] = "text_completion"
    created: Annotated[int, Field(description="Time of the request, in seconds since 1970.")]
    model: Annotated[str, Field(description="Name of the model that answered.")]
    choices: Annotated[
        list[CompletionChoice], Field(description="The texts; in an event of a stream, the new part of one of them.")
    ]
    usage: Annotated[
        CompletionUsage | None,
        Field(description="Numbers of tokens. In a stream, only the last event has them, with `include_usage`."),
    ] = None


class OpenAIModel(BaseModel):
    """A served model in OpenAI's format."""

    id: Annotated[str, Field(description="Name of the model.")]
    object: Annotated[Literal["model"], Field(description="Type of the object.")] = "model"
    created: Annotated[int, Field(description="Time when the server started, in seconds since 1970.")] = SERVER_START
    owned_by: Annotated[str, Field(description="Always `regard`.")] = "regard"


class OpenAIModelList(BaseModel):
    """All served models in OpenAI's format."""

    object: Annotated[Literal["list"], Field(description="Type of the object.")] = "list"
    data: Annotated[list[OpenAIModel], Field(description="The models.")]


def routes(registry: ModelRegistry) -> APIRouter:
    """The router of OpenAI's API."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=error_responses("/v1/"))

    @router.get("/models", summary="List the models")
    async def models() -> OpenAIModelList:
        return OpenAIModelList(data=[OpenAIModel(id=name) for name in registry.by_name])

    @router.get("/models/{name}", summary="Get a model")
    async def model(name: Annotated[str, Path(description="Name of a served model.")]) -> OpenAIModel:
        return OpenAIModel(id=registry.find(name).name)

    @router.post(
        "/completions",
        summary="Complete a prompt",
        response_model=CompletionResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
        openapi_extra=request_schema(_inline_definitions(CompletionRequest.model_json_schema())),
    )
    async def complete(request: Request) -> Response:
        params = await parse_request(request, CompletionRequest)
        check_length(params.prompts())
        run = CompletionRun(registry.language_model(params.model), params)
        if params.stream:
            # Wait for the first token, so that an error before it has a status of its own.
            tokens = run.tokens()
            first = await cancel_on_disconnect(request, _first(tokens))
            return StreamingResponse(run.events(first, tokens), media_type="text/event-stream")
        response = await cancel_on_disconnect(request, run.complete_response())
        return JSONResponse(response.model_dump())

    return router


class CompletionRun:
    """The processing of one request: from prompts to tokens, and from tokens to the response."""

    def __init__(self, served: ServedModel, params: CompletionRequest) -> None:
        self.served, self.params, self.options = served, params, params.decoding()
        self.id, self.created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        self.copies = params.n or 1
        self.texts = [text for text in params.prompts() for _ in range(self.copies)]
        """The prompt of each choice."""
        if len(self.texts) > limits.MAX_TEXTS:
            raise HttpError(400, f"n × prompts is {len(self.texts)}; the maximum is {limits.MAX_TEXTS}")
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.offsets = [0] * len(self.texts)
        """Number of characters of each choice so far, including an echoed prompt."""

    async def tokens(self) -> AsyncIterator[GeneratedToken]:
        """The generated tokens of all choices. Prompts are tokenized in the engine's thread."""
        engine, size = self.served.engine, sum(map(len, self.params.prompts()))
        prompts = await engine.call(size, self.encode_prompts)
        self.prompt_tokens = sum(len(prompt.ids) for prompt in prompts[:: self.copies])
        async for token in engine.generate(size, prompts, self.options):
            self.completion_tokens += 1
            yield token

    def encode_prompts(self) -> list[GenerationPrompt]:
        """The token ids and the seed of each choice's prompt."""
        seed = secrets.randbits(SEED_BITS) if self.params.seed is None else self.params.seed
        max_tokens = DEFAULT_MAX_TOKENS if self.params.max_tokens is None else self.params.max_tokens
        ids = {text: self.served.model.prompt_ids(text) for text in self.params.prompts()}
        prompts = [GenerationPrompt(ids[text], seed + i % self.copies, max_tokens) for i, text in enumerate(self.texts)]
        count = sum(len(prompt.ids) + max_tokens for prompt in prompts)
        if count > limits.MAX_CACHE_TOKENS:
            raise HttpError(
                400,
                f"the request needs {count:,} tokens, read and generated; the maximum is {limits.MAX_CACHE_TOKENS:,}",
            )
        return prompts

    async def complete_response(self) -> CompletionResponse:
        """The response without streaming."""
        rows: list[list[GeneratedToken]] = [[] for _ in self.texts]
        async for token in self.tokens():
            rows[token.prompt_index].append(token)
        choices = [self._choice(i, row, is_first=True) for i, row in enumerate(rows)]
        return self._response(choices, self._usage())

    async def events(self, first: GeneratedToken, rest: AsyncIterator[GeneratedToken]) -> AsyncIterator[str]:
        """The response as server-sent events."""
        started: set[int] = set()

        def token_event(token: GeneratedToken) -> str:
            choice = self._choice(token.prompt_index, [token], is_first=token.prompt_index not in started)
            started.add(token.prompt_index)
            return _event(self._response([choice]).model_dump(exclude={"usage"}))

        try:
            yield token_event(first)
            async for token in rest:
                if token.text or token.finish_reason or self.params.logprobs is not None:
                    yield token_event(token)
        except Exception as error:  # the status has been sent, so the error is an event
            http_error = to_http_error(error)
            yield _event(error_body("/v1/", http_error.status, http_error.message))
            return
        finally:
            await rest.aclose()  # type: ignore[attr-defined]
        if self.params.stream_options is not None and self.params.stream_options.include_usage:
            yield _event(self._response([], self._usage()).model_dump())
        yield "data: [DONE]\n\n"

    def _choice(self, index: int, tokens: list[GeneratedToken], is_first: bool) -> CompletionChoice:
        """A choice from its next tokens. `is_first` says whether the choice begins with them."""
        echoed = self.texts[index] if self.params.echo and is_first else ""
        text = echoed + "".join(token.text for token in tokens)
        log_probs = None
        if self.params.logprobs is not None:
            log_probs = _log_probs(tokens, self.offsets[index] + len(echoed))
        self.offsets[index] += len(text)
        reason = _finish_reason(tokens[-1])
        return CompletionChoice(index=index, text=text, logprobs=log_probs, finish_reason=reason)

    def _response(self, choices: list[CompletionChoice], usage: CompletionUsage | None = None) -> CompletionResponse:
        return CompletionResponse(
            id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage
        )

    def _usage(self) -> CompletionUsage:
        return CompletionUsage(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            total_tokens=self.prompt_tokens + self.completion_tokens,
        )


def _log_probs(tokens: list[GeneratedToken], offset: int) -> CompletionLogProbs:
    """The log-probabilities of tokens whose text begins at this offset."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.text)
    return CompletionLogProbs(
        tokens=[token.token for token in tokens],
        token_logprobs=[token.log_prob for token in tokens],
        text_offset=offsets,
    )


def _finish_reason(token: GeneratedToken) -> Literal["stop", "length"] | None:
    if token.finish_reason is None:
        return None
    return "length" if token.finish_reason == "length" else "stop"


async def _first(tokens: AsyncIterator[GeneratedToken]) -> GeneratedToken:
    return await anext(tokens)


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content, ensure_ascii=False, allow_nan=False)}\n\n"


def _inline_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definitions inlined: OpenAPI would look for them in the components."""
    definitions = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            return definitions[name] if name in definitions else {key: inline(item) for key, item in value.items()}
        return [inline(item) for item in value] if isinstance(value, list) else value

    inlined: dict[str, Any] = inline(schema)
    return inlined
