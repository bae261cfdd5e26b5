"""The package as a whole: what importing it brings, its version, its type marker, the examples in its pages."""

import ast
import importlib.metadata
import importlib.resources
import json
import re
import runpy
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from relvec.app.cli.arguments import make_parser
from test_house import house

ROOT = Path(__file__).parents[1]
OPTIONAL = set(house.OPTIONAL)
OUTPUTS = runpy.run_path(str(ROOT / "tools" / "outputs.py"))
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def pages():
    """Return the pages that hold ```python blocks; a block marked otherwise is not run."""
    built = {"_build", "gen_modules", "auto_examples", "neighbours.md"}  # the last is that of test_neighbours.py
    written = (path for path in (ROOT / "docs").rglob("*.md") if not built & set(path.parts))
    return [path for path in (ROOT / "README.md", *sorted(written)) if FENCE.search(path.read_text())]


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_imports_where_no_optional_package_can_be_imported():
    code = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {OPTIONAL}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Missing())
import relvec
print("imported")
"""
    assert run(code) == "imported\n"


def test_import_brings_no_optional_package():
    """Other than those scikit-learn itself imports where they are installed."""
    loaded = "import json, sys, {}; print(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    ours, theirs = (set(json.loads(run(loaded.format(name)))) for name in ("relvec", "sklearn.utils"))
    assert not OPTIONAL & (ours - theirs)
    assert "matplotlib" not in ours


def test_import_adds_little_to_scikit_learn():
    """No large part of it."""
    code = "import sys, sklearn.base, relvec; print(*sys.modules)"
    parts = set(run(code).split())
    large = {
        "metrics",
        "preprocessing",
        "pipeline",
        "compose",
        "impute",
        "linear_model",
        "gaussian_process",
        "ensemble",
    }
    assert not {f"sklearn.{part}" for part in large} & parts


def test_import_loads_modules_on_first_use():
    code = """
import sys, relvec
print(len([name for name in sys.modules if name.split(".")[0] == "relvec"]))
print(*(name for name in ("numpy", "scipy", "sklearn") if name in sys.modules))
print(sorted(dir(relvec)) == sorted(relvec.__all__), relvec.plot.__name__, relvec.RVR.__name__)
"""
    assert run(code).splitlines() == ["2", "", "True relvec.plot RelevanceVectorRegressor"]


def test_every_public_name_exists():
    import relvec

    assert [name for name in relvec.__all__ if not hasattr(relvec, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'rvr'"):
        _ = relvec.rvr


def test_versions_are_shown(capsys):
    import relvec

    relvec.show_versions()
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["relvec"] == relvec.__version__
    assert re.fullmatch(r"compiled \(gaussian\..*(so|pyd)\)", shown["engine"])
    assert shown["numpy"] == importlib.metadata.version("numpy")


@pytest.mark.parametrize(
    ("extra", "package", "code"),
    [
        ("plot", "matplotlib", "from relvec.plot import new_figure; new_figure()"),
        ("onnx", "onnx", "relvec.to_onnx(model)"),
        ("onnx", "skl2onnx", "relvec.to_onnx(pipeline, [[1.0]])"),
    ],
)
def test_an_absent_extra_is_named(extra, package, code):
    before = f"""
import sys
sys.modules[{package!r}] = None  # as if it were not installed
import relvec
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
model = relvec.RVR(kernel=None, basis="linear")
pipeline = make_pipeline(StandardScaler(), model).fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
"""
    done = subprocess.run([sys.executable, "-c", before + code], capture_output=True, text=True)
    assert done.returncode and f"pip install 'relvec[{extra}]'" in done.stderr, done.stderr


def test_version_is_the_installed_one():
    import relvec

    assert relvec.__version__ == importlib.metadata.version("relvec")


def test_the_changelog_and_the_citation_have_the_version():
    import relvec

    first = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = (ROOT / "CITATION.cff").read_text()
    assert first is not None and relvec.__version__.startswith(first[1])
    assert f"version: {first[1]}\n" in cited and f'date-released: "{first[2]}"' in cited


def test_types_are_announced():
    assert importlib.resources.files("relvec").joinpath("py.typed").is_file()


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_in_the_pages_run(page, tmp_path, monkeypatch):
    """The blocks of one page run in order, in one namespace and in an empty folder."""
    monkeypatch.chdir(tmp_path)
    namespace: dict = {"__name__": "__main__"}
    for block in OUTPUTS["BLOCK"].finditer(page.read_text()):
        try:
            OUTPUTS["run_block"](block, namespace, str(page))
        except ModuleNotFoundError as error:
            if error.name and error.name.split(".")[0] in OPTIONAL:
                pytest.skip(f"{error.name} is not installed")
            raise
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


def numbers_and_words(text):
    """Return the numbers of a text, and the text without them."""
    number = r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
    return [float(found.replace(",", "")) for found in re.findall(number, text)], re.sub(number, "#", text).split()


@pytest.mark.slow
@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_print_what_they_say(page, tmp_path, monkeypatch):
    """Word by word, and number by number to a tenth: `python tools/outputs.py` writes what they print now."""
    monkeypatch.chdir(tmp_path)
    old = page.read_text()
    try:
        new = OUTPUTS["refreshed"](old)
    except ModuleNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    (claimed, words), (printed, now) = (numbers_and_words(OUTPUTS["timeless"](text)) for text in (old, new))
    assert now == words
    np.testing.assert_allclose(printed, claimed, rtol=0.1, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("plot_*.py")), ids=lambda script: script.stem)
def test_examples_of_the_gallery_run(script, tmp_path, monkeypatch):
    """With warnings as errors, and nothing left behind."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert plt.get_fignums(), "an example of the gallery has a picture"
    plt.close("all")
    assert list(tmp_path.iterdir()) == []


