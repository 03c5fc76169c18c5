"""The benchmark of decoding: every engine does the same work, in a process of its own."""

from multiprocessing import Pipe
from pathlib import Path
from threading import Thread

import pytest

from benchmarks import decode_engines
from benchmarks.decode import serve_engine
from benchmarks.decode_engines import CPU_ENGINES, DecodingWorkload, can_run, random_network
from regard.config import preset

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*The copy is not compiled")]

TINY = preset("paper-base", vocab_size=65, d_model=64, heads=1, layers=1, d_ff=64)
WORKLOAD = DecodingWorkload("tiny", batch=2, beam=2, tokens=3, inputs=4)


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(decode_engines.MODELS, "tiny", TINY)


def test_engines_generate_the_same(tmp_path: Path) -> None:
    pytest.importorskip("ctranslate2")
    results = {}
    for name in ("unconverted", "ctranslate2", "compiled-int8"):
        run = CPU_ENGINES[name][1](random_network("tiny"), "cpu", tmp_path / name)
        results[name] = run(WORKLOAD)
    ours, compiled = ([best[0].ids for best in results[name]] for name in ("unconverted", "compiled-int8"))  # type: ignore[attr-defined]
    theirs = [[int(token[3:-1]) for token in each.hypotheses[0]] for each in results["ctranslate2"]]  # type: ignore[attr-defined]
    assert ours == theirs
    assert [len(ids) for ids in compiled] == [3, 3]


def test_a_process_times_the_workloads_it_is_sent() -> None:
    ours, theirs = Pipe()
    thread = Thread(target=serve_engine, args=("unconverted", "tiny", "cpu", 1, theirs))
    thread.start()
    assert all(seconds >= 0 for seconds in ours.recv())
    for _ in range(2):
        ours.send(WORKLOAD)
        elapsed, _processor = ours.recv()
        assert elapsed > 0
    ours.close()
    thread.join(30)
    assert not thread.is_alive()


def test_what_an_engine_cannot_run_is_left_out() -> None:
    assert can_run("ctranslate2", WORKLOAD)
    assert not can_run("ctranslate2", DecodingWorkload("gpt2", 1, 1, 8))
    assert not can_run("transformers-static", WORKLOAD)
