"""Numbers at the ends of the range: a fit of the same quality or a clear refusal, never NaN or numpy's words."""

import copy
import pickle
import re
import tracemalloc
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import d2_tweedie_score, r2_score

from relvec import (
    RVC,
    RVR,
    GPClassifier,
    GPRegressor,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
    relevance_path,
)
from relvec.basis import centres_of
from relvec.estimators.predictions.scores import explained_share
from relvec.gaussian_process import Structure, fit_process, rows
from relvec.gaussian_process.kernel import Part, Shape
from relvec.inference.scale import Scale
from relvec.runtime.clock import Clock

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
SIGNAL = np.sin(2.0 * X[:, 0])
Y = SIGNAL + 0.1 * RNG.normal(size=30)
COUNTS = np.round(np.exp(SIGNAL + 1.0))
FAR = np.array([[0.0, 0.0], [1e154, -1e154]])
REGRESSORS, CLASSIFIERS = [RVR, GPRegressor, SparseBayesianRegressor], [RVC, GPClassifier, SparseBayesianClassifier]
EVERY = [make() for make in REGRESSORS + CLASSIFIERS]
every_regressor = pytest.mark.parametrize("make", REGRESSORS)
every_classifier = pytest.mark.parametrize("make", CLASSIFIERS)


def attributes(model):
    """Names of the attributes of a fitted model that hold NaN."""
    found = []
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
            found += [name] if np.isnan(value).any() else []
    return found


@pytest.mark.parametrize("model", [RVR(), RVR(width="scale"), RVC()], ids=repr)
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-154, 1e154, 1e300])
def test_inputs_of_any_size_give_a_finite_model(model, scale):
    target = Y if is_regressor(model) else SIGNAL > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X * scale, target)
        assert model.score(X * scale, target) > 0.9
    assert attributes(model) == []


@pytest.mark.parametrize("make", [GPRegressor, GPClassifier, SparseBayesianRegressor, SparseBayesianClassifier])
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-154, 1e-100, 1e100, 1e154, 1e300])
def test_inputs_of_any_size_give_as_good_a_model_or_are_refused(make, scale):
    target = Y if make in REGRESSORS else SIGNAL > 0
    usual = make().fit(X, target).score(X, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        try:
            model = make().fit(X * scale, target)
        except ValueError as error:
            assert not 1e-100 <= scale <= 1e100
            assert re.search("divide X by its standard deviation|Standardise X", str(error))
            return
        assert model.score(X * scale, target) == pytest.approx(usual, abs=0.02)
    assert attributes(model) == []


@pytest.mark.parametrize("kernel", ["polynomial", "linear_spline"])
@pytest.mark.parametrize("kind", ["regression", "counts", "two classes", "three classes"])
def test_predictions_that_overflow_name_the_row(kernel, kind):
    model = RVR(kernel=kernel, likelihood="poisson" if kind == "counts" else "gaussian") if kind in (
        "regression", "counts") else RVC(kernel=kernel)  # fmt: skip
    target = {"regression": Y, "counts": COUNTS, "two classes": SIGNAL > 0}.get(kind, np.digitize(SIGNAL, [-0.4, 0.4]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, target)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="row 1 of X overflows"):
            model.predict(FAR, return_std=True) if is_regressor(model) else model.predict_proba(FAR)


@pytest.mark.parametrize("weight", [1e-200, 1e40, 1e150, 1e200, 1e306])
@pytest.mark.parametrize(
    ("model", "target"),
    [(make(), Y) for make in REGRESSORS]
    + [(make(), SIGNAL > 0) for make in CLASSIFIERS]
    + [(RVR(likelihood="poisson"), COUNTS)],
)
def test_weights_beyond_the_number_range_are_refused(model, target, weight):
    with pytest.raises(ValueError, match="divide sample_weight by its mean"):
        model.fit(X, target, np.full(30, weight))


@pytest.mark.parametrize("weight", [1e-100, 1e-12, 3e13])
@pytest.mark.parametrize(
    ("model", "target"),
    [
        *[
            (make(), labels)
            for make in (RVC, GPClassifier)
            for labels in (SIGNAL > 0, np.digitize(SIGNAL, [-0.4, 0.4]))
        ],
        *[(make(), Y) for make in (RVR, GPRegressor)],
        (RVR(likelihood="poisson"), COUNTS),
    ],
)
def test_weights_of_any_size_within_the_range_give_a_finite_model(model, target, weight):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X, target, np.full(30, weight))
        assert np.all(np.isfinite(model.predict(X)))
        assert weight < 1.0 or model.score(X, target) > 0.9


