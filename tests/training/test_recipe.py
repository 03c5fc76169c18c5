"""Recipes: read strictly, overridden from the command line, and written back unchanged."""

import tomllib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard.config import ModelConfig
from regard.data.corpus import Corpus
from regard.decoding.options import Decoding
from regard.training import recipe as module
from regard.training import recipe_files as recipes
from regard.training.recipe import DataSection, Recipe, TokenizerSection, TrainSection, with_file_paths
from regard.training.recipe_files import as_toml, bundled_recipes, read_recipe
from tests.support.oracles import documented_fields

ROOT = Path(__file__).parents[2]
SMALL = '[data]\npetit = 10\n[model]\nlayers = 2\n[train]\nsteps = 7\nschedule = "linear"\n'


def write_recipe(folder: Path, text: str, name: str = "mine") -> str:
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_recipe_file_is_read(tmp_path: Path) -> None:
    path = write_recipe(
        tmp_path,
        """
        [data]
        languages = ["fr", "en"]
        folder = "there"
        train = [{ files = ["a.fr", "a.en"] }, { files = ["b.tsv"], columns = [2, 1] }]
        validation = { files = ["c.jsonl"], keys = ["fr", "en"] }
        [tokenizer]
        vocab_size = 500
        [model]
        preset = "tiny"
        dropout = 0.25
        [train]
        lr = 1
        packed = true
        [decode]
        stop = ["."]
        """,
    )
    assert read_recipe(path) == Recipe(  # lr = 1 is the same number as 1.0
        name="mine",
        data=DataSection(
            languages=("fr", "en"),
            folder="there",
            train=(Corpus(("a.fr", "a.en")), Corpus(("b.tsv",), columns=(2, 1))),
            validation=Corpus(("c.jsonl",), keys=("fr", "en")),
        ),
        tokenizer=TokenizerSection(vocab_size=500),
        model={"preset": "tiny", "dropout": 0.25},
        train=TrainSection(lr=1.0, packed=True),
        decode=Decoding(beam=4, stop=(".",)),
    )


def test_one_corpus_needs_no_list_and_sampling_needs_no_beam(tmp_path: Path) -> None:
    path = write_recipe(
        tmp_path, 'name = "n"\n[data]\ntrain = { files = ["a", "b"] }\n[decode]\ntemperature = 0.5\n', "other"
    )
    recipe = read_recipe(path)
    assert recipe.name == "n"
    assert recipe.data.train == (Corpus(("a", "b")),)
    assert recipe.decode == Decoding(temperature=0.5)


def test_overrides_are_applied(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, SMALL)
    found = read_recipe(
        path,
        [
            "train.schedule=cosine",
            "train.steps = 2_000",
            "train.lr=1e-3",
            "train.compile=true",
            "model.d_model=64",
            "decode.stop=['\\n', 'END']",
            "data.folder=2024",
            "name=12",
            "data.petit=0",
            'data.train=[{files=["a.tsv"]}]',
            "data.train.0.columns=[2, 1]",
            'data.validation.files=["x=1.fr", "y"]',
        ],
    )
    assert (found.train.schedule, found.train.steps, found.train.lr, found.train.compile) == (
        "cosine",
        2000,
        1e-3,
        True,
    )
    assert found.model == {"layers": 2, "d_model": 64}
    assert found.decode.stop == ("\\n", "END")  # a backslash is literal in single quotes
    assert (found.name, found.data.folder) == ("12", "2024")
    assert found.data.train == (Corpus(("a.tsv",), columns=(2, 1)),)
    assert found.data.validation == Corpus(("x=1.fr", "y"))
    assert read_recipe(path).train.steps == 7


