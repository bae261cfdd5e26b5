"""Intervals and sets of classes with a guarantee: coverage, files, exports."""

import ctypes
import shutil
import warnings
from functools import cache

import numpy as np
import pytest
from sklearn.base import is_regressor
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import relvec
from exports import assert_exports, compile_c, pointer, run_onnx
from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor
from relvec.export.model_file import ModelFileError, dumps, loads
from relvec.inference.conformal import ConformalScores, class_scores, cross_interval, cross_set, rank

LINE = RVR(kernel=None, basis="linear")
SOFTMAX = RVC(kernel=None, basis="linear", averaging="mode")


def data(seed, n=700):
    """Return rows of which a line misses nearly everything: a curve, noise that grows, and a heavy tail."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, (n, 2))
    return X, X[:, 0] ** 2 + (0.2 + X[:, 1] ** 2) * rng.standard_t(2, n)


def classes_of(seed, n=700):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return np.column_stack([rng.normal(size=n) + 1.2 * y, rng.normal(size=n)]), np.array(["a", "b", "c"])[y]


def skewed(seed, n=700):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3.0, 3.0, (n, 1))
    return X, np.exp(np.sin(X[:, 0]) + 0.3 * rng.standard_t(4, n))


@cache
def skewed_process():
    """Return a default fit on a logarithmic scale, calibrated on 200 rows, and further rows."""
    X, y = skewed(0)
    return GPRegressor().fit(X[:80], y[:80]).calibrate(X[80:280], y[80:280]), X[280:], y[280:]


def share_inside(interval, y):
    return np.mean((interval[..., 0] <= y) & (y <= interval[..., 1]))


def mean_coverage(fit, draw, covered, draws=60):
    """Return the mean over draws of the share of new rows covered by a model calibrated on 200 others."""
    found = []
    model = fit(*(part[:100] for part in draw(10**6)))
    for seed in range(draws):
        X, y = draw(seed)
        model.calibrate(X[:200], y[:200])
        found.append(covered(model, X[200:], y[200:]))
    return np.mean(found)


@pytest.mark.parametrize("coverage", [0.5, 0.9])
def test_intervals_of_a_wrong_model_hold_their_coverage(coverage):
    found = mean_coverage(LINE.fit, data, lambda m, X, y: share_inside(m.predict_interval(X, coverage), y))
    assert abs(found - coverage) < 0.015
    plain = LINE.fit(*(part[:100] for part in data(3)))
    assert not hasattr(plain, "calibration_")  # a further fit forgets it


def test_intervals_on_a_logarithmic_scale():
    model, X, _ = skewed_process()
    assert model.process_.scale.sign == 1
    (low, high), middle = model.predict_interval(X).T, np.exp(np.sin(X[:, 0]))
    assert np.median((high - middle) / (middle - low)) > 1.2  # longer upwards
    found = []
    for seed in range(40):
        Xc, yc = skewed(seed + 1)
        model.calibrate(Xc[:200], yc[:200])
        found.append(share_inside(model.predict_interval(Xc[200:]), yc[200:]))
    assert abs(np.mean(found) - 0.9) < 0.015
    beyond = model.process_.scale.end - 10.0 * model.process_.scale.scale
    model.calibrate(X[:20], np.full(20, beyond))  # where the scale has no value nothing is promised but everything
    assert np.isinf(model.predict_interval(X[:2], 0.5)).all()


def test_intervals_for_counts_are_counts():
    def draw(seed):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-2.0, 2.0, (700, 1))
        return X, rng.negative_binomial(2, 1.0 / (1.0 + np.exp(X[:, 0] ** 2 / 2.0)))  # overdispersed

    model = RVR(likelihood="poisson", kernel=None, basis="linear")
    found = mean_coverage(model.fit, draw, lambda m, X, y: share_inside(m.predict_interval(X), y))
    assert 0.885 < found < 0.97
    interval = model.predict_interval([[0.0]])[0]
    assert (interval == np.floor(interval)).all() and interval[0] >= 0.0


@pytest.mark.parametrize("randomised", [False, True])
def test_sets_of_classes_hold_their_coverage(randomised):
    model = SOFTMAX.fit(*(part[:60] for part in classes_of(5)))
    found, sizes = [], []
    for seed in range(40):
        X, y = classes_of(seed)
        model.calibrate(X[:200], y[:200], randomised=randomised)
        members = model.predict_set(X[200:], 0.9)
        found.append(members[np.arange(500), np.searchsorted(model.classes_, y[200:])].mean())
        sizes.append(members.sum(axis=1).mean())
    assert 0.885 < np.mean(found) < 0.92
    assert 1.0 < np.mean(sizes) < 2.5
    assert members.any(axis=1).all()
    labels, sets = model.predict(X, return_set=0.9)
    assert (sets[np.arange(700), np.searchsorted(model.classes_, labels)]).all()
    np.testing.assert_array_equal(sets, model.predict_set(X[::-1])[::-1])  # a row has its set wherever it stands


@pytest.mark.parametrize(
    "model",
    [RVR(), RVC(), GPRegressor(), GPClassifier(), SparseBayesianRegressor(), SparseBayesianClassifier()],
    ids=lambda model: type(model).__name__,
)
def test_estimators_as_they_come_hold_their_coverage(model):
    def covered(model, X, y):
        if is_regressor(model):
            return share_inside(model.predict_interval(X), y)
        return model.predict_set(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)].mean()

    found = mean_coverage(model.fit, data if is_regressor(model) else classes_of, covered, draws=40)
    assert 0.885 < found < (0.915 if is_regressor(model) else 0.95)


def test_sets_before_calibration_are_the_models_own():
    X, y = classes_of(0, 200)
    model = SOFTMAX.fit(X, y)
    proba, members = model.predict_proba(X), model.predict_set(X, 0.8)
    assert (np.where(members, proba, 0.0).sum(axis=1) >= 0.8 - 1e-12).all()
    least = np.where(members, proba, np.inf).min(axis=1)
    assert (np.where(members, proba, 0.0).sum(axis=1) - least < 0.8).all()


def test_too_few_rows_give_infinite_intervals_and_a_warning():
    X, y = data(0)
    model = LINE.fit(X[:50], y[:50]).calibrate(X[50:58], y[50:58])
    with pytest.warns(UserWarning, match="needs 9 calibration rows or more, and there are 8"):
        assert np.isinf(model.predict_interval(X[:3], 0.9)).all()
    assert np.isfinite(model.predict_interval(X[:3], 8 / 9)).all()
    with pytest.raises(ValueError, match="too few"):
        relvec.to_c(model)
    assert rank(9, 0.9) == 9 and rank(8, 0.9) == 9
    classes = SOFTMAX.fit(*classes_of(0, 60)).calibrate(*classes_of(1, 8))
    with pytest.warns(UserWarning, match="sets hold all classes"):
        assert classes.predict_set(X[:3], 0.9).all()


def test_a_class_that_the_model_does_not_know():
    X, y = classes_of(0, 200)
    model = SOFTMAX.fit(X, y).calibrate(X, np.where(y == "a", "new", y))
    assert np.isinf(model.calibration_.scores).sum() == (y == "a").sum()


def test_cross_conformal_intervals():
    found = []
    for seed in range(20):
        X, y = data(seed, 400)
        model = LINE.fit(X[:80], y[:80]).calibrate(X[:80], y[:80], cv=4)
        found.append(share_inside(model.predict_interval(X[80:], 0.8), y[80:]))
    assert 0.78 < np.mean(found) < 0.86  # 1 - 2 alpha would be 0.6
    again = loads(dumps(model))
    np.testing.assert_array_equal(again.predict_interval(X), model.predict_interval(X))
    with pytest.warns(UserWarning, match="cross-conformal intervals cannot be exported"):
        assert "predict_interval" not in relvec.to_c(model)
    with pytest.raises(ValueError, match="every row into one fold"):
        model.calibrate(X, y, cv=FirstFold())


class FirstFold:
    def split(self, X, y):
        yield next(KFold(3).split(X))


def test_cross_conformal_by_brute_force():
    rng = np.random.default_rng(0)
    m, k = 30, rank(30, 0.8)
    fold, scores = rng.integers(0, 3, m), rng.normal(size=m)
    new = [rng.normal(size=(7, 4)) for _ in range(3)]
    members = cross_set([scores[fold == i] for i in range(3)], new, 0.8)
    for i in range(7):
        for c in range(4):
            above = sum(scores[j] >= new[fold[j]][i, c] for j in range(m))
            assert members[i, c] == ((1 + above) / (m + 1) > 0.2 - 1e-12)
    low, high = cross_interval(np.arange(m)[:, None] - 100.0, np.arange(m)[:, None] + 100.0, 0.8)
    assert (low[0], high[0]) == (m - k - 100.0, k - 1 + 100.0)


def test_cross_conformal_sets():
    found = []
    for seed in range(12):
        X, y = classes_of(seed, 300)
        y = np.where(y == "c", "b", y)
        model = SOFTMAX.fit(X[:60], y[:60]).calibrate(X[:60], y[:60], cv=3)
        members = model.predict_set(X[60:], 0.8)
        found.append(members[np.arange(240), np.searchsorted(model.classes_, y[60:])].mean())
    assert 0.77 < np.mean(found) < 0.87
    np.testing.assert_array_equal(loads(dumps(model)).predict_set(X), model.predict_set(X))
    with pytest.raises(ValueError, match="lack a class"):
        model.calibrate(X, np.repeat(["a", "b", "c"], 100), cv=KFold(3))


def test_outputs_pipelines_and_files():
    X, y = data(0)
    Y = np.column_stack([y, 10.0 * X[:, 0] + y])
    model = make_pipeline(StandardScaler(), LINE).fit(X[:100], Y[:100])
    model[-1].calibrate(model[:-1].transform(X[100:300]), Y[100:300])
    found = model.predict(X[300:], return_interval=0.8)
    assert found.shape == (400, 2, 3)
    interval = found[..., 1:]
    assert all(abs(share_inside(interval[:, i], Y[300:, i]) - 0.8) < 0.1 for i in range(2))
    again = loads(dumps(model))
    np.testing.assert_array_equal(again.predict(X, return_interval=0.8), model.predict(X, return_interval=0.8))
    function = model[-1].predict_interval(X, 0.8, noise=False)  # of the function: no new target is promised
    assert (function[..., 1] - function[..., 0]).mean() < 0.5 * (interval[..., 1] - interval[..., 0]).mean()
    with pytest.raises(ValueError, match="2 outputs"):
        model[-1].calibrate(X, y)
    kept = model[-1].calibration_
    for forged in (kept.scores[:, ::-1], np.full_like(kept.scores, np.nan)):
        object.__setattr__(kept, "scores", np.ascontiguousarray(forged))
        with pytest.raises(ModelFileError):
            loads(dumps(model))


def test_scores_of_classes():
    proba = np.array([[0.2, 0.5, 0.3], [0.4, 0.4, 0.2]])
    np.testing.assert_allclose(class_scores(proba, 1.0), [[1.0, 0.5, 0.8], [0.4, 0.8, 1.0]])
    np.testing.assert_allclose(class_scores(proba, 0.0), [[0.8, 0.0, 0.5], [0.0, 0.4, 0.8]])
    assert ConformalScores(np.arange(99.0)[None]).max_coverage == 0.99


MODELS = {
    "machine": RVR(width=1.0),
    "process": GPRegressor(),
    "counts": RVR(likelihood="poisson", width=1.0),
}


def calibrated(name):
    if name == "logarithm":
        model, X, y = skewed_process()
        return model.calibrate(X[:200], y[:200]), X[200:240]
    X, y = data(0)
    y = np.floor(np.abs(y)) if name == "counts" else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[name].fit(X[:60], y[:60]).calibrate(X[60:260], y[60:260]), X[320:360]


@pytest.mark.parametrize("name", [*MODELS, "logarithm"])
def test_intervals_in_onnx_and_c(name, tmp_path):
    model, X = calibrated(name)
    expected = model.predict_interval(X, 0.8)
    assert_exports(model, X, expected, tmp_path, ["predict_interval"], coverage=0.8)
    pytest.importorskip("skl2onnx")
    whole = make_pipeline(StandardScaler().fit(X), model)
    found = run_onnx(relvec.to_onnx(whole, X, coverage=0.8), X)
    expected = whole.predict(X, return_interval=0.8)[:, 1:]
    np.testing.assert_allclose(np.column_stack([found["lower"], found["upper"]]), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "in_c"), [(GPClassifier(), False), (RVC(width=1.0), True)], ids=["process", "machine"]
)
def test_sets_in_onnx_and_c(model, in_c, tmp_path):
    X, y = classes_of(0, 400)
    model.fit(X[:100], y[:100]).calibrate(X[100:300], y[100:300])
    X = X[300:]
    expected = model.predict_set(X, 0.8)
    if in_c and shutil.which("gcc"):
        library = compile_c(relvec.to_c(model, coverage=0.8), tmp_path / "model")
        members = np.zeros((len(X), 3), dtype=np.intc)
        for row, own in zip(X, members):
            library.relvec_predict_set(pointer(row), own.ctypes.data_as(ctypes.POINTER(ctypes.c_int)))
        np.testing.assert_array_equal(members == 1, expected)
    np.testing.assert_array_equal(run_onnx(relvec.to_onnx(model, coverage=0.8), X)["members"], expected)
    pytest.importorskip("skl2onnx")
    whole = make_pipeline(StandardScaler().fit(X), model)
    found = run_onnx(relvec.to_onnx(whole, X, coverage=0.8), X)["members"]
    np.testing.assert_array_equal(found, whole.predict(X, return_set=0.8)[1])
    with pytest.warns(UserWarning, match="randomised sets cannot be exported"):
        relvec.to_onnx(model.calibrate(X, model.predict(X), randomised=True))


def test_inside_mapie():
    """MAPIE's own classes take the estimators as they are."""
    mapie = pytest.importorskip("mapie", reason="needs MAPIE")
    from mapie.classification import SplitConformalClassifier
    from mapie.regression import CrossConformalRegressor, SplitConformalRegressor

    assert mapie.__version__
    X, y = data(0)
    fitted = LINE.fit(X[:100], y[:100])
    split = SplitConformalRegressor(fitted, confidence_level=0.9, prefit=True).conformalize(X[100:300], y[100:300])
    assert abs(share_inside(split.predict_interval(X[300:])[1][:, :, 0], y[300:]) - 0.9) < 0.05
    folds = CrossConformalRegressor(LINE, confidence_level=0.9, cv=3).fit_conformalize(X[:200], y[:200])
    assert abs(share_inside(folds.predict_interval(X[300:])[1][:, :, 0], y[300:]) - 0.9) < 0.06
    X, y = classes_of(0)
    model = SOFTMAX.fit(X[:100], y[:100])
    sets = SplitConformalClassifier(model, confidence_level=0.9, prefit=True).conformalize(X[100:300], y[100:300])
    members = sets.predict_set(X[300:])[1][:, :, 0]
    assert abs(members[np.arange(400), np.searchsorted(model.classes_, y[300:])].mean() - 0.9) < 0.06


def test_rows_and_folds_that_are_none_are_refused():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    models = RVR(width=1.0).fit(X, X[:, 0]), RVC(width=1.0).fit(X, X[:, 0] > 0.0)
    for model, y in zip(models, (X[:, 0], X[:, 0] > 0.0), strict=True):
        for cv in (2.5, "a", iter([])):
            with pytest.raises(ValueError, match="cv must be a number of folds, 2 or more, or a splitter"):
                model.calibrate(X, y, cv=cv)
        with pytest.raises(ValueError, match=r"must hold finite numbers|no label in row 0"):
            model.calibrate(X, np.full(30, None))
        assert not hasattr(model, "calibration_")
