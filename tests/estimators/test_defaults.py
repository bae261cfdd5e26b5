"""The six estimators as they come, without a word about anything: what is promised of the configured ones."""

import itertools
import pickle
import shutil
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

import relvec
from exports import compile_c, pointer
from relvec import RVC, RVR, GPClassifier, GPRegressor, SparseBayesianClassifier, SparseBayesianRegressor
from relvec.runtime.progress import watch
from relvec.sparse.class_levels import TOL_NATS

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 3)) * [1.0, 2.0, 0.5]
F = np.sin(2.0 * X[:, 0]) + 0.3 * X[:, 1]
Y = F + 0.1 * RNG.standard_normal(90)
LABEL = np.where(F + 0.8 * RNG.standard_normal(90) > 0.0, "yes", "no")
THREE = np.digitize(F + 0.2 * RNG.standard_normal(90), [-0.5, 0.5])
NEW = RNG.normal(size=(50, 3)) * [1.0, 2.0, 0.5]
FAMILIES = {
    "machine": (RVR, RVC),
    "process": (GPRegressor, GPClassifier),
    "linear": (SparseBayesianRegressor, SparseBayesianClassifier),
}
KINDS = {
    f"{family}, {task}": data
    for family, (regressor, classifier) in FAMILIES.items()
    for task, data in {
        "regression": (regressor, X, Y),
        "two classes": (classifier, X, LABEL),
        "three classes": (classifier, X[:45], THREE[:45]),
    }.items()
}
REGRESSIONS = [kind for kind in KINDS if "regression" in kind]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_regression = pytest.mark.parametrize("kind", REGRESSIONS)
with_kernels = pytest.mark.parametrize("family", ["machine", "process"])


@pytest.fixture(scope="module")
def fitted():
    """Default models of the data above, each fitted once; no test may change them."""
    return {kind: make().fit(*data) for kind, (make, *data) in KINDS.items()}


def outputs(model, points=NEW):
    """Everything a model says about points, as one array: means and deviations, or probabilities."""
    if is_regressor(model):
        return np.column_stack(model.predict(points, return_std=True))
    return model.predict_proba(points)


def rows_kept(model):
    """The training rows that a model keeps, ascending; of a linear one its columns."""
    if isinstance(model, FAMILIES["linear"]):
        return np.flatnonzero(np.atleast_2d(model.selected_).any(axis=0))
    return model.vector_rows_ if isinstance(model, FAMILIES["process"]) else model.relevance_


def assert_same(model, other, points=(NEW, NEW), tol=None):
    """As many rows kept, the same evidence and predictions, the last at corresponding points.

    Where a process of classes is linear it keeps none.
    """
    tol = tol or (1e-5 if is_regressor(model) else 1e-3)
    assert len(rows_kept(model)) == len(rows_kept(other)) >= is_regressor(model)
    assert other.log_marginal_likelihood_ == pytest.approx(model.log_marginal_likelihood_, abs=10 * tol)
    np.testing.assert_allclose(outputs(other, points[1]), outputs(model, points[0]), rtol=tol, atol=tol)


# --- scikit-learn --------------------------------------------------------------------------------------------------


@parametrize_with_checks([make() for family in FAMILIES.values() for make in family])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@every_kind
def test_parameters_can_be_read_set_and_copied(kind):
    make, X, y = KINDS[kind]
    model = make()
    assert clone(model).get_params() == model.get_params() == make(**model.get_params()).get_params()
    copy = clone(model).set_params(memory_limit="1GB", warm_start=True)
    assert (copy.memory_limit, copy.warm_start) == ("1GB", True) and model.memory_limit != "1GB"
    before = dict(model.get_params())
    assert model.fit(X[:40], y[:40]) is model and model.get_params() == before


@every_kind
def test_fits_converge_and_are_certified(kind, fitted):
    make, *data = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = make().fit(*data)
    assert model.status_ == ("held_out" if make in (RVR, RVC) else "converged")
    tol = TOL_NATS if make is RVC else getattr(model, "tol", None) or 1e-4
    assert isinstance(model, (RVR, *FAMILIES["process"])) or model.certificate_ <= tol
    assert is_regressor(model) <= len(rows_kept(model)) <= len(data[1])
    # and again the same
    np.testing.assert_array_equal(rows_kept(model), rows_kept(fitted[kind]))
    np.testing.assert_array_equal(outputs(model), outputs(fitted[kind]))


