"""Three families, six classes: every parameter, every attribute, and what one family has and another has not."""

import inspect
import re

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

from relvec import (
    RVC,
    RVR,
    GammaPrior,
    GPClassifier,
    GPRegressor,
    SparseBayesianClassifier,
    SparseBayesianRegressor,
    kernels,
)
from relvec.estimators.records import FittedProcess, FittedRVM
from relvec.inference.predictive import Augmented
from relvec.solvers import EM, MacKay, Sequential

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
F = np.sin(1.5 * X[:, 0]) + 0.5 * X[:, 1]
Y = F + np.exp(X[:, 0] - 2.0) * RNG.normal(size=80)  # noise that depends on an input
LABEL = np.where(F + 0.5 * RNG.normal(size=80) > 0.4, "yes", "no")
THREE = np.digitize(F + 0.3 * RNG.normal(size=80), [-0.5, 0.5])
COUNTS = RNG.poisson(np.exp(F + 1.0))
ENDS = np.column_stack([np.minimum(Y, 0.8), np.where(Y > 0.8, np.inf, Y)])
BOTH = np.column_stack([Y, X[:, 1] + 0.1 * RNG.normal(size=80)])

LINEAR = [SparseBayesianRegressor, SparseBayesianClassifier]
MACHINES = [RVR, RVC, *LINEAR]
PROCESSES = [GPRegressor, GPClassifier]
ESTIMATORS = [RVR, RVC, GPRegressor, GPClassifier, SparseBayesianRegressor, SparseBayesianClassifier]
every_estimator = pytest.mark.parametrize("make", ESTIMATORS)

# --- every parameter, set alone --------------------------------------------------------------------------------------

# Values other than the default of every parameter.
RUNNING = {
    "warm_start": [True],
    "memory_limit": ["50MB", 1e9],
    "time_limit": [60.0],
    "verbose": [0, True, 2],
}
DRAWN = RUNNING | {"random_state": [0]}
DICTIONARY = {
    "kernel": ["laplace", "linear_spline", kernels.Matern(1.5, 2.0), None],
    "width": [1.5, [1.0, 2.0, 3.0], "scale", "learn", "grvm"],
    "centres": ["move", "grvm"],
    "basis": ["linear", ["quadratic", np.sin]],
    "fit_intercept": [False],
    "predictive": ["augmented", Augmented(2.0)],
}
OF_TARGETS = {
    "solver": ["mackay", "em", Sequential(price=3.0), EM(hyperprior=GammaPrior(c=10.0, d=1.0))],
    "tol": [20.0],
    "noise_variance": [0.5],
    "max_functions": [1],
    "share_alpha": [True],
}
OF_CLASSES = {
    "solver": ["mackay", Sequential(price=5.0), MacKay(max_iter=20)],
    "tol": [20.0],
    "max_functions": [1],
    "class_weight": ["balanced", {"yes": 5.0, "no": 1.0}],
    "multi_class": ["ovr"],
    "share_alpha": [True],
    "averaging": ["mode"],
}
GROUPS = {"column_groups": [[0, 1, 1]]}
VALUES = {
    RVR: DICTIONARY | OF_TARGETS | DRAWN | {"likelihood": ["student-t", "poisson"]},
    RVC: DICTIONARY | OF_CLASSES | DRAWN | {"width": [1.5, "learn", "learn-per-feature", "grvm"]},  # "auto" is "scale"
    GPRegressor: RUNNING
    | {"likelihood": ["student-t", "censored"], "noise": ["constant", "heteroscedastic"], "max_vectors": [5]},
    GPClassifier: RUNNING
    | {
        "kernel": ["gaussian", "matern32", kernels.Matern(2.5)],
        "width": [1.5, "scale", "learn", "learn-per-feature"],
        "class_weight": OF_CLASSES["class_weight"],
        "max_vectors": [5],
    },
    SparseBayesianRegressor: OF_TARGETS | DRAWN | GROUPS | {"fit_intercept": [False]},
    SparseBayesianClassifier: OF_CLASSES | DRAWN | {"fit_intercept": [False]},
}
CASES = [(make, name, value) for make, table in VALUES.items() for name, values in table.items() for value in values]


def ids(value):
    return value.__name__ if inspect.isclass(value) else str(value)[:30].replace("\n", " ")


def parameters(make):
    return {name for name in inspect.signature(make).parameters if name != "self"}


