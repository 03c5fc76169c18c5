"""Whole models: sizes, properties that must hold whatever the weights, and what a user's mistake meets."""

import copy
import math
import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import PRESETS, preset
from regard.errors import RegardError
from regard.model.layers import Stack
from regard.model.tensor_checks import check_range, skipping_value_checks
from regard.model.transformer import Decoder, Encoder, EncoderDecoder, build, initialise
from regard.model.watch import watch
from tests.support.networks import DECODERS, PAIRS, SHAPES, ids, model_of
from tests.support.oracles import small


@pytest.mark.parametrize(("name", "millions"), [("paper-base", 63.1), ("paper-big", 214.3)])
def test_the_papers_sizes_at_its_vocabulary(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = build(preset(name))
    count = sum(p.numel() for p in model.parameters()) / 1e6
    assert count == pytest.approx(millions, abs=0.05)
    assert count == pytest.approx({"paper-base": 65, "paper-big": 213}[name], rel=0.03)


def test_gpt2_small_has_the_published_size() -> None:
    with torch.device("meta"):
        assert sum(p.numel() for p in build(preset("gpt2-small")).parameters()) == 124_439_808


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_presets_give_logits(name: str) -> None:
    config = preset(name, layers=1, d_ff=64)
    model = build(config).eval()
    tokens = ids(2, 5)
    logits = model(tokens, tokens) if config.kind == "encoder-decoder" else model(tokens)
    assert logits.shape == (2, 5, config.outputs)


@pytest.mark.parametrize("name", [*DECODERS, *PAIRS])
@pytest.mark.parametrize("watched", [False, True])
def test_the_future_changes_nothing_before_it(name: str, watched: bool) -> None:
    """Bit for bit, on both paths."""
    model, source, before = model_of(name), ids(2, 6), ids(2, 9)
    after = before.clone()
    after[:, 5:] = ids(2, 4)

    def call(target: Tensor) -> Tensor:
        return model(source, target) if name in PAIRS else model(target)

    if watched:
        with watch(model):
            one, other = call(before), call(after)
    else:
        one, other = call(before), call(after)
    assert torch.equal(one[:, :5], other[:, :5])
    assert not torch.equal(one[:, 5:], other[:, 5:])


@pytest.mark.parametrize("name", SHAPES)
def test_padding_changes_no_real_position(name: str) -> None:
    """Sentences alone, and together in a padded batch with anything at all as padding."""
    model = model_of(name)
    lengths = torch.tensor([3, 7, 5])
    rows, targets = ids(3, 9), ids(3, 9)
    for row, n in enumerate(lengths.tolist()):
        one = slice(row, row + 1)
        if isinstance(model, EncoderDecoder):
            together = model(rows, targets, lengths, lengths)
            alone = model(rows[one, :n], targets[one, :n])
        else:
            together = model(rows, lengths)
            alone = model(rows[one, :n])
        torch.testing.assert_close(together[row, :n], alone[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SHAPES)
def test_packed_sentences_do_not_see_each_other(name: str) -> None:
    """Many sentences in a row give what each gives alone; what fills the row changes nothing and is finite."""
    model = model_of(name)
    lengths, source_lengths = torch.tensor([[3, 4, 1], [2, 0, 6]]), torch.tensor([[2, 5, 2], [4, 0, 1]])
    rows, sources = ids(2, 10), ids(2, 11)
    packed = isinstance(model, EncoderDecoder)
    logits = model(sources, rows, source_lengths, lengths) if packed else model(rows, lengths)
    assert logits.isfinite().all()
    for row in range(2):
        at = source_at = 0
        for n, s in zip(lengths[row].tolist(), source_lengths[row].tolist(), strict=True):
            if n:
                one, source = rows[row : row + 1, at : at + n], sources[row : row + 1, source_at : source_at + s]
                alone = model(source, one) if packed else model(one)
                torch.testing.assert_close(logits[row, at : at + n], alone[0], rtol=0, atol=1e-12)
            at, source_at = at + n, source_at + s


def test_a_prefix_is_bidirectional_and_the_rest_is_causal() -> None:
    model = build(small(kind="decoder", prefix=True)).double().eval()
    tokens, prefix = ids(1, 8), torch.tensor([4])
    with watch(model) as seen:
        model(tokens, prefix=prefix)
    logits = model(tokens, prefix=prefix)
    weights = seen["decoder.layers.0.attention"][0][0]
    assert (weights[:, :4, :4] > 0).all()
    assert (weights[:, :4, 4:] == 0).all()
    assert (weights[:, 4:].triu(5) == 0).all()
    changed = tokens.clone()
    changed[0, 3] = (tokens[0, 3] + 1) % 30
    assert not torch.allclose(model(changed, prefix=prefix)[0, 0], logits[0, 0])
    changed = tokens.clone()
    changed[0, 4] = (tokens[0, 4] + 1) % 30
    assert torch.equal(model(changed, prefix=prefix)[0, :4], logits[0, :4])


def test_packed_prefixes() -> None:
    model = build(small(kind="decoder", prefix=True)).double().eval()
    rows, lengths, prefix = ids(1, 9), torch.tensor([[5, 4]]), torch.tensor([[2, 3]])
    logits = model(rows, lengths, prefix)
    for at, n, p in ((0, 5, 2), (5, 4, 3)):
        alone = model(rows[:, at : at + n], prefix=torch.tensor([p]))
        torch.testing.assert_close(logits[:, at : at + n], alone, rtol=0, atol=1e-12)


def test_without_positions_the_encoder_is_permutation_equivariant() -> None:
    tokens, order = ids(2, 7), torch.randperm(7)
    model = build(small(kind="encoder", positions="none")).double().eval()
    torch.testing.assert_close(model(tokens[:, order]), model(tokens)[:, order], rtol=0, atol=1e-12)
    for positions in ("sinusoidal", "learned", "rotary"):
        model = build(small(kind="encoder", positions=positions)).double().eval()
        assert not torch.allclose(model(tokens[:, order]), model(tokens)[:, order], atol=1e-3)


def test_an_embedding_is_a_one_hot_product_scaled_where_the_paper_does() -> None:
    tokens, nowhere = ids(2, 7), torch.arange(7)
    for scaled in (True, False):
        embedding = build(small(positions="none", scale_embeddings=scaled)).embedding
        product = F.one_hot(tokens, 31).float() @ embedding.tokens.weight
        torch.testing.assert_close(embedding(tokens, nowhere), product * (math.sqrt(24) if scaled else 1))


def test_weights_sum_to_one_in_every_attention_of_every_layer() -> None:
    model = model_of("pre-norm")
    with watch(model) as seen:
        model(ids(2, 6), ids(2, 5), torch.tensor([6, 3]))
    own = {f"decoder.layers.{i}.{kind}" for i in range(3) for kind in ("attention", "cross_attention")}
    assert set(seen) == own | {f"encoder.layers.{i}.attention" for i in range(2)}
    for name, (weights,) in seen.items():
        assert weights.shape[:2] == (2, 4)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]), msg=name)
    assert (seen["decoder.layers.2.cross_attention"][0][1, ..., 3:] == 0).all()


