"""Silenced heads, hidden tokens and replaced weights, against models that are changed in another way."""

import copy
from itertools import product

import pytest
import torch

import regard
from regard.decoding.attention_maps import ForwardPass
from regard.decoding.head_effects import Removal, all_heads, measure_effects
from regard.decoding.head_patterns import PATTERN_RULES, HeadPattern, head_pattern
from regard.decoding.head_vectors import all_head_vectors, head_vectors
from regard.decoding.interventions import (
    AttentionChanges,
    HeadName,
    WeightChange,
    attention_modules,
    changed_maps,
    intervene,
    replaced_weight,
)
from regard.decoding.text_model import Model
from regard.errors import RegardError
from regard.model.watch import watch
from tests.support.serving import language_model
from tests.support.text_models import random_masked_model, random_model

SENTENCE = "Il y a trois livres sur la table."


@pytest.fixture(scope="module")
def petit() -> Model:
    return regard.load("petit-fr-en")


def translation(model: Model, changes: AttentionChanges) -> str:
    with intervene(model.network, changes):
        return str(model.translate(SENTENCE))


def test_silenced_heads_equal_zero_values_in_passes_and_in_cached_search(petit: Model) -> None:
    for name in (HeadName("encoder", 0, 1), HeadName("decoder", 1, 0), HeadName("cross", 1, 2)):
        other = copy.deepcopy(petit)
        module = attention_modules(other.network)[name.kind, name.layer]
        rows = slice(name.head * 32, (name.head + 1) * 32)
        module.v.weight.data[rows], module.v.bias.data[rows] = 0, 0
        changes = AttentionChanges(silenced=(name,))
        with intervene(petit.network, changes):
            ours, (best, _) = petit.observe(SENTENCE, "There are"), petit.search_tree(SENTENCE)
        theirs, (expected, _) = other.observe(SENTENCE, "There are"), other.search_tree(SENTENCE)
        assert ours.logits is not None
        torch.testing.assert_close(ours.logits, theirs.logits)
        assert best.ids == expected.ids
        assert best.score == pytest.approx(expected.score, abs=1e-4)
    usual = petit.observe(SENTENCE, "There are")
    torch.testing.assert_close(usual.logits, copy.deepcopy(petit).observe(SENTENCE, "There are").logits)


def test_the_translation_changes_without_a_word_and_without_a_layer() -> None:
    model = regard.load("fr-en")
    usual = translation(model, AttentionChanges())
    tokens = model.observe(SENTENCE, usual).attention.maps["encoder"].keys
    assert "books" in usual
    assert "books" not in translation(model, AttentionChanges(hidden=(tokens.index("livres"),)))
    last, heads = model.config.decoder_depth - 1, model.config.heads
    silenced = tuple(HeadName("cross", last, head) for head in range(heads))
    assert "books" not in translation(model, AttentionChanges(silenced=silenced))
    assert translation(model, AttentionChanges()) == usual


def test_hidden_tokens_get_no_attention_and_rows_still_sum_to_one(petit: Model) -> None:
    with intervene(petit.network, AttentionChanges(hidden=(0, 3))):
        weights = petit.attend(SENTENCE, "There are three books.").weights
    for kind in ("encoder", "cross"):
        assert not weights[kind][..., [0, 3]].any()
        torch.testing.assert_close(weights[kind].sum(-1), torch.ones(weights[kind].shape[:-1]))
    assert weights["decoder"][:, :, 1:, 0].any()  # the target is not hidden


