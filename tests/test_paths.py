"""From a table to a decision in single commands: five tables, two of them messy. benchmarks/paths.py times them."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine, make_friedman1

import messy
from relvec.app import cli
from relvec.app.tables import as_table, evaluate_table, fit_table


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("paths"), np.random.default_rng(0)
    for name, data, target in (("diabetes", load_diabetes(), "progression"), ("cancer", load_breast_cancer(), "benign"),
                               ("wine", load_wine(), "cultivar")):  # fmt: skip
        (folder / f"{name}.csv").write_bytes(messy.plain(data, target, 120, rng))
    (folder / "houses.csv").write_bytes(messy.houses(120))
    (folder / "cars.csv").write_bytes(messy.cars(120))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(("name", "target"), [("diabetes", "progression"), ("cancer", "benign"), ("wine", "cultivar"),
                                              ("houses", "Price"), ("cars", "Preis")])  # fmt: skip
def test_every_step_is_one_command(tables, capsys, monkeypatch, name, target):
    monkeypatch.chdir(tables)

    def run(*arguments):
        assert cli.main(list(arguments)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    out = run("fit", f"{name}.csv", "--target", target, "-o", f"{name}.relvec")
    assert "scores on" in out and f"next:  relvec report {name}.relvec" in out
    scores = json.loads(run("evaluate", f"{name}.relvec", f"{name}.csv", "--json"))["scores"]
    first = scores["RMSE"] if "RMSE" in scores else scores["log loss"]
    assert first["value"] < first["baseline"]
    assert run("predict", f"{name}.relvec", f"{name}.csv").count("\n") >= 121
    run("report", f"{name}.relvec", f"{name}.csv", "-o", f"{name}.html")
    assert (tables / f"{name}.html").stat().st_size > 20_000
    run("fit", f"{name}.csv", "--target", target, "--model", "rvm", "--holdout", "0", "-o", "small.relvec")
    assert "written" in run("export", "small.relvec", "--c")
    assert (tables / "small.c").stat().st_size > 1000


@pytest.mark.slow
def test_an_irrelevant_category_of_many_levels_changes_little():
    """One column more makes twenty inputs more; neither the method nor the coverage may fall off a cliff."""
    X, y = make_friedman1(500, noise=1.0, random_state=0)
    table = {f"x{i}": X[:, i] for i in range(10)} | {"y": y}
    towns = {"town": [f"town {k}" for k in np.random.default_rng(0).integers(0, 24, 500)]}
    found = {}
    for name, columns in (("without", table), ("with", table | towns)):
        rows = as_table(columns)
        model = fit_table(rows.take(range(250)), "y").pipeline
        found[name] = {s.name: s.value for s in evaluate_table(model, rows.take(range(250, 500))).scores}
    assert found["with"]["RMSE"] < 1.05 * found["without"]["RMSE"]
    assert found["with"]["coverage"] > 0.85
