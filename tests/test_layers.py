"""What may import what: the table below is the one of docs/architecture.md."""

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "relvec"

# A module may import from its own layer and from lower ones; a package stands for all its modules.
LAYERS = {
    "_version": 0, "_xp": 0, "_linalg": 0, "_distances": 0, "_threads": 0, "_memory": 0, "priors": 0, "progress": 0,
    "checkpoint": 0,
    "kernels": 1, "likelihoods": 1, "evidence": 1,
    "basis": 2, "_content": 2, "posterior": 2, "laplace": 2,
    "design": 3,
    "solvers": 4, "predictive": 4,
    "targets": 5, "tied": 5, "tune": 5, "decisions": 5, "process": 5, "centres": 5, "grvm": 5, "grvm_widths": 5,
    "_units": 6, "_warm_start": 6, "_outcome": 6, "_callbacks": 6, "_dictionary": 6, "_gaussian_fit": 6,
    "_laplace_fit": 6, "_base": 6, "_streaming": 6, "_on_disk": 6, "_predictions": 6, "_distributed": 6,
    "_distributed_classes": 6, "_subsets": 6, "_regressor": 6, "_classifier": 6,
    "__init__": 7, "persistence": 7, "onnx": 7, "_skl2onnx": 7, "c99": 7, "_c99_steps": 7,
    "plot": 7, "report": 7, "papers": 7, "cli": 7, "__main__": 8,
    "tables": 7, "columns": 7, "pipelines": 7, "evaluation": 7, "importance": 7, "commands": 7,
    "_console": 7, "_html": 7, "selection": 7,
}  # fmt: skip
SKLEARN_FROM = 6
REQUIRED = {"numpy", "scipy", "threadpoolctl", "joblib"}  # the last two come with scikit-learn
ONLY_IN = {"dask": "design._dask", "distributed": "design._dask", "array_api_compat": "_xp"}
OPTIONAL = set("matplotlib pandas pyarrow dask distributed torch cupy onnx onnxruntime skl2onnx rich".split())


def module_names(root: Path) -> dict[str, Path]:
    """Return the file of each module, named as seen from the package: "kernels", "design._dask", "__init__"."""
    names = {}
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.pyi")]):  # a compiled module has its stub
        parts = path.relative_to(root).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return names


def imports(node: ast.AST, top: bool = True) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield each import statement and whether importing the module runs it; blocks under TYPE_CHECKING never run."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, top
        yield from imports(child, top and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def targets(statement: ast.Import | ast.ImportFrom, name: str, names: dict[str, Path]) -> Iterator[tuple[str, bool]]:
    """Yield (module, inside relvec) for each module the statement in module `name` imports."""
    if isinstance(statement, ast.Import):
        full = [alias.name for alias in statement.names]
    else:
        here = ["relvec", *(() if name == "__init__" else name.split("."))]
        package = here if names[name].name == "__init__.py" else here[:-1]
        base = package[: len(package) + 1 - statement.level] if statement.level else []
        stem = ".".join([*base, *([statement.module] if statement.module else [])])
        full = [f"{stem}.{alias.name}" if inner(f"{stem}.{alias.name}") in names else stem for alias in statement.names]
    for module in full:
        yield (inner(module), True) if module.split(".")[0] == "relvec" else (module.split(".")[0], False)


def inner(module: str) -> str:
    """Return the name inside the package of an absolute module name."""
    return "__init__" if module == "relvec" else module.removeprefix("relvec.")


def problems(root: Path) -> list[str]:
    """Return one sentence per broken rule."""
    names = module_names(root)
    unknown = [name for name in names if name.split(".")[0] not in LAYERS]
    found = [f"{name}: not in the table of layers; add it to LAYERS and to docs/architecture.md" for name in unknown]
    graph: dict[str, set[str]] = {name: set() for name in names}
    for name in sorted(set(names) - set(unknown)):
        for statement, top in imports(ast.parse(names[name].read_text())):
            for target, inside in targets(statement, name, names):
                if top and inside and target != name:
                    graph[name].add(target)
                check = broken_inside if inside else broken_outside
                if reason := check(name, target, top):
                    found.append(f"{name}:{statement.lineno}: imports {target}, {reason}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"import cycle: {' -> '.join(error.args[1])}")
    return found


def broken_inside(name: str, target: str, top: bool) -> str | None:
    own, other = name.split(".")[0], target.split(".")[0]
    if other not in LAYERS:
        return "which is not in the table of layers"
    if LAYERS[other] > LAYERS[own]:
        return f"layer {LAYERS[other]}, from layer {LAYERS[own]}"
    if other == "design" != own and target not in ("design", "design._base"):
        return "one kind of design; outside design/ only the abstract Design and the dispatch are seen"
    return None


def broken_outside(name: str, target: str, top: bool) -> str | None:
    if target in sys.stdlib_module_names or target in REQUIRED:
        return None
    if target in ONLY_IN and name != ONLY_IN[target]:
        return f"which belongs in {ONLY_IN[target]} only"
    if target == "sklearn":
        return None if LAYERS[name.split(".")[0]] >= SKLEARN_FROM else f"allowed from layer {SKLEARN_FROM} up"
    if target in OPTIONAL:
        return "an optional package, at module level; import it inside the function that needs it" if top else None
    return None if target in ONLY_IN else "which is no dependency of relvec"


def test_the_package_keeps_to_its_layers():
    assert not (found := problems(SRC)), "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"surprise.py": ""}, "surprise: not in the table"),
        ({"kernels.py": "from .basis import Bias", "basis.py": ""}, "kernels:1: imports basis, layer 2, from layer 1"),
        ({"kernels.py": "def f():\n    from relvec import basis", "basis.py": ""}, "kernels:2: imports basis"),
        ({"tune.py": "from sklearn.base import clone"}, "allowed from layer 6"),
        ({"plot.py": "import matplotlib.pyplot as plt"}, "an optional package, at module level"),
        ({"cli.py": "try:\n    import rich\nexcept ImportError:\n    pass"}, "an optional package, at module level"),
        ({"papers/t01.py": "def f():\n    import dask.array"}, "belongs in design._dask only"),
        ({"evidence.py": "import requests"}, "no dependency"),
        ({"solvers/_a.py": "from ..design._blocks import Blocks", "design/_blocks.py": ""}, "only the abstract Design"),
        ({"solvers/_a.py": "from . import _b", "solvers/_b.py": "from ._a import x"}, "import cycle"),
        ({"evidence.py": "from .missing import x"}, "not in the table of layers"),
    ],
)
def test_a_broken_rule_is_found(tmp_path, files, message):
    write(tmp_path, files)
    assert any(message in found for found in problems(tmp_path)), problems(tmp_path)


def test_what_is_allowed_passes(tmp_path):
    write(
        tmp_path,
        {
            "__init__.py": "from . import kernels, solvers\nfrom ._regressor import RVR",
            "kernels.py": "import math\nimport numpy as np\nfrom ._xp import xp",
            "_xp.py": "try:\n    import array_api_compat\nexcept ImportError:\n    pass",
            "design/__init__.py": "from ._base import Design",
            "design/_base.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from relvec.solvers import S",
            "design/_dask.py": "def f():\n    import dask.array as da",
            "solvers/__init__.py": "from ._a import A\nfrom ..design import Design",
            "solvers/_a.py": "from ..design._base import Design\nfrom relvec.kernels import K",
            "_regressor.py": "from sklearn.base import BaseEstimator\nfrom .solvers import A",
            "cli.py": "from relvec import RVR\ndef main():\n    import rich",
        },
    )
    assert problems(tmp_path) == []


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
