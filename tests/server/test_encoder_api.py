"""Classifiers, taggers, masked language models and sentence vectors over HTTP: the same results as direct calls."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.text_model import Model
from regard.server.engine import Engine
from regard.server.model_registry import build_registry
from tests.support.serving import Running, encoders, language_model, running
from tests.support.text_models import TEXTS

pytestmark = pytest.mark.slow

LONG = "chat " * 99


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(build_registry({**encoders(), "noise": language_model()}, "float32")) as found:
        yield found


def model(server: Running, name: str) -> Model:
    return server.registry.by_name[name].model


def test_models_say_what_they_can_do(server: Running) -> None:
    status, models = server.request_json("GET", "/api/models")
    assert status == 200
    assert {described["name"]: described["tasks"] for described in models} == {
        "classifier": ["classify", "embed"],
        "tagger": ["tag", "embed"],
        "masked": ["fill", "embed"],
        "noise": ["embed"],
    }
    assert not any(described["translates"] or described["writes"] for described in models[:3])
    assert server.request_json("GET", "/health")[1]["status"] == "ok"
    for name in ("classifier", "tagger", "masked"):
        status, attention = server.request_json("POST", "/api/attend", {"model": name, "source": "Le chat dort."})
        assert (status, [map_["kind"] for map_ in attention["maps"]]) == (200, ["encoder"])
        assert ("lens" in attention) == (name == "masked")


def test_classes(server: Running) -> None:
    status, answer = server.request_json("POST", "/api/classify", {"texts": TEXTS})
    assert (status, answer["model"]) == (200, "classifier")
    probabilities = model(server, "classifier").class_probabilities(TEXTS)
    for classes, expected in zip(answer["results"], probabilities, strict=True):
        assert [each["probability"] for each in classes] == pytest.approx(
            expected.sort(descending=True).values.tolist(), abs=1e-5
        )
        assert [each["label"] for each in classes] == [["cold", "mild", "warm"][i] for i in expected.argsort().flip(0)]


def test_labels_of_words(server: Running) -> None:
    status, answer = server.request_json("POST", "/api/tag", {"texts": TEXTS})
    assert (status, answer["model"]) == (200, "tagger")
    for words, expected in zip(answer["results"], model(server, "tagger").tag(TEXTS), strict=True):
        assert [(each["word"], each["label"]) for each in words] == [(each.word, each.label) for each in expected]
        assert [each["probability"] for each in words] == pytest.approx(
            [each.probability for each in expected], abs=1e-5
        )


def test_masks(server: Running) -> None:
    text = "Le <mask> dort sur la <mask>."
    status, answer = server.request_json("POST", "/api/fill", {"text": text, "k": 4})
    assert (status, answer["model"]) == (200, "masked")
    expected = model(server, "masked").fillings(text, 4)
    assert [[each["text"] for each in mask] for mask in answer["masks"]] == [
        [each.text for each in m] for m in expected
    ]
    assert answer["masks"][1][3]["probability"] == pytest.approx(expected[1][3].probability, abs=1e-5)
    assert answer["masks"][0][0]["token"] == expected[0][0].token
    status, answer = server.request_json("POST", "/api/fill", {"text": "<mask>" * 10, "k": 50})
    assert (status, [len(mask) for mask in answer["masks"]]) == (200, [50] * 10)
    status, answer = server.request_json("POST", "/api/fill", {"text": "Le chat dort."})
    assert (status, "the text has no mask: write <mask>" in answer["error"]) == (400, True)


def test_the_openai_client_gets_vectors(server: Running) -> None:
    openai = pytest.importorskip("openai")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    for name in ("classifier", "noise"):
        vectors = torch.nn.functional.normalize(model(server, name).embed(TEXTS)).numpy()
        answer = client.embeddings.create(model=name, input=TEXTS)  # the client asks for Base64
        assert [each.index for each in answer.data] == list(range(len(TEXTS)))
        assert np.allclose([each.embedding for each in answer.data], vectors, atol=1e-6)
        single = client.embeddings.create(
            model=name, input=TEXTS[1], encoding_format="float", dimensions=vectors.shape[1]
        )
        assert np.allclose(single.data[0].embedding, vectors[1], atol=1e-6)
        tokens = len(model(server, name).require_tokenizer().encode_with_template(TEXTS[1]))
        assert (single.usage.prompt_tokens, single.usage.total_tokens, single.model) == (tokens, tokens, name)
    with pytest.raises(openai.BadRequestError, match="have 24 and cannot be shortened"):
        client.embeddings.create(model="classifier", input="a", dimensions=3)
    with pytest.raises(openai.BadRequestError, match="input"):
        client.embeddings.create(model="classifier", input=[[1, 2, 3]])
    with pytest.raises(openai.NotFoundError, match="no model of this name"):
        client.embeddings.create(model="nothing", input="a")


def test_base64_is_that_of_little_endian_floats(server: Running) -> None:
    body = {"model": "masked", "input": TEXTS[0], "encoding_format": "base64"}
    _, answer = server.request_json("POST", "/v1/embeddings", body)
    vector = np.frombuffer(base64.b64decode(answer["data"][0]["embedding"]), "<f4")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-6)
    _, answer = server.request_json("POST", "/v1/embeddings", {**body, "encoding_format": "float"})
    assert np.array_equal(np.array(answer["data"][0]["embedding"], np.float32), vector)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/api/classify", {"texts": ["a", LONG]}, 400, "text 1: the text has"),
        ("/api/classify", {"texts": [LONG]}, 400, "the text has"),
        ("/api/classify", {"texts": []}, 400, "texts"),
        ("/api/classify", {"texts": [""]}, 400, "texts.0"),
        ("/api/classify", {"texts": ["a"] * 65}, 400, "at most 64"),
        ("/api/classify", {"texts": ["a" * 6_000] * 2}, 400, "the maximum is 10,000"),
        ("/api/classify", {"texts": "a"}, 400, "texts"),
        ("/api/classify", {"texts": ["a"], "labels": 3}, 400, "labels"),
        ("/api/classify", {"texts": ["a"], "model": "masked"}, 404, "is an encoder, not a model that classifies"),
        ("/api/tag", {"texts": ["a"], "model": "noise"}, 404, "not a model that tags words: use tagger"),
        ("/api/fill", {"text": "a <mask>", "k": 51}, 400, "k"),
        ("/api/fill", {"text": "<mask>" * 167}, 400, "text"),
        ("/api/fill", {"text": "<mask>" * 11, "k": 50}, 400, "11 masks × k=50 are 550 fillings; the maximum is 500"),
        ("/v1/embeddings", {"input": ["a", LONG], "model": "classifier"}, 400, "text 1: the text has"),
        ("/v1/embeddings", {"input": "a"}, 400, "model"),
        ("/v1/embeddings", {"input": "a", "model": "noise", "encoding_format": "int8"}, 400, "encoding_format"),
    ],
)  # fmt: skip
def test_wrong_requests_are_reported(
    server: Running, path: str, body: dict[str, Any], status: int, message: str
) -> None:
    found, answer = server.request_json("POST", path, body)
    error = answer["error"]["message"] if path.startswith("/v1") else answer["error"]
    assert found == status, answer
    assert message in error


def test_damaged_weights_are_server_errors() -> None:
    models = encoders()
    for each in models.values():
        with torch.no_grad():
            each.network.get_parameter("encoder.layers.0.feed_forward.up.weight").fill_(torch.nan)
    with running(build_registry(models, "float32")) as server:
        for path, body in (
            ("/api/classify", {"texts": ["a"]}),
            ("/api/tag", {"texts": ["a"]}),
            ("/api/fill", {"text": "a <mask>"}),
            ("/v1/embeddings", {"input": "a", "model": "tagger"}),
        ):
            status, answer = server.request_json("POST", path, body)
            assert (status, "non-finite" in json.dumps(answer)) == (500, True), answer


def test_texts_of_several_requests_are_answered_in_one_batch() -> None:
    batches: list[list[str]] = []

    def answer(texts: list[str]) -> list[str]:
        batches.append(texts)
        if "bad" in texts:
            raise regard.RegardError("this text is bad")
        return [text.upper() for text in texts]

    async def requests(engine: Engine) -> list[Any]:
        engine.start()
        gate = threading.Event()
        blocked = asyncio.create_task(engine.call(1, partial(gate.wait, 20)))
        tasks = [
            asyncio.create_task(engine.answer(texts, key, answer, numbered=True))
            for texts, key in ((["a", "b"], 1), (["c"], 1), (["d"], 2), (["e", "bad"], 1))
        ]
        while engine.queued < 6:
            await asyncio.sleep(0.001)
        gate.set()
        answers = await asyncio.gather(blocked, *tasks, return_exceptions=True)
        engine.stop()
        return answers[1:]

    first, second, third, refused = asyncio.run(requests(Engine(encoders()["classifier"])))
    assert (first, second, third) == (["A", "B"], ["C"], ["D"])
    assert str(refused) == "text 1: this text is bad"
    assert ["a", "c", "e", "b", "bad"] in batches  # a text of each request in turn, then each alone
    assert ["d"] in batches


CALLS: list[tuple[str, Callable[[Model], Any]]] = [
    ("classifier", lambda model: model.classify(TEXTS)),
    ("classifier", lambda model: model.embed(TEXTS)),
    ("tagger", lambda model: model.tag(TEXTS)),
]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_every_call_can_be_cancelled(name: str, call: Callable[[Model], Any]) -> None:
    with pytest.raises(Cancelled), cancellable(lambda: True):
        call(encoders()[name])
