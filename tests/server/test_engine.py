"""The engine: cancelled work stops, and no request can end a model's thread."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

import pytest
import torch
from tokenizers import Regex, pre_tokenizers

import regard
from regard.config import SpecialIds
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.cancellation import Cancelled, cancellable, raise_if_cancelled
from regard.decoding.cuda_graph_decoding import RecordedSearches
from regard.decoding.fast_copy import FastEncoderDecoder
from regard.decoding.generate import generate, search_translations, stream_all
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.decoding.translator import Translation, Translator
from regard.evaluation.sliding_window import score_texts
from regard.model.transformer import EncoderDecoder
from regard.server import limits, memory_release
from regard.server.attention_data import attention_data, to_json
from regard.server.engine import MAX_THREAD_FAILURES, Engine
from regard.server.http_errors import HttpError
from regard.server.model_registry import ServedModel, build_registry
from tests.support.separate_vocabularies import equal_models
from tests.support.serving import language_model, running
from tests.support.text_models import ANSWERS, TEXTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def petit() -> Model:
    return regard.load("petit-fr-en")


def endless(kind: Literal["decoder", "encoder-decoder"] = "encoder-decoder", **changes: Any) -> Model:
    """A small model that never generates an end token."""
    torch.manual_seed(0)
    tokenizer = train_tokenizer(["Le petit chat noir dort."] * 3, 320)
    small = {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0}
    config = regard.ModelConfig(kind=kind, vocab_size=tokenizer.size, **small | changes)
    return Model(regard.build(config).eval(), tokenizer, SpecialIds(start=tokenizer.pad))


def record_searches(model: Model) -> None:
    """Let a model decode as on a GPU; here the recorded steps run directly."""
    assert isinstance(model.network, EncoderDecoder)
    copy = FastEncoderDecoder(model.network)
    copy.recorded_searches = RecordedSearches()
    model.network = copy


class Asked:
    """A cancellation check that counts its calls and cancels at the n-th."""

    def __init__(self, most: int) -> None:
        self.most, self.times = most, 0

    def __call__(self) -> bool:
        self.times += 1
        return self.times >= self.most


def _beam(model: Model) -> None:
    search_translations(model.network, model.special, [[5, 6, 7]], Decoding(beam=2, max_tokens=60))  # type: ignore[arg-type]


def _greedy(model: Model) -> None:
    search_translations(model.network, model.special, [[5, 6, 7]], Decoding(max_tokens=60))  # type: ignore[arg-type]


def _tree(model: Model) -> None:
    model.search_tree("Le petit chat noir dort.")


def _many_batches(model: Model) -> None:
    model.translations(["Le chat."] * 60, batch_tokens=16, max_tokens=1)


def _score(model: Model) -> None:
    model.score(["Le petit chat noir dort. " * 20] * 120, ["Le chat dort."] * 120)


@pytest.mark.parametrize("work", [_beam, _greedy, _tree, _many_batches, _score])
@pytest.mark.parametrize("recorded", [False, True])
def test_every_decoding_loop_can_be_cancelled(work: Callable[[Model], None], recorded: bool) -> None:
    model = endless()
    if recorded:
        record_searches(model)
    asked = Asked(5)
    with cancellable(asked), pytest.raises(Cancelled):
        work(model)
    assert asked.times == 5
    raise_if_cancelled()  # no check is left


def test_generation_can_be_cancelled() -> None:
    model = endless("decoder")
    for work in (
        lambda: list(stream_all(model.network, model.special, [[5]], Decoding(), [0], [50])),  # type: ignore[arg-type]
        lambda: generate(model.network, model.special, [[5]], Decoding(beam=2, max_tokens=50)),  # type: ignore[arg-type]
        lambda: score_texts(model, ["Le petit chat noir dort. " * 40] * 60, 64, 32),
    ):
        asked = Asked(3)
        with cancellable(asked), pytest.raises(Cancelled):
            work()
        assert asked.times == 3


def test_a_cancellation_check_applies_only_to_its_thread() -> None:
    found: list[str] = []

    def other() -> None:
        raise_if_cancelled()
        found.append("not cancelled")

    with cancellable(lambda: True):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert found == ["not cancelled"]


def story(told: Callable[[Engine], Awaitable[None]], model: Model, **options: Any) -> None:
    """Run this with an engine in a new event loop."""

    async def run() -> None:
        engine = Engine(model, **options)
        engine.start()
        try:
            await told(engine)
        finally:
            engine.stop()
            await asyncio.to_thread(engine.join)
            assert not engine._thread.is_alive()

    asyncio.run(run())


async def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("recorded", [False, True])
def test_disconnecting_and_timeouts_stop_the_work(recorded: bool) -> None:
    """The translation would have 100,000 tokens and take minutes."""
    model = endless()
    if recorded:
        record_searches(model)

    async def told(engine: Engine) -> None:
        asked = asyncio.create_task(engine.translate(["Le chat dort."], Decoding(beam=2, max_tokens=100_000)))
        await until(lambda: bool(engine._running))
        asked.cancel()
        await until(lambda: not engine._running)
        engine.timeout_seconds = 0.2
        with pytest.raises(HttpError, match="took longer"):
            await engine.translate(["Le chat dort."], Decoding(beam=2, max_tokens=100_000))
        await until(lambda: not engine._running)

    story(told, model)


def panicking(model: Model) -> Model:
    """The model with a tokenizer whose pattern panics on 30 times x."""
    assert isinstance(model.tokenizer, HuggingFaceTokenizer)
    split = pre_tokenizers.Split(Regex("(x+x+)+y"), "isolated")
    model.tokenizer.engine.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False)])
    return model


def test_a_panic_in_the_tokenizer_fails_only_its_request(capfd: pytest.CaptureFixture[str]) -> None:
    bad = "x" * 30
    models = {"translator": panicking(endless()), "writer": panicking(language_model())}
    with running(build_registry(models, "float32")) as server:
        for path, asked in {
            "/api/translate": {"text": bad},
            "/api/attend": {"source": bad, "model": "translator"},
            "/api/next": {"text": bad},
            "/v1/completions": {"model": "writer", "prompt": bad},
        }.items():
            status, found = server.request_json("POST", path, asked)
            assert status == 400, (path, found)
            assert "failed on this text" in str(found["error"])
        assert server.request_json("POST", "/api/next", {"text": "Le chat"})[0] == 200
        told = {"status": "ok", "models": {"translator": "ok", "writer": "ok"}, "queued": 0}
        assert server.request_json("GET", "/health") == (200, told)
    assert "panicked" in capfd.readouterr().err  # it was a real one


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`: no Exception."""


