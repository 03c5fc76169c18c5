"""OpenAI's completions, as its client speaks them: `POST /v1/completions`, streamed or whole, and `GET /v1/models`."""

import json
import secrets
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from regard.decoding.options import Decoding
from regard.server import limits as bounds
from regard.server import request_body as body
from regard.server.client_disconnect import while_here
from regard.server.http_errors import Refusal, described, form
from regard.server.model_registry import Served, Shelf
from regard.server.text_generation import Prompt, Written

STARTED = int(time.time())
Text = Annotated[str, Field(min_length=1, max_length=bounds.CHARACTERS)]
Stop = Annotated[str, Field(min_length=1, max_length=bounds.STOP_CHARACTERS)]


class StreamOptions(BaseModel):
    """What a stream tells beside the text."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool = False


class Complete(BaseModel):
    """What OpenAI's completions take. What would change the text, and cannot be done here, is refused by its name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=64)]
    prompt: Annotated[
        Text | Annotated[list[Text], Field(min_length=1, max_length=bounds.BATCH)], Field(union_mode="smart")
    ]
    max_tokens: Annotated[int, Field(ge=1, le=bounds.NEW_TOKENS), *body.WHOLE] | None = 16
    temperature: Annotated[float, Field(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    n: Annotated[int, Field(ge=1, le=bounds.BATCH), *body.WHOLE] | None = 1
    stop: Stop | Annotated[list[Stop], Field(max_length=bounds.STOPS)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**53), *body.WHOLE] | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    echo: bool | None = False
    logprobs: Annotated[Literal[0] | None, Field(description="0: of the tokens that were said, and no others.")] = None
    user: Annotated[str, Field(max_length=256)] | None = None
    best_of: Annotated[Literal[1] | None, Field(description="Not done here.")] = None
    frequency_penalty: Annotated[Literal[0] | None, Field(description="Not done here.")] = None
    presence_penalty: Annotated[Literal[0] | None, Field(description="Not done here.")] = None

    def texts(self) -> list[str]:
        """The prompts."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def decoding(self) -> Decoding:
        """How tokens are chosen; seeds and lengths are each prompt's own, so that others can be decoded beside them."""
        stop = (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())
        temperature = 1.0 if self.temperature is None else self.temperature
        top_p = 1.0 if self.top_p is None or temperature == 0 else self.top_p
        return Decoding(temperature=temperature, top_p=top_p, stop=stop)


class Usage(BaseModel):
    """How many tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class LogProbs(BaseModel):
    """Of each token that was said, beginning at these characters of the text."""

    model_config = ConfigDict(allow_inf_nan=False)
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: None = None
    text_offset: list[int]


class Choice(BaseModel):
    """What was said behind a prompt."""

    index: int
    text: str
    logprobs: LogProbs | None = None
    finish_reason: Literal["stop", "length"] | None


class Completion(BaseModel):
    """All that was said or, of a stream, what has come."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage | None = None


class Listed(BaseModel):
    """A model."""

    id: str
    object: Literal["model"] = "model"
    created: int = STARTED
    owned_by: str = "regard"


class Models(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[Listed]


def routes(shelf: Shelf) -> APIRouter:
    """The router of these models."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"], responses=described("/v1/"))

    @router.get("/models", summary="The served models")
    async def models() -> Models:
        return Models(data=[Listed(id=name) for name in shelf.by_name])

    @router.get("/models/{name}", summary="One of them")
    async def model(name: str) -> Listed:
        return Listed(id=shelf.choose(name, lambda _: True, "is known").name)

    @router.post(
        "/completions",
        summary="Go on from a prompt",
        response_model=Completion,
        responses={200: {"content": {"text/event-stream": {}}}},
        openapi_extra=body.described(_flat(Complete.model_json_schema())),
    )
    async def complete(request: Request) -> Response:
        asked = await body.read(request, Complete)
        body.check_length(asked.texts())
        served = shelf.writer(asked.model)
        telling = Completing(served, asked)
        if asked.stream:
            # The first piece is waited for: a refusal is then a status, and not an event.
            pieces = telling.pieces()
            first = await while_here(request, _first(pieces))
            return StreamingResponse(telling.events(first, pieces), media_type="text/event-stream")
        return JSONResponse((await while_here(request, telling.whole())).model_dump())

    return router


class Completing:
    """One request on its way: prompts to pieces, pieces to what the client reads."""

    def __init__(self, served: Served, asked: Complete) -> None:
        self.served, self.asked, self.options = served, asked, asked.decoding()
        self.id, self.created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        self.copies = asked.n or 1
        self.texts = [text for text in asked.texts() for _ in range(self.copies)]
        if len(self.texts) > bounds.BATCH:
            raise Refusal(400, f"n × prompts is {len(self.texts)}: {bounds.BATCH} are the most of one request")
        self.said = [0] * len(self.texts)
        """tokens of each choice so far"""
        self.offsets = [0] * len(self.texts)
        """characters of each choice so far, its echoed prompt included"""
        self.read = 0

    async def pieces(self) -> AsyncIterator[Written]:
        """What the engine writes; prompts become tokens in the engine's thread."""
        engine, size = self.served.engine, sum(map(len, self.asked.texts()))
        prompts = await engine.call(size, self.prompts)
        self.read = sum(len(prompt.ids) for prompt in prompts[:: self.copies])
        async for piece in engine.write(size, prompts, self.options):
            self.said[piece.row] += 1
            yield piece

    def prompts(self) -> list[Prompt]:
        """The tokens of each choice's prompt, with its seed."""
        seed = secrets.randbits(48) if self.asked.seed is None else self.asked.seed
        limit = 16 if self.asked.max_tokens is None else self.asked.max_tokens
        encoded = {text: self.served.model.prompt_ids(text) for text in self.asked.texts()}
        prompts = [Prompt(encoded[text], seed + i % self.copies, limit) for i, text in enumerate(self.texts)]
        if (places := sum(len(each.ids) + limit for each in prompts)) > bounds.PLACES:
            raise Refusal(400, f"{places:,} tokens, read and written, are too many: {bounds.PLACES:,} are the most")
        return prompts

    async def whole(self) -> Completion:
        """All of it at once."""
        rows: list[list[Written]] = [[] for _ in self.texts]
        async for piece in self.pieces():
            rows[piece.row].append(piece)
        choices = [self._choice(i, row, first=True) for i, row in enumerate(rows)]
        return self._completion(choices, self._usage())

    async def events(self, first: Written, pieces: AsyncIterator[Written]) -> AsyncIterator[str]:
        """The same as server-sent events, as it comes."""
        begun: set[int] = set()

        def event(piece: Written) -> str:
            choice = self._choice(piece.row, [piece], first=piece.row not in begun)
            begun.add(piece.row)
            return _event(self._completion([choice]).model_dump(exclude={"usage"}))

        try:
            yield event(first)
            async for piece in pieces:
                if piece.text or piece.reason or self.asked.logprobs is not None:
                    yield event(piece)
        except Refusal as refusal:  # too late for a status
            yield _event(form("/v1/", refusal.status, refusal.text))
            return
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]
        if self.asked.stream_options is not None and self.asked.stream_options.include_usage:
            yield _event(self._completion([], self._usage()).model_dump())
        yield "data: [DONE]\n\n"

    def _choice(self, index: int, pieces: list[Written], first: bool) -> Choice:
        before = self.texts[index] if self.asked.echo and first else ""
        text = before + "".join(piece.text for piece in pieces)
        reason = pieces[-1].reason
        why: Literal["stop", "length"] | None = None if reason is None else "length" if reason == "length" else "stop"
        told = None
        if self.asked.logprobs is not None:
            places = [self.offsets[index] + len(before)]
            for piece in pieces:
                places.append(places[-1] + len(piece.text))
            told = LogProbs(
                tokens=[piece.token for piece in pieces],
                token_logprobs=[piece.log_prob for piece in pieces],
                text_offset=places[:-1],
            )
        self.offsets[index] += len(text)
        return Choice(index=index, text=text, logprobs=told, finish_reason=why)

    def _completion(self, choices: list[Choice], usage: Usage | None = None) -> Completion:
        return Completion(id=self.id, created=self.created, model=self.served.name, choices=choices, usage=usage)

    def _usage(self) -> Usage:
        said = sum(self.said)
        return Usage(prompt_tokens=self.read, completion_tokens=said, total_tokens=self.read + said)


async def _first(pieces: AsyncIterator[Written]) -> Written:
    return await anext(pieces)


def _event(told: dict[str, Any]) -> str:
    return f"data: {json.dumps(told, ensure_ascii=False, allow_nan=False)}\n\n"


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose definitions stand where they are used: OpenAPI would seek them elsewhere."""
    definitions = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, dict):
            name = str(value.get("$ref", "")).rpartition("/")[2]
            return definitions[name] if name in definitions else {key: put(each) for key, each in value.items()}
        return [put(each) for each in value] if isinstance(value, list) else value

    flat: dict[str, Any] = put(schema)
    return flat
