"""Models exported to CTranslate2 give the same log-probabilities, greedy and beam search results, and hidden states."""

import copy
import importlib.util
import json
import random
import re
import sys
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.config import ModelConfig, SpecialIds
from regard.data.tokenizer_training import train_tokenizer
from regard.decoding.text_model import Model
from regard.interop.ctranslate2_export import CTRANSLATE2_DTYPES, export_ctranslate2
from regard.interop.export import export as to_hugging_face
from regard.model.transformer import Encoder, EncoderDecoder, Network, build
from tests.support.oracles import randomise, small

pytestmark = pytest.mark.slow

ctranslate2 = pytest.importorskip("ctranslate2")

TOLERANCE = 1e-5
LONGEST = 12  # number of generated tokens


def random_config(kind: str, seed: int) -> ModelConfig:
    """Return any architecture. Values are dealt from shuffled decks, so a dozen seeds cover them all."""

    fields = count()

    def deal(*deck: Any) -> Any:
        turn, place = divmod(seed, len(deck))
        return random.Random(f"{kind} {next(fields)} {turn}").sample(deck, len(deck))[place]

    widths = deal({}, {"d_k": 10, "d_v": 10}, {"d_k": 6, "d_v": 9}, {"d_k": 8, "d_v": 5})
    heads = deal({"heads": 4}, {"heads": 1}, {"heads": 2, "kv_heads": 1}, {"heads": 6, "kv_heads": 2})
    shape: dict[str, Any] = {
        "positions": deal("sinusoidal", "learned", "rotary", "none"),
        "rotary_base": 500.0,
        "layers": deal(1, 2, 3),
        "activation": deal("relu", "gelu", "gelu-tanh", "silu", "swiglu", "geglu-tanh"),
        "bias": deal(True, False),
        "norm": deal("post", "pre"),
        "norm_kind": deal("layer", "rms"),
        "norm_eps": deal(1e-12, 1e-6, 1e-5, 1e-2),
        "scale_embeddings": deal(True, False),
        "embedding_norm": deal(True, False),
        "tied": deal(True, False),
        "output_bias": deal(True, False),
        "pad": deal(-1, 0, None),
    }
    decoder_layers = {"decoder_layers": deal(None, 1, 3)} if kind == "encoder-decoder" else {}
    if kind == "encoder-decoder":
        is_separable = shape["positions"] == "learned" or shape["embedding_norm"]
        shape["separate_positions"] = is_separable and deal(True, False)
    if shape["positions"] == "sinusoidal":
        shape["sinusoids"] = deal("paper", "fairseq")
    attention_bias = {"attention_bias": deal(None, True, False, "qkv")}
    target = {"target_vocab_size": deal(None, 23, 44)} if kind == "encoder-decoder" else {}
    return small(kind=kind, **shape | widths | heads | decoder_layers | attention_bias | target)


def random_network(config: ModelConfig) -> Any:
    """Return random weights that are large before the activation: small numbers would not distinguish activations."""
    network = build(config).eval()
    randomise([network])
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "feed_forward.up" in name or "feed_forward.gate" in name:
                parameter.mul_(6)
    return network


def export(stored: Model, folder: Path, dtype: str = "float32") -> str:
    folder.mkdir(parents=True)
    export_ctranslate2(stored, folder, dtype)
    assert ctranslate2.contains_model(str(folder))
    return str(folder)


def tokens(ids: list[int]) -> list[str]:
    """Return token strings as a model without tokenizer writes them."""
    return [f"<id{id_}>" for id_ in ids]


def ids(tokens: list[str]) -> list[int]:
    return [int(token[3:-1]) for token in tokens]


def random_rows(outputs: int, lengths: list[int]) -> list[list[int]]:
    return [torch.randint(1, outputs, (length,)).tolist() for length in lengths]


def padded(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    filled = pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=0)
    return filled, torch.tensor([len(row) for row in rows])