@pytest.mark.parametrize("told", ["fr,en", "fr, en", " fr ,en ", '["fr", "en"]'])
def test_languages_can_be_written_in_several_ways(told: str, tmp_path: Path) -> None:
    assert read_recipe(write_recipe(tmp_path, SMALL), [f"data.languages={told}"]).data.languages == ("fr", "en")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("train.stepz=3", r"mine.toml with train.stepz=3: \[train\] has no key 'stepz': did you mean 'steps'"),
        ("trian.steps=3", "unknown section 'trian': did you mean 'train'"),
        ("model.hedas=3", r"\[model\] has no key 'hedas': did you mean 'heads'"),
        ("data.validation.fiels=3", "data.validation=.*is not a corpus"),
        ("data.train.0.files=3", "there is no .files. to set|is not a corpus"),
        ("train.steps", "write section.key=value"),
        ("steps=3", "write section.key=value"),
        ("train.steps.deeper=3", "'deeper' does not exist"),
        ("train.schedule=cosinus", "train.schedule='cosinus' is not a valid choice: did you mean 'cosine'"),
        ("train.steps=1\nseed = 4", "train.steps=.*has type str"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_invalid_overrides_are_rejected(change: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(write_recipe(tmp_path, SMALL), [change])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\npetit = 10\n[train]\nsteps = = 3\n", r"mine\.toml:4: not valid TOML: "),
        ("[data]\npetit = 10\nfolder = '''never\nended", r"mine\.toml:4: not valid TOML: "),
        ("[data]\npetit = 10\npetit = 11\n", r"mine\.toml:3: not valid TOML: "),
        ("[train]\nsteps = 3\n", r"mine\.toml: the section \[data\]"),
        ("[data]\npetit = 10\n[tokeniser]\n", r"unknown section \[tokeniser\]: did you mean 'tokenizer'"),
        ("data = 3", r"data is a section: write \[data\]"),
        ("[data]\npetit = 10\nfile = 3", r"\[data\] has no key 'file'"),
        ('[data]\ntrain = ["a.fr"]', "data.train='a.fr' is not a corpus"),
        ('[data]\ntrain = { files = "a.fr" }', "data.train.files='a.fr' has type str: expected a list of str"),
        ('[data]\ntrain = { files = ["a"], column = [1] }', "data.train has no key 'column': did you mean 'columns'"),
        ('[data]\ntrain = { files = ["a"], columns = ["1"] }', "data.train.columns=.*expected a list of int"),
        ('[data]\npetit = 1\nlanguages = "fr"', "data.languages='fr' has type str: expected a list of str"),
        ("[data]\npetit = true", "data.petit=True has type bool"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_invalid_recipe_files_are_rejected(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_recipe(write_recipe(tmp_path, text))


def test_binary_and_missing_recipe_files_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "latin.toml"
    path.write_bytes("# déjà\n[data]\npetit = 1\n".encode("latin1"))
    with pytest.raises(ValueError, match=r"latin\.toml is not in UTF-8"):
        read_recipe(str(path))
    names = "en-fr, .*, petit-fr-en, .*, writer$"
    with pytest.raises(ValueError, match=rf"no recipe 'petit-fr-em': did you mean 'petit-fr-en'\? .* {names}"):
        read_recipe("petit-fr-em")
    with pytest.raises(ValueError, match=f"no recipe 'zzz': expected one of {names}"):
        read_recipe("zzz")
    with pytest.raises(ValueError, match=rf"petit-fr-en\.toml: no such file; .* without \.toml: {names}"):
        read_recipe("petit-fr-en.toml")


TWO, ONE = Corpus(("a", "b")), Corpus(("a",))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "there is no training text"),
        ({"petit": 5, "train": (TWO,)}, "data.petit=5 with train"),
        ({"petit": 5, "held_out": 0.1}, "data.petit=5 with train, validation or held_out"),
        ({"petit": -1}, "petit=-1 is too small"),
        ({"train": (TWO,), "held_out": 1.0}, "data.held_out=1.0 .* below 1"),
        ({"train": (TWO,), "held_out": -0.1}, "data.held_out=-0.1"),
        ({"train": (TWO,), "validation": TWO, "held_out": 0.1}, "held_out=0.1 and data.validation exclude each other"),
        ({"train": (TWO,), "task": "language"}, "a is read with 2 sides: the task language needs one"),
        ({"train": (TWO, ONE)}, "a is read with 1 side: the task translation needs two"),
        ({"train": (ONE,), "task": "classification"}, "needs two, text and class"),
        ({"train": (ONE,), "validation": TWO, "task": "language"}, "the task language needs one"),
        ({"train": (TWO,), "documents": "file"}, "documents='file' is for the task language"),
        ({"train": (TWO,), "languages": ("fr",)}, "the task translation has two"),
        ({"train": (ONE,), "task": "language", "languages": ("fr", "en")}, "the task language has one"),
    ],
)
def test_invalid_data_sections_are_rejected(data: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSection(**data)


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("translation", {"kind": "encoder"}, "translation needs a model of kind 'encoder-decoder' or 'decoder'"),
        ("classification", {}, "needs a model of kind 'encoder' or 'decoder'|needs kind 'encoder' or 'decoder'"),
        ("language", {}, "the task language needs a model of kind 'decoder', but model.kind is 'encoder-decoder'"),
        ("language", {"preset": "bert-small"}, "model.kind is 'encoder'"),
        ("language", {"kind": "decoder", "prefix": True}, "model.prefix is for translation"),
        ("translation", {"vocab_size": 9}, "model.vocab_size follows from the text"),
        ("translation", {"preset": "tinny"}, "no preset 'tinny': did you mean 'tiny'"),
        ("translation", {"preset": 3}, "model.preset=3 has type int: expected str"),
        ("translation", {"heads": 3}, "heads=3 does not divide d_model=512"),
        ("translation", {"start": "x", "layers": 2}, "model.layers with model.start"),
        ("translation", {"start": "x", "preset": "tiny"}, "model.preset with model.start"),
        ("translation", {"start": "x", "dropout": 1.0}, "model.dropout=1.0 is not a probability"),
        ("translation", {"start": "x", "dropout": "0"}, "model.dropout='0' has type str"),
    ],
)
def test_invalid_model_sections_are_rejected(task: Any, model: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(name="x", data=DataSection(petit=5, task=task), model=model)


def test_an_existing_model_replaces_the_shape_that_a_file_describes(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text('[data]\npetit = 5\ntask = "tagging"\n[model]\nkind = "encoder"\nlayers = 2\ndropout = 0.25\n')
    assert read_recipe(str(path), ["model.start=x"]).model == {"start": "x", "dropout": 0.25}
    changes = {"model.start": "x", "model.attention_dropout": 0.5}
    assert read_recipe(str(path), changes).model == {"start": "x", "dropout": 0.25, "attention_dropout": 0.5}
    assert read_recipe(str(path), {"model.start": None}).model == {"kind": "encoder", "layers": 2, "dropout": 0.25}
    with pytest.raises(ValueError, match=r"model.layers with model.start: .* remove it"):
        read_recipe(str(path), ["model.layers=3", "model.start=x"])


@pytest.mark.parametrize(
    ("task", "model", "train", "message"),
    [
        ("classification", {"kind": "encoder"}, {"packed": True}, "is not possible for classification"),
        ("translation", {"attention_dropout": 0.1}, {"packed": True}, "attention_dropout=0.1 is not possible"),
        ("language", {"kind": "decoder"}, {"best_by": "score"}, "no score other than its loss"),
        ("translation", {}, {"best_by": "score", "validation_sentences": 0}, "needs translations to score"),
    ],
)
def test_invalid_train_sections_are_rejected(task: Any, model: Any, train: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Recipe(name="x", data=DataSection(petit=5, task=task), model=model, train=TrainSection(**train))


def test_files_are_relative_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.fr", "a.en"):
        (tmp_path / name).write_text("x\n")
    outside = tmp_path / "a.en"
    data = DataSection(train=(Corpus(("a.fr", str(outside))),), folder=str(tmp_path))
    assert with_file_paths(data).train == (Corpus((str(tmp_path / "a.fr"), str(outside))),)
    monkeypatch.chdir(tmp_path.parent)
    assert with_file_paths(replace(data, folder=tmp_path.name)).train[0].files[0] == f"{tmp_path.name}/a.fr"
    with pytest.raises(ValueError, match=r"elsewhere/a\.fr: no such file; .* --set data.folder=FOLDER"):
        with_file_paths(replace(data, folder="elsewhere"))
    lacking = replace(data, validation=Corpus(("b.fr", "b.en")))
    with pytest.raises(ValueError, match=r"b\.fr \(and 1 more\): no such file"):
        with_file_paths(lacking)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAME = TEXT.filter(bool)
CORPUS = st.one_of(
    st.fixed_dictionaries({"files": st.tuples(NAME, NAME)}),
    st.fixed_dictionaries({"files": st.tuples(NAME), "columns": st.tuples(st.integers(1, 9), st.integers(1, 9))}),
    st.fixed_dictionaries({"files": st.tuples(NAME), "keys": st.tuples(TEXT, TEXT)}),
)
SECTIONS = {
    "data": st.fixed_dictionaries(
        {
            "folder": TEXT,
            "languages": st.just(()) | st.tuples(TEXT, TEXT),
            "train": st.lists(CORPUS, min_size=1, max_size=3).map(tuple),
            "validation": st.none() | CORPUS,
            "skip_bad": st.booleans(),
        }
    ),
    "tokenizer": st.fixed_dictionaries({"vocab_size": st.integers(1, 10**6)}),
    "model": st.fixed_dictionaries(
        {},
        optional={
            "dropout": st.floats(0, 0.99),
            "norm_eps": st.floats(1e-300, 0.5),
            "bias": st.booleans(),
            "layers": st.integers(1, 99),
            "positions": st.sampled_from(["none", "learned"]),
            "preset": st.just("tiny"),
        },
    ),
    "train": st.fixed_dictionaries(
        {
            "lr": st.none() | st.floats(1e-308, 1e3),
            "packed": st.none() | st.booleans(),
            "eps": st.floats(1e-300, 1.0),
            "steps": st.integers(1, 10**9),
            "device": TEXT,
        }
    ),
    "decode": st.fixed_dictionaries(
        {
            "stop": st.lists(NAME, max_size=2).map(tuple),
            "temperature": st.floats(0, 9),
            "max_tokens": st.none() | st.integers(1, 99),
        }
    ),
}


@given(NAME, st.fixed_dictionaries(SECTIONS))
def test_a_written_recipe_reads_back_unchanged(name: str, told: dict[str, Any]) -> None:
    recipe = Recipe(
        name=name,
        data=DataSection(**{key: corpora(value) for key, value in told["data"].items()}),
        tokenizer=TokenizerSection(**told["tokenizer"]),
        model=told["model"],
        train=TrainSection(**told["train"]),
        decode=Decoding(**told["decode"]),
    )
    table = tomllib.loads(as_toml(recipe))
    assert recipes._recipe_from_table(table, "another name") == recipe


def corpora(value: Any) -> Any:
    """Convert tables of files to corpora."""
    if isinstance(value, tuple):
        return tuple(map(corpora, value))
    return Corpus(**value) if isinstance(value, dict) else value


def test_any_recipe_round_trips_through_a_file(tmp_path: Path) -> None:
    recipe = replace(read_recipe("europarl-fr-en"), name="Ä\\\"'\x7f\r\n")
    assert read_recipe(write_recipe(tmp_path, as_toml(recipe))) == recipe


NAMES = {
    "en-fr",
    "en-fr-retyped",
    "europarl-fr-en",
    "finetune-corpus",
    "fr-en",
    "fr-en-small",
    "gpt2-small",
    "large-corpus",
    "medium-corpus",
    "multi30k-en-de",
    "multi30k-finetune",
    "multi30k-fr-en",
    "multi30k-fr-en-decoder",
    "multi30k-smollm2",
    "paper-base",
    "paper-big",
    "petit-classify",
    "petit-fr-en",
    "petit-fr-en-decoder",
    "petit-lm",
    "petit-masked",
    "petit-tag",
    "shakespeare-char",
    "small-corpus",
    "tatoeba-fr-en",
    "teacher-fr-en",
    "writer",
}


def test_the_bundled_recipes() -> None:
    assert set(bundled_recipes()) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_bundled_recipe_reads_and_writes(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name
    assert not Path(recipe.data.folder).is_absolute()
    assert bool(recipe.data.petit) == name.startswith("petit")
    assert read_recipe(write_recipe(tmp_path, as_toml(recipe))) == recipe
    if recipe.start is None:
        config = recipe.config(recipe.tokenizer.vocab_size + 1, 2 * (recipe.data.task == "classification"))
        assert config.outputs == recipe.tokenizer.vocab_size
        assert config.positions != "learned" or recipe.train.max_length <= config.max_length
    text = (ROOT / "regard" / "recipes" / f"{name}.toml").read_text()
    assert text.startswith("# ")
    assert max(map(len, text.splitlines())) <= 120


def test_the_papers_recipes_match_the_paper() -> None:
    """Sections 5 and 6.1 and Table 3 of the paper."""
    base, big = read_recipe("paper-base"), read_recipe("paper-big")
    assert base.config(37_057) == ModelConfig(vocab_size=37_057)
    wide = big.config(37_057)
    assert (wide.d_model, wide.heads, wide.d_ff, wide.dropout, wide.layers) == (1024, 16, 4096, 0.3, 6)
    assert (base.train.steps, base.train.average, big.train.steps, big.train.average) == (100_000, 5, 300_000, 20)
    for train, decode in ((base.train, base.decode), (big.train, big.decode)):
        assert (train.beta1, train.beta2, train.eps, train.warmup, train.lr) == (0.9, 0.98, 1e-9, 4000, None)
        assert (train.label_smoothing, train.schedule, train.batch_tokens) == (0.1, "inverse-sqrt", 25_000)
        assert (decode.beam, decode.length_penalty) == (4, 0.6)


@pytest.mark.parametrize("name", ["paper-base", "paper-big"])
def test_the_papers_formulas_differ_from_its_recipes_in_one_line(name: str, tmp_path: Path) -> None:
    recipe = read_recipe(name)
    assert recipe.config(37_057).projection_bias
    text = (ROOT / "regard" / "recipes" / f"{name}.toml").read_text(encoding="utf-8")
    uncommented = text.replace("# attention_bias = false", "attention_bias = false")
    assert uncommented != text
    formulas = read_recipe(write_recipe(tmp_path, uncommented, name))
    assert formulas == read_recipe(name, ["model.attention_bias=false"])
    assert formulas.config(37_057) == replace(recipe.config(37_057), attention_bias=False)
    assert read_recipe(write_recipe(tmp_path, as_toml(formulas), name)) == formulas


def test_the_shakespeare_recipe_matches_nanogpt() -> None:
    recipe = read_recipe("shakespeare-char")
    config, train = recipe.config(385), recipe.train
    assert (config.layers, config.heads, config.d_model, config.d_ff) == (6, 6, 384, 4 * 384)
    assert (config.dropout, config.attention_dropout, config.bias, config.max_length) == (0.2, 0.2, False, 256)
    assert (train.batch_tokens, train.lr, train.lr_end, train.warmup, train.beta2) == (64 * 256, 1e-3, 0.1, 100, 0.99)
    assert (train.steps, train.weight_decay, train.clip, train.optimizer) == (
        2500,
        0.1,
        1.0,
        "adamw",
    )


def test_the_override_suggested_in_gpt2_small_is_valid() -> None:
    comment = (ROOT / "regard" / "recipes" / "gpt2-small.toml").read_text().splitlines()[1]
    changes = [part.strip("' ") for part in comment.split("--set ")[1:]]
    assert len(changes) == 2
    data = read_recipe("gpt2-small", changes).data
    assert data.folder == "my-text"
    assert data.train == (Corpus(("a.txt",)), Corpus(("b.txt.gz",)))


@pytest.mark.parametrize("section", ["DataSection", "TokenizerSection", "TrainSection"])
def test_every_field_is_documented_where_it_is_declared(section: str) -> None:
    documented = documented_fields(module, section)
    assert documented == {field.name for field in fields(getattr(module, section))}
