"""Train a French–English translator from Python, score it and translate with it.

python examples/train_translator.py --steps 600
"""

import argparse

import regard


def main() -> None:
    """Train on Petit, the corpus that is bundled with Regard."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--pairs", type=int, default=60_000)
    parser.add_argument("--out", default="runs/python")
    options = parser.parse_args()

    settings = {"data.petit": options.pairs, "train.steps": options.steps, "train.validate_every": options.steps // 2}
    run = regard.train("petit-fr-en", out=options.out, overrides=settings)

    for event in run.history:
        if event["event"] == "Validated":
            print(f"step {event['step']}: validation loss {event['loss']:.2f}, BLEU {event['score']:.1f}")

    sources = ["Le chat dort.", "Les chiens mangent.", "Elle ne chante jamais."]
    references = ["The cat is sleeping.", "The dogs are eating.", "She never sings."]
    for source, translation in zip(sources, run.model.translate(sources), strict=True):
        print(f"{source} → {translation}")
    print(f"BLEU {regard.evaluate(run.model, sources, references).bleu.value:.1f}")


if __name__ == "__main__":
    main()
