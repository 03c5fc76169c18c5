"""Searches in C++: the same texts and scores as the Python search over the network, and errors instead of crashes."""

import ctypes
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard.config import SpecialIds
from regard.decoding import cpp_library
from regard.decoding.cancellation import Cancelled, cancellable
from regard.decoding.cpp_library import CompilerError, cache_folder, find_compiler, load_library
from regard.decoding.cpp_structs import NetworkStruct, TaskStruct, declare_functions
from regard.decoding.cpu_engine import CpuEngine, why_not_compiled
from regard.decoding.fast_copy import Precision, make_fast_copy
from regard.decoding.generate import generate, search_translations
from regard.decoding.options import Decoding
from regard.decoding.search import Hypothesis
from regard.errors import ModelError, RegardError
from regard.model.transformer import Decoder, EncoderDecoder, build
from tests.support.decoding_cases import INPUTS, KINDS, SPECIAL, network_of, special_of
from tests.support.oracles import randomise, small

try:
    load_library()
except CompilerError as error:
    pytest.skip(f"no C++ library: {error}", allow_module_level=True)

WAYS = {
    "greedy": Decoding(max_tokens=9),
    "beam": Decoding(beam=4, n_best=3, max_tokens=9),
    "long beam": Decoding(beam=3, n_best=2, length_penalty=1.4, min_tokens=5),
    "all hypotheses": Decoding(beam=7, n_best=7, length_penalty=0.0, max_tokens=4),
}
DTYPES = (torch.float32, torch.bfloat16, torch.int8)
COVERED = [kind for kind in KINDS if why_not_compiled(small(**{"max_length": 64} | KINDS[kind])) is None]


def search(network: Decoder | EncoderDecoder, kind: str, options: Decoding, **special: Any) -> list[list[Hypothesis]]:
    ids = replace(special_of(kind), **special)
    if isinstance(network, Decoder) and kind != "prefix":
        return generate(network, ids, INPUTS, options)
    return search_translations(network, ids, INPUTS, options)


def assert_same(ours: list[list[Hypothesis]], theirs: list[list[Hypothesis]], tolerance: float = 1e-4) -> None:
    assert [[(each.ids, each.reason) for each in best] for best in ours] == [
        [(each.ids, each.reason) for each in best] for best in theirs
    ]
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.score == pytest.approx(other.score, abs=tolerance)
        assert one.penalised == pytest.approx(other.penalised, abs=tolerance)


def compiled(network: Decoder | EncoderDecoder, precision: Precision = "float32") -> Any:
    copy = make_fast_copy(network, precision, compiled=True)
    assert copy.search_engine is not None
    return copy


@pytest.mark.slow
@pytest.mark.parametrize("kind", COVERED)
def test_a_compiled_copy_generates_the_same(kind: str) -> None:
    network = network_of(kind)
    copy = compiled(network)
    for options in WAYS.values():
        assert_same(search(copy, kind, options), search(network, kind, options))


def test_every_kind_is_covered_or_named() -> None:
    others = {why_not_compiled(network_of(kind).config) for kind in KINDS if kind not in COVERED}
    assert others == {"qk_norm=True", "window=4", "positions='t5'", "positions='alibi'"}


@pytest.mark.parametrize("beam", [1, 3])
def test_suppressed_ids_and_several_end_tokens(beam: int) -> None:
    network, options = network_of("paper"), Decoding(beam=beam, n_best=beam, max_tokens=8)
    for special in ({"suppressed": (0, 5, 9)}, {"end": (0, 2, 7, 11, 12)}, {"end": (4, 8), "suppressed": (4,)}):
        assert_same(
            search(compiled(network), "paper", options, **special), search(network, "paper", options, **special)
        )


def test_equal_scores_are_ordered_by_id() -> None:
    """With zero weights all tokens are equally likely."""
    network = network_of("paper")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    for options in (WAYS["greedy"], WAYS["beam"]):
        assert_same(search(compiled(network), "paper", options), search(network, "paper", options))


