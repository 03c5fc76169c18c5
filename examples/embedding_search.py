"""Find the lines of a file that are nearest to a query, by the vectors of a model.

Any model that embeds works; a sentence encoder such as all-MiniLM-L6-v2 is best. The default is the encoder of the
bundled translator.

    python examples/embedding_search.py sentences.txt "Le chat dort." --model fr-en
"""

import argparse
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

import regard


class Index:
    """Texts and their vectors, scaled to length 1."""

    def __init__(self, model: regard.Model, texts: list[str]) -> None:
        self.model, self.texts = model, texts
        self.vectors: Tensor = F.normalize(model.embed(texts))  # [texts, width]

    def nearest(self, query: str, count: int) -> list[tuple[float, str]]:
        """The nearest texts with their cosine similarities, best first."""
        similarities = self.vectors @ F.normalize(self.model.embed(query), dim=0)  # [texts]
        best = similarities.topk(min(count, len(self.texts)))
        return [(value, self.texts[i]) for value, i in zip(best.values.tolist(), best.indices.tolist(), strict=True)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="texts, one per line")
    parser.add_argument("query")
    parser.add_argument("--model", default="fr-en", help="a bundled name, a run, or a Hugging Face folder")
    parser.add_argument("-k", type=int, default=5)
    options = parser.parse_args()
    lines = [line for line in options.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    for similarity, text in Index(regard.load(options.model), lines).nearest(options.query, options.k):
        print(f"{similarity:.3f}\t{text}")
