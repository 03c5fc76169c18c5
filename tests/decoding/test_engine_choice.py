"""The engine that decodes is chosen by how much there is to decode, and named."""

import pytest

from regard.decoding.cpp_library import CompilerError, load_library
from regard.decoding.engine_choice import quick_copy
from regard.decoding.engine_registry import registered_engine
from regard.decoding.fast_copy import FastCopy
from regard.decoding.text_model import Model
from regard.errors import RegardError
from tests.support.decoding_cases import SPECIAL, network_of


def a_model(kind: str = "paper") -> Model:
    return Model(network_of(kind), None, SPECIAL)


def has_engine(model: Model) -> bool:
    assert isinstance(model.network, FastCopy)
    return model.network.search_engine is not None


def needs_compiler() -> None:
    try:
        load_library()
    except CompilerError as error:
        pytest.skip(f"no C++ library: {error}")


def test_few_texts_are_decoded_in_pytorch_and_many_in_cpp() -> None:
    needs_compiler()
    few, why = quick_copy(a_model(), "float32", many=False)
    assert (has_engine(few), why) == (False, "decoding with PyTorch in float32 on cpu: there are few texts")
    many, what = quick_copy(a_model(), "float32", many=True)
    assert (has_engine(many), what) == (True, "decoding with C++ in float32 on cpu")
    assert quick_copy(a_model(), "int8", "pytorch")[1] == "decoding with PyTorch in int8 on cpu"
    assert quick_copy(a_model(), "bfloat16", "compiled", many=False)[1] == "decoding with C++ in bfloat16 on cpu"


def test_why_a_copy_is_not_compiled_is_described_and_not_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    copy, description = quick_copy(a_model("window"), "float32")
    assert not has_engine(copy)
    assert description.endswith(": compiled=True does not cover window=4: the copy is not compiled")
    monkeypatch.setenv("CXX", "no-such-compiler")
    load_library.cache_clear()
    copy, description = quick_copy(a_model(), "float32")
    load_library.cache_clear()
    assert not has_engine(copy)
    assert "no C++ compiler was found (no-such-compiler)" in description


@pytest.mark.usefixtures("without_type_checks")
def test_unknown_engines_are_errors() -> None:
    with pytest.raises(RegardError, match="engine"):
        quick_copy(a_model(), "float32", "fast")  # type: ignore[arg-type]
    with pytest.raises(RegardError, match="engine"):
        a_model().quick(engine="fast")  # type: ignore[arg-type]
    with pytest.raises(RegardError, match="engine='fast' is not available"):
        registered_engine("fast")
