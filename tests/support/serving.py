"""Real servers for tests, on free loopback ports."""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

import regard
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.server.app import create_app
from regard.server.guards import AccessRules, access_rules
from regard.server.listen import bind, build_server
from regard.server.model_registry import ModelRegistry, build_registry
from regard.server.runs_api import RunRegistry
from tests.support.text_models import random_masked_model, random_model


@dataclass(frozen=True)
class Running:
    """A running server."""

    port: int
    registry: ModelRegistry

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request_json(self, method: str, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
        """Send a request: the status and the JSON response. Bytes are sent unchanged, anything else as JSON."""
        status, response, _ = self.request(method, path, content, **headers)
        return status, json.loads(response)

    def request(self, method: str, path: str, content: Any = None, **headers: str) -> tuple[int, bytes, dict[str, str]]:
        """Send a request: the status, the body and the headers of the response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        content_type = {} if content is None else {"content-type": "application/json"}
        sent = content_type | {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, sent)
            with connection.getresponse() as response:
                return response.status, response.read(), {key.lower(): value for key, value in response.getheaders()}
        finally:
            connection.close()

    def raw(self, sent: bytes, timeout: float = 60.0) -> bytes:
        """Send bytes: everything that comes back until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(sent)
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received


@contextmanager
def running(
    models: ModelRegistry, guards: AccessRules | None = None, runs: RunRegistry | None = None
) -> Iterator[Running]:
    """A server in a thread. Engines cannot be started twice, so each server needs its own registry."""
    listener = bind("127.0.0.1", 0)
    ready = threading.Event()
    app = create_app(models, guards or access_rules("127.0.0.1", (), (), None), runs)
    uvicorn = build_server(app, ready.set, models.stop)
    thread = threading.Thread(target=uvicorn.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert ready.wait(30)
        yield Running(listener.getsockname()[1], models)
    finally:
        uvicorn.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


WORDS = "Le petit chat noir dort. The small black cat is sleeping. Once upon a time there was a cat, and it slept."


def language_model(seed: int = 0) -> Model:
    """A small untrained language model. Its output is meaningless but deterministic."""
    torch.manual_seed(seed)
    tokenizer = train_tokenizer([WORDS] * 3, 320)
    config = regard.ModelConfig(
        kind="decoder", vocab_size=tokenizer.size, d_model=32, heads=2, layers=2, d_ff=64, dropout=0.0
    )
    return Model(regard.build(config).eval(), tokenizer, regard.SpecialIds(start=tokenizer.pad, end=(tokenizer.end,)))


def all_models() -> ModelRegistry:
    """Both bundled translators and a language model."""
    models = {name: regard.load(name) for name in ("petit-fr-en", "fr-en")}
    return build_registry({**models, "noise": language_model()}, "float32")


def encoders() -> dict[str, Model]:
    """A small classifier, a tagger and a masked language model, all untrained."""
    models = {
        "classifier": random_model(kind="encoder", classes=3, positions="learned", max_length=64),
        "tagger": random_model(kind="encoder", classes=4, classes_per="token"),
        "masked": random_masked_model(),
    }
    models["classifier"].about["classes"] = ["cold", "mild", "warm"]
    models["tagger"].about["classes"] = ["DET", "NOUN", "VERB", "PUNCT"]
    for model in models.values():
        model.network.float()
    return models
