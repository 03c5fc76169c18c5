"""Train Regard's network in a plain PyTorch loop, with a DataLoader, and save it as a model folder.

python examples/pytorch_loop.py train.fr train.en --epochs 10 --out model
"""

import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import regard

IGNORED = -100  # the default ignore_index of cross_entropy


def collate(pairs: list[tuple[list[int], list[int]]], pad: int, end: int) -> tuple[Tensor, ...]:
    """Source and its lengths, the decoder's input, which starts with <pad>, and the tokens to predict."""
    sources = [torch.tensor([*source, end]) for source, _ in pairs]
    inputs = [torch.tensor([pad, *target]) for _, target in pairs]
    labels = [torch.tensor([*target, end]) for _, target in pairs]
    lengths = torch.tensor([len(row) for row in sources])
    rows = [pad_sequence(side, True, fill) for side, fill in ((sources, pad), (inputs, pad), (labels, IGNORED))]
    return rows[0], lengths, rows[1], rows[2]


def main() -> None:
    """Read two aligned files, train a tokenizer and a model, and translate the first line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs=2, type=Path, help="sources and targets, one sentence per line")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", default="model")
    options = parser.parse_args()
    sources, targets = (path.read_text(encoding="utf-8").splitlines() for path in options.files)

    tokenizer = regard.train_tokenizer([*sources, *targets], vocab_size=1000)
    pairs = [(tokenizer.encode(a), tokenizer.encode(b)) for a, b in zip(sources, targets, strict=True)]
    loader = DataLoader(pairs, 32, shuffle=True, collate_fn=lambda rows: collate(rows, tokenizer.pad, tokenizer.end))  # type: ignore[arg-type,var-annotated]

    network = regard.build(regard.preset("tiny", vocab_size=tokenizer.size, norm="pre"))
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3)
    for epoch in range(options.epochs):
        for source, lengths, inputs, labels in loader:
            logits = network(source, inputs, lengths)  # [B, T, V]
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
    special = regard.SpecialIds(start=tokenizer.pad, end=(tokenizer.end,))
    regard.Model(network.eval(), tokenizer.with_template(after=[tokenizer.end]), special).save(options.out)
    print(f"{sources[0]} → {regard.load(options.out).translate(sources[0])}")


if __name__ == "__main__":
    main()