def test_pad_has_no_output_no_gradient_and_a_zero_row() -> None:
    model = build(small())
    assert model(ids(2, 5), ids(2, 4)).shape == (2, 4, 30)
    target = torch.tensor([[30, 3, 4, 5]])  # starts with <pad>, as every target does
    F.cross_entropy(model(target, target).flatten(0, 1), ids(4), label_smoothing=0.1).backward()
    weight = model.embedding.tokens.weight
    assert weight.grad is not None
    assert (weight[30] == 0).all()
    assert (weight.grad[30] == 0).all()
    assert (weight.grad[:30] != 0).any(1).all()  # every other id is an output


def test_tied_and_untied_output_layers() -> None:
    tied, untied = build(small()), build(small(tied=False))
    assert tied.output_weight.data_ptr() == tied.embedding.tokens.weight.data_ptr()
    assert untied.output_weight.shape == (30, 24)
    assert untied.output_weight.data_ptr() != untied.embedding.tokens.weight.data_ptr()
    for model in (tied, untied):
        hidden = model.hidden(ids(2, 5), ids(2, 4))
        torch.testing.assert_close(model.head(hidden), hidden @ model.output_weight.T)


def test_a_head_per_sequence() -> None:
    lengths, tokens = torch.tensor([3, 6]), ids(2, 6)
    encoder = build(small(kind="encoder", classes=5)).double().eval()
    hidden, head = encoder.hidden(tokens, lengths), encoder.classifier
    pool = head.pool
    assert pool is not None
    pooled = torch.tanh(hidden[:, 0] @ pool.weight.T + pool.bias)
    torch.testing.assert_close(encoder(tokens, lengths), pooled @ head.classes.weight.T + head.classes.bias)

    decoder = build(small(kind="decoder", classes=5)).double().eval()
    hidden, classes = decoder.hidden(tokens, lengths), decoder.classifier.classes
    last = torch.stack([hidden[0, 2], hidden[1, 5]])
    torch.testing.assert_close(decoder(tokens, lengths), last @ classes.weight.T + classes.bias)
    torch.testing.assert_close(decoder(tokens[1:]), decoder(tokens, lengths)[1:])


