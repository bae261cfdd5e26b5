"""The reproduction: verdicts, data sets, the harness, and the sinc experiments of T00 and T01."""

import csv
import os
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from relvec import papers
from relvec.papers import (
    EXPERIMENTS,
    Context,
    Experiment,
    MissingData,
    Outcome,
    Published,
    Verdict,
    _data,
    _results,
    select,
)


def normal_draw(rng):
    return {"mean": rng.normal(), "constant": 3.0}


def warned_draw(rng):
    warnings.warn("not there yet", ConvergenceWarning, stacklevel=1)
    return normal_draw(rng)


def boston_run(context):
    return Outcome({"rows": len(context.data("boston")["y"])})


def broken_run(context):
    raise RuntimeError("a mistake")


def experiment(**changes):
    plain = Experiment("X-table-1", "a title", "X section 1", {"rows": Published("506", "table 1")}, boston_run)
    return replace(plain, **changes)


# Verdicts


@pytest.mark.parametrize(
    ("published", "ours", "verdict"),
    [
        (Published("9", ""), [9.0], Verdict.EQUAL),
        (Published("0.0070", ""), [0.00704], Verdict.EQUAL),
        (Published("0.0070", ""), [0.0086], Verdict.WORSE),
        (Published("0.0087", ""), [0.0086], Verdict.BETTER),
        (Published("0.9", "", best="high"), [0.8], Verdict.WORSE),
        (Published("0.9", "", best="high"), [0.97], Verdict.BETTER),
        (Published("0.189", "", best=0.2), [0.2], Verdict.BETTER),
        (Published("0.189", "", best=0.2), [0.3], Verdict.WORSE),
        (Published("3", "", draws=100), [1.0, 2.0, 3.0, 4.0], Verdict.WITHIN),
        (Published("4.5", ""), [1.0, 2.0, 3.0, 4.0], Verdict.SPREAD),
        (Published("4.5", "", draws=100), [1.0, 2.0, 3.0, 4.0], Verdict.BETTER),
        (Published("-9", ""), [1.0, 2.0, 3.0, 4.0], Verdict.WORSE),
    ],
)
def test_verdict(published, ours, verdict):
    assert published.verdict(np.array(ours)) is verdict


@pytest.mark.parametrize("draws", [1, 100])
def test_the_verdict_calls_equals_different_in_one_of_twenty_cases(draws):
    """Published means of K draws from our own distribution."""
    rng = np.random.default_rng(0)
    theirs, ours = rng.normal(size=(1000, draws)).mean(axis=1), rng.normal(size=(1000, 50))
    verdicts = [Published(f"{a:.6f}", "", draws=draws).verdict(b) for a, b in zip(theirs, ours, strict=True)]
    different = np.mean([v in (Verdict.BETTER, Verdict.WORSE) for v in verdicts])
    assert 0.03 < different < 0.07


# The harness


def test_draws_do_not_depend_on_their_number_or_on_the_cores():
    few, many = (Context("name", n).repeat(normal_draw)["mean"] for n in (3, 8))
    np.testing.assert_array_equal(few, many[:3])
    assert len(np.unique(many)) == 8
    np.testing.assert_array_equal(Context("name", 8, jobs=2).repeat(normal_draw)["mean"], many)
    assert not np.array_equal(Context("other", 3).repeat(normal_draw)["mean"], few)


def test_progress_is_reported():
    seen = []
    Context("name", 3, progress=lambda done, of: seen.append((done, of))).repeat(normal_draw)
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_fits_that_warn_are_counted():
    values = Context("name", 2).repeat(warned_draw)
    np.testing.assert_array_equal(values["share of draws with a warning"], [1.0, 1.0])
    assert "share of draws with a warning" not in Context("name", 2).repeat(normal_draw)


def test_a_failure_is_reported_and_the_rest_goes_on(tmp_path):
    results = [_results.run(experiment(run=broken_run)), _results.run(select(["T01-figure-1"])[0])]
    assert results[0].failed and results[0].problem == "RuntimeError: a mistake"
    text = _results.table(results)
    assert "failed: RuntimeError: a mistake" in text and "0.0070" in text
    _results.write_csv(results, tmp_path / "results.csv")
    with (tmp_path / "results.csv").open() as file:
        assert [row["verdict"] for row in csv.DictReader(file)] == ["failed", "equal", "worse"]


def test_numbers_are_shown_with_the_digits_their_error_leaves():
    values = {"a": [1.0, 2.0, 3.0, 4.0], "b": [1000.0, 3000.0], "c": 0.00861}
    published = {"a": Published("2", ""), "b": Published("2", ""), "c": Published("0.0070", "")}
    result = _results.Result(experiment(published=published), Outcome(values), 1.0)
    assert [row.ours_text() for row in result.rows()] == ["2.50 ± 0.65", "2000 ± 1000", "0.0086"]


# Data sets


@pytest.fixture
def offline(monkeypatch):
    def refuse(**options):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    monkeypatch.delenv("RELVEC_DATA", raising=False)


def test_a_missing_data_set_is_skipped_with_the_instruction(offline, tmp_path, monkeypatch, capsys):
    from relvec import cli

    monkeypatch.setattr(papers, "EXPERIMENTS", (experiment(data=("boston",)),))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "X-table-1", "--jobs", "1", "--no-plots"]) == 1  # nothing could be run
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "skipped: boston (Boston housing): neither --data-dir nor RELVEC_DATA names a folder" in out
    assert "boston.npz with the arrays X (506, 13), y (506,)" in out
    assert "relvec reproduce --data-dir FOLDER, or RELVEC_DATA=FOLDER" in out
    assert "OpenML's table 531" in out and "no number was measured" in out


