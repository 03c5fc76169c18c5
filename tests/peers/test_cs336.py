"""Stanford CS336, assignment 1: its tests pass with Regard behind their adapters.

Set REGARD_CS336 to a checkout of github.com/stanford-cs336/assignment1-basics to run them; nothing of it is part of
this repository. The adapters are also held equal to formulas written here, which needs no checkout.
"""

import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.peers import cs336_adapters as adapters

CHECKOUT = os.environ.get("REGARD_CS336")
ROOT = Path(__file__).parents[2]
NOT_APPLICABLE = {
    "test_linear": "Regard's linear layers are torch's",
    "test_softmax_matches_pytorch": "Regard's softmax is torch's",
    "test_get_batch": "Regard goes through every block of a text once per epoch, and samples none",
    "test_checkpointing": "Regard saves a run into a folder, not a module and an optimizer into a file",
    "test_train_bpe": "the tokenizers library breaks ties between equally frequent pairs differently",
    "test_train_bpe_speed": "it measures time",
    "test_encode_iterable_tinystories_sample_roundtrip": "Regard's tokenizers have no encode_iterable",
    "test_encode_iterable_tinystories_matches_tiktoken": "Regard's tokenizers have no encode_iterable",
    "test_encode_iterable_memory_usage": "Regard's tokenizers have no encode_iterable",
    "test_encode_memory_usage": "the assignment expects it to fail",
}
"""Tests that do not apply to Regard, and why."""
NEEDS_MODEL = "tests/fixtures/ts_tests/model.pt"
"""A file of weights that incomplete copies of the repository lack; most tests of layers need it."""
STAND_INS = {
    "einops": """
def rearrange(x, pattern, head=None):
    before, after = (side.split() for side in pattern.split("->"))
    if before == ["seq"]:
        return x[None]
    return x.unflatten(0, (-1, head))  # "(batch head) …"
""",
    "psutil": "",
    "tiktoken": """
import json
import re
from functools import cache
from pathlib import Path
import regex
from tests.common import FIXTURES_PATH, gpt2_bytes_to_unicode

PATTERN = regex.compile(r"'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+")

class Encoding:
    '''GPT-2's byte-level BPE, by the definition: merge the pair of lowest rank until there is none.'''
    def __init__(self):
        self.ids = json.loads((FIXTURES_PATH / "gpt2_vocab.json").read_text())
        lines = (FIXTURES_PATH / "gpt2_merges.txt").read_text().splitlines()
        pairs = [tuple(line.split(" ")) for line in lines if len(line.split(" ")) == 2]
        self.ranks = {pair: rank for rank, pair in enumerate(pairs)}
        self.characters = gpt2_bytes_to_unicode()
        self.tokens = {id_: token for token, id_ in self.ids.items()}
    def encode(self, text, allowed_special=()):
        parts = re.split("(" + "|".join(map(re.escape, allowed_special)) + ")", text) if allowed_special else [text]
        return [id_ for part in parts for id_ in ([self.ids[part]] if part in allowed_special else self.plain(part))]
    def plain(self, text):
        return [self.ids[token] for word in PATTERN.findall(text) for token in self.merged(word)]
    def merged(self, word):
        parts = [self.characters[byte] for byte in word.encode()]
        while len(parts) > 1:
            ranks = [self.ranks.get(pair, 10**9) for pair in zip(parts, parts[1:])]
            if min(ranks) == 10**9:
                break
            best = ranks.index(min(ranks))
            parts[best : best + 2] = ["".join(parts[best : best + 2])]
        return parts
    def decode(self, ids):
        bytes_of = {character: byte for byte, character in self.characters.items()}
        return bytes(bytes_of[character] for id_ in ids for character in self.tokens[id_]).decode(errors="replace")

@cache
def get_encoding(name):
    return Encoding()
""",
}
"""Stand-ins for packages that the assignment's tests import, where they are not installed."""


