"""Text whose words are labelled: columns and aligned files, their errors, and tokens with labels."""

from pathlib import Path

import numpy as np
import pytest

from regard.data.batches import IGNORED_TARGET, packed_tagging_batches, tagging_batches
from regard.data.corpus import Corpus, CorpusError, CorpusProblems
from regard.data.tagged_text import tagged_sentences
from regard.data.tokenized_corpus import NO_LABEL, TokenizedCorpus, tokenize_corpora
from regard.data.tokenizer_training import train_tokenizer

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

# # O O
1 CD O O
"""
CONLL_U = """# sent_id = 1
# text = Il parle du chat.
1\tIl\til\tPRON
2\tparle\tparler\tVERB
3-4\tdu\t_\t_
3\tde\tde\tADP
4\tle\tle\tDET
4.1\t_\t_\t_
5\t10 000\tchat\tNOUN
"""


def read(corpus: Corpus, known: tuple[str, ...] = (), skip: bool = False) -> list[tuple[str, str]]:
    sentences = tagged_sentences(corpus, CorpusProblems(skip), known)
    return [("|".join(sentence.words), "|".join(sentence.labels)) for sentence in sentences]


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_columns_separated_by_spaces(tmp_path: Path) -> None:
    file = written(tmp_path / "a.conll", CONLL_2003)
    assert read(Corpus((file,))) == [("EU|rejects", "B-ORG|O"), ("#|1", "O|O")]
    assert read(Corpus((file,), columns=(1, 2))) == [("EU|rejects", "NNP|VBZ"), ("#|1", "#|CD")]
    sentences = list(tagged_sentences(Corpus((file,)), CorpusProblems()))
    assert [sentence.where(1) for sentence in sentences] == [f"{file}:4", f"{file}:7"]


def test_columns_of_conll_u(tmp_path: Path) -> None:
    file = written(tmp_path / "a.conllu", CONLL_U)
    assert read(Corpus((file,), columns=(2, 4))) == [("Il|parle|de|le|10 000", "PRON|VERB|ADP|DET|NOUN")]


def test_aligned_files(tmp_path: Path) -> None:
    words = written(tmp_path / "a.words", "Il dort .\n10\u00a0000  chats\n")
    labels = written(tmp_path / "a.labels", "PRON VERB PUNCT\nNUM NOUN \n")
    assert read(Corpus((words, labels))) == [("Il|dort|.", "PRON|VERB|PUNCT"), ("10\u00a0000|chats", "NUM|NOUN")]
    records = written(tmp_path / "a.jsonl", '{"words": "Il dort", "tags": "PRON VERB"}\n')
    assert read(Corpus((records,), keys=("words", "tags"))) == [("Il|dort", "PRON|VERB")]


@pytest.mark.parametrize(
    ("text", "columns", "line", "message"),
    [
        ("Il PRON\ndort\n", (), 2, "missing label .columns: 1, but column 2"),
        ("Il PRON\n", (1, 4), 1, "missing label .columns: 2, but column 4"),
        ("Il\t\ndort\tVERB\n", (), 1, "missing label .the word or its label is empty"),
        (
            "Il PRON\n\ndort VREB\n",
            (),
            3,
            "unknown label .'VREB': expected one of PRON, VERB.: the labels are those of",
        ),
        ("Il PRON\n\0 VERB\n", (), 2, "NUL byte"),
    ],
)
def test_bad_lines_are_reported_with_their_location(
    tmp_path: Path, text: str, columns: tuple[int, ...], line: int, message: str
) -> None:
    file = written(tmp_path / "a.conll", f"{text}\nvient VERB x VERB\n")
    corpus = Corpus((file,), columns=columns)
    with pytest.raises(CorpusError, match=f"a.conll:{line}: {message}"):
        read(corpus, ("PRON", "VERB"))
    sentences = read(corpus, ("PRON", "VERB"), skip=True)
    assert sentences[-1] == ("vient", "VERB")  # a bad line drops its sentence, and no other
    assert all("dort" not in words for words, _ in sentences)


def test_each_skipped_sentence_is_counted_once(tmp_path: Path) -> None:
    file = written(tmp_path / "a.conll", "Il\ndort\n\0 VERB\n\nIl PRON\n\nIl X\ndort Y\n")
    problems = CorpusProblems(skip=True)
    assert len(list(tagged_sentences(Corpus((file,)), problems, ("PRON", "VERB")))) == 1
    assert problems.counts == {"missing label": 1, "unknown label": 1}
    with pytest.raises(CorpusError, match=r"skip such sentences \(--skip-bad\) or fix them"):
        list(tagged_sentences(Corpus((file,)), CorpusProblems(False, "--skip-bad")))


def test_files_without_labels_are_recognised(tmp_path: Path) -> None:
    fr, en = written(tmp_path / "a.fr", "le chat dort\n"), written(tmp_path / "a.en", "the cat is asleep\n")
    for files, where in (((fr,), "a.fr:1"), ((fr, en), "a.en:1"), ((fr, fr), "a.fr:1")):
        with pytest.raises(
            CorpusError, match=f"{where}: .*this does not look like a file of labels; expected one of O, B"
        ):
            read(Corpus(files), ("O", "B"))
    late = written(tmp_path / "late.conll", "le O\n\nchat X\n")
    with pytest.raises(CorpusError, match=r"late.conll:3: unknown label \('X': expected one of O, L0.* and 9 more\)"):
        read(Corpus((late,)), ("O", *(f"L{i}" for i in range(58))))


def test_words_and_labels_are_both_needed(tmp_path: Path) -> None:
    file = written(tmp_path / "a.conll", "Il PRON\n")
    for corpus in (Corpus((file,), columns=(1,)), Corpus((file,), keys=("a", "b", "c")), Corpus((file, file, file))):
        with pytest.raises(CorpusError, match="tagging needs words and labels"):
            read(corpus)


def test_labels_must_match_words(tmp_path: Path) -> None:
    words = written(tmp_path / "a.words", "Il dort .\nIl vient\n")
    labels = written(tmp_path / "a.labels", "PRON VERB PUNCT\nPRON\n")
    with pytest.raises(CorpusError, match=r"a.labels:2: labels do not match words \(2 words, but 1 labels"):
        read(Corpus((words, labels)))
    assert len(read(Corpus((words, labels)), skip=True)) == 1


@pytest.fixture(scope="module")
def tokenized(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenizedCorpus, int]:
    folder = tmp_path_factory.mktemp("tagged")
    file = written(folder / "a.conll", "le DET\nchaton NOUN\n\nun DET\nchien NOUN\ndort VERB\n\ndort VERB\n")
    tokenizer = train_tokenizer(["le chat", "un chien"], 265)
    data = tokenize_corpora([Corpus((file,))], tokenizer, folder / "cache", CorpusProblems(), tagged=True)
    rows = [data.sequence(0, i).tolist() for i in range(len(data))]
    assert rows == [tokenizer.encode(text) for text in ("le chaton", "un chien dort", "dort")]
    assert len(rows[1]) > 3  # some words have several tokens
    return data, tokenizer.end


def test_the_first_token_of_a_word_has_its_label(tokenized: tuple[TokenizedCorpus, int]) -> None:
    data, _ = tokenized
    assert data.classes == ("DET", "NOUN", "VERB")
    assert data.word_labels is not None
    labels = data.word_labels
    names = [data.classes[label] for label in labels if label != NO_LABEL]
    assert names == ["DET", "NOUN", "DET", "NOUN", "VERB", "VERB"]
    assert len(labels) == len(data.tokens[0])
    assert all(labels[data.offsets[0][:-1]] != NO_LABEL)


def test_batches_have_labels_where_the_tokens_are(tokenized: tuple[TokenizedCorpus, int]) -> None:
    data, end = tokenized
    padded = next(tagging_batches(data, end, 0, 1_000).epoch(0))
    packed = next(packed_tagging_batches(data, end, 0, 64, 64).epoch(0))
    assert packed.lengths is not None
    assert padded.lengths is not None

    def labelled(tokens: list[int], labels: list[int]) -> list[tuple[int, int]]:
        return [pair for pair in zip(tokens, labels, strict=True) if pair[1] != IGNORED_TARGET]

    expected = [(int(t), int(x)) for t, x in zip(data.tokens[0], data.word_labels, strict=True) if x != NO_LABEL]  # type: ignore[arg-type]
    for batch in (padded, packed):
        assert batch.targets == 6
        found = [
            pair for row in zip(batch.tokens.tolist(), batch.labels.tolist(), strict=True) for pair in labelled(*row)
        ]
        assert sorted(found) == sorted(expected)
    assert sorted(packed.lengths[packed.lengths > 0].tolist()) == sorted((data.lengths(0) + 1).tolist())


def test_damaged_and_unlabelled_text(tmp_path: Path, tokenized: tuple[TokenizedCorpus, int]) -> None:
    plain = written(tmp_path / "a.txt", "le chien\n")
    tokenizer = train_tokenizer(["le chien"], 300)
    data = tokenize_corpora([Corpus((plain,))], tokenizer, tmp_path / "cache", CorpusProblems())
    with pytest.raises(ValueError, match="no classes: tokenize it with tagged=True"):
        tagging_batches(data, 0, 1, 10)
    empty = written(tmp_path / "empty.conll", "\n\n")
    with pytest.raises(CorpusError, match=r"empty.conll: no row could be read"):
        tokenize_corpora([Corpus((empty,))], tokenizer, tmp_path / "cache", CorpusProblems(), tagged=True)
    tagged = written(tmp_path / "b.conll", "le DET\n")
    corpora = [Corpus((tagged,))]
    tokenize_corpora(corpora, tokenizer, tmp_path / "other", CorpusProblems(), tagged=True)
    (labels,) = (tmp_path / "other").glob("*/word_labels")
    labels.write_bytes(np.zeros(99, np.int32).tobytes())
    with pytest.raises(ValueError, match="sizes do not match"):
        tokenize_corpora(corpora, tokenizer, tmp_path / "other", CorpusProblems(), tagged=True)
