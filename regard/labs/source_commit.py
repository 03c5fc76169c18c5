"""The commit of Regard's source, which records of measurements state."""

import subprocess
from pathlib import Path

PACKAGE = Path(__file__).parent.parent


def current_commit(folder: Path = PACKAGE) -> str | None:
    """Return the commit of the repository that tracks `folder`, with `-dirty` if files have been changed.

    None if no repository tracks it, as for an installed package, even one inside the repository of another project.
    """
    tracked = ["git", "ls-files", "--error-unmatch", "."]
    described = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    try:
        subprocess.run(tracked, cwd=folder, check=True, capture_output=True)
        return subprocess.run(described, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
