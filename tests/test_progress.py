"""Progress reports of a fit while it runs."""

import io
import sys

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info, threadpool_limits

from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.app.tables.evaluation import evaluate_table
from relvec.app.tables.pipelines import fit_table
from relvec.runtime import progress
from relvec.runtime.progress import Progress, ProgressLine, watch

RNG = np.random.default_rng(0)
X = RNG.uniform(-8.0, 8.0, size=(120, 1))
Y = np.sinc(X[:, 0] / np.pi) + 0.1 * RNG.standard_normal(120)
MANY = RNG.uniform(-8.0, 8.0, size=(700, 1))
LABEL = np.where(np.sin(X[:, 0]) + 0.3 * RNG.standard_normal(120) > 0.0, "up", "down")


def watched(model, *data):
    seen = []
    with watch(seen.append):
        model.fit(*data)
    return seen


@pytest.mark.parametrize(
    ("model", "data", "stages"),
    [
        (RVR(width=3.0), (X, 5.0 * Y), ["search"]),
        (RVR(width=3.0), (MANY, np.cos(MANY[:, 0]) + 0.1 * RNG.standard_normal(700)), ["kernel", "search"]),
        (RVR(kernel="gaussian"), (X[:40], Y[:40]), ["widths", "search"]),
        (RVC(width=3.0), (X, LABEL), ["search"]),
        (RVR(width=3.0, likelihood="poisson"), (X, np.round(np.exp(2.0 * Y))), ["search"]),
        (RVR(width=3.0, solver="em", tol=1e-2), (X, Y), ["search"]),
    ],
)
def test_stages(model, data, stages):
    seen = watched(model, *data)
    assert list(dict.fromkeys(p.stage for p in seen)) == stages
    for name in stages:
        steps = [p for p in seen if p.stage == name]
        assert [p.step for p in steps] == list(range(1, len(steps) + 1))
        fractions = np.array([p.fraction for p in steps if not np.isnan(p.fraction)])
        assert np.all(np.diff(fractions) >= 0.0) and np.all((fractions >= 0.0) & (fractions <= 1.0))
        assert all(p.remaining >= 0.0 for p in steps if p.fraction > 0.0)
    assert np.all(np.diff([p.elapsed for p in seen]) >= 0.0)
    last = [p for p in seen if p.stage == "search"][-1]
    assert last.fraction == 1.0 and last.overall >= 0.9
    overall = [p.overall for p in seen if not np.isnan(p.overall)]
    assert np.all(np.diff(overall) >= 0.0) and overall[-1] <= 1.0, "one bar over all stages"
    assert last.evidence == pytest.approx(model.log_marginal_likelihood_, abs=1e-3)
    assert last.size == len(model.weights_)


@pytest.mark.parametrize("targets", [Y[:40], np.column_stack([Y, Y**2])[:40]], ids=["one output", "two outputs"])
def test_a_process_tells_how_far_it_is(targets):
    model = GPRegressor()
    seen = watched(model, X[:40], targets)
    assert {p.stage for p in seen} == {"process"}
    fractions = [p.fraction for p in seen]
    assert np.all(np.diff(fractions) >= 0.0) and 0.0 < fractions[0] < 0.5 and fractions[-1] == 1.0
    assert seen[-1].evidence == pytest.approx(np.ravel(model.log_marginal_likelihood_)[-1])
    assert seen[-1].size == 40


def test_every_output_is_seen():
    seen = watched(RVR(width=3.0), X, np.column_stack([Y, Y**2]))
    assert sum(p.fraction == 1.0 for p in seen) == 2


def test_nobody_is_called_afterwards():
    seen = watched(RVR(width=3.0), X, Y)
    count = len(seen)
    RVR(width=3.0).fit(X, Y)
    assert len(seen) == count
    with pytest.raises(ZeroDivisionError), watch(lambda p: 1 / 0):
        RVR(width=3.0).fit(X, Y)
    assert len(watched(RVR(width=3.0), X, Y)) == count


@pytest.mark.parametrize("model", [RVR(width=3.0), RVC(width=3.0), RVR(solver="em", width=3.0)])
def test_who_watches_may_stop(model):
    y = LABEL if isinstance(model, RVC) else Y
    with pytest.warns(ConvergenceWarning, match="INTERRUPTED"), watch(lambda p: p.stage == "search" and p.step >= 2):
        model.fit(X, y)
    assert model.status_ == "interrupted" and model.n_iter_ == 1
    model.predict(X)


