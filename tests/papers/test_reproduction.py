"""The reproduction: verdicts, data sets, the harness, and the sinc experiments of T00 and T01."""

import csv
import json
import os
import re
import runpy
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import reproduction as papers
from reproduction import (
    EXPERIMENTS,
    Context,
    Experiment,
    MissingData,
    Outcome,
    Published,
    Verdict,
    _classes,
    _command,
    _data,
    _digits,
    _experiment,
    _page,
    _regression,
    _results,
    _svm,
    select,
    tf03,
)
from reproduction._store import Part, Store


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
        (Published("4.5", "", draws=100), [1.0, 2.0, 3.0, 4.0], Verdict.WITHIN),  # t of three degrees is 3.3
        (Published("4.8", "", draws=100), [1.0, 2.0, 3.0, 4.0], Verdict.BETTER),
        (Published("8", "", draws=100), [1.0, 2.0], Verdict.WITHIN),
        (Published("-9", ""), [1.0, 2.0, 3.0, 4.0], Verdict.WORSE),
        (Published("19.6", "", cases=332), [21.4], Verdict.WITHIN),  # two binomial errors are 4.4
        (Published("19.6", "", cases=332), [24.5], Verdict.WORSE),
        (Published("19.6", "", cases=332), [15.0], Verdict.BETTER),
        (Published("19.6", ""), [21.4], Verdict.WORSE),
        (Published("65", "", cases=332, whole=332.0), [79.0], Verdict.WITHIN),  # two binomial errors are 14.5
        (Published("65", "", cases=332, whole=332.0), [80.0], Verdict.WORSE),
        (Published("257", "", timing=True), [300.0], Verdict.TIMING),
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


def test_the_verdict_knows_that_published_numbers_are_rounded():
    """Means of 100 draws whose standard error is as large as the rounding's."""
    rng = np.random.default_rng(1)
    theirs, ours = rng.normal(0.0, 3.0, (1000, 100)).mean(axis=1), rng.normal(0.0, 3.0, (1000, 100))
    verdicts = [Published(f"{a:.0f}", "", draws=100).verdict(b) for a, b in zip(theirs, ours, strict=True)]
    assert np.mean([v in (Verdict.BETTER, Verdict.WORSE) for v in verdicts]) < 0.07


# The harness


def test_draws_do_not_depend_on_their_number_or_on_the_cores():
    few, many = (Context("name", n).repeat(normal_draw)["mean"] for n in (3, 8))
    np.testing.assert_array_equal(few, many[:3])
    assert len(np.unique(many)) == 8
    np.testing.assert_array_equal(Context("name", 8, jobs=2).repeat(normal_draw)["mean"], many)
    assert not np.array_equal(Context("other", 3).repeat(normal_draw)["mean"], few)


def test_progress_is_reported():
    seen = []
    store = Store()
    Context("name", 2, store=store).repeat(normal_draw)
    Context("name", 4, store=store, progress=lambda *told: seen.append(told)).repeat(normal_draw)
    assert seen == [(2, 4, 2), (3, 4, 2), (4, 4, 2)]  # done, of, kept


def test_fits_that_warn_are_counted():
    values = Context("name", 2).repeat(warned_draw)
    np.testing.assert_array_equal(values["share of draws with a warning"], [1.0, 1.0])
    assert "share of draws with a warning" not in Context("name", 2).repeat(normal_draw)


calls = []


def counted_draw(rng):
    calls.append(1)
    if len(calls) == 3:
        raise KeyboardInterrupt
    return {"x": rng.normal(), "list": 2.0}


def test_an_interrupted_run_continues(tmp_path):
    calls.clear()
    with pytest.raises(KeyboardInterrupt):
        Context("name", 5, store=Store(tmp_path)).repeat(counted_draw)
    assert len(calls) == 3  # two finished
    again = Context("name", 5, store=Store(tmp_path)).repeat(counted_draw)
    assert len(calls) == 6  # the three that were not finished
    np.testing.assert_array_equal(again["x"], Context("name", 5).repeat(lambda rng: {"x": rng.normal()})["x"])
    Context("other", 1, store=Store(tmp_path)).repeat(counted_draw)
    assert len(calls) == 7  # another experiment has parts of its own