def data_for(make, name, value):
    """Rows on which a parameter has something to do."""
    if is_regressor(make()):
        special = {"poisson": COUNTS, "censored": ENDS}.get(value if isinstance(value, str) else "")
        return X, BOTH if name == "share_alpha" else Y if special is None else special
    return X, THREE if name in ("share_alpha", "multi_class") else LABEL


def told(model):
    """What a model says and how it was fitted, as one array."""
    found = model.fitted_
    said = np.ravel(model.predict(X, return_std=True) if is_regressor(model) else model.predict_proba(X))
    fitted = (
        [found.n_iter, found.certificate, found.n_candidates] if isinstance(found, FittedRVM) else [found.n_evaluations]
    )
    return np.concatenate([said, np.ravel(found.log_evidence), *map(np.ravel, fitted)])


@every_estimator
def test_every_parameter_has_a_value_in_the_table(make):
    assert parameters(make) == set(VALUES[make])


@pytest.mark.parametrize(("make", "name", "value"), CASES, ids=ids)
def test_a_parameter_set_alone_keeps_the_family_and_has_an_effect_or_is_refused_by_name(make, name, value, capsys):
    data = data_for(make, name, value)
    try:
        model = make(**{name: value}).fit(*data)
    except ValueError as error:
        assert name in str(error)
        return
    assert type(model.fitted_) is (FittedProcess if make in PROCESSES else FittedRVM)
    if name in DRAWN:
        return
    if value in ("poisson", "censored"):  # which no other likelihood takes
        assert "noise_variance_" not in vars(model) if value == "poisson" else model.n_censored_ > 0
        return
    before, after = told(make().fit(*data)), told(model)
    assert before.shape != after.shape or not np.allclose(before, after, rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize(("make", "name"), dict.fromkeys((make, name) for make, name, _ in CASES), ids=ids)
def test_a_grid_may_be_searched_over_every_parameter(make, name):
    value = VALUES[make][name][0]
    values = [value] if value in ("poisson", "censored") else [inspect.signature(make).parameters[name].default, value]
    folds = KFold if is_regressor(make()) else StratifiedKFold
    search = GridSearchCV(make(), {name: values}, cv=folds(2, shuffle=True, random_state=0), error_score="raise")
    search.fit(*(part[:40] for part in data_for(make, name, value)))
    assert repr(clone(search.best_estimator_).get_params()) == repr(search.best_estimator_.get_params())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("make", "most"),
    [(RVR, 18), (RVC, 18), (GPRegressor, 12), (GPClassifier, 12), (SparseBayesianRegressor, 14),
     (SparseBayesianClassifier, 14)],
)  # fmt: skip
def test_parameters_are_few(make, most):
    assert len(parameters(make)) <= most


# --- every attribute -------------------------------------------------------------------------------------------------

CONDITION = re.compile(r"only where|absent|only for|of Student-t noise|for ``likelihood=")
OF_TABLES = {"feature_names_in_"}  # exists where columns have names


@pytest.fixture(scope="module")
def fitted():
    """Each class as it comes on the same small table; no test may change them."""
    return {make: make().fit(X, Y if is_regressor(make()) else LABEL) for make in ESTIMATORS}


def documented(make):
    """Return the names of the attributes that a class promises, and of those that exist under a condition."""
    text = inspect.getdoc(make)
    part = text[text.index("Attributes\n") : text.index("Examples\n")].split("\n", 2)[2].split("\n\n")[0]
    always, conditional = set(), set()
    for entry in re.split(r"\n(?=\S)", part):
        names = set(re.findall(r"\b[a-z]\w*_(?![\w(])", entry.split(" : ")[0] if " : " in entry else entry))
        names |= set(re.findall(r"`([a-z]\w*_)`", entry))
        reference = re.search(r"As in `(\w+)`", entry)
        if reference:
            other = documented({cls.__name__: cls for cls in ESTIMATORS}[reference[1]])[1]
            conditional |= names & other
            names -= other
        (conditional if CONDITION.search(entry) else always).update(names)
    return always - conditional - OF_TABLES, conditional | OF_TABLES


@every_estimator
def test_every_attribute_of_the_docstring_exists(make, fitted):
    always, _ = documented(make)
    assert len(always) > 8 and sorted(name for name in always if not hasattr(fitted[make], name)) == []


@every_estimator
def test_every_attribute_stands_in_the_docstring(make, fitted):
    always, conditional = documented(make)
    public = {name for name in vars(fitted[make]) if name.endswith("_") and not name.startswith("_")}
    assert sorted(public - always - conditional) == []


