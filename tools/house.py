"""Measure the structure of the package, for people to read.

    python tools/house.py          print the measures, and the lines of code of each folder
    python tools/house.py --names  also print the places that are counted

`tests/test_house.py` holds what must stay as it is: who may import whom, no cycles, everything public documented.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "relvec"
ESTIMATORS = ("RelevanceVectorRegressor", "RelevanceVectorClassifier", "GPRegressor", "GPClassifier",
              "SparseBayesianRegressor", "SparseBayesianClassifier")  # fmt: skip
OPTIONAL = ("matplotlib", "pandas", "pyarrow", "dask", "distributed", "torch", "cupy", "onnx", "onnxruntime",
            "skl2onnx", "tqdm", "h5py", "zarr", "openpyxl")  # fmt: skip
MOST_WORDS = {"README": 900, "guide": 30_000, "docstring": 900}
COMPLEX = 10  # paths through a function: more are listed
FITS = {
    "RVR().fit": "relvec.RVR().fit(X, y)",
    "GPRegressor().fit": "relvec.GPRegressor().fit(X, y)",
    "RVC().fit": "relvec.RVC().fit(X, y > 0.0)",
    "relvec fit table.csv": "runpy.run_module('relvec', run_name='__main__')",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


# Modules and who imports whom ----------------------------------------------------------------------------------------


def modules(src: Path = SRC) -> dict[str, Path]:
    """Return the file of each module by its full name."""
    found = {}
    for path in sorted(src.rglob("*.py")):
        parts = ("relvec", *path.relative_to(src).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(src: Path = SRC) -> dict[str, set[str]]:
    """Return the relvec modules that each module imports, inside functions too; TYPE_CHECKING blocks do not count."""
    names = modules(src)
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for statement in imports(ast.parse(path.read_text())):
            graph[name] |= set(_targets(statement, name, path, names)) - {name}
    return graph


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements in a module, those in functions too; TYPE_CHECKING blocks do not count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from imports(child)


def _targets(statement: ast.Import | ast.ImportFrom, name: str, path: Path, names: dict[str, Path]) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        yield from (alias.name for alias in statement.names if alias.name in names)
        return
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    base = package[: len(package) + 1 - statement.level] if statement.level else []
    stem = ".".join([*base, *([statement.module] if statement.module else [])])
    for alias in statement.names:
        whole = f"{stem}.{alias.name}"
        if whole in names or stem in names:
            yield whole if whole in names else stem


def import_cycles(src: Path = SRC) -> list[str]:
    """Return one cycle of the import graph, if there is one."""
    try:
        TopologicalSorter(import_graph(src)).prepare()
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


# Words ---------------------------------------------------------------------------------------------------------------


def count_words(text: str) -> int:
    """Count the words of a text that have a letter: numbers and signs of tables are none."""
    return sum(bool(re.search("[A-Za-z]", word)) for word in text.split())


def words() -> dict[str, int]:
    """Return the words of the README, of each page, of the guide, and of all pages that are written by hand."""
    made = {"reproduction.md", "commands.md"}
    built = {"_build", "gen_modules", "auto_examples"}
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md"))
             if not built & set(path.parts) and path.name not in made]  # fmt: skip
    found = {str(path.relative_to(ROOT)): count_words(path.read_text()) for path in pages}
    guide = sum(count for name, count in found.items() if name.startswith("docs/guide/"))
    readme = count_words((ROOT / "README.md").read_text())
    return found | {"README": readme, "guide": guide, "all pages": sum(found.values())}


# Counts in the source ------------------------------------------------------------------------------------------------


def code_lines(text: str) -> int:
    """Count the lines of a module that hold code, without docstrings, comments and blank lines."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            found.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(found)


