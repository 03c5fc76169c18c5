"""Models with separate vocabularies in other engines."""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.data.opus_tokenizer import OpusTokenizer
from regard.decoding.text_model import Model
from regard.interop.export import export
from tests.support.opus_tokenizer import OPUS_TEXTS, write_opus_tokenizer
from tests.support.separate_vocabularies import equal_models
from tests.support.text_models import TEXTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def separate() -> Model:
    return equal_models(max_length=64)[1]


def run_card_example(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run the example of a folder's card there and return its variables."""
    (program,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {}
    exec(program, names)  # it is our own code
    return names


def test_ctranslate2_has_both_vocabularies(
    separate: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2")
    tokenizer = separate.require_tokenizer()
    export(separate, tmp_path / "out", to="ctranslate2")
    translator = ctranslate2.Translator(str(tmp_path / "out"), intra_threads=1)
    source, target = tokenizer.source_side, tokenizer.target_side
    rows = [[source.token(id_) for id_ in tokenizer.encode_with_template(text)] for text in TEXTS]
    results = translator.translate_batch(rows, beam_size=1, max_decoding_length=9, min_decoding_length=0)
    theirs = [target.decode([target.id_of(token) for token in result.hypotheses[0]]) for result in results]
    assert theirs == separate.translate(TEXTS, beam=1, max_tokens=9)
    names = run_card_example(tmp_path / "out", monkeypatch)
    output = [target.id_of(token) for token in names["output"]]
    assert capsys.readouterr().out == f"{target.decode(output)}\n"


def opus_with_two_vocabularies(folder: Path) -> Path:
    """A folder as `MarianTokenizer(separate_vocabs=True)` saves it: the target has other ids, and more of them."""
    vocabulary = write_opus_tokenizer(folder)
    pieces = [piece for piece in reversed(vocabulary) if piece not in ("</s>", "<pad>", "<unk>", ">>fra<<")]
    other = ["<unk>", "</s>", *pieces, "▁more", "ids", "<pad>"]
    (folder / "target_vocab.json").write_text(json.dumps({token: id_ for id_, token in enumerate(other)}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "MarianTokenizer", "separate_vocabs": True})
    )
    return folder


def test_an_opus_tokenizer_with_two_vocabularies(tmp_path: Path) -> None:
    pytest.importorskip("sentencepiece")
    transformers = pytest.importorskip("transformers")
    folder = opus_with_two_vocabularies(tmp_path / "opus")
    ours = OpusTokenizer.load(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sacremoses is recommended there
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
    assert ours.is_separate
    assert ours.target_side.size == ours.size + 1
    for text in OPUS_TEXTS:
        assert ours.encode_with_template(text) == theirs(text).input_ids
        written = theirs(text_target=text).input_ids[:-1]
        assert ours.encode_target(text) == written
        assert ours.encode(text) != written
        assert ours.decode(written) == theirs.decode(written, skip_special_tokens=True)
    read = ours.encode_with_template(OPUS_TEXTS[0])
    assert [ours.source_side.token(id_) for id_ in read] == [list(ours.source_ids)[id_] for id_ in read]
    ours.save(tmp_path / "saved")
    again = OpusTokenizer.load(tmp_path / "saved")
    assert again.digest == ours.digest
    assert json.loads((tmp_path / "saved" / "tokenizer_config.json").read_text())["separate_vocabs"] is True
    (tmp_path / "saved" / "target_vocab.json").write_text('{"</s>": 0}')
    with pytest.raises(regard.RegardError, match=r"target_vocab.json has no <unk>"):
        OpusTokenizer.load(tmp_path / "saved")