@pytest.mark.parametrize("model", [*EVERY, RVR(width=1.0), RVC(width=1.0)], ids=repr)
@pytest.mark.parametrize("value", [1e305, np.finfo(float).max])
def test_inputs_at_the_end_of_the_range_are_refused(model, value):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="rescale X"):
            model.fit(np.column_stack([X, np.full(30, value)]), Y if is_regressor(model) else SIGNAL > 0)


@pytest.mark.parametrize("make", [RVR, GPRegressor])
def test_targets_of_repeated_rows_whose_squares_overflow_are_refused(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="divide y by its standard deviation"):
            make().fit(X > 0.0, np.where(np.arange(30) == 0, 1e200, Y))


@every_classifier
def test_labels_that_are_no_integers_are_refused_without_words_of_numpy(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="label type"):
            make().fit(X, np.where(SIGNAL > 0, 1e308, 0.5))
        with pytest.raises(ValueError, match="labels of the types bool, str"):
            make().fit(X, np.array(["no", True] * 15, dtype=object))


def objects(*values):
    """Return thirty objects, those given in turn."""
    found = np.empty(30, dtype=object)
    found[:] = (values * 30)[:30]
    return found


NA = type("NAType", (), {"__ne__": lambda self, other: self, "__bool__": lambda self: [][0]})()  # as pandas has it


@pytest.mark.parametrize(("labels", "message"), [
    (objects(None, 1), "no label in row 0, got None: leave out such rows"),
    (objects("a", np.nan, "b"), "no label in row 1, got nan"),
    (objects("a", "b", NA), "no label in row 2"),
    (np.array(["2020-01-01", "NaT"] * 15, dtype="M8[D]"), "no label in row 1, got None"),
    ([[1, 2], [3]] * 15, r"one label for each row, got \[1, 2\] in row 0"),
    (np.zeros(30, dtype=[("a", int), ("b", float)]), r"one label for each row, got \(0, 0.0\) in row 0"),
    (objects(True, False), r"of the types bool as objects; make all of them text, y.astype\(str\)"),
    (objects(2**70, 1), "Unknown label type: y has labels of the types int as objects"),
])  # fmt: skip
@every_classifier
def test_labels_that_are_missing_or_no_single_values_are_refused(make, labels, message):
    with pytest.raises(ValueError, match=message):
        make().fit(X, labels)


@pytest.mark.parametrize("target", [
    objects(None, 1.0, 2.0), objects(2**2000, 1.0, 2.0), objects("a", 1.0), objects((1, 2), 1.0), np.array(1.0),
    np.zeros(30, dtype=[("a", int), ("b", float)]), [[1.0, 2.0], [3.0]] * 15, Y + 1j, iter([1.0]),
    np.column_stack([objects(None, 1.0), Y]),
])  # fmt: skip
@every_regressor
def test_targets_that_are_no_numbers_are_refused(make, target):
    with pytest.raises(ValueError, match="y must hold finite numbers: leave out rows without a target"):
        make().fit(X, target)


@pytest.mark.parametrize("target", [
    np.zeros(30, dtype=[("time", float), ("event", bool)]), np.full((30, 2), "a"), objects(range(2), 1),
    [[1.0, 2.0], [3.0]] * 15,
])  # fmt: skip
def test_ends_that_are_no_numbers_are_refused(target):
    with pytest.raises(ValueError, match=r"censored targets are numbers \(n, 2\)"):
        GPRegressor(likelihood="censored").fit(X, target)


