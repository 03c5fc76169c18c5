"""Models with separate vocabularies in other engines."""

import json
import random
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import regard
from regard.config import SpecialIds
from regard.data.opus_tokenizer import OpusTokenizer
from regard.decoding.generate import search_translations
from regard.decoding.options import Decoding
from regard.decoding.text_model import Model
from regard.interop.export import export
from regard.interop.huggingface import load_huggingface
from regard.model.transformer import EncoderDecoder, build
from tests.support.opus_tokenizer import OPUS_TEXTS, write_opus_tokenizer
from tests.support.oracles import randomise, small
from tests.support.separate_vocabularies import equal_models
from tests.support.text_models import TEXTS, TOKENIZER

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
    theirs = [[target.id_of(token) for token in result.hypotheses[0]] for result in results]
    ids = [tokenizer.encode_with_template(text) for text in TEXTS]
    assert isinstance(separate.network, EncoderDecoder)
    decoding = Decoding(beam=1, max_tokens=9)
    found = search_translations(separate.network, separate.special, ids, decoding, tokenizer.decode)
    assert theirs == [[*hypotheses[0].ids] for hypotheses in found]
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


def their_marian(seed: int) -> Any:
    """A random MarianMTModel whose encoder and decoder have their own vocabularies."""
    transformers = pytest.importorskip("transformers")
    pick = random.Random(seed)
    heads, source, target = pick.choice([1, 2, 4]), pick.choice([31, 40]), pick.choice([23, 31, 47])
    pad = pick.choice([3, min(source, target) - 1])
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=source,
            decoder_vocab_size=target,
            share_encoder_decoder_embeddings=False,
            tie_word_embeddings=pick.choice([True, False]),
            d_model=heads * pick.choice([2, 4, 6]),
            encoder_layers=pick.choice([1, 2]),
            decoder_layers=pick.choice([1, 2]),
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=12,
            decoder_ffn_dim=12,
            activation_function=pick.choice(["relu", "gelu", "silu"]),
            scale_embedding=pick.choice([True, False]),
            max_position_embeddings=40,
            pad_token_id=pad,
            decoder_start_token_id=pick.choice([pad, target - 1]),
            eos_token_id=pick.randrange(3),
            forced_eos_token_id=None,
            dtype="float32",
        )
    ).eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_positions" not in name:
                tensor.normal_(std=0.3)
    return model


@torch.no_grad()
def both_logits(theirs: Any, ours: EncoderDecoder, start: int) -> tuple[Tensor, Tensor]:
    """The logits of both on the same ragged batch."""
    lengths = torch.tensor([7, 4, 1])
    source = torch.randint(4, ours.config.inputs, (3, 7))
    target = torch.randint(4, ours.config.outputs, (3, 5))
    target[:, 0] = start
    mask = (torch.arange(7) < lengths[:, None]).long()
    got = theirs(input_ids=source, attention_mask=mask, decoder_input_ids=target).logits
    return got[..., : ours.config.outputs], ours(source, target, lengths)


def check_same_logits(theirs: Any, model: Model) -> None:
    assert isinstance(model.network, EncoderDecoder)
    assert model.special.start is not None
    left, right = both_logits(theirs, model.network, model.special.start)
    assert (left - right).abs().max() < 1e-5


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 34))])
def test_marian_with_two_vocabularies_comes_in_and_goes_out(seed: int, tmp_path: Path) -> None:
    theirs = their_marian(seed)
    theirs.save_pretrained(tmp_path / "theirs")
    model = load_huggingface(tmp_path / "theirs")
    config = theirs.config
    assert (model.config.vocab_size, model.config.target_vocab_size) == (config.vocab_size, config.decoder_vocab_size)
    assert model.config.tied == config.tie_word_embeddings
    check_same_logits(theirs, model)
    export(model, tmp_path / "again")
    check_same_logits(type(theirs).from_pretrained(tmp_path / "again").eval(), model)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("size", [23, 44])
def test_regards_models_become_marian(tied: bool, size: int, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    network = build(small(target_vocab_size=size, tied=tied)).eval()
    randomise([network])
    with torch.no_grad():
        for embedding in (network.embedding, network.output_embedding):
            embedding.tokens.weight[-1].zero_()
    model = Model(network, None, SpecialIds(start=size - 1, end=(0,)))
    export(model, tmp_path / "out")
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    assert theirs.config.decoder_vocab_size == size
    check_same_logits(theirs, model)
    loaded = load_huggingface(tmp_path / "out")
    check_same_logits(theirs, loaded)
    assert loaded.special.start == size - 1


def test_a_model_with_two_tokenizers_in_transformers(
    separate: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card's example prints what Regard's greedy search finds, and the folder comes back with both tokenizers."""
    pytest.importorskip("transformers")
    export(separate, tmp_path / "out")
    names = run_card_example(tmp_path / "out", monkeypatch)
    output = names["output"][0].tolist()
    target = separate.require_tokenizer().target_side
    assert output[0] == separate.special.start
    assert capsys.readouterr().out == f"{target.decode(output)}\n"
    loaded = regard.load(tmp_path / "out")
    assert loaded.require_tokenizer().is_separate
    assert loaded.translate(names["text"], beam=1, max_tokens=9) == separate.translate(
        names["text"], beam=1, max_tokens=9
    )
    assert "reads only one vocabulary" in (tmp_path / "out" / "README.md").read_text()


def test_pre_norm_models_with_two_vocabularies_are_refused(tmp_path: Path) -> None:
    model = Model(build(small(target_vocab_size=23, norm="pre")), None, SpecialIds(start=22, end=(0,)))
    with pytest.raises(ValueError, match="separate vocabularies"):
        export(model, tmp_path / "out")


def test_a_folder_with_a_tokenizer_of_one_side_is_read_without_it(tmp_path: Path) -> None:
    theirs = their_marian(0)
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.save(tmp_path / "theirs")
    model = load_huggingface(tmp_path / "theirs")
    assert model.tokenizer is None
    with pytest.raises(ValueError, match=r"only one tokenizer: the target's .* is missing"):
        model.translate("Le chat dort.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_vocab_size": 30}, r"\[23, .*\] does not fit its config, which requires target_embedding"),
        ({"pad_token_id": 35}, "pad=35 is outside the vocabulary of 23 ids"),
        ({"decoder_start_token_id": 23}, "the start id 23 is outside the vocabulary of 23 ids"),
        ({"share_encoder_decoder_embeddings": True, "decoder_vocab_size": None}, r"has no tensor model.shared.weight"),
    ],
)
def test_a_config_that_does_not_fit_the_weights(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    seed = next(seed for seed in range(99) if their_marian(seed).config.decoder_vocab_size == 23)
    theirs = their_marian(seed)
    theirs.save_pretrained(tmp_path)
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((tmp_path / name).read_text())
        known = {key: value for key, value in changes.items() if name == "config.json" or key in settings}
        (tmp_path / name).write_text(json.dumps(settings | known))
    with pytest.raises(ValueError, match=message):
        load_huggingface(tmp_path)