def test_conditional_attributes_exist_under_their_conditions():
    assert {"degrees_of_freedom_", "outliers_"} <= set(vars(RVR(likelihood="student-t").fit(X, Y)))
    assert {"degrees_of_freedom_", "outliers_"} <= set(vars(GPRegressor(likelihood="student-t").fit(X, Y)))
    assert {"noise_columns_"} <= set(vars(GPRegressor(noise="heteroscedastic").fit(X, Y)))
    assert {"n_censored_"} <= set(vars(GPRegressor(likelihood="censored").fit(X, ENDS)))
    assert {"tuning_", "placement_"} <= set(vars(RVR(centres="move").fit(X, Y)))
    assert {"choice_"} <= set(vars(RVR().fit(X, Y))) and "tuning_" not in vars(RVR().fit(X, Y))
    assert {"coef_", "coef_std_", "selected_", "gain_"} <= set(vars(RVR(kernel=None, basis="linear").fit(X, Y)))
    assert "relevance_vectors_" not in vars(RVR(kernel="precomputed").fit(X @ X.T, Y))
    again = RVR(kernel=None, basis="quadratic").fit(X, Y)  # what the first fit had and the second has not is gone
    assert len(again.relevance_) == 0 and "history_" in vars(again)
    assert {"relevance_", "centres_", "coef_"} & set(vars(again.set_params(basis="linear").fit(X, Y))) == {"coef_"}
    assert "history_" not in vars(again.set_params(kernel="auto", basis=None).fit(X, Y))


# --- what one family has and another has not -------------------------------------------------------------------------

OF_MACHINES = ("alpha_", "gamma_", "weights_", "covariance_", "relevance_", "certificate_")


@pytest.mark.parametrize("make", MACHINES)
def test_a_machine_is_a_machine(make, fitted):
    model = fitted[make]
    assert isinstance(model.fitted_, FittedRVM)
    no_rows = {"relevance_"} if make in LINEAR else set()
    assert {name for name in OF_MACHINES if not hasattr(model, name)} == no_rows
    for name in (
        {*OF_MACHINES} - no_rows
        | {"log_marginal_likelihood_"}
        | ({"noise_variance_"} if is_regressor(model) else set())
    ):
        assert not np.any(np.isnan(getattr(model, name))), name
    # the constant of a linear model takes the means of columns back, which are centred
    kept = np.array([make not in LINEAR or name != "bias" for name in model.atoms_])
    determined = 1.0 - model.alpha_[kept] * np.diag(model.covariance_)[kept]
    np.testing.assert_allclose(determined, model.gamma_[kept], rtol=1e-6, atol=1e-8)
    assert kept.any() and np.all(np.isfinite(model.alpha_[kept]))
    assert len(model.weights_) < len(X) / 2
    assert not hasattr(model, "process_") and not hasattr(model, "vectors_")


@pytest.mark.parametrize("make", PROCESSES)
def test_a_process_is_no_machine(make, fitted):
    model = fitted[make]
    assert isinstance(model.fitted_, FittedProcess)
    assert [name for name in OF_MACHINES if hasattr(model, name)] == []
    np.testing.assert_array_equal(model.vectors_, X[model.vector_rows_])


def test_a_machine_as_it_comes_keeps_few_rows():
    """The sinc of the README."""
    rng = np.random.default_rng(0)
    x = np.linspace(-10.0, 10.0, 100)[:, None]
    t = np.sinc(x[:, 0] / np.pi) + 0.1 * rng.standard_normal(100)
    model = RVR().fit(x, t)
    assert 1 < len(model.relevance_) <= 12
    assert np.sqrt(np.mean((model.predict(x) - np.sinc(x[:, 0] / np.pi)) ** 2)) < 0.05


# --- what is shown ---------------------------------------------------------------------------------------------------


@every_estimator
def test_records_print_a_few_lines(make, fitted):
    shown = [fitted[make].fitted_, *([fitted[make].process_] if make in PROCESSES else [])]
    for record in shown:
        assert 1 <= len(repr(record).splitlines()) <= 60 and len(repr(record)) < 60 * 200


@every_estimator
def test_docstrings_are_a_page(make):
    text = inspect.getdoc(make)
    assert len(text.splitlines()) <= 100 and sum(bool(re.search("[A-Za-z]", word)) for word in text.split()) <= 900