def markdown_tables(page):
    """Return the tables of a page, each as a dictionary from the first cell of a row to its cells by heading."""
    found, text = [], (ROOT / page).read_text()
    for lines in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        header, _, *rows = ([cell.strip() for cell in line.strip("|\n ").split("|")] for line in lines.splitlines())
        found.append({row[0]: dict(zip(header, row)) for row in rows})
    return found


@pytest.mark.parametrize("heading", ["table", "set"])
def test_the_numbers_of_the_readme_are_those_that_were_measured(heading):
    """Apart from the bold face of the best, which depends on the columns shown."""
    shown = [table for table in markdown_tables("README.md") if heading in next(iter(table.values()))]
    measured = markdown_tables("docs/measured.md")
    for name, cells in shown[0].items():
        rows = [table[name] for table in measured if name in table and cells.keys() <= table[name].keys()]
        plain = [{key: row[key].replace("*", "") for key in cells} for row in rows]
        assert {key: value.replace("*", "") for key, value in cells.items()} in plain, name


def test_the_project_is_described_by_one_line():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["description"]
    described = {name: (ROOT / name).read_text().split("\n\n")[1] for name in ("README.md", "docs/index.md")}
    described["relvec --help"] = make_parser().description
    assert {name: " ".join(text.split()) for name, text in described.items()} == dict.fromkeys(described, f"{project}.")


def test_the_calls_of_the_papers_run():
    page, names = (ROOT / "docs" / "guide" / "papers.md").read_text(), {}
    exec(FENCE.search(page)[1], names)
    calls = re.findall(r"\| `([^|]*)` \|$", page, re.MULTILINE)
    assert len(calls) > 30
    for call in calls:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # such as of TF03's own rule for stopping
            assert eval(call, names) is not None, call


@pytest.mark.slow
def test_the_commands_of_the_readme_run(capsys, monkeypatch, tmp_path):
    from relvec.app.cli import main

    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^relvec ([^#|\n]*)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [line.split()[0] for line in lines] == ["demo", "fit", "predict", "report"]
    for line in lines:
        assert main(line.split()) == 0 and capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_size > 100_000


@pytest.mark.slow
def test_the_gallery_finds_the_inputs_that_matter(capsys, monkeypatch, tmp_path):
    """What its text claims: five of Friedman's ten inputs are used."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(ROOT / "examples" / "plot_09_features.py"))
    plt.close("all")
    out = capsys.readouterr().out
    assert "relevant: ['x1', 'x2', 'x3', 'x4', 'x5']" in out and "needed: ['x1', 'x2', 'x3', 'x4', 'x5']" in out
    assert names["model"].score(names["X_new"], names["y_new"]) > names["simple"].score(names["X_new"], names["y_new"])


def refusals():
    """Yield the words of every TableError in the source, the longest piece of each message."""
    for path in sorted((ROOT / "src" / "relvec").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise) and "TableError(" in ast.unparse(node):
                words = [n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
                pieces = [piece.strip(" :;,'(") for word in words for piece in re.split("[;,]", word)]
                if pieces and len(longest := max(pieces, key=len)) > 8:
                    yield longest


def test_the_trouble_page_has_every_refusal_of_a_table():
    page = " ".join((ROOT / "docs" / "guide" / "trouble_tables.md").read_text().split())
    assert (found := list(refusals())) and [words for words in found if words not in page] == []


def test_the_trouble_page_and_the_report_have_every_status():
    from relvec.app.report import CURES
    from relvec.solvers import Status

    page = (ROOT / "docs" / "guide" / "trouble.md").read_text()
    assert [status.name for status in Status if f"`{status.name}`" not in page] == []
    warned = {status.name.lower() for status in Status if not status.success}
    assert warned - set(CURES) <= {"stopped"}  # which only an option asks for


def test_the_architecture_names_files_that_exist():
    """Full paths from the folders of the package, and names of files in the folder that a paragraph is about."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    names = set(re.findall(r"`([a-z_0-9/]+\.(?:py|h))`", page))
    files = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.*") if path.suffix in (".py", ".h")]
    assert len(names) > 50
    assert [name for name in sorted(names) if not any(f"/{file}".endswith("/" + name) for file in files)] == []
