"""The server over real sockets with real clients: the same results as direct calls."""

import json
import math
import threading
import time
from collections.abc import Iterator
from itertools import compress
from typing import Any

import pytest

import regard
from regard.decoding.vector_projection import project_together
from regard.labs.lab import NAMES
from regard.page import PAGE_FOLDER
from regard.petit import find_pair, pairs
from tests.support.serving import Running, all_models, running

pytestmark = pytest.mark.slow

openai = pytest.importorskip("openai")
LibreTranslateAPI = pytest.importorskip("libretranslatepy").LibreTranslateAPI

SENTENCES = ["Le chat dort.", "Il ne mange jamais de pommes.", "Où est la gare ?", "Elle a trois frères."]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(all_models()) as found:
        yield found


@pytest.fixture(scope="module")
def petit() -> regard.Model:
    return regard.load("petit-fr-en").quick("float32")


def test_health_and_models(server: Running) -> None:
    assert server.request_json("GET", "/health") == (
        200,
        {"status": "ok", "models": {"petit-fr-en": "ok", "fr-en": "ok", "noise": "ok"}, "queued": 0},
    )
    status, models = server.request_json("GET", "/api/models")
    assert status == 200
    told = {each["name"]: each for each in models}
    assert (told["fr-en"]["source"], told["fr-en"]["target"], told["fr-en"]["writes"]) == ("fr", "en", False)
    assert (told["noise"]["translates"], told["noise"]["writes"], told["noise"]["source"]) == (False, True, None)
    assert "trained further" not in told["fr-en"]["about"]  # the score says more, and the origin may be a path
    assert told["fr-en"]["about"].startswith("fr → en; BLEU ")
    assert told["petit-fr-en"]["parameters"] == regard.models.bundled_parameters("petit-fr-en")


def test_text_in_another_language_is_translated_with_a_warning(server: Running) -> None:
    _, answer = server.request_json("POST", "/api/translate", {"text": "Hello, how are you?", "n_best": 1})
    assert answer["translations"]
    assert answer["warning"].startswith("the text looks like English, but this model translates from French")
    _, answer = server.request_json("POST", "/api/translate", {"text": "Où est la gare ?", "n_best": 1})
    assert "warning" not in answer


def test_translations_equal_those_of_a_direct_call(server: Running, petit: regard.Model) -> None:
    for text in SENTENCES:
        status, found = server.request_json("POST", "/api/translate", {"text": text, "n_best": 3})
        (wanted,) = petit.translations([text], beam=4, n_best=3)
        assert status == 200
        assert found["model"] == "petit-fr-en"
        assert [each["text"] for each in found["translations"]] == [each.text for each in wanted]
        scores = [each["score"] for each in found["translations"]]  # in C++, which rounds differently
        assert scores == pytest.approx([each.score for each in wanted], abs=1e-4)


def test_concurrent_clients_get_their_own_responses(server: Running, petit: regard.Model) -> None:
    sentences = [pair.french for pair in pairs(48, split="test")]
    told = petit.translations(sentences, n_best=2)
    sure = [
        len(each) == 1 or each[0].penalised - each[1].penalised > 0.01 for each in told
    ]  # batches round differently
    texts = list(compress(sentences, sure))[:32]
    wanted = [best.text for best, *_ in compress(told, sure)][:32]
    assert len(set(wanted)) == 32
    found: dict[int, Any] = {}

    def ask(number: int) -> None:
        told = {"text": texts[number], "n_best": 1, "model": "petit-fr-en"}
        found[number] = server.request_json("POST", "/api/translate", told)[1]["translations"][0]["text"]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(32)] == wanted


def test_a_libretranslate_client(server: Running, petit: regard.Model) -> None:
    client = LibreTranslateAPI(server.url)
    assert client.translate("Le chat dort.", "fr", "en") == petit.translate("Le chat dort.")
    assert {"code": "fr", "name": "French", "targets": ["fr", "en"]} in client.languages()


