"""The structure of the package: who may import whom, what is documented, and what tools/house.py counts."""

import ast
import importlib.util
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import relvec

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("house", ROOT / "tools" / "house.py")
house = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(house)

# A folder may import from those before it, and from itself; the same table stands in docs/architecture.md.
ORDER = ["_version", "runtime", "kernels", "basis", "inference", "design", "solvers", "hyperparameters",
         "gaussian_process", "sparse", "estimators", "export", "plot", "relvec", "app",
         "app.tables", "app.report", "app.cli", "__main__"]  # fmt: skip
SKLEARN_FROM = "estimators"
# What kernels and basis pass on to other modules of the package: on their pages, of no use to a reader of these.
HELPERS = {"kernels.as_rows", "kernels.check_values", "kernels.split_theta",
           "basis.content_ranks", "basis.even_draw", "basis.kernels_of"}  # fmt: skip
# Folders whose other modules are their own business: from outside, only these are imported.
FRONTS = {"design": {"relvec.design", "relvec.design.base"}}
REQUIRED = {"numpy", "scipy", "threadpoolctl"}
OPTIONAL_ONLY_IN = {"dask": "relvec.design.dask", "distributed": "relvec.design.dask",
                    "array_api_compat": "relvec.runtime.arrays"}  # fmt: skip


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
        for statement in house.imports(tree):
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


def test_no_modules_import_each_other():
    assert house.import_cycles() == []


def test_everything_public_is_documented():
    page = (ROOT / "docs" / "api.md").read_text()
    names = [name for name in relvec.__all__ if name not in ("RVC", "RVR", "__version__")]
    assert [name for name in names if not re.search(rf"^   {name}$", page, re.MULTILINE)] == []
    found = {name: getattr(relvec, name) for name in names}
    for name, value in list(found.items()):
        if inspect.isclass(value):
            members = inspect.getmembers(value, lambda m: inspect.isfunction(m) or isinstance(m, property))
            found |= {f"{name}.{own}": member for own, member in members if not own.startswith("_")}
    assert [name for name, value in found.items() if not inspect.getdoc(value)] == []


def public_names():
    """Return what the page of the API lists by name: of a module, what is in its ``__all__``."""
    page = (ROOT / "docs" / "api.md").read_text()
    names = re.findall(r"^   ([\w.]+)$", page, re.MULTILINE)
    found = {name: pkgutil.resolve_name(f"relvec.{name}") for name in names}
    for module in [name for name, value in found.items() if inspect.ismodule(value)]:
        values = vars(found[module])
        found |= {f"{module}.{own}": values[own] for own in values["__all__"]}
    return found


def test_every_public_name_has_an_example():
    documented = {name: v for name, v in public_names().items() if inspect.isclass(v) or inspect.isfunction(v)}
    without = {name for name, value in documented.items() if ">>>" not in (value.__doc__ or "")}
    assert len(documented) > 100
    assert without == HELPERS


def test_there_is_no_more_to_read_than_promised():
    found = house.words() | {name: house.count_words(value.__doc__) for name, value in house.estimators().items()}
    most = {
        name: house.MOST_WORDS.get(name, house.MOST_WORDS["docstring"]) for name in found if not name.endswith(".md")
    }
    most["all pages"] = sum(found.values())  # pages beside the guide may be long
    assert {name: found[name] for name in most if found[name] > most[name]} == {}


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
        ({"app/cli/a.py": "try:\n    import tqdm\nexcept ImportError:\n    pass"}, "at module level"),
        ({"estimators/a.py": "def f():\n    import dask.array"}, "belongs in relvec.design.dask"),
        ({"inference/a.py": "import requests"}, "no dependency"),
    ],
)
def test_a_wrong_package_is_found(tmp_path, files, message):
    assert any(message in found for found in broken_packages(write(tmp_path, files)))


def test_modules_that_import_each_other_are_found(tmp_path):
    files = {"design/a.py": "def f():\n    from relvec.design import b", "design/b.py": "import relvec.design.a"}
    (found,) = house.import_cycles(write(tmp_path, files))
    assert found.count("relvec.design.") == 3


def test_imports_for_type_checkers_are_free(tmp_path):
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from relvec.solvers import a"
    root = write(tmp_path, {"solvers/a.py": "import relvec.design", "design/b.py": lazy})
    assert house.import_cycles(root) == [] == broken_imports(root)


COUNTED = {
    "a/one.py": '''"""A docstring
of two lines."""

LIMIT, _RATES = 2.0 * 3, (0.1, 0.2)  # two constants
NAME, FLAG = "x", True


@dataclass
class Settings:
    tol: float = 1e-3
    name: str = "x"


def f(x: Any) -> Any:
    """Say nothing."""
    if hasattr(x, "a") and x:
        return [y for y in x if y]
    return (
        x)
''',
    "b/two.py": "def f(): ...\ndef _g(): ...",
    "b/three.py": "def _g(): ...",
}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        ("constants", ["a/one.py:4 LIMIT", "a/one.py:4 _RATES"]),
        ("numeric_defaults", ["a/one.py:10 Settings.tol"]),
        ("uses_of_any", ["a/one.py:14", "a/one.py:14"]),
        ("calls_of_hasattr", ["a/one.py:16"]),
        ("shared_names", ["f: a.one, b.two"]),
        ("native_lines", {"n/x.h": 1, "n/x.pyx": 2}),
    ],
)
def test_what_is_counted(tmp_path, count, expected):
    root = write(tmp_path, COUNTED)
    (root / "n").mkdir()
    for name, text in (("x.pyx", "a\nb\n"), ("x.c", "generated"), ("x.h", "c\n")):
        (root / "n" / name).write_text(text)
    assert getattr(house, count)(root) == expected


def test_lines_of_code_are_those_without_docstrings_comments_and_blanks():
    assert house.code_lines(COUNTED["a/one.py"]) == 11


def test_paths_through_a_function():
    (function,) = (n for n in ast.parse(COUNTED["a/one.py"]).body if isinstance(n, ast.FunctionDef))
    assert house.complexity(function) == 5  # itself, `if`, `and`, `for`, the `if` in the list


def test_a_fit_is_traced():
    found = house.trace("relvec.RVR(width=1.0).fit(X, y)")
    assert {"estimators/base.py", "solvers/sequential.py"} < set(found["files"])
    assert 3 < found["depth"] < 30 and found["call"]
