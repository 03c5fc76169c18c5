"""Reads the recipes given as arguments with 300 MB of additional memory, and prints `rejected` for each bad one."""

import resource
import sys
from pathlib import Path

from regard.training.recipe_files import read_recipe

EXTRA_BYTES = 300_000_000

if __name__ == "__main__":
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + EXTRA_BYTES, taken + EXTRA_BYTES))
    for path in sys.argv[1:]:
        try:
            read_recipe(path)
        except ValueError:
            print("rejected")