def test_a_head_per_token() -> None:
    lengths, tokens = torch.tensor([3, 6]), ids(2, 6)
    tagger = build(small(kind="encoder", classes=5, classes_per="token", dropout=0.5)).double()
    linear = torch.nn.Linear(24, 5).double()
    tagger.load_state_dict({"output.weight": linear.weight, "output_bias": linear.bias}, strict=False)
    expected = linear(tagger.eval().hidden(tokens, lengths))
    torch.testing.assert_close(tagger(tokens, lengths), expected)
    packed = tagger(tokens.view(1, 12), torch.tensor([[6, 6]]))  # two sentences in a row
    torch.testing.assert_close(packed.view(2, 6, 5), tagger(tokens))
    tagger.train()
    hidden = tagger.hidden(tokens, lengths)
    assert (tagger.transform(hidden) == 0).any()  # dropout before the head, as in BERT
    assert tagger.config.min_parameters <= tagger.parameter_count


def test_a_class_per_token_needs_an_encoder_with_classes() -> None:
    for settings in ({"kind": "decoder", "classes": 5}, {"kind": "encoder"}):
        with pytest.raises(RegardError, match="classes_per='token' needs an encoder with classes"):
            small(classes_per="token", **settings)


def test_initialisation_keeps_signals_at_their_size() -> None:
    paper, gpt = build(small(d_model=128, heads=8, d_ff=256, vocab_size=4001)), build(SHAPES["gpt2"])
    assert paper.embedding.tokens.weight[:-1].std().item() == pytest.approx(128**-0.5, rel=0.02)
    assert isinstance(paper, EncoderDecoder)
    assert isinstance(gpt, Decoder)
    layer = paper.encoder.layers[0]
    bound = math.sqrt(6 / (128 + 256))
    assert bound * 0.98 < layer.feed_forward.up.weight.abs().max().item() <= bound
    layer = gpt.decoder.layers[0]
    assert layer.feed_forward.up.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert layer.feed_forward.down.weight.std().item() == pytest.approx(0.02 / 2, rel=0.1)  # 2 layers, 4 sums
    for model in (paper, gpt):
        for module in model.modules():
            if isinstance(module, nn.Linear) and module.bias is not None:
                assert (module.bias == 0).all()


def test_the_same_seed_gives_the_same_model() -> None:
    states = []
    for _ in range(2):
        torch.manual_seed(3)
        states.append(build(small()).state_dict())
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SHAPES)
def test_half_precision_stays_half_and_close(name: str, dtype: torch.dtype) -> None:
    model, tokens = model_of(name), ids(2, 9)
    arguments = (tokens, tokens) if name in PAIRS else (tokens,)
    exact = model(*arguments)
    logits = model.to(dtype)(*arguments)
    assert logits.dtype == dtype
    assert (logits.double() - exact).abs().max() < 60 * torch.finfo(dtype).eps * exact.abs().max()


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.tensor([[1, 31]]),), "token id 31 is outside 0 … 30: it is not in the vocabulary; is the tokenizer"),
        ((torch.tensor([[1, -1]]),), "token id -1 is outside 0 … 30"),
        ((torch.ones(1, 33, dtype=torch.long),), "a row has 33 tokens, but this model reads at most 32"),
        ((torch.tensor([1, 2]),), r"token ids must be \[rows, tokens\], not \[2\]"),
        ((torch.tensor([[1.0, 2.0]]),), r"token ids must be integers \(int64 or int32\), not torch.float32"),
        ((torch.tensor([[1, 2]]), torch.tensor([3])), "lengths 3 is outside 0 … 2: no row is longer"),
        ((torch.tensor([[1, 2]]), torch.tensor([2, 2])), "there are 1 rows, but lengths for 2"),
        ((torch.tensor([[1, 2]]), [2]), "lengths must be a tensor, not a list"),
        (([[1, 2]],), "token ids must be a tensor, not a list"),
    ],
)
def test_invalid_tokens(arguments: tuple[Tensor, ...], message: str) -> None:
    model = build(SHAPES["bert"])
    assert isinstance(model, Encoder)
    with pytest.raises(ValueError, match=message):
        model(*arguments)