@torch.inference_mode()
def log_probabilities(network: Network, sources: list[list[int]], start: int, targets: list[list[int]]) -> list[Tensor]:
    """Return those of each token of each target, by one full forward pass."""
    assert isinstance(network, EncoderDecoder)
    source, source_lengths = padded(sources)
    target, lengths = padded([[start, *row[:-1]] for row in targets])
    logits = network(source, target, source_lengths, lengths).log_softmax(-1)  # [B, T, V]
    return [row[torch.arange(len(said)), said] for row, said in zip(logits, map(torch.tensor, targets), strict=True)]


@torch.inference_mode()
def greedy(network: Any, cache: Any, prompts: list[list[int]], ends: tuple[int, ...]) -> list[list[int]]:
    """Return the greedy continuation of each prompt, up to an end or LONGEST tokens."""
    said: list[list[int]] = [[] for _ in prompts]
    new, lengths = padded(prompts)
    logits = network.step(new, torch.arange(new.size(1)).expand_as(new), cache)
    logits = logits[torch.arange(len(prompts)), lengths - 1]  # [B, V]
    for t in range(LONGEST):
        token = logits.argmax(-1)
        for row, id_ in zip(said, token.tolist(), strict=True):
            if not (row and row[-1] in ends):
                row.append(id_)
        if t < LONGEST - 1:
            logits = network.step(token[:, None], lengths[:, None] + t, cache)[:, -1]
    return said


def strip_end(row: list[int], end: int) -> list[int]:
    return row[:-1] if row[-1:] == [end] else row


def check_translator(config: ModelConfig, folder: Path) -> int:
    """Compare everything a translator does with our own; return the number of sentences that ended early."""
    network = random_network(config)
    start = config.output_vocab_size - 1 if config.pad is None else config.output_pad_id
    assert start is not None
    sources = random_rows(config.inputs, [5, 4, 9, 6])  # with an end among the two tokens, CTranslate2 may return none
    rows = [[start]] * len(sources)
    padded_sources, lengths = padded(sources)
    free = greedy(network, network.start(padded_sources, LONGEST + 1, lengths), rows, ())
    end = free[0][3]  # so that at least one sentence ends early
    special = SpecialIds(end=(end,), start=start)
    translator = ctranslate2.Translator(export(Model(network, None, special), folder), intra_threads=1)
    source_tokens = [tokens(row) for row in sources]

    targets = random_rows(config.outputs, [4, 11, 1, 6])
    scored = translator.score_batch(source_tokens, [tokens(row) for row in targets])
    ours = log_probabilities(network, sources, start, [[*row, end] for row in targets])
    for theirs, each in zip(scored, ours, strict=True):
        assert np.allclose(theirs.log_probs, each, atol=TOLERANCE)

    def translated(beam: int) -> list[Any]:
        options = {"min_decoding_length": 0, "max_decoding_length": LONGEST, "length_penalty": 0, "return_scores": True}
        return translator.translate_batch(source_tokens, beam_size=beam, num_hypotheses=beam, **options)

    mine = greedy(network, network.start(padded_sources, LONGEST + 1, lengths), rows, (end,))
    expected = [float(each.sum()) for each in log_probabilities(network, sources, start, mine)]
    for theirs, row, score in zip(translated(1), mine, expected, strict=True):
        assert ids(theirs.hypotheses[0]) == strip_end(row, end)
        assert abs(theirs.scores[0] - score) < TOLERANCE * max(1, len(row))
    for i, result in enumerate(translated(4)):
        found = [ids(hypothesis) for hypothesis in result.hypotheses]
        whole = [row if len(row) == LONGEST else [*row, end] for row in found]
        again = log_probabilities(network, [sources[i]] * len(whole), start, whole)
        assert np.allclose(result.scores, [float(each.sum()) for each in again], atol=TOLERANCE * LONGEST)
    return sum(len(row) < LONGEST for row in mine)