def folders(src: Path = SRC) -> dict[str, tuple[int, int]]:
    """Return the number of modules and of code lines in each folder, its subfolders not counted."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(src.rglob("*.py")):
        name = str(path.parent.relative_to(src.parent))
        count, lines = found.get(name, (0, 0))
        found[name] = count + 1, lines + code_lines(path.read_text())
    return found


def native_lines(src: Path = SRC) -> dict[str, int]:
    """Return the number of lines of each file of compiled code; what Cython generates does not count."""
    files = [path for path in sorted(src.rglob("*")) if path.suffix in (".pyx", ".pxd", ".c", ".h")]
    own = [path for path in files if path.suffix != ".c" or not path.with_suffix(".pyx").exists()]
    return {str(path.relative_to(src)): len(path.read_text().splitlines()) for path in own}


def nodes(src: Path = SRC) -> Iterator[tuple[str, ast.AST]]:
    """Yield every node of every module with its place."""
    for path in sorted(src.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            yield f"{path.relative_to(src)}:{getattr(node, 'lineno', 1)}", node


def constants(src: Path = SRC) -> list[str]:
    """Return the module-level names in capitals that are bound to numbers, or to collections of them."""
    found = []
    for place, module in nodes(src):
        for statement in module.body if isinstance(module, ast.Module) else ():
            if isinstance(statement, ast.Assign | ast.AnnAssign) and _is_number(statement.value):
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
                file = place.split(":")[0]
                found += [f"{file}:{statement.lineno} {n}" for n in names if re.fullmatch(r"_?[A-Z][A-Z0-9_]*", n)]
    return found


def numeric_defaults(src: Path = SRC) -> list[str]:
    """Return the fields of dataclasses whose default is a number."""
    found = []
    for place, node in nodes(src):
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            fields = [s for s in node.body if isinstance(s, ast.AnnAssign) and _is_number(s.value)]
            found += [f"{place.split(':')[0]}:{s.lineno} {node.name}.{ast.unparse(s.target)}" for s in fields]
    return found


def _is_number(value: ast.expr | None) -> bool:
    """Whether an expression is a number, arithmetic of numbers, or a tuple, list or dict of them."""
    match value:
        case ast.Constant(value=number):
            return isinstance(number, int | float) and not isinstance(number, bool)
        case ast.UnaryOp(operand=operand):
            return _is_number(operand)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Dict(values=parts):
            return bool(parts) and all(map(_is_number, parts))
    return False


def uses_of_any(src: Path = SRC) -> list[str]:
    """Return the places of the annotation `Any`."""
    return [place for place, node in nodes(src) if isinstance(node, ast.Name) and node.id == "Any"]


def calls_of_hasattr(src: Path = SRC) -> list[str]:
    """Return the places that ask by `hasattr` what an object is."""
    return [p for p, n in nodes(src) if isinstance(n, ast.Call) and ast.unparse(n.func) == "hasattr"]


def complex_functions(src: Path = SRC) -> list[str]:
    """Return the functions with more than `COMPLEX` paths, the worst first (McCabe's number, functions inside too)."""
    found = [(complexity(n), f"{p} {n.name}") for p, n in nodes(src) if isinstance(n, Function)]
    return [f"{place}: {count}" for count, place in sorted(found, reverse=True) if count > COMPLEX]


def complexity(function: Function) -> int:
    """Count the paths through a function: one, and one more for each branch, loop, condition and handler."""
    count = 1
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.IfExp | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.Assert):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += 1 + len(node.ifs)
        elif isinstance(node, ast.match_case):
            count += 1
    return count


def shared_names(src: Path = SRC) -> list[str]:
    """Return the names that public classes or functions of different modules share, with the modules."""
    homes = defaultdict(list)
    for module, path in modules(src).items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | Function) and not node.name.startswith("_"):
                homes[node.name].append(module.removeprefix("relvec."))
    return [f"{name}: {', '.join(places)}" for name, places in sorted(homes.items()) if len(places) > 1]


# What a user meets ---------------------------------------------------------------------------------------------------


def estimators() -> dict[str, type]:
    """Return the classes of `ESTIMATORS` that the package has."""
    sys.path.insert(0, str(SRC.parent))
    relvec = importlib.import_module("relvec")
    return {name: getattr(relvec, name) for name in ESTIMATORS if name in relvec.__all__}


