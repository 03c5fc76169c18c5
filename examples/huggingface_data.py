"""Train on rows of a Hugging Face dataset with a tokenizer of your own, then hand the model to `transformers`.

`rows` can be any iterable of {"translation": {"fr": ..., "en": ...}}, such as
`datasets.load_dataset("opus_books", "en-fr")["train"]`; here a few rows stand in for it.

    python examples/huggingface_data.py --steps 200 --out runs/rows
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import regard

ROWS = [
    {"translation": {"fr": f"Le {fr} est {couleur}.", "en": f"The {en} is {colour}."}}
    for couleur, colour in [("noir", "black"), ("blanc", "white"), ("rouge", "red"), ("vert", "green")]
    for fr, en in [("chat", "cat"), ("chien", "dog"), ("train", "train"), ("livre", "book"), ("mur", "wall")]
]


def write_rows(rows: Iterable[dict[str, dict[str, str]]], path: Path) -> list[str]:
    """Write the rows as JSONL, one pair per line, and return their texts."""
    pairs = [row["translation"] for row in rows]
    path.write_text("".join(json.dumps(pair, ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8")
    return [text for pair in pairs for text in pair.values()]


def main() -> None:
    """Write the data and the tokenizer, train, and export the model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("runs/rows"))
    options = parser.parse_args()
    folder = options.out.with_name(options.out.name + "-data")
    folder.mkdir(parents=True, exist_ok=True)
    texts = write_rows(ROWS, folder / "train.jsonl")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["</s>", "<sep>", "<pad>"]
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False)
    trainer.initial_alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))

    rows = {"files": ["train.jsonl"], "keys": ["fr", "en"]}
    settings = {"data.folder": str(folder), "data.train": [rows], "data.held_out": 0.1, "tokenizer.path": str(folder)}
    sizes = {"model.d_model": 64, "model.heads": 2, "model.layers": 1, "model.d_ff": 128, "tokenizer.dropout": 0.0}
    steps = {"train.steps": options.steps, "train.validate_every": options.steps, "train.warmup": 20}
    run = regard.train("small-corpus", out=options.out, overrides=settings | sizes | steps)
    print(run.model.translate("Le chat est noir."))
    regard.export(run.model, folder / "huggingface", to="huggingface")  # AutoModelForSeq2SeqLM.from_pretrained(...)


if __name__ == "__main__":
    main()
