"""Tokenizers other than the one that a run trains on both sides: one for each side, or one from elsewhere."""

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

import regard
from regard.data.batches import IGNORED_TARGET
from regard.data.huggingface_tokenizer import HuggingFaceTokenizer
from regard.data.tokenizer_pair import TokenizerPair
from regard.data.tokenizer_training import train_tokenizer
from regard.errors import RegardError
from regard.petit import corpus_files, pairs
from regard.training import train as train_module
from regard.training import validation
from regard.training.recipe import Recipe, TokenizerSection
from regard.training.recipe_files import override_recipe, read_recipe
from regard.training.train import train_recipe
from regard.training.training_setup import TrainingSetup, prepare_training
from tests.support.recipes import SMALL_SIZES, small_recipe

FRENCH, ENGLISH = zip(*((pair.french, pair.english) for pair in pairs(200)), strict=True)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of prepared text, with few held-out sentences; runs do not translate anything at their end."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REGARD_CACHE", str(folder))
        patch.setattr(corpus_files, "HELD_OUT", 12)
        patch.setattr(train_module, "score_best_model", lambda *_: [])
        patch.setattr(validation, "SAMPLE_COUNT", 0)
        yield folder


def recipe(which: str = "encoder-decoder", **tokenizer: Any) -> Recipe:
    return replace(small_recipe(which), tokenizer=TokenizerSection(**{"vocab_size": 320} | tokenizer))


def short_run(steps: int, **tokenizer: Any) -> Recipe:
    made = recipe(**tokenizer)
    train = replace(made.train, steps=steps, validate_every=2, checkpoint_every=2, validation_sentences=0)
    return replace(made, train=train)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [False, True])
def test_each_side_is_trained_with_its_own_ids(packed: bool, cache: Path) -> None:
    setup = prepare_training(recipe(separate=True, vocab_size=512), cache, packed)
    tokenizer, config = setup.tokenizer, setup.network.config
    assert isinstance(tokenizer, TokenizerPair)
    assert (config.vocab_size, config.target_vocab_size) == (tokenizer.source.size, tokenizer.target.size)
    source_of = {pair.english: pair.french for pair in pairs(300)}
    batch = next(iter(setup.batches.epoch(0)))
    assert batch.source is not None
    assert batch.source_lengths is not None
    assert batch.lengths is not None
    source_length, target_length = int(batch.source_lengths[0].flatten()[0]), int(batch.lengths[0].flatten()[0])
    source, target = batch.source[0, :source_length].tolist(), batch.tokens[0, :target_length].tolist()
    text = tokenizer.target.decode(target)
    assert target == [tokenizer.target.pad, *tokenizer.encode_target(text)]
    assert batch.labels[0, :target_length].tolist() == [*tokenizer.encode_target(text), tokenizer.target.end]
    assert source == tokenizer.encode_with_template(source_of[text])
    assert source[-1] == tokenizer.source.end
    assert tokenizer.source.digest != tokenizer.target.digest
    if not packed:
        padding = batch.source[0, source_length:]
        assert (padding == tokenizer.source.pad).all()
        assert (batch.labels[0, target_length:] == IGNORED_TARGET).all()


@pytest.mark.slow
def test_bpe_dropout_segments_each_side_with_its_own_merges(cache: Path) -> None:
    plain = prepare_training(recipe(separate=True), cache, packed=False)
    dropped = prepare_training(recipe(separate=True, dropout=0.3), cache, packed=False)
    sides = (plain.tokenizer.source_side, plain.tokenizer.target_side)
    texts = zip(*((pair.french, pair.english) for pair in pairs(300)), strict=True)
    known = [set(side_texts) for side_texts in texts]
    other = 0
    for batch in islice(dropped.batches.epoch(0), 4):
        assert batch.source is not None
        assert batch.source_lengths is not None
        assert batch.lengths is not None
        lengths = zip(batch.source_lengths.tolist(), batch.lengths.tolist(), strict=True)
        for row, (s, t) in enumerate(lengths):
            ids_of_sides = (batch.source[row, : s - 1].tolist(), batch.tokens[row, 1:t].tolist())
            for side, ids, known_texts in zip(sides, ids_of_sides, known, strict=True):
                text = side.decode(ids)
                assert text in known_texts
                other += ids != side.encode(text)
    assert other > 10