def test_parts_of_another_version_or_cut_short_are_measured_again(tmp_path, monkeypatch):
    calls[:] = [1] * 10
    Context("name", 2, store=Store(tmp_path)).repeat(counted_draw)
    (file,) = tmp_path.iterdir()
    text = file.read_text()
    file.write_text(text[:-20])  # as a run that was killed while it wrote
    Context("name", 2, store=Store(tmp_path)).repeat(counted_draw)
    assert len(calls) == 13
    monkeypatch.setattr("reproduction._store.__version__", "99.0")
    Context("name", 2, store=Store(tmp_path)).repeat(counted_draw)
    assert len(calls) == 15
    Context("name", 2, store=Store(tmp_path, fresh=True)).repeat(counted_draw)
    assert len(calls) == 17


def test_only_kept_parts_are_reported_where_asked(tmp_path):
    full, kept = Context("name", 3, store=Store(tmp_path)), Store(tmp_path, only_kept=True)
    with pytest.raises(_experiment.NothingKept):
        replace(full, store=kept).repeat(normal_draw)
    values = full.repeat(normal_draw)
    more = replace(full, draws=9, store=Store(tmp_path, only_kept=True))
    np.testing.assert_array_equal(more.repeat(normal_draw)["mean"], values["mean"])
    with pytest.raises(_experiment.NothingKept, match="1 of 1"):
        replace(full, store=kept).one("another part", dict)


def test_parts_hold_what_json_holds(tmp_path):
    value = {"array": np.arange(3), "number": np.float64(0.1), "nan": float("nan")}
    Store(tmp_path).keep("name", "key", Part(value, 1.5, True))
    part = Store(tmp_path).find("name", "key")
    assert part.value["array"] == [0, 1, 2] and part.value["number"] == 0.1 and np.isnan(part.value["nan"])
    assert part.seconds == 1.5 and part.warned and re.match(r"\d{4}-\d\d-\d\d", part.day)
    with pytest.raises(TypeError, match="a part holds numbers"):
        Store(tmp_path).keep("name", "key", Part(object(), 1.0))


def test_a_failure_is_reported_and_the_rest_goes_on(tmp_path):
    results = [_results.run(experiment(run=broken_run)), _results.run(select(["T01-figure-1"])[0])]
    assert results[0].failed and results[0].problem == "RuntimeError: a mistake"
    text = _results.table(results)
    assert "failed: RuntimeError: a mistake" in text and "0.0070" in text
    _results.write_csv(results, tmp_path / "results.csv")
    with (tmp_path / "results.csv").open() as file:
        assert [row["verdict"] for row in csv.DictReader(file)][:3] == ["failed", "equal", "within the spread of draws"]


def test_numbers_are_shown_with_the_digits_their_error_leaves():
    values = {"a": [1.0, 2.0, 3.0, 4.0], "b": [1000.0, 3000.0], "c": 0.00861}
    published = {"a": Published("2", ""), "b": Published("2", ""), "c": Published("0.0070", "")}
    result = _results.Result(experiment(published=published), Outcome(values))
    assert [row.ours_text() for row in result.rows()] == ["2.50 ± 0.65", "2000 ± 1000", "0.0086"]


# Data sets


@pytest.fixture
def offline(monkeypatch):
    def refuse(**options):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", refuse)
    monkeypatch.delenv("RELVEC_DATA", raising=False)