def check_generator(config: ModelConfig, folder: Path) -> int:
    """Compare everything a generator does with our own; return the number of texts that ended early."""
    network = random_network(config)
    prompts = random_rows(config.outputs, [5, 2, 9, 3])
    end = greedy(network, network.start(4, LONGEST + 9), prompts, ())[0][3]
    generator = ctranslate2.Generator(export(Model(network, None, SpecialIds(end=(end,))), folder), intra_threads=1)
    with torch.inference_mode():
        logits = network(*padded(prompts))  # [B, T, V]
    theirs = np.array(generator.forward_batch([tokens(row) for row in prompts]))
    assert theirs.shape == logits.shape
    for i, row in enumerate(prompts):
        assert np.allclose(theirs[i, : len(row)], logits[i, : len(row)], atol=TOLERANCE)
    for result, row, each in zip(
        generator.score_batch([tokens(row) for row in prompts]), prompts, logits.log_softmax(-1), strict=True
    ):
        assert np.allclose(result.log_probs, each[torch.arange(len(row) - 1), row[1:]], atol=TOLERANCE)
    said = greedy(network, network.start(4, LONGEST + 9), prompts, (end,))
    options = {"max_length": LONGEST, "min_length": 0, "include_prompt_in_result": False}
    for result, row in zip(generator.generate_batch([tokens(row) for row in prompts], **options), said, strict=True):
        assert result.sequences_ids[0] == strip_end(row, end)
        assert ids(result.sequences[0]) == result.sequences_ids[0]
    return sum(len(row) < LONGEST for row in said)


def check_encoder(config: ModelConfig, folder: Path) -> int:
    """Compare the vectors of the last layer with our own."""
    network = random_network(config)
    assert isinstance(network, Encoder)
    rows = random_rows(config.outputs, [5, 1, 9, 3])
    encoder = ctranslate2.Encoder(export(Model(network), folder), intra_threads=1)
    theirs = np.array(encoder.forward_batch([tokens(row) for row in rows]).last_hidden_state)
    with torch.inference_mode():
        mine = network.hidden(*padded(rows))  # [B, T, C]
    for i, row in enumerate(rows):
        assert np.allclose(theirs[i, : len(row)], mine[i, : len(row)], atol=TOLERANCE)
    return 0


CHECKS = {"encoder-decoder": check_translator, "decoder": check_generator, "encoder": check_encoder}


@pytest.mark.parametrize("kind", CHECKS)
def test_any_architecture_gives_the_same_results(kind: str, tmp_path: Path) -> None:
    ended = sum(CHECKS[kind](random_config(kind, seed), tmp_path / str(seed)) for seed in range(12))
    assert ended > 0 or kind == "encoder"


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CHECKS)
def test_attention_may_have_other_biases_than_the_feed_forward_network(kind: str, bias: bool, tmp_path: Path) -> None:
    CHECKS[kind](small(kind=kind, bias=bias, attention_bias=not bias), tmp_path / "biases")


@pytest.mark.long
@pytest.mark.parametrize("kind", CHECKS)
def test_many_architectures_give_the_same_results(kind: str, tmp_path: Path) -> None:
    for seed in range(100, 200):
        CHECKS[kind](random_config(kind, seed), tmp_path / str(seed))


def stored_translator(**changes: object) -> Model:
    """Return a translator with random weights: <id0> is the end, the last id is <pad> and the start."""
    network = random_network(small(**changes))
    return Model(network, None, SpecialIds(end=(0,), start=network.config.vocab_size - 1))


def stored_generator(**changes: object) -> Model:
    return Model(random_network(small(kind="decoder", norm="pre", **changes)), None, SpecialIds(end=(0,)))


def test_a_language_that_is_already_chosen_is_refused(tmp_path: Path) -> None:
    stored = stored_translator()
    stored.special = SpecialIds(end=(0,), start=30, first=7)
    with pytest.raises(ValueError, match=r"begins with id 7 .*: export the model before `for_languages`"):
        export(stored, tmp_path / "chosen")


