"""From a table to a decision in single commands: five tables, two of them messy. benchmarks/paths.py times them."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import messy
from relvec import cli


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
    assert "written" in run("export", f"{name}.relvec", "--c")
    assert (tables / f"{name}.c").stat().st_size > 1000
