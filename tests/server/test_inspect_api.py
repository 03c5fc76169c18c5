"""The API for a closer look: changes to attention, the computation inside a head, and the effects of heads."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import regard
from regard.decoding.head_vectors import head_vectors
from regard.decoding.interventions import AttentionChanges, HeadName, intervene
from regard.server.model_registry import build_registry
from tests.support.serving import Running, encoders, language_model, running

SOURCE = "Il ne mange jamais de pommes."
HEAD = {"kind": "cross", "layer": 1, "head": 2}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    models = {"petit-fr-en": regard.load("petit-fr-en"), "noise": language_model(), **encoders()}
    with running(build_registry(models, "float32")) as started:
        yield started


def post(server: Running, path: str, **body: Any) -> Any:
    status, found = server.request_json("POST", path, {"source": SOURCE, **body})
    assert status == 200, found
    return found


def test_changes_apply_to_one_request_only(server: Running) -> None:
    usual = post(server, "/api/attend")
    layer = [{"kind": "cross", "layer": 1, "head": head} for head in range(4)]
    changed = post(server, "/api/attend", changes={"silenced": layer, "hidden": [2]})
    model = regard.load("petit-fr-en")
    heads = tuple(HeadName("cross", 1, head) for head in range(4))
    with intervene(model.network, AttentionChanges(heads, (2,))):
        best, _ = model.search_tree(SOURCE)
    assert changed["target"] == model.require_tokenizer().decode(best.ids)
    assert changed["target"] != usual["target"]
    assert not any(row[2] for each in changed["maps"][2]["weights"] for head in each for row in head)
    assert post(server, "/api/attend") == usual


def test_the_computation_inside_a_head(server: Running) -> None:
    looked = post(server, "/api/attend")
    found = post(server, "/api/head", head=HEAD, written=looked["written"])
    model = regard.load("petit-fr-en")
    vectors = head_vectors(model.observe(SOURCE).forward, HeadName("cross", 1, 2))
    for name in ("q", "k", "v", "dots", "weights", "output"):
        torch.testing.assert_close(torch.tensor(found[name]), getattr(vectors, name), atol=1e-4, rtol=1e-3)
    assert found["scale"] == pytest.approx(32**-0.5)
    assert (found["bias"], found["model"]) == (None, "petit-fr-en")
    causal = post(server, "/api/head", model="noise", head={"kind": "decoder", "layer": 0, "head": 1})
    assert [sum(row) for row in causal["allowed"]] == list(range(1, len(causal["allowed"]) + 1))
    assert post(server, "/api/head", model="masked", head={"kind": "encoder", "layer": 0, "head": 0})["q"]


def test_effects_of_heads_and_words(server: Running) -> None:
    found = post(server, "/api/effects")
    assert len(found["heads"]) == 24
    divergences = [effect["divergence"] for effect in found["heads"]]
    assert divergences == sorted(divergences, reverse=True)
    covered = [position for word in found["words"] for position in word["positions"]]
    assert covered == list(range(len(covered)))
    largest = found["heads"][0]
    assert largest["log_probability"] < 0
    without = post(server, "/api/effects", changes={"silenced": [{name: largest[name] for name in HEAD}]})
    again = next(effect for effect in without["heads"] if all(effect[name] == largest[name] for name in HEAD))
    assert again["divergence"] == pytest.approx(0, abs=1e-5)  # it is silent already
    for effect in post(server, "/api/effects", source="Tu vas bien ?")["heads"]:  # not greedy
        assert (effect["token"] is None) == (effect["step"] is None) == (effect["instead_of"] is None)
        assert effect["token"] is None or effect["token"] != effect["instead_of"]
    for model in ("noise", "classifier", "tagger", "masked"):
        effects = post(server, "/api/effects", model=model)["heads"]
        assert all((effect["log_probability"] is None) == (model != "noise") for effect in effects)


def test_a_translation_with_a_given_beginning(server: Running) -> None:
    usual = post(server, "/api/attend")
    other = usual["steps"][1]["top"][1]["id"]
    found = post(server, "/api/attend", beginning=[usual["written"][0], other])
    assert found["written"][:2] == [usual["written"][0], other]
    given = [node for node in found["beam"]["nodes"] if node["given"]]
    assert [node["step"] for node in given] == [0, 1]
    assert any(node["usual"] and not node["best"] for node in found["beam"]["nodes"])


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/api/attend", {"changes": {"silenced": [{**HEAD, "layer": 2}]}}, "no layer 2"),
        ("/api/attend", {"changes": {"silenced": [HEAD] * 2001}}, "at most 2000"),
        ("/api/attend", {"changes": {"hidden": [99]}}, "token 99 cannot be hidden"),
        ("/api/attend", {"changes": {"hidden": [-1]}}, "greater than or equal to 0"),
        ("/api/attend", {"changes": {"weights": [{**HEAD, "row": 0, "column": 0, "weight": 2}]}}, "less than or equal"),
        ("/api/attend", {"changes": {"weights": [{**HEAD, "row": 0, "column": 99, "weight": 1}]}}, "no column 99"),
        ("/api/attend", {"changes": {"extra": 1}}, "Extra inputs"),
        ("/api/attend", {"beginning": [10**9]}, "cannot continue after id"),
        ("/api/attend", {"beginning": [5], "target": "He eats."}, "leave one of them out"),
        ("/api/attend", {"beginning": [5], "model": "noise"}, "leave one of them out"),
        ("/api/attend", {"beginning": [True]}, "beginning.0"),
        ("/api/head", {}, "head: Field required"),
        ("/api/head", {"head": {**HEAD, "kind": "middle"}}, "head.kind"),
        ("/api/head", {"head": {**HEAD, "head": 4}}, "no head 4"),
        ("/api/head", {"head": HEAD, "written": []}, "at least one"),
        ("/api/head", {"head": HEAD, "written": [2**30]}, "is not the id of a token"),
        ("/api/head", {"head": HEAD, "model": "noise"}, "no 'cross' attention"),
        ("/api/effects", {"model": "noise", "written": [1]}, "written ids are for translators"),
        ("/api/effects", {"written": [5] * 1001}, "at most 1000"),
        ("/api/effects", {"target": ""}, "target"),
    ],
)
def test_invalid_requests_say_what_is_wrong(server: Running, path: str, body: dict[str, Any], message: str) -> None:
    status, found = server.request_json("POST", path, {"source": SOURCE, **body})
    assert status == 400
    assert message in found["error"]