def test_a_missing_data_set_is_skipped_with_the_instruction(offline, tmp_path, monkeypatch, capsys):
    from reproduction.__main__ import main

    monkeypatch.setattr(papers, "EXPERIMENTS", (experiment(data=("boston",)),))
    monkeypatch.chdir(tmp_path)
    assert main(["X-table-1", "--jobs", "1", "--no-plots"]) == 1  # nothing could be run
    out = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "skipped: boston (Boston housing): neither --data-dir nor RELVEC_DATA names a folder" in out
    assert "boston.npz with the arrays X (506, 13), y (506,)" in out
    assert 'make reproduce ARGS="--data-dir FOLDER", or RELVEC_DATA=FOLDER' in out
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
    result, rows = rows_of("T01-tables-1-2", 5)
    assert abs(rows["weight of x2"].ours - 0.1) < 0.005
    assert rows["functions"].ours < 11
    assert rows["RMS error"].ours < rows["RMS error, width 3"].ours
    names = sorted(_results.write_figures(result, tmp_path))
    assert names == ["T01-tables-1-2-draws", "T01-tables-1-2-surfaces"]
    assert "out of reach" in result.why(rows["RMS error"])
    for name in names:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (tmp_path / f"{name}.svg").read_bytes()


def test_learned_scales_of_sinc_and_a_plane():
    _, rows = rows_of("T01-tables-1-2-learned", 2)
    assert abs(rows["weight of x2"].ours - 0.1) < 0.005
    assert rows["eta_2 x 10^4"].ours < 0.1 * rows["eta_1 x 10^4"].ours
    assert rows["functions"].ours < 12
    assert 0.08 < rows["noise"].ours < 0.12


@pytest.mark.slow
def test_learned_scales_of_friedman(tmp_path):
    store = Store(tmp_path / "parts")
    single = _results.run(select(["T01-table-4.4.1-friedman-1"])[0], count=lambda e: 2, store=store)
    result = _results.run(select(["T01-table-4.4.1-eta"])[0], count=lambda e: 2, store=store)
    one, learned = ({row.quantity: row.ours for row in r.rows()} for r in (single, result))
    assert learned["error"] < 0.3 * one["error"] and learned["vectors"] < 0.5 * one["vectors"]
    assert one["error"] < one["error, SVM"] * 1.2 and one["vectors"] < one["vectors, SVM"]
    assert learned["relevance of x6 to x10 together"] < 0.05
    assert "less error than the single width in 2 and fewer vectors in 2 of 2" in result.outcome.notes[0]
    assert "T01-table-4.4.1-eta-relevance" in _results.write_figures(result, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "error"), [("gaussian", 0.326), ("uniform", 0.187)])
def test_sinc_rows(noise, error):
    _, rows = rows_of(f"T01-table-4.4.1-sinc-{noise}", 5)
    assert rows["vectors"].ours < 8 < rows["vectors, SVM"].ours
    assert rows["error"].ours < 1.3 * error


def test_ripley_and_the_mixture(data_dir):
    for name in ("T01-figure-3", "T00-figure-2"):
        _, rows = rows_of(name, 2)
        assert rows["error"].ours < 14.0 and rows["vectors"].ours < 8 < rows["vectors, SVM"].ours


def test_the_old_and_the_new_algorithm(monkeypatch, tmp_path):
    monkeypatch.setattr(tf03, "SIZES", (60, 1000))
    monkeypatch.setattr(tf03, "fit_all", few_points)
    result = _results.run(select(["TF03-figures-2-3"])[0], count=lambda e: 2)
    assert not result.problem
    rows = {row.quantity: row for row in result.rows()}
    assert rows["seconds, old, N = 1000"].verdict is Verdict.TIMING
    assert rows["vectors, new, N = 1000"].ours < 60
    assert abs(rows["error, new, N = 1000"].ours - rows["error, old, N = 1000"].ours) < 0.1
    assert len(_results.write_figures(result, tmp_path)) == 2


def few_points(task, n, rng, fit_all=tf03.fit_all):
    return fit_all(task, min(n, 80), rng)


def test_widths_are_tried_from_wide_to_narrow(monkeypatch):
    losses, tried = {8.0: 0.6, 4.0: 0.5, 2.0: 0.4, 1.0: 0.45, 0.5: 0.41, 0.25: 0.3}, []

    def score(model, X, y, **options):
        tried.append(model.width)
        return np.full(5, -losses[model.width])

    monkeypatch.setattr(_classes, "cross_val_score", score)
    assert _classes.search_width(None, None, sorted(losses), 5, np.random.default_rng(0)) == 2.0
    assert tried == [8.0, 4.0, 2.0, 1.0, 0.5]  # risen twice in a row


