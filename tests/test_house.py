"""The structure of the package: who may import whom, and the limits of tools/house.py."""

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)

# A folder may import from those before it, and from itself; the same table stands in docs/architecture.md.
ORDER = ["_version", "runtime", "kernels", "basis", "inference", "design", "solvers", "hyperparameters",
         "gaussian_process", "estimators", "export", "plot", "relvec", "app",
         "app.tables", "app.report", "app.cli", "__main__"]  # fmt: skip
SKLEARN_FROM = "estimators"
# Folders whose other modules are their own business: from outside, only these are imported.
FRONTS = {"design": {"relvec.design", "relvec.design.base"}}
REQUIRED = {"numpy", "scipy", "threadpoolctl"}
OPTIONAL_ONLY_IN = {"dask": "relvec.design.dask", "distributed": "relvec.design.dask",
                    "array_api_compat": "relvec.runtime.arrays"}  # fmt: skip


CYCLE = "import relvec.design.a"


def folder(module):
    parts = module.split(".")
    return ".".join(parts[1 : 3 if parts[1:2] == ["app"] else 2]) or "relvec"


def broken_imports(src):
    """Return one sentence for each import that the order of the folders does not allow."""
    found = []
    for module, targets in house.import_graph(src).items():
        own = folder(module)
        if own not in ORDER:
            found.append(f"{module}: the folder {own} is not in ORDER")
            continue
        for target in sorted(targets):
            other = folder(target)
            if other not in ORDER or ORDER.index(other) > ORDER.index(own):
                found.append(f"{module} imports {target}, which comes later")
            elif other != own and target not in FRONTS.get(other, {target}):
                found.append(f"{module} imports {target} past the front of {other}/")
    return found


def outside_imports(src):
    """Yield (module, package, whether importing the module loads it) for each import from outside relvec."""
    for module, path in house.modules(src).items():
        tree = ast.parse(path.read_text())
        inside = {id(n) for f in ast.walk(tree) if isinstance(f, house.Function) for n in ast.walk(f) if n is not f}
        for statement in house._imports(tree):
            names = [a.name for a in statement.names] if isinstance(statement, ast.Import) else [statement.module or ""]
            for package in {name.split(".")[0] for name in names}:
                if package not in sys.stdlib_module_names and package not in ("relvec", ""):
                    yield module, package, id(statement) not in inside


def broken_packages(src):
    """Return one sentence for each package that is imported where it should not be."""
    found = []
    for module, package, at_once in outside_imports(src):
        home = OPTIONAL_ONLY_IN.get(package)
        if package == "sklearn":
            if ORDER.index(folder(module)) < ORDER.index(SKLEARN_FROM):
                found.append(f"{module} imports sklearn, below {SKLEARN_FROM}/")
        elif home is not None:
            if not module.startswith(home):
                found.append(f"{module} imports {package}, which belongs in {home}")
        elif package in house.OPTIONAL:
            if at_once:
                found.append(f"{module} imports {package} at module level, an optional package")
        elif package not in REQUIRED:
            found.append(f"{module} imports {package}, which is no dependency")
    return found


def test_folders_import_only_from_those_before_them():
    assert not (found := broken_imports(house.SRC)), "\n" + "\n".join(found)


def test_packages_are_imported_where_they_belong():
    assert not (found := broken_packages(house.SRC)), "\n" + "\n".join(found)


@pytest.mark.parametrize("name", house.LIMITS)
def test_limits(name, measures):
    found = measures[name]
    count = found if isinstance(found, int) else len(found)
    places = "" if isinstance(found, int) else "\n" + "\n".join(found)
    assert count <= house.LIMITS[name], f"{name}: {count} is more than {house.LIMITS[name]}{places}"


@pytest.fixture(scope="module")
def measures():
    return house.measure()


def write(root, files):
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for directory in {root, *(path.parent for path in root.rglob("*.py"))}:
        (directory / "__init__.py").touch()
    return root


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"surprise/a.py": ""}, "not in ORDER"),
        ({"kernels/a.py": "from relvec.basis import b", "basis/b.py": ""}, "comes later"),
        ({"kernels/a.py": "def f():\n    from relvec import basis", "basis/b.py": ""}, "comes later"),
        ({"solvers/a.py": "from relvec.design.dense import D", "design/dense.py": ""}, "past the front"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, files, message):
    assert any(message in found for found in broken_imports(write(tmp_path, files)))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"solvers/a.py": "from sklearn.base import clone"}, "below estimators"),
        ({"plot/a.py": "import matplotlib.pyplot as plt"}, "at module level"),
        ({"app/cli/a.py": "try:\n    import rich\nexcept ImportError:\n    pass"}, "at module level"),
        ({"estimators/a.py": "def f():\n    import dask.array"}, "belongs in relvec.design.dask"),
        ({"inference/a.py": "import requests"}, "no dependency"),
    ],
)
def test_a_wrong_package_is_found(tmp_path, files, message):
    assert any(message in found for found in broken_packages(write(tmp_path, files)))


@pytest.mark.parametrize(
    ("count", "files"),
    [
        ("functions_with_estimators", {"export/a.py": "def f(estimator): ..."}),
        ("functions_with_estimators", {"export/a.py": "def f(model):\n    return model._models"}),
        ("functions_with_estimators", {"export/a.py": "def f(m: Any):\n    m.x_ = 1"}),
        ("functions_with_estimators", {"export/a.py": "def f(m: RelevanceVectorRegressor | None): ..."}),
        ("design_checks", {"solvers/a.py": "isinstance(d, (DenseDesign, int))"}),
        ("refused_overrides", {"design/a.py": "class A(B):\n    def f(self):\n        raise NotImplementedError('x')"}),
        ("import_cycles", {"design/a.py": "def f():\n    from relvec.design import b", "design/b.py": CYCLE}),
        ("large_folders", {f"design/m{i}.py": "" for i in range(14)}),
    ],
)  # fmt: skip
def test_what_is_counted_is_found(tmp_path, count, files):
    assert len(getattr(house, count)(write(tmp_path, files))) == 1


def test_what_is_allowed_is_not_counted(tmp_path):
    root = write(
        tmp_path,
        {
            "estimators/a.py": "def f(estimator):\n    return estimator._x",
            "export/a.py": "def save(model):\n    return model.predict",
            "solvers/a.py": "isinstance(d, (int, Sequential))",
            "design/a.py": "class A(ABC):\n    @abstractmethod\n    def f(self):\n        raise NotImplementedError",
            "design/b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from relvec.solvers import a",
        },
    )
    counts = (house.functions_with_estimators, house.design_checks, house.refused_overrides, house.import_cycles)
    assert [count(root) for count in counts] == [[], [], [], []]
    assert broken_imports(root) == [] == broken_packages(root)
