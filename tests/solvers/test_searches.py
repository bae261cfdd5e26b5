"""Promises of every search, on the small problems of `tests/searches.py`."""

import json
import warnings
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import oracle
import searches
from problems import assert_never_falls, columns_kept, single_move_gains
from relvec.inference.hyperpriors import FLAT

RECORDED = json.loads(searches.FILE.read_text())


@cache
def found(case):
    """The model of a case; one fit serves all tests."""
    return searches.CASES[case](0.0)


def prior_of(model):
    return getattr(model.solver, "hyperprior", FLAT)


def likelihood_of(model):
    return "poisson" if not hasattr(model, "classes_") else "bernoulli" if len(model.classes_) == 2 else "softmax"


def again(here, rows):
    """The same search with its rows in another order; a warm one starts from the model found."""
    model = deepcopy(here.model) if here.model.warm_start else clone(here.model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(rows[:, None], here.target[rows], sample_weight=here.weights[rows])
    return replace(here, model=model, active=columns_kept(model, here.Phi))


def assert_reached(objective, work, recorded):
    """No lower and hardly more work than recorded: another processor rounds otherwise, and ends within tol."""
    least, most = recorded
    assert objective >= least - 1e-4
    assert work <= 1.1 * most + 1


@pytest.mark.parametrize("case", searches.STAGES)
def test_stages_reach_what_is_recorded(case):
    found = searches.STAGES[case](0.0)
    assert set(RECORDED[case]) <= set(found)
    for name, recorded in RECORDED[case].items():
        assert_reached(*found[name], recorded)


class Promises:
    """Promises of every search."""

    def test_the_evidence_is_at_least_that_recorded(self, case):
        model = found(case).model
        assert_reached(model.log_marginal_likelihood_, model.n_iter_, RECORDED[case])
        assert len(model.history_) <= model.n_iter_ + 1

    def test_the_objective_never_falls(self, case):
        history = found(case).model.history_
        if case in searches.REGRESSION or not case.startswith(("MacKay", "EM")):  # T01 section 3 holds B at its value
            assert_never_falls(history)
        np.testing.assert_allclose(
            history["gain"], np.diff(history["objective"], prepend=history["objective"][0]), atol=1e-9
        )

    def test_the_order_of_rows_does_not_matter(self, case):
        here = found(case)
        rows = np.random.default_rng(0).permutation(len(here.target))
        other = again(here, rows=rows)
        np.testing.assert_array_equal(np.sort(other.active), np.sort(here.active))
        assert other.model.log_marginal_likelihood_ == pytest.approx(here.model.log_marginal_likelihood_, abs=2e-6)


@pytest.mark.parametrize("case", searches.REGRESSION)
class TestRegressions(Promises):
    def test_the_evidence_is_the_dense_one(self, case):
        here = found(case)
        model, beta = here.model, 1.0 / here.model.noise_variance_
        evidence = oracle.mp_log_evidence if case == "no noise" else oracle.log_evidence
        exact = float(evidence(here.Phi[:, here.active], here.target, model.alpha_, beta))
        assert model.log_marginal_likelihood_ == pytest.approx(exact, rel=1e-8, abs=1e-6)

    def test_no_single_move_gains_more_than_tol(self, case):
        here = found(case)
        model = here.model
        if prior_of(model) != FLAT or case == "no noise":
            pytest.skip("the objective has a prior besides the evidence, or doubles do not tell the dense one")
        gains = single_move_gains(here.Phi, here.target, here.active, model.alpha_, 1.0 / model.noise_variance_)
        if not getattr(model.solver, "exchange", False):
            gains.pop("exchange")
        assert max(gains.values()) <= 1e-3 + 1e-6
        assert max(gains.values()) <= model.certificate_ + 1e-6

    def test_precisions_and_noise_are_stationary(self, case):
        """The gradient of T01 eq. (36); its bound on the remaining gain is far below tol."""
        here = found(case)
        model, hyper = here.model, vars(prior_of(here.model))
        gradient = oracle.gradient(
            here.Phi[:, here.active], here.target, model.alpha_, 1.0 / model.noise_variance_, **hyper
        )
        if model.noise_variance is not None:
            assert model.noise_variance_ == pytest.approx(model.noise_variance, rel=1e-6)
            gradient = gradient[:-1]
        np.testing.assert_allclose(gradient, 0.0, atol=0.05)


@pytest.mark.parametrize("case", searches.LAPLACE)
class TestClassesAndCounts(Promises):
    def test_the_laplace_evidence_is_the_dense_one(self, case):
        here = found(case)
        model = here.model
        exact = oracle.laplace_evidence(
            here.Phi[:, here.active], here.shares, model.alpha_, likelihood_of(model), here.weights
        )
        assert model.log_marginal_likelihood_ == pytest.approx(exact, abs=1e-7)

    def test_no_deletion_or_addition_of_the_best_gains_more_than_tol(self, case):
        here = found(case)
        model, kind = here.model, likelihood_of(here.model)
        if prior_of(model) != FLAT or model.status_ != "converged":
            pytest.skip("the objective is another, or the search has its own rule to end")
        alpha = np.atleast_2d(model.alpha_)
        columns = here.Phi[:, here.active]
        # deletions
        for k, m in zip(*np.nonzero(np.isfinite(alpha)), strict=True):
            fewer = alpha.copy()
            fewer[slice(None) if getattr(model, "share_alpha", False) else k, m] = np.inf
            fewer = fewer[0] if model.alpha_.ndim == 1 else fewer
            kept = np.isfinite(np.atleast_2d(fewer)).any(axis=0)
            value = oracle.laplace_evidence(columns[:, kept], here.shares, fewer[..., kept], kind, here.weights)
            assert value <= model.log_marginal_likelihood_ + 1e-3
        if getattr(model, "share_alpha", False):
            return
        S, Q = oracle.laplace_S_Q(here.Phi, here.active, here.shares, model.alpha_, kind, here.weights)
        S, Q = np.atleast_2d(S), np.atleast_2d(Q)
        S[:, here.active] = np.where(np.isfinite(alpha), np.inf, S[:, here.active])
        ratio = np.maximum(Q**2 / S, 1.0)
        for place in np.argsort(-ratio, axis=None)[:3]:
            k, j = np.unravel_index(place, ratio.shape)
            if ratio[k, j] <= 1.0:
                continue
            more = np.full((len(alpha), 1), np.inf)
            more[k] = S[k, j] ** 2 / (Q[k, j] ** 2 - S[k, j])
            more = np.hstack([alpha, more])
            more = more[0] if model.alpha_.ndim == 1 else more
            wider = np.column_stack([columns, here.Phi[:, j]])
            value = oracle.laplace_evidence(wider, here.shares, more, kind, here.weights)
            assert value <= model.log_marginal_likelihood_ + 1e-3