def test_ends_that_tell_nothing_are_refused():
    with pytest.raises(ValueError, match="got 0: check sample_weight, or infinite ends"):
        GPRegressor(likelihood="censored").fit(X, np.tile([-np.inf, np.inf], (30, 1)))
    with pytest.raises(ValueError, match="divide y by its standard deviation"):
        GPRegressor(likelihood="censored").fit(X, np.tile([-1e300, 1e300], (30, 1)))


@pytest.mark.parametrize("options", [{"width": 1.0}, {"kernel": None, "basis": "linear"}], ids=str)
@pytest.mark.parametrize("size", [1e6, 1e9, 1e15])
def test_counts_of_any_size_are_fitted(options, size):
    # Newton's steps began at rates that overflow, and the model was the rate 1.
    counts = np.floor(0.2 * size * np.exp(0.3 * X[:, 0]))
    model = RVR(likelihood="poisson", **options).fit(X, counts)
    np.testing.assert_allclose(model.predict(X), counts, rtol=0.01)
    assert model.score(X, counts) > 0.99


def test_rate_of_zeros_alone_is_small():
    both = RVR(likelihood="poisson").fit(X, np.column_stack([COUNTS, np.zeros(30)])).predict(X)
    np.testing.assert_allclose(both[:, 0], RVR(likelihood="poisson").fit(X, COUNTS).predict(X), rtol=1e-6)
    alone = RVR(likelihood="poisson").fit(X, np.arange(30) == 0, np.arange(30) != 0).predict(X)
    for rates in (both[:, 1], alone):
        assert np.all((rates > 0.0) & (rates < 2.0 / 30)) and np.ptp(rates) < 1e-6


def test_counts_that_have_no_next_number_are_refused():
    with pytest.raises(ValueError, match=r"whole numbers from 0 to 1e\+15"):
        RVR(likelihood="poisson").fit(X, np.where(np.arange(30) == 0, 1e300, COUNTS))


def test_equal_counts_have_no_deviance_to_explain():
    model = RVR(likelihood="poisson").fit(X, np.full(30, 3))
    assert model.score(X, np.full(30, 3)) == model.score(X, np.full(30, 1e15)) == 0.0


def test_weights_of_a_share_of_classes_are_checked():
    model = RVC(kernel=None, basis="linear").fit(X, SIGNAL > 0)
    assert model.score(X, SIGNAL > 0, np.full(30, 1e308)) == pytest.approx(model.score(X, SIGNAL > 0))
    for weight in (-np.ones(30), ["a"] * 30, objects(None, 1.0)):
        with pytest.raises(ValueError):
            model.score(X, SIGNAL > 0, weight)
    with pytest.raises(ValueError, match="no label in row 0"):
        model.score(X, objects(None))


@every_classifier
def test_class_weights_beyond_the_number_range_are_refused(make):
    with pytest.raises(ValueError, match="divide sample_weight by its mean"):
        make(class_weight={False: 1e160, True: 1.0}).fit(X, SIGNAL > 0)


@pytest.mark.parametrize("weight", [-1.0, np.nan, None])
@every_classifier
def test_class_weights_below_zero_or_missing_are_refused(make, weight):
    with pytest.raises(ValueError, match="class_weight must give each class a number of 0 or more"):
        make(class_weight={0: weight, 1: 1.0, 2: 1.0}).fit(X, np.arange(30) % 3)


@pytest.mark.parametrize(
    "model",
    [RVR(width="grvm"), RVR(centres="move"), RVR(kernel="polynomial"), GPRegressor(noise="heteroscedastic")],
    ids=str,
)
@pytest.mark.parametrize("scale", [1e-320, 1e-154, 1e-90, 1e90, 1e154, 1e300])
def test_what_is_learned_of_inputs_of_any_size_is_finite_or_refused(model, scale):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", RuntimeWarning)
        try:
            model = clone(model).fit(X * scale, Y)
        except ValueError as error:
            assert re.search("[Rr]escale (X|the inputs)|Standardise X|divide X by its standard deviation", str(error))
            return
        assert model.score(X * scale, Y) > (0.1 if "polynomial" in repr(model) else 0.9)
    assert attributes(model) == []


