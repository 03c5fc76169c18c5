"""Show what each layer of a model would predict if it were the last: the logit lens.

python examples/logit_lens.py "Le chat noir dort." --model petit-fr-en
"""

import argparse

import regard


def main() -> None:
    """Print one row per position and one column per layer, each with its most likely token and probability."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--model", default="petit-fr-en", help="a bundled name, a run, or a Hugging Face folder")
    options = parser.parse_args()

    seen = regard.load(options.model).attend(options.text, lens=1)
    lens = seen.lens
    assert lens is not None  # it was asked for
    print(f"{seen.source} → {seen.target}" if seen.target else seen.source)
    print(f"{'reads':>12}  " + "".join(f"{state:<20}" for state in lens.states))
    for position, token in enumerate(lens.queries):
        cells = [f"{layer[position][0][0]} {layer[position][0][1]:.2f}" for layer in lens.top]
        print(f"{token:>12}  " + "".join(f"{cell:<20}" for cell in cells))


if __name__ == "__main__":
    main()
