#!/usr/bin/env bash
# Build the sdist and the wheel, install each in a clean environment without a compiler for the wheel, and use it: import,
# a fit on the command line, and with TESTS=1 the tests of the estimators and of model files.
# usage: tools/check_wheel.sh [python with the `build` package]
set -euo pipefail
unset PYTHONPATH
cd "$(dirname "$0")/.."
root=$PWD
python=${1:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

rm -rf dist
"$python" -m build --outdir dist . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
case $(echo dist/*.whl) in *abi3*) echo "free-threaded Python refuses wheels of the stable interface"; exit 1 ;; esac
for archive in "$root"/dist/*.whl "$root"/dist/*.tar.gz; do
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    bin=$work/venv/bin
    compiler=${CC:-cc}
    case $archive in *.whl) compiler=/bin/false ;; esac
    CC=$compiler "$bin/python" -m pip install --quiet --disable-pip-version-check "$archive"
    # From another folder, so that the installed package is the one imported.
    cd "$work"
    "$bin/python" - "$(basename "$archive")" <<'PYTHON'
import importlib.metadata
import importlib.resources
import sys

import relvec

assert relvec.__version__ == importlib.metadata.version("relvec")
assert importlib.resources.files("relvec").joinpath("py.typed").is_file()
relvec.RVR(width=1.0).fit([[0.0], [1.0], [2.0], [3.0], [4.0]], [0.0, 1.0, 0.5, 1.0, 0.2])
assert "site-packages" in relvec.__file__, relvec.__file__
print(f"{sys.argv[1]}:")
relvec.show_versions()
PYTHON
    "$bin/relvec" fit "$root/examples/diabetes.csv" --target progression --time-limit 20 -o "$work/model.relvec" >"$work/fit.log"
    grep "^saved" "$work/fit.log"
    if [ -n "${TESTS:-}" ]; then
        "$bin/python" -m pip install --quiet --disable-pip-version-check pytest hypothesis mpmath
        rm -rf "$work/checkout" && mkdir "$work/checkout"
        cp -r "$root"/{tests,tools,reproduction,conftest.py,pyproject.toml} "$work/checkout"
        (cd "$work/checkout" && "$bin/python" -m pytest -q -p no:cacheprovider \
            tests/test_regressor.py tests/test_classifier.py tests/test_persistence.py)
    fi
    cd "$root"
done
