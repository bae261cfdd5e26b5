"""Measure the structure of the package, and compare it with the limits in `LIMITS`.

    python tools/house.py          print every measure with its limit, and the modules and lines of each folder
    python tools/house.py --names  also print where each count that has a limit comes from

`tests/test_house.py` holds the limits.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "relvec"

LIMITS = {
    "lines of Python": 37_590,
    "functions outside estimators/ that take an estimator": 0,
    "isinstance checks on designs in solvers/": 0,
    "overriding methods that raise NotImplementedError": 0,
    "import cycles, imports inside functions counted": 0,
    "folders of more than 14 modules": 0,
    "files that RVR(width=1).fit runs through": 26,
    "frames from fit to the first move": 8,
    "relvec modules loaded by import relvec": 45,
    "optional packages loaded by import relvec": 0,
}
MAX_MODULES_IN_A_FOLDER = 14
ESTIMATORS = {"RelevanceVectorRegressor", "RelevanceVectorClassifier", "BaseRelevanceVector", "RVR", "RVC"}
DESIGNS = ("Design", "Samples", "Rows", "DistributedKernelBasis", "RowKernel")
OPTIONAL = ("matplotlib", "pandas", "pyarrow", "dask", "distributed", "torch", "cupy", "onnx", "onnxruntime",
            "skl2onnx", "rich", "h5py", "zarr", "shapiq", "openpyxl")  # fmt: skip

Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules(src: Path = SRC) -> dict[str, Path]:
    """Return the file of each module by its full name."""
    found = {}
    for path in sorted(src.rglob("*.py")):
        parts = ("relvec", *path.relative_to(src).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def folders(src: Path = SRC) -> dict[str, tuple[int, int]]:
    """Return the number of modules and of lines in each folder, its subfolders not counted."""
    found: dict[str, tuple[int, int]] = {}
    for path in sorted(src.rglob("*.py")):
        name = str(path.parent.relative_to(src.parent))
        count, lines = found.get(name, (0, 0))
        found[name] = count + 1, lines + len(path.read_text().splitlines())
    return found


def functions(path: Path) -> Iterator[Function]:
    """Yield every function and method of a module."""
    yield from (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, Function))


def functions_with_estimators(src: Path = SRC) -> list[str]:
    """Return the functions outside estimators/ that take an estimator.

    A parameter is one if it is called ``estimator``, is annotated with an estimator class, or is annotated with
    nothing or `Any` while the function reads its private attributes or writes its attributes.
    """
    found = []
    for path in sorted(src.rglob("*.py")):
        if path.relative_to(src).parts[0] == "estimators":
            continue
        for function in functions(path):
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            for a in arguments:
                if a.arg not in ("self", "cls") and _is_estimator(a, function):
                    found.append(f"{path.relative_to(src)}:{function.lineno} {function.name}({a.arg})")
    return found


def _is_estimator(argument: ast.arg, function: Function) -> bool:
    annotation = "" if argument.annotation is None else ast.unparse(argument.annotation)
    if argument.arg == "estimator" or ESTIMATORS & set(annotation.replace("|", " ").replace("'", " ").split()):
        return True
    if annotation not in ("", "Any"):
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == argument.arg:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            if private or isinstance(node.ctx, ast.Store | ast.Del):
                return True
    return False


def design_checks(src: Path = SRC) -> list[str]:
    """Return the isinstance checks in solvers/ that ask what kind of design or samples something is."""
    found = []
    for path in sorted((src / "solvers").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                kinds = (
                    ast.unparse(node.args[1]).replace("(", " ").replace(")", " ").replace("|", " ").replace(",", " ")
                )
                if any(kind.endswith(DESIGNS) for kind in kinds.split()):
                    found.append(f"{path.relative_to(src)}:{node.lineno} {ast.unparse(node)}")
    return found


def refused_overrides(src: Path = SRC) -> list[str]:
    """Return the methods of classes with a base class, other than abstract ones, that raise NotImplementedError."""
    found = []
    for path in sorted(src.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef) or not set(map(ast.unparse, node.bases)) - {"ABC", "Protocol"}:
                continue
            for method in (m for m in node.body if isinstance(m, Function)):
                raised = {
                    ast.unparse(r.exc).split("(")[0] for r in ast.walk(method) if isinstance(r, ast.Raise) and r.exc
                }
                abstract = any("abstract" in ast.unparse(d) for d in method.decorator_list)
                if "NotImplementedError" in raised and not abstract:
                    found.append(f"{path.relative_to(src)}:{method.lineno} {node.name}.{method.name}")
    return found


def import_graph(src: Path = SRC) -> dict[str, set[str]]:
    """Return the relvec modules that each module imports, inside functions too; TYPE_CHECKING blocks do not count."""
    names = modules(src)
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name, path in names.items():
        for statement in _imports(ast.parse(path.read_text())):
            graph[name] |= set(_targets(statement, name, path, names)) - {name}
    return graph


def _imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from _imports(child)


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


def large_folders(src: Path = SRC) -> list[str]:
    """Return the folders of too many modules; ``__init__.py`` counts."""
    return [f"{name}: {n}" for name, (n, _) in folders(src).items() if n > MAX_MODULES_IN_A_FOLDER]


_TRACE = """
import json, sys
from pathlib import Path
import numpy as np
import relvec
from relvec import RVR
root = str(Path(relvec.__file__).parent)
files, state = set(), {"chain": None}
def profile(frame, event, argument):
    name = frame.f_code.co_filename
    if event != "call" or not name.startswith(root) or frame.f_code.co_name == "<module>":
        return
    files.add(name[len(root) + 1:])
    caller = frame.f_back.f_code.co_name
    if state["chain"] is None and caller == "step" and "Model." in frame.f_code.co_qualname:
        chain, at = [], frame
        while at is not None:
            if at.f_code.co_filename.startswith(root):
                chain.append(at.f_code.co_qualname)
            at = at.f_back
        state["chain"] = chain[::-1]
