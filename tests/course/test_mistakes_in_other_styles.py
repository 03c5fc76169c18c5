"""The function assignments: a mistake is named in a solution that is written quite differently from the reference."""

import pytest

from regard.course.assignment import Variant, load_assignment
from regard.course.diagnose import diagnose
from regard.course.observe import observe

CASES = [
    ("positions/loops", "k[b, h].T / size**0.5", "k[b, h].T / seq**0.5", "scaled-by-wrong-width"),
    (
        "batching/pure_python",
        "torch.exp(scores - scores.amax(-1, keepdim=True))",
        "torch.exp(scores)",
        "softmax-overflows",
    ),
    ("batching/pure_python", "tokens[:, 1:length]", "tokens.roll(1, 1)[:, : length - 1]", "labels-shifted-backwards"),
    ("bleu/loops", "        return 0\n    return min", "        return 1\n    return min", "penalty-of-nothing"),
    (
        "bleu/loops",
        "[0 if totals[n] == 0 else matches[n] / totals[n] for n in range(max_n)]",
        "[matches[n] / totals[n] for n in range(max_n) if totals[n]]",
        "corpus-skips-orders",
    ),
    ("bpe-tokenizer/merge_by_merge", "+= words[word]", "= words[word]", "pairs-overwritten"),
    ("bpe-tokenizer/merge_by_merge", "if ids and (first,", "if len(ids) > 1 and (first,", "merge-misses-last-pair"),
    ("decoding/lists", "(5 + length) ** alpha / 6**alpha", "(5 + length) / 6**alpha", "length-penalty-formula"),
    (
        "decoding/lists",
        "logits.argmax(-1), logits.shape[-1])",
        "(logits.argmax() % logits.shape[-1]).expand(logits.shape[:-1]), logits.shape[-1])",
        "temperature-zero-across-rows",
    ),
    (
        "training-loop/torch_functions",
        "step / (width * warmup**3) ** 0.5",
        "step / warmup / width**0.5",
        "schedule-warmup-exponent",
    ),
    (
        "training-loop/token_by_token",
        "for log_prob in log_probs:",
        "for log_prob in (*log_probs[:word], *log_probs[word + 1 :]):",
        "smoothing-target-without-share",
    ),
    ("positions/complex_numbers", "* (-2 *", "* (-1 *", "frequencies-not-doubled"),
    ("positions/complex_numbers", "waves.real), -1)", "waves.real), 1)", "positions-not-interleaved"),
    ("positions/complex_numbers", "x.size(-1)).to", "x.size(-1)).conj().to", "rotary-backwards"),
    (
        "positions/complex_numbers",
        "torch.arange(past, k.size(-2))",
        "torch.arange(q.size(-2))",
        "rotary-queries-restart",
    ),
    ("positions/rotate_half", "(-x2, x1)", "(x2, x1)", "rotary-sign-missing"),
    ("positions/rotate_half", "    x *= math.sqrt(x.size(-1))\n", "", "embeddings-not-scaled"),
    (
        "positions/rotate_half",
        "(1)), x.size(-1)).unsqueeze(0)",
        "(0)), x.size(-1)).unsqueeze(1)",
        "positions-over-batch",
    ),
    ("positions/rotate_half", "dim=-1), v)", "dim=-1), rotate(v, positions))", "rotary-on-values"),
    ("positions/loops", "[pair, pair + size // 2]", "[2 * pair, 2 * pair + 1]", "rotary-pairs-adjacent"),
    ("positions/loops", "in enumerate(positions.tolist())", "in enumerate(range(len(positions)))", "positions-counted"),
    ("positions/loops", "rotate(k, torch.arange(seq))", "k", "rotary-one-side"),
    ("training-loop/torch_functions", ", label_smoothing=smoothing", "", "smoothing-missing"),
    ("training-loop/torch_functions", "ignore_index=pad", "ignore_index=-100", "loss-includes-padding"),
    ("training-loop/torch_functions", "done + 1, width", "max(done, 1), width", "schedule-step-shifted"),
    ("training-loop/torch_functions", "optimizer.zero_grad(set_to_none=True)", "pass", "gradients-not-zeroed"),
    ("training-loop/wanted_probabilities", "rising < falling", "rising > falling", "schedule-max-for-min"),
    ("training-loop/wanted_probabilities", "+ (1.0 - smoothing)", "+ 1.0", "smoothing-not-taken-away"),
    (
        "training-loop/wanted_probabilities",
        "number % accumulate == 0 or number == len(batches)",
        "True",
        "update-each-batch",
    ),
    ("training-loop/wanted_probabilities", " or number == len(batches)", "", "accumulation-rest-dropped"),
    ("training-loop/wanted_probabilities", "p.grad /= tokens", "pass", "accumulation-summed"),
    (
        "training-loop/token_by_token",
        "factor * parameter.grad.data",
        "parameter.grad.clamp(-max_norm, max_norm)",
        "clip-by-value",
    ),
    ("training-loop/token_by_token", "squares**0.5", "squares", "clip-norm-without-root"),
    ("training-loop/token_by_token", " if norm > max_norm else 1.0", "", "clip-small-gradients-too"),
    ("training-loop/token_by_token", "smoothing / len(log_probs)", "smoothing", "smoothing-not-shared"),
    ("training-loop/token_by_token", "        model.train()\n", "", "not-in-training-mode"),
    (
        "training-loop/token_by_token",
        "rate = learning_rate(step, w",
        "rate = learning_rate(step * accumulate, w",
        "schedule-counts-batches",
    ),
    ("bpe-tokenizer/merge_by_merge", "range(len(word) - 1)", "range(len(word) - 2)", "pairs-last-missing"),
    ("bpe-tokenizer/merge_by_merge", "+= words[word]", "+= 1", "pairs-not-weighted"),
    ("bpe-tokenizer/merge_by_merge", "[0]\n        merges", "[-1]\n        merges", "train-ties-to-largest"),
    (
        "bpe-tokenizer/merge_by_merge",
        "enumerate(merges):\n",
        "reversed([*enumerate(merges)]):\n",
        "encode-last-merge-first",
    ),
    ("bpe-tokenizer/merge_by_merge", '"utf-8", "replace"', '"latin-1"', "decode-characters-for-bytes"),
    ("bpe-tokenizer/class_inside", "            skip = True\n", "", "merge-keeps-second"),
    ("bpe-tokenizer/class_inside", "[*word.encode()]", "[*map(ord, word)]", "characters-for-bytes"),
    ("bpe-tokenizer/class_inside", "(-item[1], item[0])", "-item[1]", "train-ties-by-occurrence"),
    (
        "bpe-tokenizer/class_inside",
        "self.bytes_of(left) + self.bytes_of(right)",
        "self.bytes_of(right) + self.bytes_of(left)",
        "decode-pair-reversed",
    ),
    ("bpe-tokenizer/recursive", "merge(ids[2:], pair, new)", "list(ids[2:])", "merge-first-only"),
    ("bpe-tokenizer/recursive", "Counter(zip(w, w[1:]))", "Counter(set(zip(w, w[1:])))", "pairs-once-per-word"),
    ("bpe-tokenizer/recursive", "max(pairs.values())", "min(pairs.values())", "train-rarest-pair"),
    (
        "bpe-tokenizer/recursive",
        "for word in split_words(text)), [])",
        "for word in [text]), [])",
        "encode-words-not-split",
    ),
    ("bpe-tokenizer/recursive", 'errors="replace"', 'errors="ignore"', "decode-drops-invalid-bytes"),
]
"""A solution, an edit of it, and the mistake that the edit makes."""


@pytest.mark.slow
@pytest.mark.parametrize(("solution", "old", "new", "mistake"), CASES)
def test_a_mistake_is_named_in_another_style(solution: str, old: str, new: str, mistake: str) -> None:
    name, style = solution.split("/")
    of = load_assignment(name)
    source = Variant(mistake, ((old, new),)).applied_to((of.folder / "solutions" / f"{style}.py").read_text("utf-8"))
    found = diagnose(observe(source, of), of, source)
    assert ([match.id for match in found.mistakes], found.possible) == ([mistake], ())
