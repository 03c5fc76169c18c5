#!/usr/bin/env bash
# Gradescope runs this once, when the autograder is built.
set -euo pipefail

source="$(cd "$(dirname "$0")" && pwd)"
apt-get update
apt-get install -y --no-install-recommends python3.11-venv || apt-get install -y --no-install-recommends python3-venv
python="$(command -v python3.11 || command -v python3)"
"$python" -m venv /autograder/venv
/autograder/venv/bin/pip install --no-cache-dir '{{torch}}' --index-url https://download.pytorch.org/whl/cpu
/autograder/venv/bin/pip install --no-cache-dir -r "$source/requirements.txt"