@pytest.mark.parametrize("options", [{}, {"positions": "rotary", "heads": 4, "kv_heads": 2}, {"positions": "alibi"}])
def test_hiding_and_replacing_is_the_same_with_a_cache_as_without(options: dict[str, object]) -> None:
    """A search reads its tokens one by one from a cache; a pass reads all of them at once."""
    model = random_model(**options)
    changes = AttentionChanges(
        (HeadName("decoder", 0, 1),),
        (1,),
        (WeightChange(HeadName("cross", 0, 0), 2, 0, 0.9), WeightChange(HeadName("decoder", 0, 0), 2, 1, 0.7)),
    )
    with intervene(model.network, changes):
        best, _ = model.search_tree("Le petit chat", beam=2, max_tokens=6)
        ended = [*best.ids, *(model.special.end[:1] if best.reason == "end" else ())]
        observed = model.observe("Le petit chat", "x", ended)
    assert observed.logits is not None
    logs = observed.logits.double().log_softmax(-1)
    score = float(logs.gather(-1, torch.tensor(ended)[:, None]).sum())
    assert len(ended) > 2
    assert best.score == pytest.approx(score, abs=1e-4)
    usual = model.observe("Le petit chat", "x", ended)
    assert usual.logits is not None
    assert not torch.allclose(usual.logits, observed.logits)


def test_a_replaced_weight_mixes_the_values_anew(petit: Model) -> None:
    """With all weight on one key, the head returns the value of that key."""
    name = HeadName("cross", 0, 3)
    change = WeightChange(name, row=1, column=2, weight=1.0)
    outputs = []
    module = attention_modules(petit.network)[name.kind, name.layer]
    observed = petit.observe(SENTENCE, "There are")
    vectors = head_vectors(observed.forward, name)
    with intervene(petit.network, AttentionChanges(weights=(change,))):
        hook = module.out.register_forward_pre_hook(lambda _module, given: outputs.append(given[0]))
        observed.forward.run()
        hook.remove()
    head = outputs[0][0].unflatten(-1, (4, 32))[:, 3]  # [T, Dv]
    torch.testing.assert_close(head[1], vectors.v[2])
    torch.testing.assert_close(head[0], vectors.output[0])
    maps = changed_maps(observed.attention.maps, [change])
    assert maps["cross"].weights[0, 3, 1].tolist() == [float(s == 2) for s in range(len(maps["cross"].keys))]
    assert torch.equal(maps["encoder"].weights, observed.attention.weights["encoder"])


def test_masked_and_only_keys_cannot_be_changed() -> None:
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
    assert torch.equal(replaced_weight(rows, 2, 0.9), rows)
    assert replaced_weight(rows, 0, 0.2).tolist() == [[1.0, 0.0, 0.0], [pytest.approx(0.2), pytest.approx(0.8), 0.0]]


def test_impossible_changes_are_refused(petit: Model) -> None:
    head = HeadName("cross", 0, 0)
    wrong = {
        "no layer 2": AttentionChanges((HeadName("cross", 2, 0),)),
        "no head 4": AttentionChanges((HeadName("encoder", 0, 4),)),
        "token 11 cannot be hidden": AttentionChanges(hidden=(11,)),
        "there is no column 11": AttentionChanges(weights=(WeightChange(head, 0, 11, 0.5),)),
        "weights are between 0 and 1": AttentionChanges(weights=(WeightChange(head, 0, 0, 1.5),)),
        "sees only the tokens so far": AttentionChanges(weights=(WeightChange(HeadName("decoder", 0, 0), 1, 2, 0.5),)),
    }
    for message, changes in wrong.items():
        with pytest.raises(RegardError, match=message):
            changes.check(petit.network, 11)
    with pytest.raises(RegardError, match="no 'cross' attention"):
        AttentionChanges((head,)).check(language_model().network, 3)