def test_the_sparser_svm_has_fewer_vectors():
    rng = np.random.default_rng(0)
    X = np.linspace(-10.0, 10.0, 60)[:, None]
    t = 5.0 + 3.0 * np.sinc(X[:, 0] / np.pi) + rng.normal(0.0, 0.3, 60)
    best, sparser = _svm.regressors(X, t, [3.0], rng)
    assert len(sparser.support_) <= len(best.support_)
    assert np.mean((best.predict(X) - t) ** 2) < 0.5 * t.var()  # in the units of the targets
    chosen, sparsest = _svm.classifiers(X, t > 5.5, [3.0], rng)
    assert len(sparsest.support_) <= len(chosen.support_)


def test_the_means_of_a_table_are_of_ratios():
    rows = {
        "a": (Outcome({"error": [1.0, 3.0], "vectors": 2.0, "error, SVM": [4.0, 4.0], "vectors, SVM": 8.0}),
              ("2", "1", "2", "4")),
        "b": (Outcome({"error": 5.0, "vectors": 3.0, "error, SVM": 5.0, "vectors, SVM": 6.0}), ("4", "3", "10", "4")),
    }  # fmt: skip
    found = _regression.normalised(rows)
    values = found.values
    np.testing.assert_allclose(values["error over the published SVM's"], [0.5, 1.0])
    np.testing.assert_allclose(values["error over our SVM's"], [0.625, 0.875])
    np.testing.assert_allclose(values["vectors over the published SVM's"], [0.625, 0.625])
    np.testing.assert_allclose(values["vectors over our SVM's"], [0.375, 0.375])
    assert (
        "b has 0.5 where 0.4 is published; the mean of the others is 1, published 1"
        in found.explained["error over the published SVM's"]
    )
    assert "a has 0.5 where 0.25 is published" in found.explained["vectors over the published SVM's"]


def test_what_an_svm_has_at_other_settings():
    tried = {"error": np.array([[10.0, 12.0], [10.0, 14.0]]), "vectors": np.array([[80, 20], [80, 30]])}
    reason = _classes.other_svm(tried, [(1.0, 3.0), (2.0, 10.0)], 26.0)["vectors, SVM"]
    assert "width 1 and C 3 have 80.0 vectors and the error 10, the least" in reason
    assert "width 2 and C 10 have 25.0 vectors and the error 13, the vectors nearest" in reason


def test_digits_one_against_the_rest(monkeypatch, tmp_path):
    """Ten clusters on a circle in place of the digits."""
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(10), 12)
    angle = 2.0 * np.pi * y / 10.0
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(120, 2))
    monkeypatch.setattr(_digits, "digits", lambda context: (X[:80], y[:80], X[80:], y[80:]))
    for name, value in (("WIDTHS", (0.4,)), ("CS", (10.0,)), ("HALF", 40)):
        monkeypatch.setattr(_digits, name, value)
    found = _digits.usps(Context("name", 1, store=Store(tmp_path)))
    assert found.values["error"] <= 5.0 and found.values["error, SVM"] <= 5.0
    assert 10 <= found.values["vectors"] < found.values["vectors, SVM"]
    again = _digits.usps(Context("name", 1, store=Store(tmp_path, only_kept=True)))  # all parts were kept
    assert again.values == found.values


def test_one_precision_has_one_maximum():
    _, rows = rows_of("TF03-figure-1", 1)
    found, closed = (rows[f"alpha of the maximum by {how}, q^2 > s"].ours for how in ("search", "eq. (20)"))
    assert abs(found - closed) < 1e-4 * closed
    assert rows["share of log alpha over which l rises, q^2 < s"].ours == 1.0


