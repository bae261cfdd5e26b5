#!/usr/bin/env bash
# Build the sdist and the wheel and use both as a new user would, each in an environment of its own: the sdist is compiled,
# the wheel is installed where no compiler is found. Both fit a table on the command line; the wheel also has to pass tests,
# with and without a compiler.
#
# usage: tools/check_wheel.sh [python with the package `build`]
#   TESTS=quick  the estimators, the command line, model files and the C export (the default)
#   TESTS=all    every fast test; some ten minutes on two idle cores
#   TESTS=none   no tests
set -euo pipefail
unset PYTHONPATH
cd "$(dirname "$0")/.."
root=$PWD
python=${1:-python3}
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
case ${TESTS:=quick} in
quick) tests=(tests/estimators/test_{regressor,classifier}.py tests/export/test_{persistence,c99}.py tests/app/test_commands.py) ;;
all) tests=(tests) ;;
none) tests=() ;;
*) echo "TESTS is quick, all or none, not '$TESTS'" >&2; exit 2 ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

say() { printf '\n== %s\n' "$*"; }

# The programs of this machine without its compilers.
mkdir "$work/tools"
for folder in /usr/local/bin /usr/bin /bin; do
    for program in "$folder"/*; do
        case ${program##*/} in
        cc | c89* | c99* | cpp* | *gcc* | *g++* | c++* | *clang* | tcc | zig) ;;
        *) ln -sf "$program" "$work/tools/" ;;
        esac
    done
done

new_environment() { # makes $bin, an environment with nothing in it
    rm -rf "$work/venv"
    "$python" -m venv "$work/venv"
    bin=$work/venv/bin
}

install() { "$bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

without_compiler() { PATH=$bin:$work/tools CC=/bin/false "$@"; }

use() ( # from another folder, so that the installed package is the one imported
    cd "$work"
    "$bin/python" - <<'PYTHON'
import importlib.metadata
import importlib.resources

import relvec

assert relvec.__version__ == importlib.metadata.version("relvec")
assert importlib.resources.files("relvec").joinpath("py.typed").is_file()
assert "site-packages" in relvec.__file__, relvec.__file__
relvec.RVR(width=1.0).fit([[0.0], [1.0], [2.0], [3.0], [4.0]], [0.0, 1.0, 0.5, 1.0, 0.2])
relvec.show_versions()
PYTHON
    "$bin/relvec" demo --out "$work/demo" >"$work/demo.log"
    "$bin/relvec" fit "$work/demo/diabetes.csv" --target progression --time-limit 20 -o "$work/model.relvec" >"$work/fit.log"
    grep "^saved" "$work/fit.log"
)

run_tests() ( # the working tree, whose tests find the installed package
    rm -rf "$work/checkout" && mkdir "$work/checkout"
    git ls-files -z | tar -c --null -T - | tar -x -C "$work/checkout"
    cd "$work/checkout"
    "$bin/python" -m pytest -q -p no:cacheprovider -n 2 "${tests[@]}"
)

say "build"
rm -rf dist
"$python" -m build --outdir dist . >"$work/build.log" 2>&1 || { cat "$work/build.log"; exit 1; }
wheel=$(echo "$root"/dist/*.whl) sdist=$(echo "$root"/dist/*.tar.gz)
case $wheel in *abi3*) echo "free-threaded Python refuses wheels of the stable interface"; exit 1 ;; esac
ls -l "$wheel" "$sdist"

say "$(basename "$sdist"), compiled here"
new_environment
install "$sdist[tables]"
use

say "$(basename "$wheel"), without a compiler"
new_environment
without_compiler install "$wheel[tables]"
without_compiler use
if [ ${#tests[@]} -gt 0 ]; then
    install pytest pytest-xdist hypothesis mpmath
    say "tests without a compiler"
    without_compiler run_tests
    say "tests with a compiler"
    run_tests
fi
say "the sdist and the wheel are fit to use"