MASKED_X = np.ma.masked_array(X, mask=np.arange(60).reshape(30, 2) == 7)
MASKED_Y, MASKED_WEIGHTS = (np.ma.masked_array(values, mask=np.arange(30) == 3) for values in (Y, np.ones(30)))
FITTED, CLASSES = RVR(width=1.0).fit(X, Y), RVC(width=1.0).fit(X, SIGNAL > 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: RVR(width=1.0).fit(MASKED_X, Y),
        lambda: RVR(width=1.0).fit(list(MASKED_X), Y),
        lambda: RVR(width=1.0).fit(X, MASKED_Y),
        lambda: RVR(width=1.0).fit(X, Y, MASKED_WEIGHTS),
        lambda: RVC().fit(X, SIGNAL > 0, MASKED_WEIGHTS),
        lambda: GPRegressor().fit(MASKED_X, Y),
        lambda: GPClassifier().fit(X, SIGNAL > 0, MASKED_WEIGHTS),
        lambda: SparseBayesianRegressor().fit(X, MASKED_Y),
        lambda: FITTED.predict(MASKED_X),
        lambda: FITTED.predict(list(MASKED_X)),
        lambda: FITTED.log_predictive_density(X, MASKED_Y),
        lambda: FITTED.calibrate(MASKED_X, Y),
        lambda: FITTED.calibrate(X, MASKED_Y),
        lambda: FITTED.score(X, MASKED_Y),
        lambda: FITTED.score(X, Y, MASKED_WEIGHTS),
        lambda: CLASSES.predict_proba(MASKED_X),
        lambda: CLASSES.score(X, np.ma.masked_array(SIGNAL > 0, mask=np.arange(30) == 3)),
        lambda: CLASSES.calibrate(X, np.ma.masked_array(SIGNAL > 0, mask=np.arange(30) == 3)),
        lambda: relevance_path(X, MASKED_Y),
    ],
)
def test_masked_values_are_refused(call):
    with pytest.raises(ValueError, match="masked array with masked values"):
        call()


def test_a_masked_array_without_masked_values_is_an_array():
    model = RVR(width=1.0).fit(np.ma.masked_array(X), np.ma.masked_array(Y), np.ma.masked_array(np.ones(30)))
    assert np.array_equal(model.predict(X), FITTED.predict(X))


def test_a_pickle_of_another_version_says_what_to_do():
    model = RVR(width=1.0).fit(X, Y)
    data = pickle.dumps(model)
    assert np.array_equal(pickle.loads(data).predict(X), model.predict(X))
    state = model.__getstate__()
    with pytest.warns(UserWarning, match="made by relvec 0.0.1"):
        RVR().__setstate__(state | {"_relvec_version": "0.0.1"})


@pytest.mark.parametrize(
    "options",
    [{}, {"width": 1.0}, {"width": 1.0, "centres": "move"}, {"kernel": None, "basis": "linear"}],
    ids=str,
)
@pytest.mark.parametrize("noise", [1.0 / 3.0, 0.1, np.pi])
def test_a_given_noise_is_kept_to_the_last_digit_by_every_kind_of_fit(options, noise):
    model = RVR(noise_variance=37.7**2 * noise, **options).fit(X, 37.7 * Y)
    assert model.noise_variance_ == 37.7**2 * noise


def as_told(model, rows):
    """Everything a model says of rows, in one array."""
    return np.column_stack(model.predict(rows, return_std=True)) if is_regressor(model) else model.predict_proba(rows)


@pytest.mark.parametrize("exponent", [-490, -350, 350, 490])
@pytest.mark.parametrize("target", [Y, np.exp(3.0 * SIGNAL), np.column_stack([Y, SIGNAL**2])], ids=["y", "log", "two"])
def test_a_process_of_targets_in_other_units_is_the_same_to_the_last_bit(target, exponent):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("error", RuntimeWarning)
        model, other = GPRegressor().fit(X, target), GPRegressor().fit(X, np.ldexp(target, exponent))
    assert hasattr(other, "merit_") and attributes(other) == []
    assert np.array_equal(np.ldexp(model.predict(X), exponent), other.predict(X))
    assert np.array_equal(np.ldexp(model.predict_interval(X), exponent), other.predict_interval(X))


