"""The references of assignments next to implementations that are not ours: torch, transformers, tokenizers."""

import json
from typing import Any

import pytest
import torch

from regard.course.assignment import load_assignment


def names_of(name: str) -> dict[str, Any]:
    """The functions of an assignment's reference."""
    names: dict[str, Any] = {}
    exec(load_assignment(name).reference, names)
    return names


# Positions


def test_sinusoids_equal_the_formula_of_the_paper() -> None:
    encoding = names_of("positions")["sinusoids"](torch.tensor([0, 7, 123]), 6).double()
    for row, position in zip(encoding, (0, 7, 123), strict=True):
        angles = [torch.tensor(position / 10_000 ** (2 * pair / 6), dtype=torch.float64) for pair in range(3)]
        expected = [wave for angle in angles for wave in (angle.sin(), angle.cos())]
        torch.testing.assert_close(row, torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.long  # importing transformers takes longer than all other tests of this file
def test_rotations_equal_those_of_llama_in_transformers() -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(hidden_size=24, num_attention_heads=3, num_hidden_layers=1)
    q, k = torch.randn(2, 2, 3, 5, 8, generator=torch.Generator().manual_seed(0))
    positions = torch.tensor([0, 1, 9, 30, 200])
    cos, sin = llama.LlamaRotaryEmbedding(config)(q, positions[None])
    expected = llama.apply_rotary_pos_emb(q, k, cos, sin)
    rotate = names_of("positions")["rotate"]
    torch.testing.assert_close((rotate(q, positions), rotate(k, positions)), expected, atol=1e-5, rtol=1e-5)


def test_rotary_attention_depends_on_distances_only() -> None:
    names = names_of("positions")
    q, k = torch.randn(2, 1, 2, 5, 8, generator=torch.Generator().manual_seed(0))
    scores = [names["rotate"](q, at) @ names["rotate"](k, at).mT for at in (torch.arange(5), torch.arange(50, 55))]
    torch.testing.assert_close(scores[0], scores[1], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(scores[0], q @ k.mT, atol=0.1)


# Training loop


def test_learning_rates_equal_the_formula_of_the_paper() -> None:
    """The peak for d_model 512 and 4000 warm-up steps is 1 / √(512 · 4000)."""
    rate = names_of("training-loop")["learning_rate"]
    assert rate(4000, 512, 4000) == pytest.approx((512 * 4000) ** -0.5)
    assert rate(1, 512, 4000) == pytest.approx(rate(4000, 512, 4000) / 4000)
    assert rate(16_000, 512, 4000) == pytest.approx(rate(4000, 512, 4000) / 2)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_the_smoothed_loss_equals_torchs(smoothing: float) -> None:
    logits = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[1, 2, 0, 0], [3, 4, 5, 1], [2, 0, 0, 0]])
    total, count = names_of("training-loop")["smoothed_loss"](logits, targets, smoothing, 0)
    torchs = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=smoothing)
    torch.testing.assert_close(total / count, torchs(logits.flatten(0, 1), targets.flatten()))


@pytest.mark.parametrize("max_norm", [0.1, 2.0, 100.0])
def test_clipped_gradients_equal_torchs(max_norm: float) -> None:
    clip, gradients, norms = names_of("training-loop")["clip_gradients"], [], []
    for function in (clip, torch.nn.utils.clip_grad_norm_):
        network = torch.nn.Linear(3, 2)
        for parameter in network.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        norms.append(function(network.parameters(), max_norm))
        gradients.append([parameter.grad for parameter in network.parameters()])
    torch.testing.assert_close(norms[0], norms[1])
    torch.testing.assert_close(gradients[0], gradients[1])


def test_accumulated_batches_train_like_one_large_batch() -> None:
    """The large batch is trained by torch's own functions. The small ones have different numbers of tokens."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randint(1, 7, (6, 5), generator=generator)
    targets = torch.randint(1, 7, (6, 5), generator=generator)
    targets[1:4, 2:] = 0
    models = [torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 7)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    batches = list(zip(inputs.split([1, 3, 2]), targets.split([1, 3, 2]), strict=True))
    optimizer = torch.optim.SGD(models[0].parameters(), lr=9.0)
    losses = names_of("training-loop")["train"](models[0], optimizer, batches, 3, 4, 1, 0.05, 0.1, 0)
    loss = torch.nn.CrossEntropyLoss(ignore_index=0, label_smoothing=0.1)(models[1](inputs).mT, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(models[1].parameters(), 0.05)
    torch.optim.SGD(models[1].parameters(), lr=0.5).step()
    assert losses == [pytest.approx(loss.item())]
    torch.testing.assert_close(models[0].state_dict(), models[1].state_dict())


# Byte-pair tokenizer

TEXT = """the other mother and the brother gather there rather than here then they bathe in the heather aaaa aaa banana
bandana sat at that mat chat cat hat rat attic tattoo static lowest low lower newest newer new wide wider widest"""
CORPUS = TEXT.split()


def bytes_as_characters() -> dict[int, str]:
    """The character that stands for each byte in byte-level tokenizers."""
    pre_tokenizers = pytest.importorskip("tokenizers.pre_tokenizers")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    text = "".join(map(chr, range(1, 0x800))) + "語"
    return dict(zip(text.encode(), byte_level.pre_tokenize_str(text)[0][0], strict=True))


def test_merges_equal_those_of_tokenizers() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    theirs = tokenizers.Tokenizer(tokenizers.models.BPE())
    letters = sorted(set("".join(CORPUS)))
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(letters) + 60, initial_alphabet=letters, show_progress=False, special_tokens=[]
    )
    theirs.train_from_iterator(CORPUS, trainer)
    expected = json.loads(theirs.to_str())["model"]["merges"]
    tokens = [bytes([byte]) for byte in range(256)]
    merges = names_of("bpe-tokenizer")["train"]("\n".join(CORPUS), 60)
    for left, right in merges:
        tokens.append(tokens[left] + tokens[right])
    assert [[tokens[left].decode(), tokens[right].decode()] for left, right in merges] == list(map(list, expected))
    assert len(expected) == 60


def test_ids_equal_those_of_tokenizers() -> None:
    """The same merges in a byte-level model of `tokenizers`, for each word of texts that were not trained on."""
    tokenizers = pytest.importorskip("tokenizers")
    names, characters = names_of("bpe-tokenizer"), bytes_as_characters()
    merges = names["train"](" ".join(CORPUS) + " é è été café naïve 語 語語", 90)
    tokens = [characters.get(byte, f"unused {byte}") for byte in range(256)]
    for left, right in merges:
        tokens.append(tokens[left] + tokens[right])
    vocab = {token: number for number, token in enumerate(tokens)}
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, [(tokens[a], tokens[b]) for a, b in merges]))
    for text in ("the cathedral and the hatter", " attattat banananana aaaaaaa", "été à Noël, 語語語\n\nend  of"):
        expected = [
            number
            for word in names["split_words"](text)
            for number in model.encode("".join(characters[byte] for byte in word.encode())).ids
        ]
        assert names["encode"](text, merges) == expected
        assert names["decode"](expected, merges) == text
