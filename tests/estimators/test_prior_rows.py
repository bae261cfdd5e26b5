"""Classes that do not meet: rows of the base rates keep log-odds finite, and every function kept is determined."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import oracle
from relvec import RVC
from relvec.inference.prior_rows import PriorRows
from relvec.solvers import Sequential


def overlapping(seed, n=200):
    """T01 figure 10: x uniform in [0, 1] against [.5, 1.5]."""
    y = np.arange(n) % 2
    return np.random.default_rng(seed).uniform(size=(n, 1)) + 0.5 * y[:, None], y


def probabilities(model, x):
    """Of the second class at the mode, once what is promised of every fit has been checked."""
    assert np.abs(model.basis_(x) @ model.weights_).max() < 30.0
    assert_allclose(1.0 - model.alpha_ * np.diag(model.covariance_), model.gamma_, atol=1e-8)
    assert np.all(model.gamma_ > 0.01)
    grid = np.linspace(0.0, 1.5, 301)
    return grid, model.predict_proba(grid[:, None])[:, 1]


def check_overlapping(seeds):
    found = []
    for seed in seeds:
        x, y = overlapping(seed)
        grid, p = probabilities(RVC(width=0.1, averaging="mode").fit(x, y), x)
        found.append(p)
    truth = np.where(grid < 0.5, 0.0, np.where(grid > 1.0, 1.0, 0.5))
    return np.abs(np.mean(found, axis=0) - truth).mean()


def test_log_odds_of_classes_that_overlap_in_part_are_finite():
    assert check_overlapping(range(2)) < 0.06


@pytest.mark.slow
def test_probabilities_of_classes_that_overlap_in_part_are_true_on_average():
    assert check_overlapping(range(40)) < 0.03


@pytest.mark.parametrize("options", [{}, {"multi_class": "ovr"}, {"share_alpha": True}])
def test_functions_of_more_classes_are_determined_too(options):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.uniform(size=(60, 1)) + 0.6 * y[:, None]
    model = RVC(width=0.15, tol=0.01, **options).fit(X, y)
    here = np.isfinite(model.alpha_)
    gamma = model.gamma_.mean(axis=0)[here[0]] if options.get("share_alpha") else model.gamma_[here]
    assert np.all(gamma > 0.01)
    assert np.abs(model.basis_(X) @ model.weights_.T).max() < 30.0


def test_without_them_the_evidence_of_the_papers_has_a_degenerate_maximum():
    x, y = overlapping(0)
    model = RVC(width=0.1, solver=Sequential(prior_rows=0.0)).fit(x, y)
    assert np.abs(model.basis_(x) @ model.weights_).max() > 300.0
    flat = RVC(width=0.5, solver="tf03", tol=1.0).fit(x, y)
    exact = oracle.laplace_evidence(flat.basis_(x), y, flat.alpha_, "bernoulli")
    assert flat.log_marginal_likelihood_ == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize("likelihood", ["bernoulli", "softmax"])
def test_each_row_has_a_share_of_them(likelihood):
    rng = np.random.default_rng(1)
    t, weights = rng.integers(0, 2 if likelihood == "bernoulli" else 4, 30), rng.uniform(0.5, 2.0, 30)
    targets = t.astype(float) if likelihood == "bernoulli" else np.eye(4)[t]
    means = weights @ targets / weights.sum()
    shrunk = PriorRows.of(means, weights.sum(), 2.0).shrink(targets)
    assert_allclose(shrunk, oracle.with_prior_rows(t, likelihood, weights, 2.0), rtol=1e-12)
    assert_allclose(PriorRows.of(means, weights.sum(), 0.0).shrink(targets), targets, rtol=0.0)


@pytest.mark.parametrize("rows", [-1.0, np.nan, np.inf, "one"])
def test_numbers_of_rows_that_make_no_sense_are_refused(rows):
    with pytest.raises(ValueError, match="prior_rows must be a number, 0 or more"):
        Sequential(prior_rows=rows)