def test_libretranslate_json_forms_and_html(server: Running, petit: regard.Model) -> None:
    best = petit.translate(SENTENCES[:2])
    asked = {"q": SENTENCES[:2], "source": "auto", "target": "en", "alternatives": 2, "api_key": "x"}
    status, found = server.request_json("POST", "/translate", asked)
    assert (status, found["translatedText"]) == (200, best)
    for translation, alternatives in zip(best, found["alternatives"], strict=True):
        assert len({translation, *alternatives}) == 1 + len(alternatives) in (2, 3)
    assert found["detectedLanguage"] == [{"confidence": 0.0, "language": "fr"}] * 2
    parts = (
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nLe chat dort.\r\n'
        b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nfr\r\n'
        b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nen\r\n--x--\r\n'
    )
    kinds = {
        "multipart/form-data; boundary=x": parts,
        "application/x-www-form-urlencoded": b"q=Le+chat+dort.&source=fr&target=en",
    }
    for kind, body in kinds.items():
        assert server.request_json("POST", "/translate", body, content_type=kind) == (200, {"translatedText": best[0]})
    page = '<p class="a">Le chat dort.</p><!-- non --><ul><li>\n<script>non</script></ul>'
    status, found = server.request_json(
        "POST", "/translate", {"q": page, "source": "fr", "target": "en", "format": "html"}
    )
    assert found == {"translatedText": page.replace("Le chat dort.", best[0])}
    status, found = server.request_json(
        "POST", "/translate", {"q": "Le <b>chat</b> dort.", "source": "fr", "target": "en", "format": "html"}
    )
    assert status == 400
    assert "<b> is inside a sentence" in found["error"]
    for wrong, word in (({"target": "xx"}, "xx"), ({"source": "en", "target": "fr"}, "not available"), ({"q": 3}, "q")):
        status, found = server.request_json("POST", "/translate", {"q": "a", "source": "fr", "target": "en", **wrong})
        assert status == 400
        assert word in found["error"]


def test_attention_with_steps_beam_and_gold(server: Running) -> None:
    source = "Il ne mange jamais de pommes."
    status, found = server.request_json("POST", "/api/attend", {"source": source})
    assert status == 200
    direct = regard.load("petit-fr-en").attend(source)
    assert found["target"] == direct.target
    assert [each["kind"] for each in found["maps"]] == ["encoder", "decoder", "cross"]
    cross = found["maps"][2]
    best = [node for node in found["beam"]["nodes"] if node["best"]]
    assert len(best) == len(found["steps"]) == len(cross["writes"])
    assert all(node["kept"] for node in best)
    assert [node["parent"] for node in best[1:]] == [node["id"] for node in best[:-1]]
    for step, node, label in zip(found["steps"], best, cross["writes"], strict=True):
        assert step["token"] == node["token"] == label
        assert label in [each["token"] for each in step["top"]]
        assert len(step["top"]) == 10
        assert step["top"] == sorted(step["top"], key=lambda each: -each["p"])
    gold = find_pair(source)
    assert gold is not None
    assert direct.target == gold.english
    pairs = {(cross["writes"][row].strip("·"), cross["keys"][column].strip("·")) for row, column in found["gold"]}
    assert ("never", "jamais") in pairs
    assert ("He", "Il") in pairs
    assert ("He", "mange") not in pairs
    status, found = server.request_json(
        "POST", "/api/attend", {"source": source, "target": "He eats.", "model": "fr-en"}
    )
    assert status == 200
    assert "beam" not in found
    assert "gold" not in found
    status, found = server.request_json("POST", "/api/attend", {"source": "Once upon a time", "model": "noise"})
    assert len(found["steps"]) == len(found["maps"][0]["queries"]) - 1


def test_the_next_token(server: Running) -> None:
    status, plain = server.request_json("POST", "/api/next", {"text": "Once upon", "show": 200})
    assert (status, plain["model"], len(plain["tokens"])) == (200, "noise", 200)
    assert "".join(plain["text_tokens"]).startswith("Once")
    assert all(each["p"] == pytest.approx(each["kept_p"]) for each in plain["tokens"])
    tokenizer = server.registry.by_name["noise"].model.tokenizer
    assert tokenizer is not None
    ids = tokenizer.encode("Once upon")
    for each in plain["tokens"]:
        assert each["end"] == (each["id"] == tokenizer.end)
        assert "Once upon" + each["text"] == tokenizer.decode([*ids, each["id"]])
    status, cut = server.request_json("POST", "/api/next", {"text": "Once upon", "top_k": 5, "temperature": 0.5})
    kept = [each["kept_p"] for each in cut["tokens"]]
    assert sum(kept[:5]) == pytest.approx(1)
    assert kept[5:] == [0] * 35
    weights = [each["p"] ** 2 for each in cut["tokens"][:5]]
    assert kept[:5] == pytest.approx([weight / sum(weights) for weight in weights])
    status, sure = server.request_json("POST", "/api/next", {"text": "Once upon", "temperature": 0})
    assert [each["kept_p"] for each in sure["tokens"][:2]] == [1, 0]