@pytest.mark.usefixtures("without_type_checks")
def test_lengths_are_checked_where_no_mask_needs_them() -> None:
    """Under a causal mask lengths change nothing, and a mistake in them is a mistake all the same."""
    decoder, pair, tokens = build(small(kind="decoder")), build(small()), ids(2, 5)
    with pytest.raises(ValueError, match="lengths 9 is outside 0 … 5"):
        decoder(tokens, torch.tensor([9, 3]))
    with pytest.raises(ValueError, match="lengths must be integers"):
        pair(tokens, tokens, None, torch.tensor([5.0, 3.0]))
    with pytest.raises(ValueError, match="there are 1 rows of tokens, but 2 rows in the source"):
        pair(tokens, tokens[:1])
    with pytest.raises(ValueError, match=r"prefix must be \[rows\], not \[2, 1\]"):
        build(small(kind="decoder", prefix=True))(tokens, None, torch.tensor([[2], [3]]))


@pytest.mark.usefixtures("without_type_checks")
def test_a_prefix_must_be_given_exactly_if_the_config_has_one() -> None:
    tokens, prefix = ids(1, 4), torch.tensor([2])
    with pytest.raises(ValueError, match=r"config\.prefix is False, but prefix lengths are given"):
        build(small(kind="decoder"))(tokens, prefix=prefix)
    with pytest.raises(ValueError, match=r"config\.prefix is True, but prefix lengths are missing"):
        build(small(kind="decoder", prefix=True))(tokens)


@pytest.mark.usefixtures("without_type_checks")
def test_combinations_that_packed_rows_do_not_support() -> None:
    tokens, packed = ids(1, 4), torch.tensor([[2, 2]])
    with pytest.raises(ValueError, match=r"attention_dropout=0.1 is not possible with packed batches"):
        build(small(kind="decoder", attention_dropout=0.1))(tokens, packed)
    with pytest.raises(ValueError, match="packed rows have several"):
        build(small(kind="encoder", classes=3))(tokens, packed)
    with pytest.raises(ValueError, match="lengths 7 is outside 0 … 4"):
        build(small(kind="decoder"))(tokens, torch.tensor([[3, 4]]))


def test_build_gives_the_kind_that_is_asked_for() -> None:
    assert build("tiny").config == preset("tiny")
    kinds = {"encoder": Encoder, "decoder": Decoder, "encoder-decoder": EncoderDecoder}
    for kind, wanted in kinds.items():
        model = build(small(kind=kind))
        assert isinstance(model, wanted)
        assert sum(isinstance(module, Stack) for module in model.modules()) == (2 if kind == "encoder-decoder" else 1)


def test_dropout_on_embeddings_comes_last_and_the_classifier_has_it_too() -> None:
    dropped = build(small(kind="encoder", dropout=1 - 1e-12, embedding_norm=True, classes=3))
    with torch.no_grad():
        for parameter in dropped.parameters():
            parameter.add_(1.0)  # norms with a bias, so that a norm after dropout would show
    assert (dropped.embedding(ids(2, 5), torch.arange(5)) == 0).all()
    torch.testing.assert_close(dropped(ids(2, 5)), dropped.classifier.classes.bias.expand(2, 3))


def test_only_a_pad_that_is_the_last_id_has_no_gradient() -> None:
    model, tokens = build(SHAPES["bert"]), torch.zeros(1, 3, dtype=torch.long)
    assert isinstance(model, Encoder)
    model.hidden(tokens).square().sum().backward()
    gradient = model.embedding.tokens.weight.grad
    assert gradient is not None
    assert (gradient[0] != 0).any()


def test_learned_positions_have_an_end() -> None:
    model = build(small(kind="decoder", positions="learned", max_length=6))
    assert isinstance(model, Decoder)
    model(ids(1, 6))
    cache = model.start(1, 8)
    model.step(ids(1, 1), torch.tensor([[5]]), cache)
    with pytest.raises(ValueError, match="position 6 is outside 0 … 5: the model has no further positions"):
        model.step(ids(1, 1), torch.tensor([[6]]), cache)


def test_rotations_take_the_models_base_and_precision() -> None:
    tokens = ids(1, 9)
    outputs = []
    for base in (10_000.0, 100.0):
        torch.manual_seed(1)
        model = build(small(kind="decoder", positions="rotary", rotary_base=base)).double()
        outputs.append(model(tokens))
        turns = model.embed(tokens, torch.arange(9))[1]
        assert turns is not None
        assert turns[0].dtype == torch.float64
        half = model.bfloat16().embed(tokens, torch.arange(9))[1]
        assert half is not None
        assert half[0].dtype == torch.float32  # a table in bfloat16 would not tell position 257 from 258
    assert not torch.allclose(outputs[0], outputs[1])


