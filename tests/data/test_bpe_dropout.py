"""BPE dropout: the same characters in different pieces, with the same distribution as in `tokenizers`."""

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers, trainers

from regard.data.batches import packed_translation_batches, translation_batches
from regard.data.bpe_dropout import BpeMerges, add_bpe_variants
from regard.data.corpus import Corpus, CorpusProblems
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.opus_tokenizer import OpusTokenizer
from regard.data.tokenized_corpus import TokenizedCorpus, tokenize_corpora
from regard.data.tokenizer import Tokenizer
from regard.data.tokenizer_training import train_tokenizer
from regard.petit import corpus_files
from regard.training.recipe_files import read_recipe
from regard.training.training_setup import prepare_training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenizedCorpus, Tokenizer]:
    folder = tmp_path_factory.mktemp("petit")
    corpus_files.write_petit(300, folder / "petit", splits=("train",))
    corpus = Corpus((f"{folder}/petit/train.fr", f"{folder}/petit/train.en"))
    texts = [text for row in corpus.rows(CorpusProblems()) for text in row.fields]
    tokenizer = train_tokenizer(texts, vocab_size=900)
    return tokenize_corpora([corpus], tokenizer, folder / "cache", CorpusProblems()), tokenizer


def test_every_variant_decodes_to_the_same_text(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    data, tokenizer = text
    variants = add_bpe_variants(data, tokenizer, 0.3, variants=4)
    assert (len(variants), variants.examples) == (4 * len(data), len(data))
    other = 0
    for side in (0, 1):
        for i in range(len(variants)):
            ids, as_it_is = variants.sequence(side, i).tolist(), data.sequence(side, i % len(data)).tolist()
            assert tokenizer.decode(ids) == tokenizer.decode(as_it_is)
            assert i >= len(data) or ids == as_it_is  # the first variant is the text itself
            other += ids != as_it_is
    assert other > 0.9 * 6 * len(data)


def test_without_dropout_the_encoding_is_unchanged(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    data, tokenizer = text
    variants = add_bpe_variants(data, tokenizer, 0.0, variants=2)
    for once, twice in zip(data.tokens, variants.tokens, strict=True):
        assert np.array_equal(np.concatenate([once, once]), twice)


def test_dropping_all_merges_leaves_bytes(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    _, tokenizer = text
    ids = BpeMerges(tokenizer).segment("Ġmaison", 1.0, Random(0))
    assert tokenizer.pieces(ids) == list(" maison")


def test_segmentations_have_the_defined_probabilities(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    """Compute each segmentation's probability by enumeration: a merge is applied if all better ones are dropped."""
    _, tokenizer = text
    merges, random, rate, draws = BpeMerges(tokenizer), Random(0), 0.25, 4_000

    def segmentations(pieces: tuple[str, ...]) -> dict[tuple[str, ...], float]:
        variants: dict[tuple[str, ...], float] = defaultdict(float)
        pairs = enumerate(pairwise(pieces))
        passed = 1.0
        for _, i in sorted((merges.rank[pair], i) for i, pair in pairs if pair in merges.rank):
            for way, share in segmentations((*pieces[:i], pieces[i] + pieces[i + 1], *pieces[i + 2 :])).items():
                variants[way] += passed * (1 - rate) * share
            passed *= rate
        variants[pieces] += passed
        return variants

    ours = Counter(merges.segment("Ġmaison", rate, random) for _ in range(draws))
    wanted = {
        tuple(merges.ids[piece] for piece in way): share for way, share in segmentations(tuple("Ġmaison")).items()
    }
    assert sum(wanted.values()) == pytest.approx(1)
    assert len(ours) > 3
    assert ours.keys() <= wanted.keys()
    for way, share in wanted.items():
        assert abs(ours[way] - draws * share) < 5 * (draws * share) ** 0.5 + 2, way  # five standard deviations


@given(st.text(min_size=1, max_size=30), st.floats(0, 0.99), st.integers(0, 2**31))
def test_any_text_survives_dropout(text: tuple[TokenizedCorpus, Tokenizer], said: str, rate: float, seed: int) -> None:
    _, tokenizer = text
    ids = np.array(tokenizer.encode(said), np.uint16)
    one = TokenizedCorpus((ids,), (np.array([0, len(ids)]),), None, (), {})
    variants = add_bpe_variants(one, tokenizer, rate, variants=2, seed=seed)
    assert tokenizer.decode(variants.sequence(0, 1).tolist()) == tokenizer.decode(ids.tolist())


def test_the_same_seed_gives_the_same_variants(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    data, tokenizer = text
    once, again, other = (add_bpe_variants(data, tokenizer, 0.2, 3, seed) for seed in (0, 0, 1))
    assert np.array_equal(once.tokens[0], again.tokens[0])
    assert not np.array_equal(once.tokens[0], other.tokens[0])


@pytest.mark.parametrize("packed", [False, True])
def test_an_epoch_uses_one_variant_of_each_example(text: tuple[TokenizedCorpus, Tokenizer], packed: bool) -> None:
    data, tokenizer = text
    variants = add_bpe_variants(data, tokenizer, 0.3, variants=5)
    how = (variants, tokenizer.end, tokenizer.pad, 640)
    batches = (
        packed_translation_batches(*how, row=64, max_length=40) if packed else translation_batches(*how, max_length=40)
    )
    epochs = [np.concatenate([items.ravel() for items in batches.order(epoch)]) for epoch in range(2)]
    for rows in epochs:
        rows = rows[rows >= 0]
        assert sorted(rows % len(data)) == sorted(set(rows % len(data)))
        assert len(rows) == len(data) - batches.left_out
        assert len(set(rows // len(data))) == 5
    assert Counter(epochs[0]) != Counter(epochs[1])


def test_a_variant_that_is_too_long_is_replaced_by_the_plain_encoding(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    data, tokenizer = text
    longest = int((data.lengths(0) + 1).max())
    batches = translation_batches(
        add_bpe_variants(data, tokenizer, 0.9, 3), tokenizer.end, tokenizer.pad, 640, max_length=longest
    )
    assert batches.left_out == 0
    assert max(batch.source.shape[1] for batch in batches.epoch(0) if batch.source is not None) <= longest


def test_recipes_can_enable_dropout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_files, "HELD_OUT", 20)
    sizes = ["data.petit=200", "train.batch_tokens=400", "tokenizer.vocab_size=600", "model.layers=1"]
    plain, dropped = (
        prepare_training(read_recipe("petit-fr-en", [*sizes, f"tokenizer.dropout={rate}"]), tmp_path, packed=False)
        for rate in (0.0, 0.1)
    )
    assert plain.example_count == dropped.example_count
    assert plain.tokenizer.digest == dropped.tokenizer.digest
    assert plain.digest != dropped.digest
    tried = [[batch.targets for batch in task.validation.epoch(0)] for task in (plain, dropped) if task.validation]
    assert tried[0] == tried[1] != []
    with pytest.raises(ValueError, match=r"tokenizer\.dropout is for translation"):
        read_recipe("petit-lm", ["tokenizer.dropout=0.1"])
    with pytest.raises(ValueError, match="has none"):
        read_recipe("petit-fr-en", ["tokenizer.dropout=0.1", "tokenizer.kind=characters"])


def test_scripts_without_spaces_are_segmented_quickly(text: tuple[TokenizedCorpus, Tokenizer]) -> None:
    _, tokenizer = text
    said = "chatnoirpetit" * 2_000
    ids = np.array(tokenizer.encode(said), np.uint16)
    one = TokenizedCorpus((ids,), (np.array([0, len(ids)]),), None, (), {})
    variants = add_bpe_variants(one, tokenizer, 0.3, variants=3).sequence(0, 1).tolist()
    assert variants != ids.tolist()
    assert tokenizer.decode(variants) == said


def test_unsupported_word_formats_are_rejected() -> None:
    """The format of the first BPE tokenizers: </w> ends a word and is not one of its letters."""
    engine = Engine(models.BPE(end_of_word_suffix="</w>"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    texts = ["le petit chat noir dort sur le tapis rouge"] * 50
    trainer = trainers.BpeTrainer(
        vocab_size=60, special_tokens=["</s>"], end_of_word_suffix="</w>", show_progress=False
    )
    engine.train_from_iterator(texts, trainer)
    tokenizer = HuggingFaceTokenizer(engine)
    ids = [tokenizer.encode(each) for each in texts]
    offsets = np.append(0, np.cumsum([len(each) for each in ids]))
    data = TokenizedCorpus((np.concatenate(ids).astype(np.uint16),), (offsets,), None, (), {})
    with pytest.raises(ValueError, match="cannot be segmented differently"):
        add_bpe_variants(data, tokenizer, 0.3, variants=2)


def test_a_tokenizer_without_merges_is_rejected() -> None:
    tokenizer = train_tokenizer(["le chat"], 400, "characters")
    with pytest.raises(ValueError, match=r"has no merges: set tokenizer\.dropout=0"):
        BpeMerges(tokenizer)
    with pytest.raises(ValueError, match="has no merges"):
        BpeMerges(object.__new__(OpusTokenizer))