@pytest.mark.slow
def test_a_run_with_separate_tokenizers(cache: Path, tmp_path: Path) -> None:
    """Trained, interrupted, resumed, loaded, used and fine-tuned."""
    short = short_run(4, separate=True)
    train_recipe(replace(short, train=replace(short.train, steps=2)), tmp_path / "run")
    train_recipe(short, tmp_path / "run", resume=True)
    model = regard.load(tmp_path / "run")
    assert isinstance(model.tokenizer, TokenizerPair)
    texts = [FRENCH[0], f"{FRENCH[1]} {FRENCH[2]}"]
    model.save(tmp_path / "copy")
    assert regard.load(tmp_path / "copy").translate(texts, max_tokens=8) == model.translate(texts, max_tokens=8)
    assert len(model.attend(FRENCH[0], ENGLISH[0]).maps) == 3
    start = {"start": str(tmp_path / "run")}
    tuned = prepare_training(replace(small_recipe(), model=start), cache, packed=False)
    assert tuned.tokenizer.digest == model.tokenizer.digest
    assert (tuned.special, tuned.network.config.target_vocab_size) == (model.special, model.config.target_vocab_size)
    batch = next(iter(tuned.batches.epoch(0)))
    assert tuned.network(batch.source, batch.tokens).shape[-1] == model.config.outputs


@pytest.mark.parametrize(
    ("which", "changes", "message"),
    [
        ("language", {"separate": True}, "tokenizer.separate is for translation only.*the task is language"),
        ("classification", {"separate": True}, "tokenizer.separate is for translation only"),
        ("decoder", {"separate": True}, "tokenizer.separate needs model.kind='encoder-decoder': a decoder reads"),
        ("encoder-decoder", {"separate": True, "path": "x"}, "tokenizer.path names one: remove one of them"),
    ],
)
def test_what_cannot_have_separate_tokenizers(which: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        recipe(which, **changes)


@pytest.mark.parametrize(("key", "value"), [("vocab_size", 500), ("kind", "characters")])
def test_settings_of_a_trained_tokenizer_are_refused_with_a_given_one(key: str, value: Any) -> None:
    message = rf"tokenizer.{key} is for a tokenizer that is trained, but tokenizer.path names one: remove one of them"
    with pytest.raises(RegardError, match=message):
        read_recipe("petit-lm", [f"tokenizer.{key}={value}", "tokenizer.path=x"])
    given = read_recipe("petit-lm", {"tokenizer.path": "x"})  # the file itself sets vocab_size
    assert given.tokenizer.path == "x"
    with pytest.raises(RegardError, match=message):
        override_recipe(given, {f"tokenizer.{key}": value})


@pytest.mark.parametrize("changes", [{"separate": True}, {"path": "x"}])
def test_a_fine_tuned_model_keeps_its_tokenizer(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"tokenizer.{next(iter(changes))} with model.start"):
        replace(recipe(**changes), model={"start": "fr-en"})


def test_the_vocabulary_sizes_follow_from_the_text() -> None:
    with pytest.raises(ValueError, match=r"model.target_vocab_size follows from the text"):
        replace(small_recipe(), model=SMALL_SIZES | {"target_vocab_size": 400})


def elsewhere(folder: Path, special: list[str], template: str = "$A", **roles: str) -> Path:
    """A folder as `transformers` writes it: a tokenizer with these special tokens, then byte-level pieces."""
    engine = Engine(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    engine.train_from_iterator(FRENCH + ENGLISH, trainer)
    ids = list(zip(special, range(len(special)), strict=True))
    engine.post_processor = processors.TemplateProcessing(single=template, pair=None, special_tokens=ids)
    folder.mkdir()
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(roles))
    return folder


def prepared(path: Path | str, cache: Path, which: str = "encoder-decoder", **model: Any) -> TrainingSetup:
    made = recipe(which, path=str(path))
    return prepare_training(replace(made, model=dict(made.model) | model), cache, packed=False)


@pytest.mark.slow
def test_a_tokenizer_from_elsewhere_keeps_its_ids(cache: Path, tmp_path: Path) -> None:
    folder = elsewhere(tmp_path / "a", ["<a>", "<stop>", "<fill>"], eos_token="<stop>", pad_token="<fill>")
    setup = prepared(folder, cache)
    assert setup.network.config.vocab_size == 290
    assert setup.network.config.pad == 2
    assert setup.special == regard.config.SpecialIds(end=(1,), start=2, suppressed=(2,))
    assert setup.tokenizer.after == (1,)
    batch = next(iter(setup.batches.epoch(0)))
    assert (batch.tokens[:, 0] == 2).all()
    model = setup.model()
    model.network.eval()
    model.save(tmp_path / "saved")
    translated = regard.load(tmp_path / "saved").translate(FRENCH[:2], max_tokens=5)
    assert translated == model.translate(FRENCH[:2], max_tokens=5)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["encoder-decoder", "decoder"])