def test_a_long_dictionary_stops_too():
    x = np.linspace(-8.0, 8.0, 3200)[:, None]
    with pytest.warns(ConvergenceWarning, match="INTERRUPTED"), watch(lambda p: p.size >= 3):
        model = RVR(width=3.0).fit(x, np.cos(x[:, 0]) + 0.1 * RNG.standard_normal(3200))
    assert 3 <= len(model.weights_) <= 8


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("verbose", "stream", "shown"),
    [(None, Terminal, True), (None, io.StringIO, False), (0, Terminal, False), ("progress", io.StringIO, True)],
)
def test_when_a_line_is_shown(monkeypatch, verbose, stream, shown):
    monkeypatch.setattr(sys, "stderr", stream())
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_SHOWN", 3600.0)
    RVR(width=3.0, verbose=verbose).fit(X, Y)
    assert not sys.stderr.getvalue()  # a moment is not worth a line
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_SHOWN", 0.0)
    RVR(width=3.0, verbose=verbose).fit(X, Y)
    text = sys.stderr.getvalue()
    assert bool(text) is shown
    if shown:
        assert "searching: step 1, " in text and " 0 functions" not in text and "elapsed" in text
        assert text.endswith(" \r") if stream is Terminal else "\r" not in text


class Notebook(io.StringIO):
    """Stands for the stream of a cell, which is no terminal; text after a carriage return replaces the line."""


Notebook.__module__ = "ipykernel.iostream"


@pytest.mark.parametrize("kind", [Terminal, Notebook])
def test_the_line(monkeypatch, kind):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_REDRAWS", 0.0)
    stream = kind()
    line = ProgressLine(stream)
    line(Progress("search", 7, 12, -3.25, 1.0, 0.5, 1.0, overall=0.5))
    assert not stream.getvalue()
    line(Progress("search", 7, 12, -3.25, 75.0, 0.9, 75.0, overall=0.5))
    long = (
        "[########........] searching: step 7, 12 functions, evidence -3.25, 1 min 15 s elapsed, about 1 min 15 s left"
    )
    assert stream.getvalue() == f"\r{long}"
    line(Progress("kernel", 1, 128, np.nan, 4.0, np.nan, np.nan))
    short = "[................] factorising the kernel: step 1, rank 128, 4 s elapsed"
    assert stream.getvalue() == f"\r{long}\r{short:{len(long)}}", "nothing is left of the line before"
    line.close()
    assert stream.getvalue().endswith(f"\r{'':{len(short)}}\r")
    learning = str(Progress("widths", 3, 0, -41.5, 5.0, np.nan, np.nan, rows=900))
    assert learning == "learning widths: step 3, 900 rows, evidence -41.5, 5 s elapsed", "no vectors are counted yet"


def test_one_bar_over_outputs_and_folds():
    seen = watched(RVR(width=3.0), X, np.column_stack([Y, Y**2]))
    overall = np.array([p.overall for p in seen if not np.isnan(p.overall)])
    assert np.all(np.diff(overall) >= 0.0) and overall.min() < 0.5 <= overall.max() <= 1.0
    table = {"x": X[:, 0], "y": Y}
    pipeline, seen = fit_table(table, "y", model=RVR(width=3.0)).pipeline, []
    with watch(seen.append):
        evaluate_table(pipeline, table, folds=3)
    ends = [p.overall for p in seen if p.fraction == 1.0]
    assert np.all(np.diff([p.overall for p in seen if not np.isnan(p.overall)]) >= 0.0)
    assert 0.25 < ends[0] < 1 / 3 and 0.9 < ends[-1] <= 1.0
    late = [p for p in seen if p.overall > 0.5]
    assert all(p.remaining == pytest.approx(p.elapsed * (1 - p.overall) / p.overall) for p in late)


@pytest.mark.parametrize("model", [GPClassifier(), RVC(width=3.0), GPRegressor(), RVR(kernel="gaussian")], ids=repr)
def test_small_fits_take_one_thread_of_blas(model):
    """More of them wait for each other, most of all on a busy machine."""
    threads = set()

    def count(_):
        threads.update(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")

    with threadpool_limits(2, user_api="blas"), watch(count):
        model.fit(X[:60], LABEL[:60] if is_classifier(model) else Y[:60])
    assert threads == {1}


def test_other_words_are_refused():
    with pytest.raises(ValueError, match="verbose must be None, 'progress'"):
        RVR(verbose="loud").fit(X, Y)


def test_a_time_limit_is_no_interruption():
    seen = []
    with pytest.warns(ConvergenceWarning, match="TIME_LIMIT"), watch(seen.append):
        RVR(width=3.0, time_limit=1e-9).fit(X, Y)
    assert seen
