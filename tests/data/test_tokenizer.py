"""Tokenizers: lossless, deterministic, with special ids in fixed positions, and readable by transformers."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.opus_tokenizer import OpusTokenizer
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import TokenizerKind, train_tokenizer
from regard.errors import RegardError
from regard.storage.model_folder import load_tokenizer
from tests.support.opus_tokenizer import write_opus_tokenizer

TEXTS = ["Le chat noir dort.", "L'amie de Marie mange une pomme.", "The black cat sleeps.", "œuvre", "naïve"] * 3
KINDS: list[TokenizerKind] = ["bpe", "characters"]
TRAINED = {kind: train_tokenizer(TEXTS, 320, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(codec="utf-8")))
def test_every_text_survives_encoding_and_decoding(kind: TokenizerKind, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [ids] == list(tokenizer.encode_batch([text]))
    assert all(id_ not in (tokenizer.end, tokenizer.separator, tokenizer.pad) for id_ in ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["</s>", "a <pad> b", "<sep><unused0>", "<0x41>", "  a  b ", "\r\n\0\x7f", "\ufeff"])
def test_special_tokens_written_in_a_text_are_text(kind: TokenizerKind, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {tokenizer.end, tokenizer.separator, tokenizer.pad} & set(ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", [320, 321, 1000])
def test_special_ids_have_fixed_positions(kind: TokenizerKind, asked: int) -> None:
    tokenizer = train_tokenizer(TEXTS, asked, kind)
    assert (tokenizer.end, tokenizer.separator, tokenizer.pad) == (0, 1, tokenizer.size - 1)
    assert (tokenizer.size - 1) % 64 == 0
    assert tokenizer.size - 1 <= -(-asked // 64) * 64


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(kind: TokenizerKind) -> None:
    assert len({train_tokenizer(TEXTS, 320, kind).digest for _ in range(4)}) == 1
    assert train_tokenizer(["autre chose"], 320, kind).digest != TRAINED[kind].digest


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic_in_any_process(kind: TokenizerKind) -> None:
    program = f"""
from regard.data.tokenizer_training import train_tokenizer
print(train_tokenizer({TEXTS!r}, 320, {kind!r}).digest)
"""
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
        )
        assert done.stdout.strip() == TRAINED[kind].digest


def test_decoding_skips_special_ids() -> None:
    tokenizer = TRAINED["bpe"]
    ids = [tokenizer.pad, *tokenizer.encode("Un chat"), tokenizer.end]
    assert tokenizer.decode(ids) == "Un chat"
    assert tokenizer.decode(ids, keep_special=True) == "<pad>Un chat</s>"


def test_bpe_merges_frequent_characters_and_the_character_kind_does_not() -> None:
    assert len(TRAINED["bpe"].encode("Le chat noir dort.")) < len("Le chat noir dort.")
    assert TRAINED["characters"].pieces(TRAINED["characters"].encode("chat")) == ["c", "h", "a", "t"]
    assert len(TRAINED["characters"].encode("é")) == 2  # not seen in training: encoded as bytes


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_tokenizer_is_the_same_when_loaded_and_in_transformers(kind: TokenizerKind, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = TRAINED[kind]
    tokenizer.save(tmp_path)
    assert HuggingFaceTokenizer.load(tmp_path).digest == tokenizer.digest
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.eos_token_id, theirs.sep_token_id, theirs.pad_token_id) == (0, 1, tokenizer.pad)
    assert len(theirs) == tokenizer.size
    for text in [*TEXTS, "don 't , stop .", "  two  spaces ", "日本 😀", "a <pad> b </s>", "l'été"]:
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
        assert theirs.decode(tokenizer.encode(text)) == text
        ids = [*tokenizer.encode(text), tokenizer.end]
        assert theirs.decode(ids) == tokenizer.decode(ids, keep_special=True)


@pytest.mark.usefixtures("without_type_checks")
def test_invalid_requests_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs at least 258 ids, for bytes and special tokens: 64 given"):
        train_tokenizer(TEXTS, 64)
    with pytest.raises(ValueError, match="256 ids are too few for 27 characters, 256 bytes"):
        train_tokenizer(TEXTS, 256, "characters")
    with pytest.raises(ValueError, match="kind='word' is not a valid choice: expected one of bpe, characters"):
        train_tokenizer(TEXTS, 320, "word")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="texts must be a sequence of strings"):
        train_tokenizer("chat", 320)
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        HuggingFaceTokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": 3}')
    with pytest.raises(ValueError, match="is not a valid tokenizer"):
        HuggingFaceTokenizer.load(tmp_path)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    """One tokenizer of each kind; mypy checks that each class implements the interface."""
    tokenizers: list[Tokenizer] = [*TRAINED.values(), TRAINED["bpe"].with_template(before=[1], after=[0])]
    if find_spec("sentencepiece"):
        folder = tmp_path_factory.mktemp("opus") / "tokenizer"
        write_opus_tokenizer(folder)
        tokenizers.append(OpusTokenizer.load(folder))
    return tokenizers


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:builtin type")
@given(texts=st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=4))
def test_every_tokenizer_implements_the_interface(tokenizers: list[Tokenizer], texts: list[str]) -> None:
    for tokenizer in tokenizers:
        assert list(tokenizer.encode_batch(texts)) == [tokenizer.encode(text) for text in texts]
        assert list(tokenizer.encode_targets(texts)) == [tokenizer.encode_target(text) for text in texts]
        for text in texts:
            ids = tokenizer.encode(text)
            assert all(0 <= id_ < tokenizer.size for id_ in ids)
            assert tokenizer.encode_with_template(text) == [*tokenizer.before, *ids, *tokenizer.after]
            assert len(tokenizer.pieces(ids)) == len(ids)
            target = tokenizer.encode_target(text)
            assert tokenizer.decode([*target, tokenizer.end, tokenizer.pad]) == tokenizer.decode(target)


@pytest.mark.filterwarnings("ignore:builtin type")
def test_every_tokenizer_knows_its_special_ids_and_can_be_saved(tokenizers: list[Tokenizer], tmp_path: Path) -> None:
    for i, tokenizer in enumerate(tokenizers):
        assert (tokenizer.token(tokenizer.end), tokenizer.token(tokenizer.pad)) == ("</s>", "<pad>")
        assert tokenizer.token(10**6) == "<id1000000>"
        same = tokenizer.with_template(tokenizer.before, tokenizer.after)
        assert same.encode_with_template("Le chat") == tokenizer.encode_with_template("Le chat")
        with pytest.raises(RegardError, match="has no <nothing> token"):
            tokenizer.id_of("<nothing>")
        tokenizer.save(tmp_path / str(i))
        loaded = load_tokenizer(tmp_path / str(i))
        assert loaded is not None
        assert (loaded.digest, loaded.settings) == (tokenizer.digest, tokenizer.settings)


@pytest.mark.skipif(not find_spec("sentencepiece"), reason="needs sentencepiece")
@pytest.mark.filterwarnings("ignore:builtin type")
def test_an_opus_tokenizer_rejects_unsupported_calls(tokenizers: list[Tokenizer]) -> None:
    with pytest.raises(RegardError, match="cannot parse special tokens"):
        tokenizers[-1].encode("</s>", parse_special=True)
    with pytest.raises(RegardError, match="template of an OPUS-MT tokenizer cannot be changed"):
        tokenizers[-1].with_template(before=[1])