def test_the_vectors_of_a_head_give_its_weights() -> None:
    """Of every head of several kinds of models: softmax(q·k · scale + bias) where allowed, then the sum of values."""
    models = [
        *(random_model(positions=positions) for positions in ("sinusoidal", "alibi")),
        random_model(kind="decoder", positions="rotary", heads=4, kv_heads=2, qk_norm=True),
        random_masked_model(),
    ]
    for model in models:
        observed = model.observe("Le petit chat", "chat" if model.config.kind == "encoder-decoder" else None)
        maps = observed.attention.maps
        together = all_head_vectors(observed.forward)
        assert len(together) == sum(each.weights.shape[0] * each.weights.shape[1] for each in maps.values())
        for kind in maps:
            layers, heads = maps[kind].weights.shape[:2]
            for layer, head in product(range(layers), range(heads)):
                vectors = head_vectors(observed.forward, HeadName(kind, layer, head))
                scores = vectors.q @ vectors.k.T * vectors.scale + (0 if vectors.bias is None else vectors.bias)
                expected = scores.masked_fill(~vectors.allowed, -torch.inf).softmax(-1)
                torch.testing.assert_close(vectors.weights, expected)
                torch.testing.assert_close(vectors.weights, maps[kind].weights[layer, head], atol=1e-5, rtol=1e-4)
                torch.testing.assert_close(vectors.output, expected @ vectors.v)
                assert vectors.to_json() == together[HeadName(kind, layer, head)].to_json()


def test_effects_in_one_batch_equal_those_one_by_one(petit: Model) -> None:
    observed = petit.observe(SENTENCE)
    removals = [*all_heads(petit.network), Removal(hidden=(3,)), Removal(hidden=(0, 1))]
    effects = measure_effects(observed, removals)
    assert len(effects) == 2 * 4 + 2 * 2 * 4 + 2
    assert observed.logits is not None
    usual = observed.logits.double().log_softmax(-1)
    ids = torch.tensor(observed.written)[:, None]
    for removal, effect in list(zip(removals, effects, strict=True))[::5]:
        changes = AttentionChanges(() if removal.head is None else (removal.head,), removal.hidden)
        with intervene(petit.network, changes):
            changed = observed.forward.run()[0].double().log_softmax(-1)
        divergence = torch.nn.functional.kl_div(changed, usual, log_target=True, reduction="none").sum(-1).mean()
        assert effect.divergence == pytest.approx(float(divergence) / 0.6931471805599453, abs=1e-4)
        loss = float((changed.gather(-1, ids) - usual.gather(-1, ids)).sum())
        assert effect.log_probability == pytest.approx(loss, abs=1e-3)
        differs = (changed.argmax(-1) != usual.argmax(-1)).nonzero()
        step = int(differs[0]) if len(differs) else 0
        first = (step, int(usual[step].argmax()), int(changed[step].argmax())) if len(differs) else None
        assert effect.first_change == first


def test_effects_on_models_that_write_nothing() -> None:
    for model in (random_model(kind="encoder", classes=3), random_masked_model(), language_model()):
        effects = measure_effects(model.observe("Le petit chat"), all_heads(model.network))
        assert any(effect.divergence > 0 for effect in effects)
        assert all((effect.log_probability is None) == (model.config.kind == "encoder") for effect in effects)


def test_search_continues_from_a_given_beginning(petit: Model) -> None:
    best, nodes = petit.search_tree(SENTENCE)
    same, _ = petit.search_tree(SENTENCE, beginning=best.ids[:2])
    assert same.ids == best.ids
    assert same.score == pytest.approx(best.score, abs=1e-4)
    other = next(node for node in nodes if node.step == 1 and not node.best)
    assert not any(node.given for node in nodes)
    observed = petit.observe(SENTENCE)
    assert observed.logits is not None
    ids = [*best.ids[:2], int(observed.logits[2].topk(2).indices[1])]
    branch, tree = petit.search_tree(SENTENCE, beginning=ids)
    assert branch.ids[:3] == ids
    assert branch.ids != best.ids
    assert len([node for node in tree if node.given]) == 3
    assert {node.token for node in tree if node.usual} == {node.token for node in nodes if node.best}
    by_id = {node.id: node for node in tree}
    end = next(node for node in tree if node.ends and node.best)
    path = [end]
    while path[-1].parent is not None:
        path.append(by_id[path[-1].parent])
    assert end.score == pytest.approx(branch.score, abs=1e-4)
    assert len(path) == len(branch.ids) + 1
    assert len(tree) > len(nodes)
    assert other.token in {node.token for node in tree if node.step == 1}
    for wrong in ([10**6], list(petit.special.end), [5] * 500):
        with pytest.raises(RegardError, match=r"beginning has 500 tokens|cannot continue"):
            petit.search_tree(SENTENCE, beginning=wrong)