def test_the_folder_is_the_argument_or_the_variable(offline, tmp_path, monkeypatch):
    with pytest.raises(MissingData, match="does not exist"):
        _data.load("ripley", tmp_path)
    np.savez(tmp_path / "boston.npz", X=np.zeros((506, 13)), y=np.zeros(506))
    assert _results.run(experiment(data=("boston",)), data_dir=tmp_path).rows()[0].verdict is Verdict.EQUAL
    monkeypatch.setenv("RELVEC_DATA", str(tmp_path))
    assert set(_data.load("boston")) == {"X", "y"}


def test_another_table_of_the_same_name_is_refused(offline, tmp_path):
    np.savez(tmp_path / "boston.npz", X=np.zeros((5, 13)), y=np.zeros(5))
    with pytest.raises(MissingData, match=r"is another table: it lacks X \(506, 13\), y \(506,\)"):
        _data.load("boston", tmp_path)


def test_openml_keeps_the_values_of_categories(monkeypatch):
    pd = pytest.importorskip("pandas")

    class Table:
        data = pd.DataFrame({f"x{i}": np.arange(506.0) for i in range(12)} | {"rad": pd.Categorical(["24"] * 506)})
        target = pd.Series(np.arange(506.0))

    monkeypatch.delenv("RELVEC_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", lambda **options: Table)
    arrays = _data.load("boston")
    assert arrays["X"].dtype == float and set(arrays["X"][:, 12]) == {24.0}


def test_data_sets_have_the_stated_shapes(data_dir):
    there = [name for name in _data.DATASETS if (data_dir / f"{name}.npz").is_file()]
    assert all(_data.load(name) for name in there)
    if not there:
        pytest.skip(f"no data set of relvec in {os.fspath(data_dir)}")


# The entries


def test_names_are_unique_and_begin_with_the_paper():
    names = [e.name for e in EXPERIMENTS]
    assert len(set(names)) == len(names)
    assert all(re.match(r"(T00|T01|TF03|RQ05|GRVM)-", name) for name in names)
    assert all(e.quick <= e.full and e.assumptions and set(e.data) <= set(_data.DATASETS) for e in EXPERIMENTS)
    assert [e.name for e in select(["t01-figure-1", "T00-figure-1"])] == [
        "T00-figure-1-left",
        "T00-figure-1-right",
        "T01-figure-1",
    ]
    assert select([]) == list(EXPERIMENTS)


@pytest.mark.parametrize("name", ["T00-figure-1-left", "T01-figure-1"])
def test_noise_free_sinc(name):
    result = _results.run(select([name])[0])
    vectors, error = result.rows()[:2]
    assert vectors.ours <= 10
    assert error.ours <= 0.0100


def rows_of(name, draws):
    result = _results.run(replace(select([name])[0], quick=draws))
    assert not result.problem
    return result, {row.quantity: row for row in result.rows()}


def test_noisy_sinc():
    _, rows = rows_of("T01-figure-2", 5)
    assert 5 <= rows["vectors"].ours <= 8
    assert rows["RMS deviation"].ours < 0.06
    assert 0.09 < rows["noise"].ours < 0.13  # the uniform noise has the standard deviation 0.115
    _, rows = rows_of("T00-figure-1-right", 5)
    assert rows["noise"].verdict is Verdict.SPREAD


def test_sinc_and_a_plane(tmp_path):
    result, rows = rows_of("T01-tables-1-2", 4)
    assert abs(rows["weight of x2"].ours - 0.1) < 0.005
    assert rows["functions"].ours < 11
    assert rows["RMS error"].ours < rows["RMS error, width 3"].ours
    names = sorted(path.name for path in _results.write_figures(result, tmp_path))
    assert names == ["T01-tables-1-2-draws.png", "T01-tables-1-2-surfaces.png"]


def test_learned_scales_of_sinc_and_a_plane():
    _, rows = rows_of("T01-tables-1-2-learned", 2)
    assert abs(rows["weight of x2"].ours - 0.1) < 0.005
    assert rows["eta_2 x 10^4"].ours < 0.1 * rows["eta_1 x 10^4"].ours
    assert rows["functions"].ours < 12
    assert 0.08 < rows["noise"].ours < 0.12


@pytest.mark.slow
def test_learned_scales_of_friedman(tmp_path):
    result, rows = rows_of("T01-table-4.4.1-friedman-1", 2)
    assert rows["error, learned"].ours < 0.3 * rows["error, one width"].ours
    assert rows["vectors, learned"].ours < 0.5 * rows["vectors, one width"].ours
    assert rows["relevance of x6 to x10 together"].ours < 0.05
    assert "T01-table-4.4.1-friedman-1-relevance.png" in {p.name for p in _results.write_figures(result, tmp_path)}


@pytest.mark.slow
def test_sinc_rows():
    _, rows = rows_of("T01-table-4.4.1-sinc", 5)
    for noise, error in (("Gaussian", 0.326), ("uniform", 0.187)):
        assert rows[f"vectors, {noise}"].ours < 8
        assert rows[f"error, {noise}"].ours < 1.3 * error


@pytest.mark.slow
@pytest.mark.parametrize("name", ["T00-figure-1-right", "T01-figure-2"])
def test_published_draws_are_likely_ones(name):
    _, rows = rows_of(name, 100)
    assert all(row.verdict is Verdict.SPREAD for row in rows.values() if row.published)