def test_the_openai_client(server: Running) -> None:
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    assert [each.id for each in client.models.list()] == ["petit-fr-en", "fr-en", "noise"]
    model = server.registry.by_name["noise"].model
    direct = model.generate("Once upon", max_tokens=12)[len("Once upon") :]
    whole = client.completions.create(model="noise", prompt="Once upon", max_tokens=12, temperature=0)
    assert whole.choices[0].text == direct
    assert whole.choices[0].finish_reason == "length"
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 12
    streamed = client.completions.create(
        model="noise",
        prompt="Once upon",
        max_tokens=12,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces = list(streamed)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices) == direct
    assert pieces[-1].usage is not None
    assert pieces[-1].usage.total_tokens == whole.usage.total_tokens
    drawn = [
        client.completions.create(model="noise", prompt=["Once", "The cat"], n=2, seed=7, max_tokens=8, top_p=0.9)
        for _ in range(2)
    ]
    assert [each.text for each in drawn[0].choices] == [each.text for each in drawn[1].choices]
    assert [each.index for each in drawn[0].choices] == [0, 1, 2, 3]
    assert len({each.text for each in drawn[0].choices}) == 4
    first = model.generate("Once", max_tokens=8, temperature=1.0, top_p=0.9, seed=7)
    assert drawn[0].choices[0].text == first[len("Once") :]
    told = client.completions.create(model="noise", prompt="Once", max_tokens=3, temperature=0, logprobs=0, echo=True)
    assert told.choices[0].text.startswith("Once")
    assert told.choices[0].logprobs is not None
    assert len(told.choices[0].logprobs.token_logprobs or []) == 3
    with pytest.raises(openai.NotFoundError, match="not a model that generates text"):
        client.completions.create(model="fr-en", prompt="Once")
    with pytest.raises(openai.BadRequestError, match="max_tokens"):
        client.completions.create(model="noise", prompt="Once", max_tokens=100_000)


def test_a_stop_string_ends_a_stream(server: Running) -> None:
    model = server.registry.by_name["noise"].model
    whole = model.generate("Once", max_tokens=40)[len("Once") :]
    stop = whole[5:8]
    asked = {"model": "noise", "prompt": "Once", "max_tokens": 40, "temperature": 0, "stop": [stop], "stream": True}
    status, content, headers = server.request("POST", "/v1/completions", asked)
    events = [line.removeprefix("data: ") for line in content.decode().split("\n\n") if line]
    assert (status, events[-1], headers["content-type"].split(";")[0]) == (200, "[DONE]", "text/event-stream")
    choices = [json.loads(event)["choices"][0] for event in events[:-1]]
    assert "".join(each["text"] for each in choices) == whole[: whole.index(stop)]
    assert [each["finish_reason"] for each in choices][-1] == "stop"


def test_batched_prompts_generate_the_same_text_as_single_ones(server: Running) -> None:
    prompts = ["Once", "The small black cat", "a", "Le petit chat noir dort. "]
    asked = {"model": "noise", "temperature": 0.8, "seed": 3, "max_tokens": 20}
    alone = [
        server.request_json("POST", "/v1/completions", {**asked, "prompt": each})[1]["choices"][0]["text"]
        for each in prompts
    ]
    together = server.request_json("POST", "/v1/completions", {**asked, "prompt": prompts})[1]["choices"]
    assert [each["text"] for each in together] == alone


def test_long_generation_does_not_block_other_requests(server: Running) -> None:
    begun, ended = threading.Event(), threading.Event()

    def write() -> None:
        begun.set()
        server.request_json(
            "POST", "/v1/completions", {"model": "noise", "prompt": "Once", "max_tokens": 400, "seed": 1}
        )
        ended.set()

    thread = threading.Thread(target=write)
    thread.start()
    begun.wait()
    time.sleep(0.2)
    assert (
        server.request_json("POST", "/v1/completions", {"model": "noise", "prompt": "The", "max_tokens": 2})[0] == 200
    )
    assert server.request_json("POST", "/api/translate", {"text": "Le chat dort."})[0] == 200
    assert not ended.is_set()
    thread.join()


def test_labs_are_read_from_the_gallery(server: Running) -> None:
    status, labs = server.request_json("GET", "/api/labs")
    assert status == 200
    names = [lab["name"] for lab in labs]
    assert [name for name in names if not name.endswith("-full")] == [name for name in NAMES if name in names]
    assert len(labs) >= 15
    full = next(lab for lab in labs if lab["name"] == "ablation-full")
    assert full["command"].startswith("regard lab ablation --set full=true")
    assert ["(B) d_k = 8", "908,800"] in [row[:2] for row in full["tables"][0]["rows"]]
    heads = next(lab for lab in labs if lab["name"] == "heads")
    assert [table["title"] for table in heads["tables"]] == ["Cost of heads", "Two look-ups at once"]
    assert heads["tables"][1]["head"] == ["heads × width", "first correct", "second correct", "both correct"]
    assert len(heads["claims"]) == 4
    assert heads["notes"] == [
        "More layers would also help a single head, because they can look again. Several heads look at once."
    ]
    status, picture, headers = server.request("GET", heads["picture"])
    assert (status, picture[:4], headers["content-type"]) == (200, b"\x89PNG", "image/png")
    for path in ("/labs/nothing.png", "/labs/..%2f..%2fREADME.md", "/labs/%2e%2e/README.png"):
        assert server.request("GET", path)[0] == 404