def test_positions_start_at_0_and_end_with_the_table(tmp_path: Path) -> None:
    """The last row of the table works, the next one is an error, not a wrong answer; rotary positions continue."""
    stored = stored_translator(max_length=7)
    translator = ctranslate2.Translator(export(stored, tmp_path / "sinusoidal"))
    sources, targets = [[5] * 7], [[3] * 6]  # seven with the start token
    expected = log_probabilities(stored.network, sources, 30, [[*targets[0], 0]])
    scored = translator.score_batch([tokens(sources[0])], [tokens(targets[0])])
    assert np.allclose(scored[0].log_probs, expected[0], atol=TOLERANCE)
    for source, target in (([5] * 8, [3]), ([5], [3] * 7)):
        with pytest.raises(RuntimeError, match=r"No position encodings are defined for positions >= 7, but got .* 7"):
            translator.score_batch([tokens(source)], [tokens(target)])
    with pytest.raises(RuntimeError, match="No position encodings are defined for positions >= 7"):
        translator.translate_batch([tokens([5, 6])], min_decoding_length=9)

    stored = stored_generator(positions="rotary", max_length=7)
    generator = ctranslate2.Generator(export(stored, tmp_path / "rotary"))
    rows = random_rows(stored.config.outputs, [300])
    with torch.inference_mode():
        logits = stored.network(*padded(rows))
    assert np.allclose(np.array(generator.forward_batch([tokens(rows[0])])), logits, atol=1e-4)


@pytest.mark.parametrize("widths", [{"d_k": 6, "d_v": 9}, {"d_k": 8, "d_v": 5}])
@pytest.mark.parametrize("kind", CHECKS)
def test_rotary_positions_apply_to_queries_and_keys(kind: str, widths: dict[str, int], tmp_path: Path) -> None:
    CHECKS[kind](small(kind=kind, positions="rotary", kv_heads=2, **widths), tmp_path / "rotary")


def test_far_positions(tmp_path: Path) -> None:
    stored = stored_translator(max_length=500)
    translator = ctranslate2.Translator(export(stored, tmp_path / "far"))
    sources, targets = random_rows(stored.config.outputs, [400, 3]), random_rows(stored.config.outputs, [2, 450])
    expected = log_probabilities(stored.network, sources, 30, [[*row, 0] for row in targets])
    scored = translator.score_batch([tokens(row) for row in sources], [tokens(row) for row in targets])
    for theirs, mine in zip(scored, expected, strict=True):
        assert np.allclose(theirs.log_probs, mine, atol=1e-4)


@pytest.mark.parametrize("dtype", CTRANSLATE2_DTYPES)
def test_every_type_loads_and_gives_nearly_the_same_results(dtype: str, tmp_path: Path) -> None:
    """The bounds are about twice the largest difference seen with other seeds, for log-probabilities around -6."""
    bound = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 0.025}.get(dtype, 0.12)
    config = ModelConfig(vocab_size=513, d_model=64, heads=4, layers=2, d_ff=256)
    network = build(config).eval()
    before = copy.deepcopy(network.state_dict())
    stored = Model(network, None, SpecialIds(end=(0,), start=512))
    ctranslate2.set_log_level(40)  # a CPU without the type uses another one and says so
    translator = ctranslate2.Translator(export(stored, tmp_path / dtype, dtype))
    sources, targets = random_rows(config.outputs, [5, 20, 9]), random_rows(config.outputs, [20, 5, 9])
    scored = translator.score_batch([tokens(row) for row in sources], [tokens(row) for row in targets])
    expected = log_probabilities(network, sources, 512, [[*row, 0] for row in targets])
    furthest = max(np.abs(theirs.log_probs - mine.numpy()).max() for theirs, mine in zip(scored, expected, strict=True))
    assert furthest < bound
    assert dtype == "float32" or furthest > 1e-5
    for name, tensor in network.state_dict().items():
        assert torch.equal(tensor, before[name]), f"{name} was changed by the export"


def test_a_network_of_another_type_is_exported_unchanged(tmp_path: Path) -> None:
    stored = stored_translator()
    stored.network.bfloat16()
    translator = ctranslate2.Translator(export(stored, tmp_path / "bfloat16"))
    assert stored.network.output_weight.dtype == torch.bfloat16
    scored = translator.score_batch([tokens([4, 5, 6])], [tokens([7, 8])])
    expected = log_probabilities(stored.network.float(), [[4, 5, 6]], 30, [[7, 8, 0]])
    assert np.allclose(scored[0].log_probs, expected[0], atol=TOLERANCE)