@pytest.mark.parametrize("exponent", [-900, -400, 400, 900])
@pytest.mark.parametrize("model", [GPRegressor(), GPClassifier()], ids=repr)
def test_a_process_of_inputs_in_other_units_is_the_same(model, exponent):
    target, units = (Y if is_regressor(model) else SIGNAL > 0), [exponent, 3]
    other = clone(model).fit(np.ldexp(X, units), target)
    model.fit(X, target)
    assert hasattr(other, "selection_") and attributes(other) == []
    np.testing.assert_allclose(as_told(other, np.ldexp(X, units)), as_told(model, X), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("model", [RVR(), RVC(width="learn-per-feature"), GPRegressor(), GPClassifier()], ids=repr)
@pytest.mark.parametrize("value", [1e50, 1e150])
def test_a_constant_column_of_any_size_does_no_harm(model, value):
    target, wide = (Y if is_regressor(model) else SIGNAL > 0), np.column_stack([X, np.full(30, value)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("error", RuntimeWarning)
        assert clone(model).fit(wide, target).score(wide, target) > 0.9


@pytest.mark.parametrize(
    "weights", [np.append(5e-324, np.ones(29)), 10.0 ** np.linspace(-300, 14, 30)], ids=["one", "all"]
)
@pytest.mark.parametrize("model", [RVR(), GPRegressor(), GPRegressor(noise="constant")], ids=repr)
def test_rows_that_count_next_to_nothing_do_no_harm(weights, model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("error", RuntimeWarning)
        model = clone(model).fit(X, Y, weights)
        assert np.isfinite(model.predict(X, return_std=True)).all() and attributes(model) == []


def test_a_column_too_small_for_weights_is_refused():
    small, target = np.column_stack([1e-320 * X[:, 0], X[:, 1]]), X @ [2.0, 1.0] + 0.01 * Y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with pytest.raises(ValueError, match="Standardise X and y"):
            SparseBayesianRegressor().fit(small, target)
        assert GPRegressor().fit(small, target).score(small, target) > 0.99  # which standardises inside
        assert RVR().fit(small, target).score(small, target) > 0.4  # and has no double for the slope


LONG_TAILED = GPRegressor(noise="constant").fit(X, np.exp(3.0 * Y))
MODELS = {
    "process": LONG_TAILED,
    "rvm": FITTED,
    "on vectors": GPRegressor(max_vectors=8).fit(X, Y),
    "counts": RVR(likelihood="poisson").fit(X, COUNTS),
}
every_model = pytest.mark.parametrize("name", MODELS)


@every_model
@pytest.mark.parametrize("size", [1e3, 1e30, 1e154, 1e308])
@pytest.mark.parametrize(
    "told",
    [
        lambda model, Z: model.predict_interval(Z),
        lambda model, Z: model.predict_quantiles(Z, [1e-3, 0.999], noise=False),
        lambda model, Z: model.predict(Z, return_cov=True)[1],
        lambda model, Z: model.sample_y(Z, 2),
        lambda model, Z: copy.copy(model).calibrate(X, np.round(np.exp(Y))).predict_interval(Z, 0.5),
    ],
    ids=["interval", "quantiles", "covariance", "draws", "calibrated"],
)
def test_what_is_said_of_far_rows_is_finite_or_refused(name, size, told):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = told(MODELS[name], np.sign(X[:4]) * size)
        except ValueError as error:
            assert "of X overflows" in str(error)
        else:
            assert np.isfinite(found).all()


@every_model
@pytest.mark.parametrize("size", [1e-300, 1e154, 1e300])
def test_scores_of_targets_of_any_size_are_finite(name, size):
    model, target = MODELS[name], np.abs(Y) * size
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.score(X, target))
        assert model.score(X, target, np.full(30, 1e308)) == pytest.approx(model.score(X, target))


def test_scores_have_no_units():
    assert explained_share(Y * 1e300, SIGNAL * 1e300, np.ones(30), False) == pytest.approx(r2_score(Y, SIGNAL))
    two = np.column_stack([Y * 1e-200, COUNTS])
    assert explained_share(two, 0.9 * two, np.ones(30), False) == pytest.approx(
        r2_score(two * [1e200, 1.0], 0.9 * two * [1e200, 1.0])
    )
    assert explained_share(COUNTS * 1e300, COUNTS[::-1] * 1e300, np.ones(30), True) == pytest.approx(
        d2_tweedie_score(COUNTS, COUNTS[::-1], power=1)
    )


@every_model
def test_densities_without_a_number_name_the_row(name):
    model = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isfinite(model.log_predictive_density(X, COUNTS)).all()
        with pytest.raises(ValueError, match="y contains NaN"):
            model.log_predictive_density(X, np.where(COUNTS > 2.0, np.nan, COUNTS))
        if name != "process":  # logarithms of 1e200 are no large numbers
            with pytest.raises(ValueError, match="log density of row 3 is beyond"):
                model.log_predictive_density(
                    X, np.where(np.arange(30) == 3, -1.0 if name == "counts" else 1e200, COUNTS)
                )


def test_numbers_of_draws_and_coverages_are_checked():
    for n_samples in (-1, 2.5, "two"):
        with pytest.raises(ValueError, match="n_samples must be a number of functions"):
            FITTED.sample_y(X, n_samples)
    with pytest.raises(ValueError, match="coverage must lie strictly between 0 and 1"):
        FITTED.predict_interval(X, 1.0 - 1e-16)


def test_logarithms_of_probabilities_that_vanish_are_finite():
    model = RVC(kernel=None, basis="linear", averaging="mode").fit(X, X[:, 0] > 0.1 * Y)
    assert model.predict_proba([[1e9, 0.0]]).min() == 0.0
    assert np.isfinite(model.predict_log_proba([[1e9, 0.0]])).all()


@pytest.mark.parametrize("d", [3, 1200])
def test_columns_are_compared_in_blocks_as_in_one_piece(d):
    rng = np.random.default_rng(0)
    wide = rng.integers(0, 4, size=(12, d)) * 1.0  # many copies among so few values and rows
    wide[:, -3:] = np.eye(3)[rng.integers(3, size=12)]
    columns = rows.standardise_inputs(wide, np.ones(12))[1].columns.tolist()
    seen, kept = set(), []
    for k, column in enumerate(wide.T):
        z = np.round((column - column.mean()) / (column.std() or 1.0), 6) + 0.0
        if column.std() > 0.0 and not {z.tobytes(), (0.0 - z + 0.0).tobytes()} & seen:
            kept.append(k)
        seen |= {z.tobytes(), (0.0 - z + 0.0).tobytes()}
    assert columns == kept
    assert rows.find_categories(wide)[-3:] == (d - 3,) * 3


def test_thousands_of_columns_take_no_memory_for_all_pairs_of_them():
    wide = np.random.default_rng(0).normal(size=(12, 3000))
    structure = Structure((Part(Shape.GAUSSIAN),), True, 3000)
    tracemalloc.start()
    try:
        process = fit_process(
            wide, wide[:, 0], candidates=(structure,), target=Scale(), clock=Clock(0.01), floored=False
        )
        [expanded] = process.expand_components(3000, variance=False)
        assert len(centres_of(expanded.basis)) == 12
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40e6  # a matrix of pairs has 72 MB


def test_counts_without_weight_do_not_hide_what_is_explained():
    y, mean = np.append(np.arange(19.0), 1e9), np.append(np.arange(19.0) + 0.5, 1.0)
    weights = np.append(np.ones(19), 0.0)
    without = explained_share(y[:-1], mean[:-1], weights[:-1], True)
    assert explained_share(y, mean, weights, True) == pytest.approx(without) and without > 0.9