def test_patterns_of_heads() -> None:
    t = 6
    equal = torch.full((t, t), 1 / t)
    none = torch.zeros(t, dtype=torch.bool)
    last = torch.arange(t) == t - 1
    shifted = torch.eye(t).roll(-1, 1)
    shifted[0] = 1 / t
    first = torch.zeros(t, t)
    first[:, 0] = 1
    ending = torch.zeros(t, t)
    ending[:, -1] = 1
    half = torch.zeros(t, t)
    half[:, :2] = 0.3
    half[:, 4] = 0.4
    cases = {
        ("encoder", "previous token"): shifted,
        ("encoder", "next token"): torch.eye(t).roll(1, 1),
        ("decoder", "same token"): torch.eye(t),
        ("decoder", "first token"): first,
        ("cross", "sink"): ending,
        ("cross", "aligned"): torch.eye(t),
        ("cross", "broad"): equal,
        ("encoder", "mixed"): torch.eye(t).roll(2, 1) * 0.8 + equal * 0.2,
    }
    for (kind, label), weights in cases.items():
        sinks = last if label == "sink" else none
        assert head_pattern(kind, weights, ~none, sinks, none).label == label  # type: ignore[arg-type]
    assert {label for _, label in cases} == set(PATTERN_RULES)
    assert head_pattern("cross", torch.eye(t), ~last, last, last).label == "aligned"  # the last row is no word
    one = none[:1]
    assert head_pattern("cross", torch.eye(1), ~one, one, one) == HeadPattern("aligned", 1.0)
    assert head_pattern("decoder", torch.eye(1), ~one, one, one).label == "mixed"


def test_hooks_are_removed_after_an_error(petit: Model) -> None:
    forward = ForwardPass(petit.network, (1, 2), (3, 4))
    with pytest.raises(KeyError), intervene(petit.network, AttentionChanges((HeadName("cross", 0, 0),), (0,))):
        raise KeyError
    modules = attention_modules(petit.network).values()
    assert not any(module._forward_pre_hooks or module.out._forward_pre_hooks for module in modules)
    with watch(petit.network) as seen:
        forward.run()
    assert all(len(calls) == 1 for calls in seen.values())


def test_a_silenced_head_stays_silent_whatever_its_weights_are(petit: Model) -> None:
    head = HeadName("cross", 1, 2)
    both = AttentionChanges(silenced=(head,), weights=(WeightChange(head, 0, 5, 0.6),))
    with intervene(petit.network, AttentionChanges(silenced=(head,))):
        expected = petit.observe(SENTENCE, "There are").logits
    with intervene(petit.network, both):
        torch.testing.assert_close(petit.observe(SENTENCE, "There are").logits, expected)


def test_the_effect_of_a_word_is_measured_with_the_weights_that_were_set(petit: Model) -> None:
    weights = (WeightChange(HeadName("cross", 1, 2), 1, 3, 0.9), WeightChange(HeadName("encoder", 1, 0), 2, 0, 0.1))
    observed = petit.observe(SENTENCE, "There are")
    with intervene(petit.network, AttentionChanges(weights=weights)):
        (effect,) = measure_effects(observed, [Removal(hidden=(4,))])
        usual = observed.forward.run()[0].log_softmax(-1)
    with intervene(petit.network, AttentionChanges(hidden=(4,), weights=weights)):
        changed = observed.forward.run()[0].log_softmax(-1)
    expected = (usual.exp() * (usual - changed)).sum(-1).mean() / torch.log(torch.tensor(2.0))
    assert effect.divergence == pytest.approx(float(expected), abs=1e-5)