X = np.linspace(-3.0, 3.0, 60)[:, None]
y = np.sin(2.0 * X[:, 0]) + np.random.default_rng(0).normal(0.0, 0.1, 60)
sys.setprofile(profile)
RVR(width=1.0).fit(X, y)
sys.setprofile(None)
print(json.dumps({"files": sorted(files), "chain": state["chain"]}))
"""
# scikit-learn loads pandas by itself where that is installed, and pandas loads pyarrow.
_LOADED = """
import json, sys
import scipy.linalg, sklearn.utils.validation
before = set(sys.modules)
import relvec
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def _run(script: str) -> object:
    environment = {**os.environ, "PYTHONPATH": str(SRC.parent)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def trace_fit() -> tuple[list[str], list[str]]:
    """Return the files that ``RVR(width=1).fit`` runs through, and the frames from `fit` to the first move.

    The first move is the first method of a model that the solver's ``step`` calls; both ends are counted.
    """
    found: dict = _run(_TRACE)  # type: ignore[assignment]
    return found["files"], found["chain"]


def loaded_modules() -> list[str]:
    """Return the names of the modules that ``import relvec`` loads, beyond those that scikit-learn loads itself."""
    return list(_run(_LOADED))  # type: ignore[call-overload]


def measure() -> dict[str, list[str] | int]:
    """Return every measure of `LIMITS`: a number, or the list of places that it counts."""
    files, chain = trace_fit()
    loaded = loaded_modules()
    return {
        "lines of Python": sum(lines for _, lines in folders().values()),
        "functions outside estimators/ that take an estimator": functions_with_estimators(),
        "isinstance checks on designs in solvers/": design_checks(),
        "overriding methods that raise NotImplementedError": refused_overrides(),
        "import cycles, imports inside functions counted": import_cycles(),
        "folders of more than 14 modules": large_folders(),
        "files that RVR(width=1).fit runs through": files,
        "frames from fit to the first move": chain,
        "relvec modules loaded by import relvec": [name for name in loaded if name.split(".")[0] == "relvec"],
        "optional packages loaded by import relvec": [name for name in OPTIONAL if name in loaded],
    }


def main() -> int:
    """Print the measures; 1 where one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the places that are counted")
    arguments = parser.parse_args()
    for name, (count, lines) in folders().items():
        print(f"{name:<36} {count:>4} modules {lines:>7} lines")
    above = Counter[bool]()
    for name, found in measure().items():
        count = found if isinstance(found, int) else len(found)
        above[count > LIMITS[name]] += 1
        print(f"{name:<56} {count:>7} (at most {LIMITS[name]})")
        if arguments.names and not isinstance(found, int):
            print("".join(f"    {place}\n" for place in found), end="")
    return int(above[True] > 0)


if __name__ == "__main__":
    sys.exit(main())