_TRACE = """
import inspect, json, os, re, runpy, sys, warnings
from pathlib import Path
import numpy as np
import relvec
root = str(Path(relvec.__file__).parent) + os.sep
main = os.path.join(root, "__main__.py")
files, first = set(), {}
def profile(frame, event, argument):
    code = frame.f_code
    if event != "call" or not code.co_filename.startswith(root) or not code.co_flags & inspect.CO_OPTIMIZED:
        return  # bodies of modules and classes are not functions
    file = code.co_filename[len(root):]
    evaluates = not first and file.split(os.sep)[0] in ("solvers", "gaussian_process", "hyperparameters") and (
        Path(file).stem == "evidence" or re.search("evidence|objective|evaluate", code.co_name))
    if file in files and not evaluates:
        return
    depth, at = 0, frame
    while at is not None:
        if at.f_code.co_filename.startswith(root):
            if at.f_code.co_name != "<module>":
                depth += 1
            elif at.f_code.co_filename != main:
                return  # a module is being imported
        at = at.f_back
    files.add(file)
    if evaluates:
        first.update(depth=depth, call=f"{file} {code.co_qualname}")
X = np.linspace(-3.0, 3.0, 60)[:, None]
y = np.sin(2.0 * X[:, 0]) + np.random.default_rng(0).normal(0.0, 0.1, 60)
Path("table.csv").write_text("x,y\\n" + "\\n".join(f"{a},{b}" for a, b in zip(X[:, 0], y)))
sys.argv = ["relvec", "fit", "table.csv", "--target", "y", "-o", "table.relvec"]
warnings.simplefilter("ignore")
told, sys.stdout = sys.stdout, open(os.devnull, "w")
sys.setprofile(profile)
try:
    CALL
except SystemExit:
    pass
sys.setprofile(None)
print(json.dumps({"files": sorted(files), **first}), file=told)
"""


def trace(call: str) -> dict:
    """Run a call in a fresh process: the files of relvec that it runs, and the first evaluation of an evidence.

    That is the first function of solvers/, gaussian_process/ or hyperparameters/ that is called after the evidence, the
    objective or an evaluation, with the number of frames of relvec on the stack. One thread runs all of it.
    """
    environment = {**os.environ, "PYTHONPATH": str(SRC.parent), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    script = _TRACE.replace("CALL", call)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=folder, capture_output=True,
                              text=True, check=True)  # fmt: skip
    return dict(json.loads(done.stdout))


# The report ----------------------------------------------------------------------------------------------------------


def print_source(names: bool) -> None:
    """Print what is counted in the source."""
    for name, (count, lines) in folders().items():
        print(f"{name:<46} {count:>4} modules {lines:>7} lines of code")
    counts = list(folders().values())
    print(f"{'all':<46} {sum(n for n, _ in counts):>4} modules {sum(lines for _, lines in counts):>7} lines of code")
    native = native_lines()
    print(f"{'compiled code':<46} {len(native):>4} files   {sum(native.values()):>7} lines")
    measures = {
        "numeric tuning constants: names": constants(),
        "numeric tuning constants: defaults of dataclasses": numeric_defaults(),
        "Any": uses_of_any(),
        "hasattr": calls_of_hasattr(),
        f"functions with a cyclomatic complexity over {COMPLEX}": complex_functions(),
        "public names that two modules share": shared_names(),
        "import cycles": import_cycles(),
    }
    print()
    for name, found in measures.items():
        print(f"{name:<60} {len(found):>6}")
        if names:
            print("".join(f"    {place}\n" for place in found), end="")


def print_words(names: bool) -> None:
    """Print how much there is to read."""
    print()
    for name, count in words().items():
        most = f" (at most {MOST_WORDS[name]:,})" if name in MOST_WORDS else ""
        if names or not name.endswith(".md"):
            print(f"{'words of ' + name:<46} {count:>7,}{most}")


def print_surface(names: bool) -> None:
    """Print what is measured of the estimators and the command."""
    print()
    for name, estimator in estimators().items():
        parameters = list(inspect.signature(estimator).parameters)
        text = inspect.getdoc(estimator) or ""
        print(f"{name:<28} {len(parameters):>3} parameters, docstring of {len(text.splitlines()):>4} lines "
              f"{count_words(text):>5} words (at most {MOST_WORDS['docstring']})")  # fmt: skip
        if names:
            print(f"    {', '.join(parameters)}")
    print()
    for name, call in FITS.items():
        found = trace(call)
        depth = f"{found['depth']} frames to {found['call']}" if "depth" in found else "no evidence evaluated in Python"
        print(f"{name:<28} {len(found['files']):>3} files, {depth}")
        if names:
            print("".join(f"    {file}\n" for file in found["files"]), end="")


def main() -> None:
    """Print the measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the places that are counted")
    arguments = parser.parse_args()
    print_source(arguments.names)
    print_words(arguments.names)
    print_surface(arguments.names)


if __name__ == "__main__":
    main()
