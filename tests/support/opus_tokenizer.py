"""The files of a small OPUS-MT tokenizer, trained on three sentences."""

import json
from pathlib import Path
from typing import Any

OPUS_TEXTS = [
    "Le petit chat noir dort sur le tapis rouge.",
    "The little black cat sleeps on the red mat.",
    "Bonjour à tous !",
]


def write_opus_tokenizer(folder: Path) -> dict[str, int]:
    """Write two SentencePiece models and a vocabulary that matches neither, <pad> last; return the vocabulary."""
    import sentencepiece

    folder.mkdir(parents=True)
    pieces: dict[str, None] = {}
    for side in ("source", "target"):
        (folder / "text").write_text("\n".join((OPUS_TEXTS if side == "source" else OPUS_TEXTS[1:]) * 20))
        size = 36 if side == "source" else 33
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / side), vocab_size=size, minloglevel=2
        )
        (folder / f"{side}.model").rename(folder / f"{side}.spm")
        model: Any = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
        pieces |= dict.fromkeys(model.id_to_piece(i) for i in range(3, model.get_piece_size() - 4))  # not all of them
    vocabulary = {token: i for i, token in enumerate(["</s>", "<unk>", ">>fra<<", *pieces, "<pad>"])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    return vocabulary
