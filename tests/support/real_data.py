"""Where the real corpora and weights are: in `shared` next to the repository, or where REGARD_REAL_DATA says."""

import os
from pathlib import Path

REAL_DATA = Path(os.environ.get("REGARD_REAL_DATA", Path(__file__).parents[3] / "shared"))
