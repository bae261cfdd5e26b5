"""Kernels compared by merit and by rows that took no part."""

import warnings

import numpy as np
import pytest

from relvec import RVC, RVR, compare

RNG = np.random.default_rng(0)
X = RNG.uniform(-2.0, 2.0, (120, 2))
ROUGH = np.abs(np.sin(3.0 * X[:, 0])) + 0.02 * RNG.standard_normal(120)


def test_a_linear_target_asks_for_a_linear_part():
    y = 2.0 * X[:, 0] - X[:, 1] + 0.1 * RNG.standard_normal(120)
    found = compare(X, y, ["gaussian", "gaussian + linear", "matern32"])
    assert found.rows[0].name == "gaussian + linear" and found.by == "merit"
    assert found.probabilities.sum() == pytest.approx(1.0)


def test_a_rough_target_asks_for_a_rough_kernel():
    assert compare(X, ROUGH, ["gaussian[each]", "matern32[each]"]).rows[0].name == "matern32[2]"


def test_an_input_that_matters_is_missed():
    merit = [compare(X[:, columns], ROUGH, ["matern32"]).rows[0].value for columns in ([0], [1], [0, 1])]
    assert merit[0] > merit[2] > merit[1] + 10.0


def test_merits_do_not_depend_on_units_but_for_the_density():
    one, other = (compare(X, ROUGH * factor, ["gaussian", "matern32"]) for factor in (1.0, 10.0))
    shift = len(X) * np.log(10.0)
    np.testing.assert_allclose([r.value for r in one.rows], [r.value + shift for r in other.rows], rtol=1e-6)


def test_outputs_share_one_choice():
    both = compare(X, np.column_stack([ROUGH, X[:, 0]]), ["gaussian", "matern32 + linear"])
    single = [compare(X, y, ["matern32 + linear"]).rows[0].value for y in (ROUGH, X[:, 0])]
    value = next(row.value for row in both.rows if row.name == "matern32 + linear")
    assert value == pytest.approx(sum(single))


@pytest.mark.parametrize("estimator", [RVR(width=2.0), RVC(width=2.0)], ids=["regression", "classes"])
def test_folds_prefer_what_predicts(estimator):
    wave = np.sin(2.0 * X[:, 0]) + 0.1 * np.random.default_rng(1).standard_normal(120)
    y = wave if isinstance(estimator, RVR) else wave > 0.0
    found = compare(X, y, ["gaussian", "linear"], by="folds", estimator=estimator)
    assert found.rows[0].name == "gaussian" and found.rows[0].value > found.rows[1].value + 5.0


def test_copies_of_rows_stay_in_one_fold():
    twice, targets = np.repeat(X, 2, axis=0), np.repeat(ROUGH, 2)
    one = compare(X, ROUGH, ["gaussian"], by="folds", estimator=RVR(width=1.0), sample_weight=np.full(120, 2.0))
    two = compare(twice, targets, ["gaussian"], by="folds", estimator=RVR(width=1.0))
    assert one.rows[0].value == pytest.approx(two.rows[0].value, rel=1e-6)


@pytest.mark.parametrize(("kernels", "by"), [(["cosine"], "merit"), ([], "merit"), (["gaussian"], "luck")])
def test_refusals(kernels, by):
    with pytest.raises(ValueError, match=r"is no sum of|at least one kernel|by must be one of"):
        compare(X, ROUGH, kernels, by=by)


@pytest.mark.parametrize("by", ["merit", "folds"])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"X": np.where(X > 1.9, np.nan, X)}, "NaN"),
        ({"y": np.where(X[:, 0] > 1.9, np.inf, ROUGH)}, "infinity"),
        ({"y": ROUGH[:-1]}, "inconsistent"),
        ({"X": X[:, 0]}, "2D"),
        ({"X": X[:1], "y": ROUGH[:1]}, "minimum of 2"),
        ({"sample_weight": np.full(120, np.nan)}, "sample_weight"),
        ({"sample_weight": -np.ones(120)}, "sample_weight"),
        ({"sample_weight": np.ones(3)}, "sample_weight"),
        ({"n_folds": 1}, "n_folds must be 2 or more"),
        ({"y": 1e200 * ROUGH}, "rescale|divide y"),
    ],
)
def test_data_are_checked_as_in_a_fit(by, bad, words):
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match=words):
            compare(**{"X": X, "y": ROUGH, "kernels": ["gaussian"], "by": by, "estimator": RVR(width=1.0)} | bad)


def test_a_constant_target_has_an_evidence_over_centres():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isfinite(compare(X, np.ones(120), ["gaussian"], by="centres").rows[0].value)


@pytest.mark.parametrize(("change", "message"), [
    ({"y": np.full(20, None)}, "y must hold finite numbers"),
    ({"y": np.full(20, None), "by": "folds", "estimator": RVC()}, "y has no label in row 0"),
    ({"kernels": [None]}, "None is no sum of 'gaussian'"),
    ({"n_folds": 2.5}, "n_folds must be 2 or more, a whole number, got 2.5"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(change, message):
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=message):
        compare(**({"X": X, "y": X[:, 0]} | change))