class FakeQuantisedLinear(nn.Module):
    """A linear layer in floating point whose weights and inputs are rounded as int8 rounds them."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.rounded(x), self.rounded(self.weight), self.bias)

    @staticmethod
    def rounded(x: Tensor) -> Tensor:
        scale = x.abs().amax(-1, keepdim=True) / 127
        return (x / scale).round() * scale


def test_int8_rounds_each_row_of_weights_and_inputs() -> None:
    network = network_of("untied, output bias")
    ours = search(compiled(network, "int8"), "paper", WAYS["beam"])
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, FakeQuantisedLinear(child.weight, child.bias))
    network.head = lambda x, _=None: FakeQuantisedLinear(network.output_weight, network.output_bias)(x)  # type: ignore
    assert_same(ours, search(network, "paper", WAYS["beam"]), tolerance=0.02)


@pytest.mark.parametrize(("precision", "most"), [("bfloat16", 0.15), ("int8", 0.5)])
def test_lower_precision_is_close(precision: Precision, most: float) -> None:
    network = network_of("paper")
    exact = search(network, "paper", Decoding(beam=2, max_tokens=1))
    near = search(compiled(network, precision), "paper", Decoding(beam=2, max_tokens=1))
    differences = [abs(a.score - b.score) for a, b in zip(chain(*exact), chain(*near), strict=True)]
    assert 0 < max(differences) < most


@pytest.mark.long  # compiles the sources a second time
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_portable_sources_compute_the_same(dtype: torch.dtype) -> None:
    network = network_of("pre-norm, grouped, no bias")
    copy = compiled(network)
    results = []
    for portable in (False, True):
        copy.search_engine = CpuEngine(network, dtype, portable)
        results.append(search(copy, "paper", WAYS["beam"]))
    assert_same(results[0], results[1], tolerance=2e-3 if dtype == torch.bfloat16 else 1e-4)


PROCESSORS = {
    "AVX2": ("-mno-avx512f", "-mno-avxvnni"),
    "AVX2 with VNNI": ("-mno-avx512f",),
    "AVX512 without VNNI": ("-mno-avx512vnni", "-mno-avxvnni", "-mno-avx512bf16"),
    "AVX512 without operations on bytes": ("-mno-avx512bw",),
}
"""Options for the compiler that leave out what other processors do not have."""


@pytest.fixture
def chosen_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """A function that chooses the compiler and its options."""

    def choose(name: str, *options: str) -> None:
        monkeypatch.setenv("CXX", " ".join([name, *options]))
        load_library.cache_clear()

    yield choose
    load_library.cache_clear()


@pytest.mark.parametrize(
    "processor", [pytest.param(name, marks=[] if name == "AVX2" else pytest.mark.long) for name in PROCESSORS]
)
def test_other_processors_compute_the_same(processor: str, chosen_compiler: Callable[..., None]) -> None:
    if "avx512_vnni" not in cpp_library._processor_features():
        pytest.skip("this processor may lack instructions that the others have")
    network = network_of("pre-norm, grouped, no bias")
    copy = compiled(network)
    expected = [search(copy_with(copy, network, dtype), "paper", WAYS["beam"]) for dtype in DTYPES]
    chosen_compiler("g++", *PROCESSORS[processor])
    for dtype, theirs in zip(DTYPES, expected, strict=True):
        ours = search(copy_with(copy, network, dtype), "paper", WAYS["beam"])
        assert_same(ours, theirs, tolerance=2e-3 if dtype == torch.bfloat16 else 1e-4)


def copy_with(copy: Any, network: Any, dtype: torch.dtype) -> Any:
    """The copy with a new engine for numbers of this type."""
    copy.search_engine = CpuEngine(network, dtype)
    return copy


@pytest.mark.long  # compiles the sources again
@pytest.mark.skipif(shutil.which("clang++") is None, reason="not here: clang++")
def test_clang_compiles_the_same_searches(chosen_compiler: Callable[..., None]) -> None:
    network = network_of("paper")
    copy = compiled(network)
    expected = search(copy, "paper", WAYS["beam"])
    chosen_compiler("clang++")
    assert_same(search(copy_with(copy, network, torch.float32), "paper", WAYS["beam"]), expected)


def test_each_set_of_compiler_options_has_its_own_library(chosen_compiler: Callable[..., None]) -> None:
    digests = set()
    for options in ((), *PROCESSORS.values()):
        chosen_compiler("g++", *options)
        digests.add(cpp_library._digest(find_compiler(), cpp_library.OPTIONS))
    assert len(digests) == 1 + len(PROCESSORS)


def test_long_inputs_need_more_positions() -> None:
    network = network_of("paper")
    copy = compiled(network)
    inputs = [[3 + i % 20 for i in range(length)] for length in (300, 7)]
    theirs, ours = (search_translations(each, SPECIAL, inputs, Decoding(max_tokens=4)) for each in (network, copy))
    assert_same(ours, theirs)


def wide_network() -> EncoderDecoder:
    """Large enough that its products are shared among threads."""
    torch.manual_seed(2)
    network = build(small(d_model=128, heads=2, d_ff=512, vocab_size=1025)).eval()
    randomise([network])
    assert isinstance(network, EncoderDecoder)
    return network


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("restored_threads")
def test_threads_compute_the_same_and_survive_a_fork() -> None:
    copy, options, results = compiled(wide_network()), Decoding(beam=4, max_tokens=12), []
    special = SpecialIds(start=1024, end=(0,))
    for threads in (1, 3, 2):
        torch.set_num_threads(threads)
        results.append(search_translations(copy, special, INPUTS * 4, options))
    assert results[0] == results[1] == results[2]
    engine = copy.search_engine
    child = os.fork()
    if child == 0:  # the threads of the parent do not exist here
        same = search_translations(copy, special, INPUTS * 4, options) == results[0]
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with ThreadPoolExecutor(4) as pool:
        assert all(
            result == results[0]
            for result in pool.map(lambda _: search_translations(copy, special, INPUTS * 4, options), range(8))
        )
    assert engine is copy.search_engine


def test_what_cannot_be_generated_is_an_error() -> None:
    network = network_of("paper")
    everything = tuple(range(network.config.outputs))
    for options in (WAYS["greedy"], WAYS["beam"]):
        with pytest.raises(RegardError, match="input 0: no token is allowed"):
            search(compiled(network), "paper", options, suppressed=everything)
    with pytest.raises(RegardError, match="token id 999 is outside"):
        search_translations(compiled(network), SPECIAL, [[3, 999]], WAYS["beam"])
    with torch.no_grad():
        network.decoder.layers[0].feed_forward.up.weight[3] = torch.nan
    for precision in ("float32", "bfloat16", "int8"):
        for options in (WAYS["greedy"], WAYS["beam"]):
            with pytest.raises(ModelError, match="NaN"):
                search(compiled(network, precision), "paper", options)


def test_a_search_can_be_cancelled() -> None:
    copy = compiled(network_of("paper"))
    calls = iter([False, False, True])
    with cancellable(lambda: next(calls)), pytest.raises(Cancelled):
        search_translations(copy, SPECIAL, INPUTS, Decoding(max_tokens=50, min_tokens=50))
    assert next(calls, None) is None


def test_sampling_and_penalties_use_the_python_search() -> None:
    network = network_of("paper")
    copy = compiled(network)
    for options in (Decoding(temperature=1.0, max_tokens=5), Decoding(repetition_penalty=1.5, beam=2, max_tokens=5)):
        assert not copy.search_engine.supports(options)
        assert_same(search(copy, "paper", options), search(network, "paper", options))


def test_structs_have_the_size_of_the_sources() -> None:
    library = declare_functions(load_library())
    assert library.regard_network_size() == ctypes.sizeof(NetworkStruct)
    assert library.regard_task_size() == ctypes.sizeof(TaskStruct)


@pytest.fixture
def no_library() -> Iterator[None]:
    """As in a new process: the library is not loaded yet."""
    load_library.cache_clear()
    yield
    load_library.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_without_a_compiler_the_copy_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    network = network_of("paper")
    with pytest.warns(UserWarning, match=r"no C\+\+ compiler was found \(no-such-compiler\).*The copy is not compiled"):
        copy = make_fast_copy(network, "float32", compiled=True)
    assert_same(search(copy, "paper", WAYS["beam"]), search(network, "paper", WAYS["beam"]))


@pytest.mark.usefixtures("no_library")
def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cpp_library, "OPTIONS", ("-no-such-option",))
    with pytest.raises(CompilerError, match="no-such-option"):
        load_library()
    assert not list((tmp_path / "regard").iterdir())


@pytest.mark.usefixtures("no_library")
def test_no_library_is_loaded_that_others_can_change(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    cache_folder().chmod(0o777)
    with pytest.raises(CompilerError, match="can be changed by other users"):
        load_library()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "regard" / "file"))
    (tmp_path / "regard" / "file").write_text("")
    with pytest.raises(CompilerError, match="no library can be written"):
        cache_folder()


@pytest.mark.usefixtures("no_library")
def test_a_damaged_library_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cpp_library, "_compile", lambda _compiler, _options, path: path.write_bytes(b"\x7fELF"))
    with pytest.raises(CompilerError, match=r"cannot be loaded: .*delete it, or set XDG_CACHE_HOME"):
        load_library()


def test_a_model_that_is_not_covered_says_why() -> None:
    with pytest.warns(UserWarning, match="compiled=True does not cover window=4: the copy is not compiled"):
        assert make_fast_copy(network_of("window"), "float32", compiled=True).search_engine is None


def test_the_compiler_is_that_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "env true -x")
    path, *arguments = find_compiler()
    assert (Path(path).name, arguments) == ("env", ["true", "-x"])