def test_pictures_of_sparsity(tmp_path):
    _, rows = rows_of("T01-figure-6", 1)
    assert rows["mass within 0.1 of an axis, Student t"].ours > 2 * rows["mass within 0.1 of an axis, Gaussian"].ours
    result, rows = rows_of("T01-figures-7-8", 1)
    assert rows["log probability, noise alone"].ours > rows["log probability, basis vector and noise"].ours
    assert len(_results.write_figures(result, tmp_path)) == 2
    _, rows = rows_of("T01-figure-10", 1)
    assert abs(rows["error"].ours - 25.0) < 1.0
    assert rows["largest log-odds in [0.55, 0.95]"].ours < 2.0


# The page


def small_run(folder, **options):
    """Two small experiments and a skipped one, written as `make reproduce` does."""
    hostile = Outcome({"a <b>": [1.0, 2.0], "c": 3.0}, notes=("<script>alert(1)</script>",))
    plain = experiment(name="T01-small", published={"a <b>": Published("1.5", "table", draws=9)}, run=lambda c: hostile)
    skipped = experiment(name="RQ05-none", quick=0)
    results = [_results.run(e) for e in (plain, skipped)]
    found = _results.record(results, {}, "a test")
    return found, _page.page(found, folder)


def test_the_page_holds_everything_and_runs_nothing_foreign(tmp_path):
    found, page = small_run(tmp_path)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert page.count("<script>") == 1 and "script-src 'sha256-" in page
    assert "http:" not in page and "https:" not in page  # no network
    for words in ("T01-small", "within two standard errors", "too long for --quick", "scikit-learn", "RQ05"):
        assert words in page
    assert found["verdicts"] == {"better": 0, "within two standard errors": 1, "worse": 0}


def test_the_record_survives_json(tmp_path):
    found, page = small_run(tmp_path)
    _results.write_json(found, tmp_path / "results.json")
    assert _page.page(json.loads((tmp_path / "results.json").read_text()), tmp_path) == page


def test_the_page_of_the_docs_is_what_its_command_writes():
    root = Path(__file__).parents[2] / "docs"
    make = runpy.run_path(str(root / "make_reproduction.py"))
    assert make["main"](["--check"]) == 0, "python docs/make_reproduction.py"
    pictures = re.findall(r"\(images/reproduction/(.*?)\)", (root / "reproduction.md").read_text())
    assert sorted(pictures) == sorted(path.name for path in (root / "images" / "reproduction").iterdir())


def test_what_was_measured_as_the_papers_describe_counts_once():
    """Not what T01 prints again, nor what another method measured, nor misprints and means of rows."""
    make = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "make_reproduction.py"))

    def entry(name, **rows):
        plain = {"published": "2", "published_draws": 1, "group": "worse", "mean": 3.0, "ours": "3", "verdict": "worse"}
        return {"name": name, "rows": [{**plain, "quantity": q.replace("_", " "), **r} for q, r in rows.items()]}

    record = {
        "experiments": [
            entry("T00-table-3.2", **{"Boston housing: error": {}}),
            entry("T00-table-5.2", **{"Pima: errors of 332": {"published": "65"}}),
            entry("T00-section-6-boston", error={}),
            entry("T01-table-4.4.1-boston", error={}, **{"error, SVM": {}}),
            entry("T01-tables-1-2", **{"noise": {"group": "better"}}),
            entry("T01-tables-1-2-interleaved", **{"RMS error": {}, "noise": {"group": "better"}}),
            entry("RQ05-table-2", vectors={}, **{"squared, GP": {}}),
            entry("RQ05-table-2-interleaved", vectors={"group": "better"}),
            entry("T01-table-4.4.1-means", **{"error over our SVM's": {}}),
            entry("GRVM-table-1-bupa", **{"error, RVM ME": {}, "error, RVM LOO": {}}),
            entry("TF03-figures-2-3", seconds={"group": ""}),
        ]
    }
    counted = [(e["name"], row["quantity"]) for e, row in make["compared_rows"](record) if not make["is_baseline"](row)]
    assert counted == [
        ("T01-table-4.4.1-boston", "error"), ("T01-tables-1-2-interleaved", "noise"),
        ("RQ05-table-2-interleaved", "vectors"), ("GRVM-table-1-bupa", "error, RVM LOO"),
    ]  # fmt: skip
    assert [row["quantity"] for _, row in make["compared_rows"](record) if make["is_baseline"](row)] == [
        "error, SVM", "squared, GP",
    ]  # fmt: skip
    page = make["every_number"](record)
    listed = [line for line in page if line.startswith("| [")]
    assert len(listed) == 13 and sum(line.endswith("|  |") for line in listed) == len(counted)


