"""The examples with other packages (docs/guide/neighbours.md): each runs where its package is installed."""

import ast
import os
import re
import warnings
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "guide" / "neighbours.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
HERE = {"numpy", "sklearn", "relvec"}


def packages(code):
    """Return the packages that an example imports, besides our own requirements."""
    tree = ast.walk(ast.parse(code))
    names = [n.module if isinstance(n, ast.ImportFrom) else n.names[0].name for n in tree
             if isinstance(n, ast.Import | ast.ImportFrom)]  # fmt: skip
    return sorted({name.split(".")[0] for name in names} - HERE)


def test_every_neighbour_has_an_example():
    found = {name for code in EXAMPLES for name in packages(code)}
    assert found >= {"mapie", "optuna", "shap", "shapiq", "skforecast", "skrub"}


@pytest.mark.parametrize("code", [
    pytest.param(code, id="-".join(packages(code)) or "sklearn", marks=[pytest.mark.slow] if packages(code) else [])
    for code in EXAMPLES
])  # fmt: skip
def test_examples_with_other_packages_run(code, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(os.environ, "MPLBACKEND", "Agg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        for name in packages(code):
            pytest.importorskip(name, reason=f"{name} is not installed")
        exec(compile(code, "neighbours.md", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out
