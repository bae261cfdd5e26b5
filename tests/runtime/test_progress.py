"""Progress reports of a fit while it runs."""

import io
import logging
import sys
import time

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_info, threadpool_limits

from relvec import RVC, RVR, GPClassifier, GPRegressor
from relvec.app.tables.evaluation import evaluate_table
from relvec.app.tables.pipelines import fit_table
from relvec.runtime import progress
from relvec.runtime.progress import Progress, watch

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
    ("given", "level", "expected"), [(False, "WARNING", "INFO"), (True, "WARNING", "INFO"), (False, "DEBUG", "DEBUG")]
)
def test_the_log_is_sent_to_the_terminal_where_nobody_has_set_up_logging(monkeypatch, given, level, expected):
    logger, own = logging.Logger("alone", level), logging.NullHandler()
    if given:
        logger.addHandler(own)
    monkeypatch.setattr(progress, "logger", logger)
    for _ in range(2):
        RVR(width=3.0, verbose=1).fit(X, Y)
    assert len(logger.handlers) == 1 and (logger.handlers[0] is own) == given
    assert logging.getLevelName(logger.level) == expected


CASES = [(None, Terminal, True), (None, io.StringIO, False), (False, Terminal, False)]


@pytest.mark.parametrize(("verbose", "stream", "shown"), CASES)
def test_a_bar_is_drawn_of_a_long_fit_on_a_terminal(monkeypatch, verbose, stream, shown):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", stream())
    for seconds in (3600.0, 0.0):  # a moment is not worth a bar
        monkeypatch.setattr(progress, "_SECONDS_BEFORE_SHOWN", seconds)
        with progress.show_progress(verbose), progress.show_progress(verbose), progress.stage("search"):
            for step in range(3):
                progress.report(4, -41.5, step / 3)
                time.sleep(0.11)  # tqdm draws ten times a second
        assert ("searching: step 2, 4 functions" in sys.stderr.getvalue()) is (shown and seconds == 0.0)
    assert sys.stderr.getvalue().count("searching: step 2") <= 1, "one bar, whatever is inside"


def test_without_a_terminal_no_step_is_told(monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.show_progress(None):
        assert not progress.is_watched()


def test_without_tqdm_nothing_is_drawn(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "_SECONDS_BEFORE_SHOWN", 0.0)
    monkeypatch.setattr(progress, "_find_tqdm", progress._find_tqdm.__wrapped__)  # it looks once
    RVR(width=3.0).fit(X, Y)
    assert not sys.stderr.getvalue()


@pytest.mark.parametrize("model", [RVR(), RVC(), GPRegressor(), GPClassifier(), RVR(width=3.0)], ids=repr)
def test_verbose_logs_the_stages_once(model, caplog):
    data = X[:60], LABEL[:60] if is_classifier(model) else Y[:60]
    with caplog.at_level("INFO", "relvec"):
        clone(model).set_params(verbose=1).fit(*data)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[-1].startswith("fitted in ") and len(lines) >= 2
    begun = [line.split(":")[0] for line in lines[:-1]]
    assert len(set(begun)) == len(begun), "a quick stage is one line"
    caplog.clear()
    with caplog.at_level("INFO", "relvec"):
        clone(model).set_params(verbose=0).fit(*data)
    assert not caplog.records


def test_every_step_of_a_search_is_logged_where_asked(caplog):
    with caplog.at_level("INFO", "relvec"):
        model = RVR(width=3.0, verbose=2).fit(X, Y)
    assert sum("objective" in record.getMessage() for record in caplog.records) >= model.n_iter_


def test_what_a_progress_says():
    whole = Progress("search", 7, 12, -3.25, 75.0, 0.9, 75.0, overall=0.5)
    assert str(whole) == "searching: step 7, 12 functions, evidence -3.25, 1 min 15 s elapsed, about 1 min 15 s left"
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
    with pytest.raises(ValueError, match="verbose must be None, True"):
        RVR(verbose="loud").fit(X, Y)


def test_a_time_limit_is_no_interruption():
    seen = []
    with pytest.warns(ConvergenceWarning, match="TIME_LIMIT"), watch(seen.append):
        RVR(width=3.0, time_limit=1e-9).fit(X, Y)
    assert seen
