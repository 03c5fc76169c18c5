"""Train a language model with a loss of your own: a focal loss, which counts tokens that are already easy less.

python examples/custom_loss.py --steps 300
"""

import argparse

from torch import Tensor

import regard


def focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """One loss for each target, from logits [N, V] and targets [N]."""
    log_probability = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]  # [N]
    return (1 - log_probability.exp()) ** 2 * -log_probability  # [N]


def main() -> None:
    """Train on Petit's French and write a sentence."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--out", default="runs/focal")
    options = parser.parse_args()

    settings = {"data.petit": options.sentences, "train.steps": options.steps, "train.validate_every": options.steps}
    run = regard.train("petit-lm", out=options.out, overrides=settings, loss=focal_loss)
    print(f"validation loss (cross-entropy): {run.history[-1]['loss']:.3f}")
    print(run.model.generate("Le chat", max_tokens=12))


if __name__ == "__main__":
    main()