def test_the_parameters_have_the_documented_names() -> None:
    """By name: a bias or a norm too many would change every count and every export."""
    names = set(build(small(layers=1, tied=False)).state_dict())
    attention = {f"{part}.{kind}" for part in ("q", "k", "v", "out") for kind in ("weight", "bias")}
    norms = {f"{part}_norm.{kind}" for part in ("attention", "feed_forward") for kind in ("weight", "bias")}
    feed_forward = {f"feed_forward.{part}.{kind}" for part in ("up", "down") for kind in ("weight", "bias")}
    layer = {f"attention.{name}" for name in attention} | norms | feed_forward
    cross = {f"cross_attention.{name}" for name in attention} | {
        f"cross_attention_norm.{k}" for k in ("weight", "bias")
    }
    wanted = {f"encoder.layers.0.{name}" for name in layer} | {f"decoder.layers.0.{name}" for name in layer | cross}
    assert names == wanted | {"embedding.tokens.weight", "output.weight"}


def test_residual_outputs_start_smaller_only_in_pre_norm_models() -> None:
    plain = {"d_model": 64, "d_ff": 256, "scale_embeddings": False, "layers": 2}
    pre, post = build(small(norm="pre", **plain)), build(small(**plain))
    for model, encoder, decoder in ((pre, 0.02 / 2, 0.02 / 6**0.5), (post, 0.02, 0.02)):
        assert isinstance(model, EncoderDecoder)
        for stack, std in ((model.encoder, encoder), (model.decoder, decoder)):
            for linear in stack.layers[1].residual_outputs():
                assert linear.weight.std().item() == pytest.approx(std, rel=0.05)


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_made_without_memory_can_be_initialised_later(name: str) -> None:
    """On the meta device, then with memory that holds anything."""
    with torch.device("meta"):
        model = build(SHAPES[name])
    model.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    torch.manual_seed(5)
    initialise(model)
    torch.manual_seed(5)
    for here, there in zip(model.parameters(), build(SHAPES[name]).parameters(), strict=True):
        assert not (here == 7.0).any()
        assert here.std().item() == pytest.approx(there.std().item(), rel=0.3, abs=1e-6)


@pytest.mark.parametrize("name", SHAPES)
def test_models_can_be_pickled_and_copied(name: str) -> None:
    model, tokens = model_of(name), ids(2, 5)
    arguments = (tokens, tokens) if name in PAIRS else (tokens,)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(other(*arguments), model(*arguments))


@pytest.mark.usefixtures("without_type_checks")
def test_inputs_that_would_leak_or_make_no_sense() -> None:
    prefixed, classifier = build(small(kind="decoder", prefix=True)), build(small(kind="decoder", classes=3))
    with pytest.raises(ValueError, match="a prefix is longer than its sentence"):
        prefixed(ids(1, 6), torch.tensor([4]), torch.tensor([5]))
    with pytest.raises(ValueError, match="an empty sequence has no class"):
        classifier(ids(2, 6), torch.tensor([4, 0]))
    with pytest.raises(ValueError, match="packed rows need the lengths of queries and keys"):
        build(small())(ids(1, 6), ids(1, 6), None, torch.tensor([[3, 3]]))


def test_trusted_applies_to_one_thread() -> None:
    """Two threads that skip value checks at overlapping times do not switch off each other's checks."""
    entered, left = threading.Event(), threading.Event()
    found: list[str] = []

    def other() -> None:
        with skipping_value_checks():
            entered.set()
            assert left.wait(10)
        with pytest.raises(ValueError, match="token id 31 is outside"):
            check_range("token id", torch.tensor([31]), 31, "")
        found.append("checked")

    thread = threading.Thread(target=other)
    with skipping_value_checks():
        thread.start()
        assert entered.wait(10)
        check_range("token id", torch.tensor([31]), 31, "")  # skipping_value_checks here
    with pytest.raises(ValueError, match="token id 31 is outside"):
        check_range("token id", torch.tensor([31]), 31, "")  # while the other thread is still inside
    left.set()
    thread.join()
    assert found == ["checked"]
    with pytest.raises(ValueError, match="token id 31 is outside"):
        check_range("token id", torch.tensor([31]), 31, "")