def test_language_codes_in_a_tokenizer_do_not_make_a_model_multilingual(
    which: str, cache: Path, tmp_path: Path
) -> None:
    special = ["<pad>", "</s>", "<sep>", "fra_Latn", "eng_Latn"]
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "sep_token": "<sep>"}
    model = prepared(elsewhere(tmp_path / "nllb", special, **roles), cache, which).model()
    model.network.eval()
    assert model.require_tokenizer().languages == {"fra_Latn": 3, "eng_Latn": 4}
    assert model.languages == []
    assert isinstance(model.translate(FRENCH[0], max_tokens=3, beam=2), str)  # as every validation does
    assert model.score(FRENCH[:1], ENGLISH[:1])[0] < 0
    with pytest.raises(ValueError, match=r"'fra_Latn' and 'eng_Latn': this model is not multilingual"):
        model.for_languages("fra_Latn", "eng_Latn")


@pytest.mark.slow
def test_a_single_file_and_a_model_folder_give_tokenizers(cache: Path, tmp_path: Path) -> None:
    trained = train_tokenizer(FRENCH + ENGLISH, 320)
    trained.engine.save(str(tmp_path / "mine.json"))
    for path in (tmp_path / "mine.json", "regard/models/fr-en", "regard/models/fr-en/tokenizer.json"):
        found = Path(path) if Path(path).is_absolute() else Path(regard.__file__).parent.parent / path
        setup = prepared(found, cache)
        config = setup.network.config
        assert (config.pad, setup.special.start) == (-1, config.outputs)  # <pad> is last, as in what Regard trains
        assert setup.special.suppressed == ()


@pytest.mark.slow
def test_a_folder_with_two_tokenizers_gives_separate_vocabularies(cache: Path, tmp_path: Path) -> None:
    sides = [train_tokenizer(texts, size) for texts, size in ((FRENCH, 320), (ENGLISH, 384))]
    TokenizerPair(*sides).save(tmp_path / "both")
    setup = prepared(tmp_path / "both", cache)
    config = setup.network.config
    assert (config.vocab_size, config.target_vocab_size, config.pad) == (321, 385, -1)
    assert setup.special == regard.config.SpecialIds(end=(0,), start=384)
    batch = next(iter(setup.batches.epoch(0)))
    assert setup.network(batch.source, batch.tokens).shape[-1] == 384
    with pytest.raises(ValueError, match="separate tokenizers for source and target, but a model of kind 'decoder'"):
        prepared(tmp_path / "both", cache, "decoder")
    side = HuggingFaceTokenizer.load(elsewhere(tmp_path / "c", ["<pad>", "</s>"], pad_token="<pad>", eos_token="</s>"))
    TokenizerPair(sides[0], side).save(tmp_path / "unlike")
    with pytest.raises(ValueError, match="the id of <pad> is 320 in the source's tokenizer and 0 in the target's"):
        prepared(tmp_path / "unlike", cache)


