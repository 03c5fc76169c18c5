"""Tokenizers: exact, deterministic, with the special ids where the design puts them, and read by transformers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.data.tokenizer import Kind, Tokenizer

TEXTS = ["Le chat noir dort.", "L'amie de Marie mange une pomme.", "The black cat sleeps.", "œuvre", "naïve"] * 3
KINDS: list[Kind] = ["bpe", "characters"]
TRAINED = {kind: Tokenizer.train(TEXTS, 320, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_comes_back_as_it_went_in(kind: Kind, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert [ids] == list(tokenizer.encode_batch([text]))
    assert all(id_ not in (tokenizer.end, tokenizer.separator, tokenizer.pad) for id_ in ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["</s>", "a <pad> b", "<sep><unused0>", "<0x41>", "  a  b ", "\r\n\0\x7f", "\ufeff"])
def test_nothing_in_a_text_is_special(kind: Kind, text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert not {tokenizer.end, tokenizer.separator, tokenizer.pad} & set(ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("asked", [320, 321, 1000])
def test_ids_stand_where_the_model_expects_them(kind: Kind, asked: int) -> None:
    tokenizer = Tokenizer.train(TEXTS, asked, kind)
    assert (tokenizer.end, tokenizer.separator, tokenizer.pad) == (0, 1, tokenizer.size - 1)
    assert (tokenizer.size - 1) % 64 == 0
    assert tokenizer.size - 1 <= -(-asked // 64) * 64


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic(kind: Kind) -> None:
    assert len({Tokenizer.train(TEXTS, 320, kind).digest for _ in range(4)}) == 1
    assert Tokenizer.train(["autre chose"], 320, kind).digest != TRAINED[kind].digest


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_deterministic_in_any_process(kind: Kind) -> None:
    program = f"""
from regard.data.tokenizer import Tokenizer
print(Tokenizer.train({TEXTS!r}, 320, {kind!r}).digest)
"""
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed}
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True
        )
        assert done.stdout.strip() == TRAINED[kind].digest


def test_special_ids_say_nothing() -> None:
    tokenizer = TRAINED["bpe"]
    assert tokenizer.decode([tokenizer.pad, *tokenizer.encode("Un chat"), tokenizer.end]) == "Un chat"


def test_bpe_learns_what_is_frequent_and_characters_stay_characters() -> None:
    assert len(TRAINED["bpe"].encode("Le chat noir dort.")) < len("Le chat noir dort.")
    assert TRAINED["characters"].pieces(TRAINED["characters"].encode("chat")) == ["c", "h", "a", "t"]
    assert len(TRAINED["characters"].encode("é")) == 2  # not seen in training: its bytes


@pytest.mark.parametrize("kind", KINDS)
def test_saved_it_is_the_same_here_and_in_transformers(kind: Kind, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = TRAINED[kind]
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).digest == tokenizer.digest
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert (theirs.eos_token_id, theirs.sep_token_id, theirs.pad_token_id) == (0, 1, tokenizer.pad)
    assert len(theirs) == tokenizer.size
    for text in [*TEXTS, "don 't , stop .", "  two  spaces ", "日本 😀", "a <pad> b </s>", "l'été"]:
        assert theirs(text)["input_ids"] == tokenizer.encode(text)
        assert theirs.decode(tokenizer.encode(text)) == text


@pytest.mark.usefixtures("as_users_run_it")
def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"needs 258 ids for bytes and special tokens, and 64 are too few"):
        Tokenizer.train(TEXTS, 64)
    with pytest.raises(ValueError, match="256 ids are too few: 27 characters, 256 bytes"):
        Tokenizer.train(TEXTS, 256, "characters")
    with pytest.raises(ValueError, match="kind='word' is not a choice: known are bpe, characters"):
        Tokenizer.train(TEXTS, 320, "word")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="texts must be many strings, and this is one"):
        Tokenizer.train("chat", 320)
    with pytest.raises(ValueError, match=r"has no tokenizer\.json"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": 3}')
    with pytest.raises(ValueError, match="is no tokenizer"):
        Tokenizer.load(tmp_path)
