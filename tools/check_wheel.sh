#!/usr/bin/env bash
# Build the sdist and the wheel, install each in a clean environment and import it.
# usage: tools/check_wheel.sh [python with the `build` package]
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf dist
"$python" -m build --outdir dist . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
for archive in "$PWD"/dist/*.whl "$PWD"/dist/*.tar.gz; do
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    "$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$archive"
    # From another folder, so that the installed package is the one imported.
    (cd "$work" && venv/bin/python - "$(basename "$archive")") <<'PYTHON'
import importlib.metadata
import importlib.resources
import sys

import relvec
from relvec.runtime.versions import show_versions

assert relvec.__version__ == importlib.metadata.version("relvec")
assert importlib.resources.files("relvec").joinpath("py.typed").is_file()
relvec.RVR(width=1.0).fit([[0.0], [1.0], [2.0], [3.0], [4.0]], [0.0, 1.0, 0.5, 1.0, 0.2])
print(f"{sys.argv[1]}: relvec {relvec.__version__} imports and fits")
show_versions()
PYTHON
done