def test_every_number_has_the_draws_of_its_paper():
    """The stored results say how many repetitions each published number is of."""
    root = Path(__file__).parents[2] / "docs"
    stored = json.loads((root / "reproduction.json").read_text())["experiments"]
    published = {entry.name: entry.published for entry in EXPERIMENTS}
    rows = [(e["name"], row) for e in stored for row in e["rows"] if row["published"]]
    assert len(rows) > 200
    assert all(row["published_draws"] == published[name][row["quantity"]].draws for name, row in rows)


def test_the_totals_of_the_docs_agree():
    root = Path(__file__).parents[2] / "docs"
    record, text = json.loads((root / "reproduction.json").read_text()), (root / "reproduction.md").read_text()
    words = r".*?: (\d+) came out better, (\d+) within .*?, (\d+) worse"
    total, better, within, worse = map(int, re.search(rf"\*\*(\d+) published numbers{words}", text).groups())
    kinds = re.findall(
        r"- Of (\d+) (?:averaged numbers|numbers of a single draw) (\d+) came .*?, (\d+) within .*?, (\d+) worse", text
    )
    assert np.array(kinds, dtype=int).sum(axis=0).tolist() == [total, better, within, worse] and len(kinds) == 2
    table = np.array([
        [float(cell) for cell in line.split("|")[2:-1]]
        for line in text.splitlines() if re.match(r"\| \[(T00|T01|TF03|RQ05|GRVM)\]\(#[a-z0-9]+\)", line)
    ])  # fmt: skip
    assert total == better + within + worse and list(table.sum(axis=0)[:3]) == [better, within, worse]
    minutes = sum(e["seconds"] for e in record["experiments"]) / 60.0
    assert f"{minutes:.0f} minutes of CPU in all" in text and abs(table[:, 4].sum() - minutes) < 0.3


def test_a_second_run_continues_in_the_folder(tmp_path, capsys, monkeypatch):
    from reproduction.__main__ import main

    calls[:] = [1] * 10
    entry = experiment(name="T01-counted", published={}, run=lambda c: Outcome(c.repeat(counted_draw)), full=4, quick=2)
    monkeypatch.setattr(papers, "EXPERIMENTS", (entry,))
    out = ["--jobs", "1", "--no-plots", "--out", str(tmp_path)]
    assert main(["--quick", *out]) == 0
    assert main(["--full", *out]) == 0
    assert len(calls) == 14  # four draws in all
    assert main(["--draws", "3", *out]) == 0
    assert main(["--kept", *out]) == 0
    assert len(calls) == 14 and "the repetitions measured so far" in (tmp_path / "index.html").read_text()
    assert main(["--draws", "1", "--fresh", *out]) == 0
    assert len(calls) == 15
    assert {p.name for p in tmp_path.iterdir()} == {"index.html", "results.csv", "results.json", "parts"}


def test_the_time_left_is_told_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    clock = _command.Clock([10.0, 600.0])
    show = clock.display("head", 0)
    show(1, 3, 1)
    show(2, 3, 1)
    assert "2 of 3, about 0 s left, then about 10 min" in capsys.readouterr().err


def test_quick_fits_its_budget():
    """Twenty minutes on two cores, by the seconds that the entries state."""
    spread = [e.quick > 1 or e.name.endswith("-usps") for e in EXPERIMENTS]  # over both cores; others have one
    minutes = sum(e.quick * e.seconds / (2 if two else 1) for e, two in zip(EXPERIMENTS, spread, strict=True)) / 60
    assert minutes < 18.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["T00-figure-1-right", "T01-figure-2"])
def test_published_draws_are_likely_ones(name):
    _, rows = rows_of(name, 100)
    assert all(row.verdict is Verdict.SPREAD for row in rows.values() if row.published)
