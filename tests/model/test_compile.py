"""torch.compile(fullgraph=True): every preset in one graph, and the compiled code equal to what is written.

The checks of shapes cannot be traced, so that these tests run in processes of their own, as a user's program would.
"""

import os
import subprocess
import sys

import pytest

from regard.config import PRESETS

pytestmark = pytest.mark.slow

TRACE = """
import sys, torch, regard
SMALL = {"vocab_size": 501, "d_model": 48, "heads": 4, "layers": 2, "d_ff": 64}
def trace(name, backend, cases=("plain", "padded", "packed"), **changes):
    torch.manual_seed(0)
    model = regard.build(regard.preset(name, **changes)).eval()
    pair, tokens = model.config.kind == "encoder-decoder", torch.randint(1, 500, (2, 8))
    lengths, packed = torch.tensor([8, 5]), torch.tensor([[3, 4], [5, 3]])
    arguments = {
        "plain": (tokens, tokens) if pair else (tokens,),
        "padded": (tokens, tokens, lengths, lengths) if pair else (tokens, lengths),
        "packed": (tokens, tokens, packed, packed) if pair else (tokens, packed),
    }
    for case in cases:
        args = arguments[case]
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True, backend=backend)
        torch.testing.assert_close(compiled(*args), model(*args), rtol=1e-4, atol=1e-4)
    if model.config.kind != "encoder":
        with torch.inference_mode():
            caches = [model.start(tokens, 8, lengths) if pair else model.start(2, 8) for _ in range(2)]
            step = torch.compile(model.step, fullgraph=True, backend=backend)
            for t in range(3):
                new = tokens[:, t : t + 1], torch.full((2, 1), t)
                torch.testing.assert_close(step(*new, caches[0]), model.step(*new, caches[1]), rtol=1e-4, atol=1e-4)
"""

TRACE_SMALL_PRESETS = """
traced = []
for name in sys.argv[1:]:
    config = regard.preset(name, dropout=0.0, **SMALL)  # where nothing else differs, the graph is the same
    if config in traced:
        continue
    traced.append(config)
    try:
        trace(name, "eager", **SMALL)
    except BaseException as error:
        error.add_note(f"the preset is {name}")
        raise
assert len(traced) >= 4, traced
"""

SHAPES = """
torch.manual_seed(0)
graphs = []
def count(graph, inputs):
    graphs.append(graph)
    return graph.forward
def check(what, calls, most=3):
    torch.compiler.reset()
    graphs.clear()
    for compiled, eager in calls():
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)
    assert len(graphs) <= most, (what, len(graphs))
small = {"d_model": 32, "layers": 1, "d_ff": 32}
pair = regard.build(regard.preset("tiny", **small)).eval()
decoder = regard.build(regard.preset("tiny", kind="decoder", **small)).eval()
def rows(t):
    return torch.randint(1, 500, (2, t)), torch.tensor([t, t - 1]), torch.tensor([[2, t - 2], [t - 1, 1]])
def forward(model, packed):
    fast = torch.compile(model, fullgraph=True, backend=count)
    for t in (4, 5, 6, 7, 8, 9, 17):
        tokens, lengths, several = rows(t)
        lengths = several if packed else lengths
        args = (tokens, tokens, lengths, lengths) if model is pair else (tokens, lengths)
        yield fast(*args), model(*args)
def stepping():
    fast = torch.compile(decoder.step, fullgraph=True, backend=count)
    one, other = decoder.start(2, 20), decoder.start(2, 20)
    for t in range(14):
        new = torch.randint(1, 500, (2, 1)), torch.full((2, 1), t)
        yield fast(*new, one.upto(t + 1)), decoder.step(*new, other.upto(t + 1))
for packed in (False, True):
    check(f"pair {packed}", lambda: forward(pair, packed))
    check(f"decoder {packed}", lambda: forward(decoder, packed))
check("step", stepping)
"""

TRAIN = """
import torch.nn.functional as F
torch.manual_seed(0)
torch.compiler.reset()
model = regard.build(regard.preset("tiny", dropout=0.0, layers=LAYERS))
tokens = torch.randint(1, 500, (2, 8))
grads = []
for call in (model, torch.compile(model, fullgraph=True)):
    model.zero_grad()
    F.cross_entropy(call(tokens, tokens).flatten(0, 1), tokens.flatten()).backward()
    grads.append([p.grad.clone() for p in model.parameters()])
for eager, compiled in zip(*grads):
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
compiled = torch.compile(model.eval(), backend="eager")
with regard.watch(compiled) as seen:
    compiled(tokens, tokens)
assert seen[f"decoder.layers.{LAYERS - 1}.cross_attention"][0].shape == (2, 4, 8, 8), seen.keys()
"""


def run_alone(program: str, *arguments: str) -> None:
    environment = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # more would be processes that import torch
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]


def test_every_preset_is_one_graph_and_other_lengths_do_not_recompile() -> None:
    """Each preset's structure, with two layers of small widths. Then padded, packed and step by step through a
    growing cache: a second graph is for any size, and is the last.
    """
    run_alone(TRACE + TRACE_SMALL_PRESETS + SHAPES, *PRESETS)


@pytest.mark.long
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_at_its_own_size_is_one_graph(name: str) -> None:
    run_alone(TRACE + 'trace(sys.argv[1], "eager")', name)


@pytest.mark.parametrize("layers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_compiled_equals_eager(layers: int) -> None:
    """In outputs, steps, watched weights and gradients; these are of the plain call."""
    cases = ("packed",) if layers == 1 else ("padded", "packed")  # a packed row is padded too
    traced = f'LAYERS = {layers}\ntrace("tiny", "inductor", {cases}, layers=LAYERS)'
    run_alone(TRACE + traced + TRAIN)
