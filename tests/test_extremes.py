"""Numbers at the ends of the range: a fit of the same quality or a clear refusal, never NaN or numpy's words."""

import pickle
import warnings

import numpy as np
import pytest

from relvec import RVC, RVR

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
SIGNAL = np.sin(2.0 * X[:, 0])
Y = SIGNAL + 0.1 * RNG.normal(size=30)
COUNTS = np.round(np.exp(SIGNAL + 1.0))
FAR = np.array([[0.0, 0.0], [1e154, -1e154]])


def attributes(model):
    """Names of the attributes of a fitted model that hold NaN."""
    found = []
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, float | np.ndarray) and np.asarray(value).dtype.kind == "f":
            found += [name] if np.isnan(value).any() else []
    return found


@pytest.mark.parametrize("model", [RVR(), RVR(width="scale"), RVC(), RVC(width="scale")], ids=repr)
@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-154, 1e154, 1e300])
def test_inputs_of_any_size_give_a_finite_model(model, scale):
    target = Y if isinstance(model, RVR) else SIGNAL > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model.fit(X * scale, target)
        assert model.score(X * scale, target) > 0.9
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
            model.predict(FAR, return_std=True) if isinstance(model, RVR) else model.predict_proba(FAR)


@pytest.mark.parametrize("weight", [1e-200, 1e150, 1e200, 1e306])
@pytest.mark.parametrize(
    ("model", "target"),
    [(RVR(), Y), (RVR(width=1.0), Y), (RVR(likelihood="poisson"), COUNTS), (RVC(), SIGNAL > 0)],
    ids=["default", "rvm", "counts", "classes"],
)
def test_weights_beyond_the_number_range_are_refused(model, target, weight):
    with pytest.raises(ValueError, match="divide sample_weight by its mean"):
        model.fit(X, target, np.full(30, weight))


def test_class_weights_beyond_the_number_range_are_refused():
    with pytest.raises(ValueError, match="divide sample_weight by its mean"):
        RVC(class_weight={False: 1e160, True: 1.0}).fit(X, SIGNAL > 0)


@pytest.mark.parametrize("where", ["X", "y", "sample_weight", "predict"])
def test_masked_values_are_refused(where):
    masked = np.ma.masked_array(X, mask=np.zeros_like(X, dtype=bool))
    model = RVR(width=1.0).fit(masked, Y)  # nothing is masked
    if where in ("X", "predict"):
        masked.mask[3, 1] = True
        call = (lambda: model.fit(masked, Y)) if where == "X" else lambda: model.predict(masked)
    else:
        other = np.ma.masked_array(np.ones(30) if where == "sample_weight" else Y, mask=np.arange(30) == 3)
        call = (lambda: model.fit(X, other)) if where == "y" else lambda: model.fit(X, Y, other)
    with pytest.raises(ValueError, match="masked"):
        call()


def test_a_pickle_of_another_version_says_what_to_do():
    model = RVR(width=1.0).fit(X, Y)
    data = pickle.dumps(model)
    assert np.array_equal(pickle.loads(data).predict(X), model.predict(X))
    state = model.__getstate__()
    with pytest.warns(UserWarning, match="made by relvec 0.0.1"):
        RVR().__setstate__(state | {"_relvec_version": "0.0.1"})
    old = {name: value for name, value in vars(model.fitted_).items() if name != "predictors"}
    with pytest.raises(ValueError, match=r"relvec\.save"):
        object.__new__(type(model.fitted_)).__setstate__(old)
    new = {name: value for name, value in vars(model.fitted_).items() if name != "merit"}
    made = object.__new__(type(model.fitted_))
    made.__setstate__(new)
    assert made.merit is None