@pytest.mark.parametrize("tied", [True, False])
def test_pad_and_suppressed_tokens_are_never_generated(tied: bool, tmp_path: Path) -> None:
    stored = stored_translator(tied=tied)
    with torch.no_grad():
        stored.network.embedding.tokens.weight[-1].fill_(1.0)  # a logit that would sometimes win
    source = [tokens([4, 5, 6, 7])]
    options = {"beam_size": 8, "num_hypotheses": 8, "max_decoding_length": LONGEST}
    first = ctranslate2.Translator(export(stored, tmp_path / "all")).translate_batch(source, **options)[0]
    said = {token for hypothesis in first.hypotheses for token in hypothesis}
    assert "<id30>" not in said
    unwanted = ids([first.hypotheses[0][0]])[0]
    stored.special = SpecialIds(end=(0,), start=30, suppressed=(unwanted, 30))
    translator = ctranslate2.Translator(export(stored, tmp_path / "some"))
    second = translator.translate_batch(source, **options)[0]
    said = {token for hypothesis in second.hypotheses for token in hypothesis}
    assert said
    assert not said & {"<id30>", f"<id{unwanted}>"}
    with torch.inference_mode():
        logits = stored.network(torch.tensor([[4, 5, 6, 7]]), torch.tensor([[30]]))[0, 0]  # [V]
        logits[unwanted] = -torch.inf
    scored = translator.score_batch(source, [["<id3>"]])[0].log_probs[0]
    assert abs(scored - float(logits.log_softmax(-1)[3])) < TOLERANCE


def test_the_first_end_that_can_be_generated_is_used(tmp_path: Path) -> None:
    stored = stored_translator()
    stored.special = SpecialIds(end=(30, 4, 9, 2), start=30, suppressed=(4,))
    folder = Path(export(stored, tmp_path / "ends"))
    assert json.loads((folder / "config.json").read_text())["eos_token"] == "<id9>"


def test_a_decoder_is_exported_without_a_last_pad(tmp_path: Path) -> None:
    stored = stored_generator()
    stored.special = SpecialIds(end=(0,), start=30, suppressed=(7,))
    folder = Path(export(stored, tmp_path / "decoder"))
    assert json.loads((folder / "vocabulary.json").read_text()) == tokens(list(range(30)))
    logits = np.array(ctranslate2.Generator(str(folder)).forward_batch([tokens([1, 2, 3])]))
    assert logits.shape == (1, 3, 30)
    assert (logits[..., 7] < -9e3).all()


def test_text_is_encoded_by_the_tokenizer_of_the_folder(tmp_path: Path) -> None:
    """Users who have only the folder read its tokenizer.json, including the template."""
    from tokenizers import Tokenizer as Engine

    tokenizer = train_tokenizer(["un chat dort, un chien court"] * 3, vocab_size=320)
    tokenizer = tokenizer.with_template(after=[tokenizer.end])
    network = random_network(small(vocab_size=tokenizer.size))
    stored = Model(network, tokenizer, SpecialIds(end=(tokenizer.end,), start=tokenizer.pad))
    folder = Path(export(stored, tmp_path / "text"))
    told = json.loads((folder / "config.json").read_text())
    assert (told["eos_token"], told["decoder_start_token"], told["unk_token"]) == ("</s>", "<pad>", "<pad>")
    assert not told["add_source_eos"]
    words = json.loads((folder / "shared_vocabulary.json").read_text())
    assert words == [tokenizer.token(id_) for id_ in range(tokenizer.size)]

    engine = Engine.from_file(str(folder / "tokenizer.json"))
    source = engine.encode("un chat court").tokens
    assert [engine.token_to_id(token) for token in source] == tokenizer.encode_with_template("un chat court")
    translator = ctranslate2.Translator(str(folder))
    target = tokenizer.encode("a cat")
    scored = translator.score_batch([source], [[tokenizer.token(id_) for id_ in target]])
    expected = log_probabilities(
        network, [tokenizer.encode_with_template("un chat court")], tokenizer.pad, [[*target, tokenizer.end]]
    )
    assert np.allclose(scored[0].log_probs, expected[0], atol=TOLERANCE)
    nothing = translator.translate_batch([engine.encode("").tokens])[0]  # CTranslate2 does not run the model here
    assert nothing.hypotheses == [[]]