# --- invariances ---------------------------------------------------------------------------------------------------


@every_kind
def test_the_order_of_rows_does_not_matter(kind, fitted):
    make, X, y = KINDS[kind]
    rows = np.random.default_rng(1).permutation(len(X))
    other = make().fit(X[rows], y[rows])
    if "linear" not in kind:
        np.testing.assert_array_equal(np.sort(rows[rows_kept(other)]), rows_kept(fitted[kind]))
    assert_same(fitted[kind], other)


@every_kind
def test_units_and_origin_of_the_inputs_do_not_matter(kind, fitted):
    make, X, y = KINDS[kind]
    for scale, shift in ((np.array([1e-3, 7.0, 1e4]), 0.0), (1.0, np.array([100.0, -3.0, 0.5]))):
        other = make().fit(scale * X + shift, y)
        np.testing.assert_array_equal(rows_kept(other), rows_kept(fitted[kind]))
        assert_same(fitted[kind], other, (NEW, scale * NEW + shift))


@pytest.mark.parametrize("scale", [1e-6, -3.0, 1e5])
@every_regression
def test_the_units_of_the_target_do_not_matter(kind, scale, fitted):
    other = KINDS[kind][0]().fit(X, scale * Y)
    np.testing.assert_array_equal(rows_kept(other), rows_kept(fitted[kind]))
    mean, std = other.predict(NEW, return_std=True)
    expected = fitted[kind].predict(NEW, return_std=True)
    np.testing.assert_allclose(mean / scale, expected[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(std / abs(scale), expected[1], rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_names_of_the_classes_do_not_matter(family, fitted):
    make, model = FAMILIES[family][1], fitted[f"{family}, two classes"]
    other = make().fit(X, np.array([7, -1])[(LABEL == "yes").astype(int)])
    assert_same(model, make().fit(X, np.where(LABEL == "yes", "z", "b")))
    np.testing.assert_allclose(other.predict_proba(NEW)[:, ::-1], model.predict_proba(NEW), atol=1e-6)


@every_kind
def test_weights_are_copies_of_rows(kind):
    make, X, y = KINDS[kind]
    weights = np.random.default_rng(4).integers(0, 3, len(X))
    weighted = make().fit(X, y, sample_weight=weights)
    assert_same(weighted, make().fit(np.repeat(X, weights, axis=0), np.repeat(y, weights)))


@every_kind
def test_rows_of_weight_zero_are_not_there(kind):
    make, X, y = KINDS[kind]
    weights = np.ones(len(X))
    weights[::4] = 0.0
    kept = weights > 0.0
    other = make().fit(np.where(kept[:, None], X, 1e3), y, sample_weight=weights)
    assert_same(other, make().fit(X[kept], y[kept]))


@every_kind
@pytest.mark.parametrize("column", ["constant", "copy"])
def test_a_column_that_tells_nothing_new_does_no_harm(kind, column, fitted):
    make, X, y = KINDS[kind]
    wider = [np.column_stack([x, np.full(len(x), 0.5) if column == "constant" else x[:, 0]]) for x in (X, NEW)]
    other = make().fit(wider[0], y)
    assert np.all(np.isfinite(outputs(other, wider[1])))
    assert other.score(wider[0], y) > fitted[kind].score(X, y) - 0.05
    if is_regressor(other) and column == "constant":
        assert_same(fitted[kind], other, (NEW, wider[1]), 1e-3)


# --- predictions ---------------------------------------------------------------------------------------------------


@every_kind
def test_predictions_are_finite_far_away_too(kind, fitted):
    points = np.vstack([NEW, 1e6 * NEW, np.zeros((1, 3))])
    found = outputs(fitted[kind], points)
    assert np.all(np.isfinite(found))
    if is_regressor(fitted[kind]):
        assert np.all(found[:, 1] >= np.sqrt(fitted[kind].noise_variance_) * (1.0 - 1e-12))
    else:
        np.testing.assert_allclose(found.sum(axis=1), 1.0)
        assert np.all(found >= 0.0)


@with_kernels
def test_intervals_cover_as_many_as_they_say(family):
    inside = {0.5: [], 0.9: []}
    for seed in range(6):
        rng = np.random.default_rng(seed)
        x, new = rng.uniform(-3.0, 3.0, (90, 1)), rng.uniform(-3.0, 3.0, (300, 1))
        model = FAMILIES[family][0]().fit(x, np.sin(2.0 * x[:, 0]) + 0.2 * rng.standard_normal(90))
        y = np.sin(2.0 * new[:, 0]) + 0.2 * rng.standard_normal(300)
        assert np.sqrt(model.noise_variance_) == pytest.approx(0.2, rel=0.3)
        for level, found in inside.items():
            low, high = model.predict_interval(new, level).T
            found.append(np.mean((low <= y) & (y <= high)))
    for level, found in inside.items():
        assert np.mean(found) == pytest.approx(level, abs=0.06)


@with_kernels
def test_probabilities_are_calibrated(family):
    rng = np.random.default_rng(6)
    x, new = rng.uniform(-3.0, 3.0, (300, 1)), rng.uniform(-3.0, 3.0, (2000, 1))

    def draw(points):
        return rng.uniform(size=len(points)) < 1.0 / (1.0 + np.exp(-2.0 * np.sin(2.0 * points[:, 0])))

    p, y = FAMILIES[family][1]().fit(x, draw(x)).predict_proba(new)[:, 1], draw(new)
    for low, high in itertools.pairwise([0.0, 0.35, 0.65, 1.0]):
        some = (p >= low) & (p < high)
        assert np.mean(y[some]) == pytest.approx(np.mean(p[some]), abs=0.12)


@every_regression
def test_a_column_of_targets_is_one_output(kind, fitted):
    column = KINDS[kind][0]().fit(X, Y[:, None])
    mean, std = column.predict(NEW, return_std=True)
    expected = fitted[kind].predict(NEW, return_std=True)
    assert mean.shape == std.shape == (50, 1)
    np.testing.assert_allclose(mean[:, 0], expected[0], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(std[:, 0], expected[1], rtol=1e-9)


@pytest.mark.parametrize("n_features", [32, 33, 40])
@pytest.mark.parametrize("family", FAMILIES)
def test_many_inputs(family, n_features):
    """A width for each of many inputs, or one for all: the data choose, and nothing fails."""
    rng = np.random.default_rng(7)
    wide = rng.normal(size=(80, n_features))
    f = wide[:, 0] + np.sin(wide[:, 1])
    regressor, classifier = FAMILIES[family]
    model = regressor().fit(wide[:60], f[:60] + 0.1 * rng.standard_normal(60))
    assert np.all(np.isfinite(outputs(model, wide))) and model.score(wide[60:], f[60:]) > 0.1
    assert classifier().fit(wide[:60], f[:60] > 0.0).score(wide[60:], f[60:] > 0.0) >= 0.5


# --- files and exports ---------------------------------------------------------------------------------------------


@every_kind
def test_models_come_back_from_files_to_the_last_bit(kind, fitted, tmp_path):
    model = fitted[kind]
    relvec.save(model, tmp_path / "model")
    for again in (relvec.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(outputs(again), outputs(model))
        assert again.get_params() == model.get_params() and again.status_ == model.status_


@every_kind
def test_onnx_predicts_the_same(kind, fitted):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(relvec.to_onnx(fitted[kind]).SerializeToString())
    found = session.run(None, {session.get_inputs()[0].name: NEW})
    if "regression" in kind:
        np.testing.assert_allclose(np.column_stack([np.ravel(v) for v in found[:2]]), outputs(fitted[kind]), rtol=1e-6)
    else:
        np.testing.assert_array_equal(found[0], fitted[kind].predict(NEW))
        np.testing.assert_allclose(found[1], outputs(fitted[kind]), rtol=1e-6, atol=1e-9)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@every_kind
def test_c99_predicts_the_same(kind, fitted, tmp_path):
    if "process" in kind:
        with pytest.raises(NotImplementedError, match="Gaussian process"):
            relvec.to_c(fitted[kind])
        return
    loaded = compile_c(relvec.to_c(fitted[kind]), tmp_path / "model")
    for row, expected in zip(np.ascontiguousarray(NEW), outputs(fitted[kind]), strict=True):
        found = np.zeros(len(expected))
        point, first, second = pointer(row), pointer(found), pointer(found[1:])
        if "regression" in kind:
            loaded.relvec_predict(point, first, second)
        else:
            loaded.relvec_predict_proba(point, first)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


# --- long and repeated fits ----------------------------------------------------------------------------------------


def count_steps(model, X, y, stop_at=np.inf):
    """Fit, and return the steps reported; the fit is killed at one of them where asked."""
    steps = itertools.count(1)

    def step(progress):
        if next(steps) >= stop_at:
            raise KeyboardInterrupt

    with watch(step):
        model.fit(X, y)
    return next(steps) - 1


@every_kind
def test_a_warm_start_takes_fewer_steps_and_ends_no_lower(kind, fitted):
    make, X, y = KINDS[kind]
    steps, fewer = count_steps(make(), X, y), len(X) * 9 // 10
    warm = make(warm_start=True).fit(X[:fewer], y[:fewer])
    again = count_steps(warm, X, y)
    if kind.startswith("machine"):  # widths are known, and held-out rows choose among as many models as before
        again, steps = np.sum(warm.n_iter_), np.sum(fitted[kind].n_iter_)
    assert again < steps
    assert warm.status_ in ("converged", "held_out")
    assert warm.log_marginal_likelihood_ > fitted[kind].log_marginal_likelihood_ - 2.0
    reached = warm.log_marginal_likelihood_
    assert warm.fit(X, y).log_marginal_likelihood_ >= reached - 0.05  # climbs end where steps gain hundredths of a nat


@every_kind
def test_little_memory_does_not_change_the_model(kind, fitted):
    make, X, y = KINDS[kind]
    assert_same(fitted[kind], make(memory_limit="10MB").fit(X, y))


@every_kind
def test_predict_takes_single_precision_and_lists(kind, fitted):
    expected = outputs(fitted[kind])
    np.testing.assert_array_equal(outputs(fitted[kind], NEW.tolist()), expected)
    np.testing.assert_allclose(outputs(fitted[kind], NEW.astype(np.float32)), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["process", "linear"])  # a machine may keep a kernel, which is 0 elsewhere
def test_constant_inputs_tell_the_mean_everywhere(family):
    X, y = np.ones((30, 2)), 5.0 + np.random.default_rng(0).normal(size=30)
    mean, deviation = FAMILIES[family][0]().fit(X, y).predict([[1.0, 1.0], [50.0, -3.0]], return_std=True)
    np.testing.assert_allclose(mean, y.mean(), rtol=0.01)
    np.testing.assert_allclose(deviation, y.std(), rtol=0.1)
    p = FAMILIES[family][1]().fit(X, np.arange(30) > 20).predict_proba([[1.0, 1.0], [50.0, -3.0]])[:, 1]
    assert p[0] == p[1] and 0.25 < p[0] < 0.45


@pytest.mark.parametrize("copies", [1, 10])
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_few_distinct_rows_are_joined_by_nearly_a_line_with_wide_error_bars(n, copies):
    X, noise = (
        np.repeat(np.linspace(0.0, 1.0, n), copies)[:, None],
        0.1 * np.random.default_rng(n).normal(size=n * copies),
    )
    mean, deviation = GPRegressor().fit(X, 10.0 + 2.0 * X[:, 0] + noise).predict([[0.1], [0.6], [3.0]], True)
    line = np.array([10.2, 11.2, 16.0])
    assert np.all(np.abs(mean - line) < 4.0 * deviation) and np.all(np.abs(mean - line)[:2] < 0.5)
    assert deviation[2] > 1.2 * deviation[0]  # the leverage of a straight line through all rows, at least


def test_two_rows_tell_two_classes_apart_with_caution():
    p = GPClassifier().fit([[0.0], [1.0]], [0, 1]).predict_proba([[0.0], [0.5], [1.0]])[:, 1]
    assert 0.1 < p[0] < 0.45 and abs(p[1] - 0.5) < 0.05 and 0.55 < p[2] < 0.9
