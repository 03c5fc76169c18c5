"""Keep the sentence pairs of a corpus that a translation model finds plausible.

The score of a pair is the log-probability of the target per character. Wrong translations, wrong languages and
misaligned lines have low scores.

    python examples/filter_corpus.py train.fr train.en --keep 0.9 --out clean
"""

import argparse
from pathlib import Path

import regard


def pair_scores(model: regard.Model, sources: list[str], targets: list[str]) -> list[float]:
    """The log-probability of each target given its source, divided by the number of characters."""
    scores = model.score(sources, targets)
    return [score / max(len(target), 1) for score, target in zip(scores, targets, strict=True)]


def main() -> None:
    """Write the best pairs in their original order, and print the worst ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--keep", type=float, default=0.9, help="share of the pairs to keep")
    parser.add_argument("--model", default="fr-en")
    parser.add_argument("--out", type=Path, default=Path("clean"))
    options = parser.parse_args()
    sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in (options.source, options.target))

    scores = pair_scores(regard.load(options.model), sources, targets)
    order = sorted(range(len(scores)), key=scores.__getitem__)  # worst first
    dropped = set(order[: len(order) - round(options.keep * len(order))])
    options.out.mkdir(parents=True, exist_ok=True)
    for path, lines in ((options.source, sources), (options.target, targets)):
        kept = [line for number, line in enumerate(lines) if number not in dropped]
        (options.out / path.name).write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    print(f"kept {len(scores) - len(dropped):,} of {len(scores):,} pairs; the worst:")
    for number in order[:5]:
        print(f"{scores[number]:.2f}\tline {number + 1}\t{sources[number]}\t{targets[number]}")


if __name__ == "__main__":
    main()