@pytest.mark.parametrize("case", ["encoder-decoder", "decoder", "encoder", "decoder that translates"])
@pytest.mark.parametrize("with_tokenizer", [True, False])
def test_the_example_in_the_card_runs(
    case: str,
    with_tokenizer: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tokenizer = train_tokenizer(["Le petit chat dort. Once upon a time"] * 3, vocab_size=320)
    kind = case.split()[0]
    tokenizer = tokenizer.with_template(after=[] if kind == "decoder" else [tokenizer.end])
    network = random_network(small(kind=kind, norm="pre", vocab_size=tokenizer.size, max_length=30))
    start = tokenizer.pad if kind == "encoder-decoder" else None
    special = SpecialIds(end=(0,), start=start, separator=1 if case != kind else None)
    to_hugging_face(Model(network, tokenizer if with_tokenizer else None, special), tmp_path / "out", "ctranslate2")
    (program,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out/README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names: dict[str, Any] = {}
    exec(program, names)  # it is our own code
    printed = capsys.readouterr().out
    source = [1, 2, 3]
    if with_tokenizer:
        source = tokenizer.encode_with_template(names["text"]) + [1] * (case != kind)
        assert names["tokens"] == [tokenizer.token(id_) for id_ in source]
    if kind == "encoder":
        assert isinstance(network, Encoder)
        with torch.inference_mode():
            states = network.hidden(torch.tensor([source]))
        assert np.allclose(names["states"], states, atol=TOLERANCE)
    elif with_tokenizer:
        said = names.get("ids") or [tokenizer.engine.token_to_id(token) for token in names["output"]]
        assert (said[: len(source)] == source) == (case == "decoder")
        assert printed == tokenizer.decode(said) + "\n"
        assert said
    else:
        assert printed


@pytest.mark.skipif(not importlib.util.find_spec("sentencepiece"), reason="needs sentencepiece")
def test_an_opus_tokenizer(tmp_path: Path) -> None:
    import io

    import sentencepiece

    from regard.data.opus_tokenizer import OpusTokenizer

    file = io.BytesIO()
    texts = ["un chat dort", "a cat sleeps", "un chien court"] * 20
    options: dict[str, Any] = {"vocab_size": 22, "minloglevel": 2, "model_type": "char"}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=file, **options)
    model = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    pieces = ["</s>", "<unk>", *(model.id_to_piece(i) for i in range(3, model.get_piece_size())), "<pad>"]
    ids_of, pad = {piece: i for i, piece in enumerate(pieces)}, len(pieces) - 1
    files = {"source.spm": file.getvalue(), "target.spm": file.getvalue(), "vocab.json": json.dumps(ids_of).encode()}
    tokenizer = OpusTokenizer(files)
    network = random_network(small(vocab_size=pad + 1, output_bias=True))
    stored = Model(network, tokenizer, SpecialIds(end=(0,), start=pad, suppressed=(pad,)))
    folder = Path(export(stored, tmp_path / "opus"))
    assert (folder / "source.spm").read_bytes() == file.getvalue()
    assert json.loads((folder / "config.json").read_text())["unk_token"] == "<unk>"
    source = [*model.encode("un chat court", out_type=str), "</s>"]
    target = [*model.encode("a cat", out_type=str), "a piece it never saw"]
    scored = ctranslate2.Translator(str(folder)).score_batch([source], [target])
    said = [*tokenizer.encode_target("a cat"), ids_of["<unk>"], 0]
    expected = log_probabilities(network, [tokenizer.encode_with_template("un chat court")], pad, [said])
    assert np.allclose(scored[0].log_probs, expected[0], atol=TOLERANCE)


def test_the_start_of_a_prompt_is_recorded(tmp_path: Path) -> None:
    """A prompt's own first token, such as Llama's <s>, is the start."""
    tokenizer = train_tokenizer(["a b c"], vocab_size=320).with_template(before=[1])
    network = random_network(small(kind="decoder", vocab_size=tokenizer.size))
    folder = Path(export(Model(network, tokenizer, SpecialIds(end=(0,))), tmp_path / "before"))
    told = json.loads((folder / "config.json").read_text())
    assert (told["bos_token"], told["eos_token"], told["unk_token"]) == ("<sep>", "</s>", "</s>")


def test_an_encoder_is_exported_without_its_head(tmp_path: Path) -> None:
    check_encoder(small(kind="encoder", output_transform=True, output_bias=True), tmp_path / "bert")


@pytest.mark.parametrize(
    ("changes", "end", "message"),
    [
        ({"kind": "encoder", "classes": 3}, 0, "classes=3"),
        ({"kind": "decoder", "classes": 3}, 0, "classes=3"),
        ({"kind": "decoder", "prefix": True}, 0, "prefix=True"),
        ({"kind": "decoder", "window": 4}, 0, "^window=4: Regard does not convert"),
        ({"attention_scale": 1.0}, 0, "^attention_scale=1.0: Regard does not convert this to CTranslate2$"),
        ({"positions": "rotary", "rotary_pairs": "adjacent"}, 0, "^rotary_pairs='adjacent': Regard does not convert"),
        ({"positions": "alibi"}, 0, "^positions=alibi: CTranslate2 has no such positions$"),
        ({"positions": "t5"}, 0, "positions=t5"),
        ({"output_transform": True}, 0, "output_transform=True"),
        ({"final_norm": True}, 0, "norm=post, final_norm=True: CTranslate2 has no such stack"),
        ({}, None, "special.end contains no id"),
        ({"kind": "decoder"}, 30, "special.end contains no id"),
    ],
)
def test_unsupported_models_are_rejected(
    changes: dict[str, object], end: int | None, message: str, tmp_path: Path
) -> None:
    stored = Model(build(small(**changes)), None, SpecialIds(end=() if end is None else (end,), start=30))
    with pytest.raises(ValueError, match=message):
        export_ctranslate2(stored, tmp_path)
    assert not list(tmp_path.iterdir())


def test_other_unsupported_exports_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = stored_translator()
    with pytest.raises(ValueError, match=r"no dtype 'int4'; .* float32, float16, bfloat16, int8"):
        export_ctranslate2(stored, tmp_path, "int4")
    with pytest.raises(ValueError, match="needs an id that starts its targets"):
        export_ctranslate2(Model(stored.network, None, SpecialIds(end=(0,))), tmp_path)
    tokenizer = train_tokenizer(["a b c"], vocab_size=320)
    monkeypatch.setattr(tokenizer, "token", lambda id_: str(id_ // 2))
    with pytest.raises(ValueError, match="several ids for '0'"):
        export_ctranslate2(Model(stored.network, tokenizer, stored.special), tmp_path)
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    with pytest.raises(ValueError, match=r"pip install 'regard\[interop\]'"):
        export_ctranslate2(stored, tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_list_of_types_matches_ctranslate2() -> None:
    assert set(CTRANSLATE2_DTYPES) == set(ctranslate2.specs.model_spec.ACCEPTED_MODEL_TYPES)


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("tied", [True, False])
def test_ctranslate2s_own_converter_accepts_our_hugging_face_folders(norm: str, tied: bool, tmp_path: Path) -> None:
    """The usual way: Marian or Pegasus first, then `ct2-transformers-converter`."""
    pytest.importorskip("transformers")
    tokenizer = train_tokenizer(["un chat court", "a cat runs"] * 3, 300)
    config = small(vocab_size=tokenizer.size, norm=norm, tied=tied, output_bias=True, max_length=32)
    network = random_network(config)
    with torch.no_grad():
        network.embedding.tokens.weight[-1] = 0  # <pad>
    framed = tokenizer.with_template(after=[tokenizer.end])
    stored = Model(network, framed, SpecialIds(start=tokenizer.pad, end=(tokenizer.end,)))
    to_hugging_face(stored, tmp_path / "folder")
    converter = ctranslate2.converters.TransformersConverter(str(tmp_path / "folder"))
    translator = ctranslate2.Translator(converter.convert(str(tmp_path / "converted")))
    source, said = framed.encode_with_template("un chat court"), [*tokenizer.encode("a cat"), tokenizer.end]
    words = [[tokenizer.token(id_) for id_ in row] for row in (source, said[:-1])]
    (got,) = translator.score_batch(words[:1], words[1:])
    (wanted,) = log_probabilities(network, [source], tokenizer.pad, [said])
    assert got.log_probs == pytest.approx(wanted.tolist(), abs=1e-4)