@pytest.mark.slow
def test_the_template_of_a_tokenizer_is_kept_where_it_can_be(cache: Path, tmp_path: Path) -> None:
    folder = elsewhere(tmp_path / "bert", ["[PAD]", "[CLS]", "[SEP]"], "[CLS] $A [SEP]")  # roles by common names
    setup = prepared(folder, cache, "classification")
    assert (setup.tokenizer.before, setup.tokenizer.after) == ((1,), (2,))
    assert prepared(folder, cache, "language").tokenizer.before == (1,)
    with pytest.raises(ValueError, match=r"no id that ends a text \(eos_token_id\): name a token of its vocabulary"):
        prepared(folder, cache)
    (folder / "tokenizer_config.json").write_text('{"eos_token": "[SEP]"}')
    setup = prepared(folder, cache)
    assert (setup.tokenizer.before, setup.tokenizer.after, setup.special.start) == ((), (2,), 0)


@pytest.mark.slow
def test_a_decoder_needs_no_padding_token(cache: Path, tmp_path: Path) -> None:
    folder = elsewhere(tmp_path / "gpt", ["<|endoftext|>"])
    setup = prepared(folder, cache, "language")
    assert (setup.tokenizer.before, setup.special.end, setup.network.config.pad) == ((0,), (0,), None)
    with pytest.raises(ValueError, match=r"no padding token, which starts every target: name a token.*pad_token"):
        prepared(folder, cache)


@pytest.mark.slow
def test_paths_without_a_usable_tokenizer(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer.path: .*missing: no such file or folder"):
        prepared(tmp_path / "missing", cache)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no tokenizer could be loaded from .*empty: its folder had none"):
        prepared(tmp_path / "empty", cache)
    (tmp_path / "empty" / "spiece.model").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"its folder had only spiece.model, but Regard reads tokenizer.json"):
        prepared(tmp_path / "empty", cache)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ValueError, match=r"broken.json"):
        prepared(tmp_path / "broken.json", cache)


@pytest.mark.slow
def test_a_vocabulary_that_does_not_fit_the_embedding(cache: Path, tmp_path: Path) -> None:
    model = prepare_training(recipe(), cache, packed=False).model()
    model.tokenizer = train_tokenizer(FRENCH + ENGLISH, 640).with_template(after=[0])
    model.save(tmp_path / "larger")
    with pytest.raises(ValueError, match=r"larger': the tokenizer has 641 ids, but the embedding has 321"):
        prepare_training(replace(small_recipe(), model={"start": str(tmp_path / "larger")}), cache, packed=False)


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_the_path_may_change_on_resume_if_the_tokenizer_does_not(tmp_path: Path) -> None:
    for name, size in (("a", 320), ("b", 320), ("c", 384)):
        train_tokenizer(FRENCH + ENGLISH, size).save(tmp_path / name)
    train_recipe(short_run(2, path=str(tmp_path / "a")), tmp_path / "run")
    with pytest.raises(ValueError, match="was trained with a different tokenizer"):
        train_recipe(short_run(3, path=str(tmp_path / "c")), tmp_path / "run", resume=True)
    train_recipe(short_run(3, path=str(tmp_path / "b")), tmp_path / "run", resume=True)
    used = HuggingFaceTokenizer.load(tmp_path / "b").with_template(after=[0])
    assert regard.load(tmp_path / "run").require_tokenizer().digest == used.digest