@pytest.mark.long
@pytest.mark.skipif(
    CHECKOUT is None, reason="REGARD_CS336 does not name a checkout of stanford-cs336/assignment1-basics"
)
def test_the_assignments_tests_pass(tmp_path: Path) -> None:
    assert CHECKOUT is not None
    results = run_the_assignments_tests(Path(CHECKOUT), tmp_path)
    has_model = (Path(CHECKOUT) / NEEDS_MODEL).is_file()
    applicable = {name: outcome for name, outcome in results.items() if name not in NOT_APPLICABLE}
    without_model = [name for name, outcome in applicable.items() if NEEDS_MODEL in outcome and not has_model]
    failures = {name: outcome for name, outcome in applicable.items() if outcome and name not in without_model}
    passed = len(applicable) - len(failures) - len(without_model)
    print(f"{passed} passed; {len(without_model)} need {NEEDS_MODEL}: {', '.join(without_model)}")
    assert not failures, "\n\n".join(f"{name}: {outcome}" for name, outcome in failures.items())
    assert passed >= (34 if has_model else 27)
    assert NOT_APPLICABLE.keys() <= results.keys(), "a test that does not apply no longer exists"


def run_the_assignments_tests(checkout: Path, folder: Path) -> dict[str, str]:
    """Each test of the assignment, run with Regard's adapters, and its error; empty if it passed."""
    shutil.copytree(checkout / "tests", folder / "tests")
    (folder / "tests/adapters.py").write_text("from cs336_adapters import *\nfrom missing_adapters import *\n")
    missing = [
        "run_linear",
        "run_softmax",
        "run_get_batch",
        "run_save_checkpoint",
        "run_load_checkpoint",
        "run_train_bpe",
    ]
    (folder / "missing_adapters.py").write_text("\n".join(f"{name} = None" for name in missing))
    shutil.copy(Path(adapters.__file__), folder / "cs336_adapters.py")
    for name, source in STAND_INS.items():
        if subprocess.run([sys.executable, "-c", f"import {name}"], capture_output=True, check=False).returncode:
            (folder / f"{name}.py").write_text(source)
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={report}", "tests"]
    paths = [str(folder), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert report.is_file(), done.stdout + done.stderr
    return {
        case.attrib["name"]: "\n".join(f"{problem.attrib.get('message')}\n{problem.text}" for problem in case)
        for case in ElementTree.parse(report).iter("testcase")
    }


# The adapters next to formulas


D_MODEL, HEADS, D_FF, LAYERS, VOCAB = 16, 2, 20, 2, 30


def random_weights() -> dict[str, Tensor]:
    """Weights under the assignment's names."""
    generator = torch.Generator().manual_seed(0)
    square, wide, tall = (D_MODEL, D_MODEL), (D_FF, D_MODEL), (D_MODEL, D_FF)
    shapes: dict[str, tuple[int, ...]] = {"token_embeddings": (VOCAB, D_MODEL), "lm_head": (VOCAB, D_MODEL)}
    for n in range(LAYERS):
        shapes |= {f"layers.{n}.attn.{name}_proj": square for name in ("q", "k", "v", "output")}
        shapes |= {f"layers.{n}.ffn.w1": wide, f"layers.{n}.ffn.w2": tall, f"layers.{n}.ffn.w3": wide}
    weights = {f"{name}.weight": torch.randn(shape, generator=generator) / 3 for name, shape in shapes.items()}
    norms = [f"layers.{n}.ln{i}" for n in range(LAYERS) for i in (1, 2)] + ["ln_final"]
    return weights | {f"{name}.weight": 1 + torch.randn(D_MODEL, generator=generator) / 5 for name in norms}


def normalised(x: Tensor, weight: Tensor) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def rotated(x: Tensor, theta: float) -> Tensor:
    """Each pair (2i, 2i + 1) as a complex number, multiplied by exp(i · position · rate)."""
    t, d = x.shape[-2:]
    rates = theta ** (-torch.arange(0, d, 2) / d)
    turns = torch.polar(torch.ones(t, d // 2), torch.arange(t)[:, None] * rates)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * turns).flatten(-2)


def block(x: Tensor, weights: dict[str, Tensor], theta: float) -> Tensor:
    y = normalised(x, weights["ln1.weight"])
    heads = [
        (y @ weights[f"attn.{name}_proj.weight"].T).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for name in ("q", "k", "v")
    ]
    mixed = F.scaled_dot_product_attention(rotated(heads[0], theta), rotated(heads[1], theta), heads[2], is_causal=True)
    x = x + mixed.transpose(1, 2).flatten(2) @ weights["attn.output_proj.weight"].T
    y = normalised(x, weights["ln2.weight"])
    gated = F.silu(y @ weights["ffn.w1.weight"].T) * (y @ weights["ffn.w3.weight"].T)
    return x + gated @ weights["ffn.w2.weight"].T


def test_the_language_model_equals_formulas() -> None:
    weights, theta = random_weights(), 500.0
    tokens = torch.randint(VOCAB, (2, 7), generator=torch.Generator().manual_seed(1))
    x = weights["token_embeddings.weight"][tokens]
    for n in range(LAYERS):
        layer = {
            name.removeprefix(f"layers.{n}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{n}.")
        }
        expected = block(x, layer, theta)
        torch.testing.assert_close(
            adapters.run_transformer_block(D_MODEL, HEADS, D_FF, 9, theta, layer, x), expected, rtol=1e-4, atol=1e-5
        )
        x = expected
    logits = normalised(x, weights["ln_final.weight"]) @ weights["lm_head.weight"].T
    actual = adapters.run_transformer_lm(VOCAB, 9, D_MODEL, LAYERS, HEADS, D_FF, theta, weights, tokens)
    torch.testing.assert_close(actual, logits, rtol=1e-4, atol=1e-4)


def test_the_parts_equal_formulas() -> None:
    weights = random_weights()
    x = torch.randn(2, 5, D_MODEL, generator=torch.Generator().manual_seed(2))
    names = {
        f"{name[0]}_proj_weight": weights[f"layers.0.attn.{name}_proj.weight"] for name in ("q", "k", "v", "output")
    }
    q, k, v = ((x @ names[f"{name}_proj_weight"].T).unflatten(-1, (HEADS, -1)).transpose(1, 2) for name in "qkv")

    def merged(mixed: Tensor) -> Tensor:
        return mixed.transpose(1, 2).flatten(2) @ names["o_proj_weight"].T

    plain = merged(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    torch.testing.assert_close(adapters.run_multihead_self_attention(D_MODEL, HEADS, in_features=x, **names), plain)
    turned = merged(F.scaled_dot_product_attention(rotated(q, 100.0), rotated(k, 100.0), v, is_causal=True))
    positions = torch.arange(5)[None]
    actual = adapters.run_multihead_self_attention_with_rope(
        D_MODEL, HEADS, 9, 100.0, in_features=x, token_positions=positions, **names
    )
    torch.testing.assert_close(actual, turned)
    ln = weights["ln_final.weight"]
    torch.testing.assert_close(adapters.run_rmsnorm(D_MODEL, 1e-5, ln, x), normalised(x, ln))
    w1, w2, w3 = (weights[f"layers.0.ffn.{name}.weight"] for name in ("w1", "w2", "w3"))
    torch.testing.assert_close(
        adapters.run_swiglu(D_MODEL, D_FF, w1, w2, w3, x), (F.silu(x @ w1.T) * (x @ w3.T)) @ w2.T, rtol=1e-4, atol=1e-5
    )
    table = weights["token_embeddings.weight"]
    tokens = torch.tensor([[0, VOCAB - 1]])
    torch.testing.assert_close(adapters.run_embedding(VOCAB, D_MODEL, table, tokens), table[tokens])