def _raise(error: BaseException) -> Any:
    raise error


def test_an_exception_in_a_request_does_not_end_the_thread(petit: Model) -> None:
    async def told(engine: Engine) -> None:
        thread = engine._thread
        for error in (Panic("a panic"), SystemExit(1), KeyboardInterrupt(), MemoryError(), RecursionError()):
            with pytest.raises(HttpError, match="internal server error") as refused:
                await engine.call(1, partial(_raise, error))
            assert refused.value.status == 500
        (found,) = await engine.translate(["Le chat dort."], Decoding())
        assert found[0].text == "The cat is sleeping."
        assert engine._thread is thread
        assert engine.state == "ok"

    story(told, petit.quick("float32"))


def test_a_thread_that_ends_is_replaced(petit: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    async def told(engine: Engine) -> None:
        first, whole, dying = engine._thread, engine._run_function, 1

        def call(job: Any) -> None:
            nonlocal dying
            if dying:
                dying -= 1
                raise Panic("outside of what is caught")
            whole(job)

        monkeypatch.setattr(engine, "_run_function", call)
        waiting = [asyncio.create_task(engine.call(1, lambda: "answered")) for _ in range(2)]
        with pytest.raises(HttpError, match="internal server error"):
            await waiting[0]
        assert await waiting[1] == "answered"  # it had not begun
        assert engine._thread is not first
        assert engine.state == "ok"
        dying = MAX_THREAD_FAILURES + 1
        for _ in range(dying):
            with pytest.raises(HttpError, match="internal server error"):
                await engine.call(1, lambda: "answered")
        assert str(engine.state) == "failed"
        with pytest.raises(HttpError, match="cannot serve requests: its thread has failed") as refused:  # and at once
            await engine.call(1, lambda: "answered")
        assert refused.value.status == 503

    story(told, petit.quick("float32"))


def test_health_reports_a_stuck_thread() -> None:
    model, go_on = language_model(), threading.Event()
    with running(build_registry({"noise": model}, "float32")) as server:
        engine = server.registry.by_name["noise"].engine
        engine.timeout_seconds = 0.3
        stuck = asyncio.run_coroutine_threadsafe(engine.call(1, partial(go_on.wait, 20)), engine._loop)  # type: ignore[arg-type]
        with pytest.raises(HttpError, match="took longer"):
            stuck.result(20)
        time.sleep(0.1)
        told = {"status": "failing", "models": {"noise": "stalled"}, "queued": 0}
        assert server.request_json("GET", "/health") == (503, told)
        status, found = server.request_json("POST", "/api/next", {"text": "Le"})
        assert (status, "stalled" in found["error"]) == (503, True)
        go_on.set()
        end = time.monotonic() + 20
        while server.request_json("GET", "/health")[0] != 200:
            assert time.monotonic() < end
        assert server.request_json("POST", "/api/next", {"text": "Le"})[0] == 200


def test_attention_can_be_cancelled() -> None:
    with cancellable(lambda: True):
        for model in (endless(), endless("decoder")):
            with pytest.raises(Cancelled):
                model.attend("Le chat dort.", "Le chat.")


def served(model: Model) -> ServedModel:
    return build_registry({"it": model}, "float32").by_name["it"]


def passes(model: Model) -> list[int]:
    """Records the number of tokens of each later pass through the model's first stack."""
    found: list[int] = []
    network: Any = model.network
    stack = network.encoder if model.config.kind == "encoder-decoder" else network.decoder
    stack.register_forward_pre_hook(lambda _, args: found.append(args[0].size(1)))
    return found


def test_attention_that_is_too_large_is_rejected_before_any_work() -> None:
    fr_en = regard.load("fr-en")
    counted, it = passes(fr_en), served(fr_en)
    for source, target in (("1234567890" * 24, None), ("1" * 200, "2" * 200)):
        with pytest.raises(HttpError, match=r"tokens; .* at most 1,000,000 attention weights.*shorten") as refused:
            attention_data(it, source, target)
        assert refused.value.status == 400
    assert counted == []


def test_a_translation_is_cut_to_the_length_that_can_be_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The translation is limited instead of rejecting a source that might have a long one."""
    model = endless()
    monkeypatch.setattr(limits, "MAX_ATTENTION_WEIGHTS", 10_000)
    found = attention_data(served(model), "7" * 39, None)
    (source,) = {len(each["keys"]) for each in found["maps"] if each["kind"] == "encoder"}
    assert source == 39
    assert source <= len(found["steps"]) < 2 * source + 10  # cut short
    numbers = sum(len(row) for each in found["maps"] for layer in each["weights"] for head in layer for row in head)
    assert 9_000 < numbers <= 10_000
    with pytest.raises(HttpError, match=r"the text has 60 tokens.* about 40 tokens and as many of its translation"):
        attention_data(served(model), "7" * 60, None)


def test_weights_of_a_language_model_are_counted_exactly() -> None:
    """54 tokens in 30 layers of 9 heads, as SmolLM2 has: 787,320 weights."""
    model = endless("decoder", layers=30, heads=9, d_model=36, d_ff=8)
    it = served(model)
    found = attention_data(it, "7" * 54, None)
    assert len(found["maps"][0]["queries"]) == 54
    assert len(to_json(found)) < 8 * limits.MAX_ATTENTION_WEIGHTS
    with pytest.raises(HttpError, match=r"the text has 50 \+ 20 tokens.* about 61 tokens"):
        attention_data(it, "7" * 50, "7" * 20)


def test_a_text_is_decoded_once(petit: Model) -> None:
    counted = passes(petit)
    found = attention_data(served(petit), "Il ne mange jamais de pommes.", None)
    assert found["target"] == "He never eats apples."
    assert len(counted) == 2  # to translate, and to watch
    model = endless("decoder")
    counted = passes(model)
    attention_data(served(model), "Le petit chat", None)
    assert len(counted) == 1


def test_the_page_shows_labels_and_gold_of_separate_vocabularies() -> None:
    shared, separate = equal_models()
    expected, found = (attention_data(served(model), TEXTS[0], ANSWERS[0]) for model in (shared, separate))
    assert found["gold"]
    assert found["gold"] == expected["gold"]
    assert [step["token"] for step in found["steps"]] == [step["token"] for step in expected["steps"]]
    for here, there in zip(found["maps"], expected["maps"], strict=True):
        assert all(here[axis] == there[axis] for axis in ("queries", "keys", "writes"))


def test_attention_stops_at_every_cancellation_check(petit: Model) -> None:
    """Whenever the check cancels."""
    it = served(petit)
    count = Asked(1_000_000)
    with cancellable(count):
        to_json(attention_data(it, "Le chat dort.", None))
    assert count.times > 50
    for most in range(1, count.times, 7):
        with cancellable(Asked(most)), pytest.raises(Cancelled):
            to_json(attention_data(it, "Le chat dort.", None))


def test_functions_and_translations_alternate(petit: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []  # as the model's thread works on them

    class Recording(Translator):
        def translate_all(self, *arguments: Any) -> list[list[Translation]]:
            order.append("text")
            return super().translate_all(*arguments)

    monkeypatch.setattr("regard.decoding.text_model.Translator", Recording)

    async def told(engine: Engine) -> None:
        running, all_queued = threading.Event(), threading.Event()

        def wait_for_the_queue() -> None:
            running.set()
            all_queued.wait()

        first = asyncio.create_task(engine.call(1, wait_for_the_queue))
        await until(running.is_set)
        calls = [asyncio.create_task(engine.call(1, partial(order.append, "call"))) for _ in range(6)]
        await asyncio.sleep(0)
        translated = asyncio.create_task(engine.translate(["Le chat dort."], Decoding()))
        await until(lambda: engine.queued == 7)
        all_queued.set()
        await asyncio.gather(first, translated, *calls)

    story(told, petit.quick("float32"))
    assert order.index("text") < 6


def test_long_texts_do_not_block_short_ones(petit: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of many sentences is split, so that a later request does not wait for all of it."""
    model = petit.quick("float32")
    seen: list[int] = []
    long = "Le chat dort. Un chien mange !\n" * 250
    expected = [each.text for each in model.translations([long], beam=2, n_best=2)[0]]

    class Recording(Translator):
        def translate_all(self, texts: Sequence[str], *rest: Any) -> list[list[Translation]]:
            seen.append(sum(map(len, texts)))
            return super().translate_all(texts, *rest)

    monkeypatch.setattr("regard.decoding.text_model.Translator", Recording)
    ended = []

    async def told(engine: Engine) -> None:
        first = asyncio.create_task(engine.translate([long, "Oui."], Decoding(beam=2, n_best=2)))
        await until(lambda: bool(seen))
        await engine.translate(["La fille dort."], Decoding())
        ended.append(first.done())
        whole = await first
        best, second = whole[0]
        assert [each.text for each in (best, second)] == expected

    story(told, model)
    assert ended == [False]
    assert max(seen) < len(long) / 3


def test_long_prompts_are_prefilled_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompts = endless("decoder"), [[5, 6, 7, 8, 9, 10, 11], [12, 13], [14, 15, 16, 17], [18]]
    whole = generate(model.network, model.special, prompts, Decoding(max_tokens=8))  # type: ignore[arg-type]
    counted = passes(model)
    monkeypatch.setattr("regard.decoding.generate.PREFILL_TOKENS", 3)
    parts = generate(model.network, model.special, prompts, Decoding(max_tokens=8))  # type: ignore[arg-type]
    assert counted[:3] == [3, 3, 1]
    for one, other in zip(whole, parts, strict=True):
        assert one[0].ids == other[0].ids
        assert one[0].score == pytest.approx(other[0].score, rel=1e-5)
    asked = Asked(2)
    with cancellable(asked), pytest.raises(Cancelled):
        generate(model.network, model.special, prompts, Decoding(max_tokens=8))  # type: ignore[arg-type]
    assert asked.times == 2


VARIED_SHAPES = """
import sys
from regard.server.memory_release import bound_kernel_caches
assert "torch" not in sys.modules
bound_kernel_caches()
import re
from pathlib import Path
import torch
from regard.decoding.fast_copy import PackedLinear

def megabytes():
    return int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024

layer = PackedLinear([(torch.randn(256, 64), None)], torch.float32)
with torch.inference_mode():
    for rows in range(1, 10):
        layer(torch.zeros(rows, 64))
    before = megabytes()
    for rows in range(10, 510):
        layer(torch.zeros(rows, 64))
print(megabytes() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is measured on Linux")
def test_new_shapes_do_not_increase_memory() -> None:
    """Without a limit, kernels for 500 numbers of rows take 330 MB; with it 40 MB."""
    environment = {name: value for name, value in os.environ.items() if name not in memory_release.CACHE_VARIABLES}
    command = [sys.executable, "-c", VARIED_SHAPES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert int(done.stdout) < 120


def test_freed_memory_is_returned_to_the_system(petit: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setattr("regard.server.engine.RELEASE_AFTER_IDLE", 0.01)
    monkeypatch.setattr("regard.server.engine.release_freed_memory", released.set)

    async def told(engine: Engine) -> None:
        await engine.call(1, lambda: None)
        assert await asyncio.to_thread(released.wait, 20)
        released.clear()
        await asyncio.sleep(0.1)
        assert not released.is_set()  # once is enough
        assert engine.state == "ok"

    story(told, petit.quick("float32"))
    memory_release.release_freed_memory()


def test_a_wide_beam_limits_the_length_of_texts(petit: Model) -> None:
    async def told(engine: Engine) -> None:
        with pytest.raises(HttpError, match=r"10,000 characters with a beam of 16.* is 2,500") as refused:
            await engine.translate(["0" * 5_000] * 2, Decoding(beam=16))
        assert refused.value.status == 400
        assert not engine._busy

    story(told, petit.quick("float32"))
