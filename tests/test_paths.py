"""From a table to a decision in single commands: five tables, two of them messy."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

import messy
from relvec import cli


def write(path, data, target, rows, rng):
    """Write some rows of a data set of scikit-learn as CSV."""
    chosen = rng.permutation(len(data.data))[:rows]
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    lines = [",".join([*names, target])]
    lines += [",".join([*(f"{v:.6g}" for v in data.data[i]), str(data.target[i])]) for i in chosen]
    path.write_text("\n".join(lines) + "\n")


def cars(path, rng):
    """Write a table as people keep them: semicolons, decimal commas, units, mixed dates, gaps and a stray word."""
    lines = ["Nr;Erstzulassung;Leistung;Kilometer;Kraftstoff;Preis"]
    for i in range(120):
        year, power, km = rng.integers(2008, 2024), rng.choice([75, 90, 110, 150]), rng.integers(5, 200) * 1000
        price = 30000 * np.exp(-0.09 * (2024 - year)) * (power / 110) ** 0.7 * np.exp(0.05 * rng.normal())
        day = f"{year}-03-1{i % 9}" if i % 6 == 0 else f"1{i % 9}.04.{year}"
        cell = "unbekannt" if i in (5, 50) else f"{power} PS"
        row = [f"A{i}", day, cell, "" if i % 15 == 2 else str(km), rng.choice(["Benzin", "Diesel"]), f"{price:.2f}"]
        lines.append(";".join([*row[:-1], row[-1].replace(".", ",")]))
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("paths"), np.random.default_rng(0)
    write(folder / "diabetes.csv", load_diabetes(), "progression", 120, rng)
    write(folder / "cancer.csv", load_breast_cancer(), "benign", 120, rng)
    write(folder / "wine.csv", load_wine(), "cultivar", 120, rng)
    (folder / "houses.csv").write_bytes(messy.houses(120))
    cars(folder / "cars.csv", rng)
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
