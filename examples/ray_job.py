"""Translate the lines of a file with Ray Data, on a cluster or on this machine, and write Parquet.

    pip install 'regard[ray]'
    python examples/ray_job.py sentences.txt translated --model fr-en

If only a file has to be translated, `regard translate --engine ray` does it, and resumes after interruptions.
"""

import argparse
from pathlib import Path

import ray

import regard.ray


def main() -> None:
    """Read lines, translate them in batches, and write both. A text that the model refuses has no translation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", type=Path, help="texts, one per line")
    parser.add_argument("output", type=Path, help="folder for the Parquet files")
    parser.add_argument("--model", default="fr-en", help="a bundled name, or a path that every worker can read")
    parser.add_argument("--address", default="local", help="auto for a running cluster")
    parser.add_argument("--workers", type=int, default=1, help="models; leave a core for reading and writing")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of each worker")
    options = parser.parse_args()

    local = {"include_dashboard": False} if options.address == "local" else {}
    ray.init(options.address, log_to_driver=False, **local)
    rows = ray.data.read_text(str(options.input.resolve()))  # the column "text"
    rows = rows.map_batches(
        regard.ray.Translator,  # each worker loads the model once
        fn_constructor_kwargs={"model": options.model, "beam": 4},
        batch_size=512,
        compute=ray.data.ActorPoolStrategy(size=options.workers),
        num_gpus=options.gpus,
    )
    rows.write_parquet(str(options.output.resolve()))
    ray.shutdown()


if __name__ == "__main__":
    main()