def test_the_page_is_a_fixed_list_of_files(server: Running) -> None:
    status, content, headers = server.request("GET", "/page/attention_map.js")
    assert (status, content) == (200, (PAGE_FOLDER / "attention_map.js").read_bytes())
    assert headers["content-type"].startswith("text/javascript")
    assert server.request("GET", "/page/attention_map.js", if_none_match=headers["etag"])[0] == 304
    assert server.request("GET", "/")[0] == 200
    for path in (
        "/page/__init__.py",
        "/page/..%2f__init__.py",
        "/page/%2e%2e/serve/app.py",
        "/page//etc/passwd",
        "/page/",
    ):
        assert server.request("GET", path)[0] == 404


def test_probabilities_of_the_tokens_of_a_text(server: Running) -> None:
    model = server.registry.by_name["noise"].model
    text = "Once upon a time, naïve 😀 cat"
    status, found = server.request_json("POST", "/api/tokens", {"text": text, "model": "noise"})
    assert status == 200
    first, *rest = found["tokens"]
    assert (first["probability"], first["start"]) == (None, None)
    log_probability = sum(math.log(token["probability"]) for token in rest)
    assert log_probability == pytest.approx(model.score([text])[0], rel=1e-5)
    starts = [token["start"] for token in rest]
    assert None in starts  # the face is several tokens, which start within a character
    for i, token in enumerate(rest[:3]):
        prefix = text[: token["start"]]
        status, following = server.request_json("POST", "/api/next", {"text": prefix, "model": "noise", "show": 200})
        ranked = [each["p"] for each in following["tokens"]]
        assert token["rank"] > 200 or ranked[token["rank"] - 1] == pytest.approx(token["probability"], rel=1e-4), i
    status, answer = server.request_json("POST", "/api/tokens", {"text": "a" * 2001, "model": "noise"})
    assert (status, "2,000" in answer["error"]) == (400, True)


def test_layers_are_those_of_the_model(server: Running) -> None:
    asked = {"source": "Le chat dort.", "target": "The cat sleeps.", "model": "petit-fr-en"}
    status, found = server.request_json("POST", "/api/layers", asked)
    assert status == 200
    model = regard.load("petit-fr-en")
    attention = model.attend("Le chat dort.", "The cat sleeps.", lens=5)
    assert attention.lens is not None
    assert found["lens"] == attention.lens.to_json()
    encoder, decoder = found["stacks"]
    assert (encoder["tokens"], decoder["tokens"]) == (
        list(attention.maps["encoder"].queries),
        list(attention.maps["decoder"].queries),
    )
    vectors = model.hidden("Le chat dort.").vectors
    assert encoder["together"] == project_together(vectors).to_json()
    last = [position[0]["p"] for position in found["lens"]["top"][-1]]
    assert found["final"][-1] == pytest.approx(last, abs=2e-6)  # the last layer predicts its own token
    for state, top in zip(found["final"], found["lens"]["top"], strict=True):
        assert all(p <= position[0]["p"] + 2e-6 for p, position in zip(state, top, strict=True))
    status, found = server.request_json("POST", "/api/layers", {"source": "Once", "model": "noise"})
    assert (status, len(found["stacks"])) == (200, 1)


def test_openapi_describes_every_path(server: Running) -> None:
    status, told = server.request_json("GET", "/openapi.json")
    asked = {
        path: told["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        for path in ("/translate", "/v1/completions", "/api/next")
    }
    assert asked["/translate"]["alternatives"]["exclusiveMaximum"] == 16
    assert {"minimum": 1, "maximum": 64, "type": "integer"} in asked["/v1/completions"]["n"]["anyOf"]
    assert asked["/api/next"]["show"]["maximum"] == 200
    assert status == 200
    assert set(told["paths"]) == {
        *("/health", "/api/models", "/api/translate", "/api/attend", "/api/next", "/api/labs", "/labs/{name}.png"),
        *(
            "/api/head",
            "/api/effects",
            "/api/attention-page",
            "/api/layers",
            "/api/tokens",
            "/api/runs",
            "/api/run",
            "/api/frame",
        ),
        *("/api/classify", "/api/tag", "/api/fill", "/translate", "/languages"),
        *("/v1/completions", "/v1/embeddings", "/v1/models", "/v1/models/{name}"),
    }
    assert "422" not in json.dumps(told)
    for name in ("/docs", "/redoc"):
        assert server.request("GET", name)[0] == 404
