"""Targets that widths and centres are fitted to, with the same methods under every likelihood (`TargetEvidence`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from scipy.linalg import qr

from relvec.design import DenseDesign
from relvec.inference.evidence import gaussian, gradient
from relvec.inference.laplace import laplace
from relvec.inference.likelihoods import Bernoulli
from relvec.runtime.clock import Clock
from relvec.solvers import Sequential
from relvec.solvers.active_set import solve
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.laplace.precisions import relax
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.laplace.solve import solve_laplace
from relvec.solvers.loop import Problem, Start

MAX_NOISE, FIRST_NOISE = 10.0, 0.5  # noise variance at most, and at first, of a target of unit mean square
_MIN_NORM = 1e-150  # of a column: a centre may move away from all rows
SEARCH_TOL_NATS = 1e-2  # smaller moves wait for the final search


class TargetEvidence(Protocol):
    """One target on the rows X: its evidence over columns, and the search for its support.

    A model is a `Start`, or units and precisions under the Laplace approximation. Columns C (n, k) have unit norm.
    """

    @property
    def root(self) -> np.ndarray:
        """Factors of the rows of the basis (n,): roots of the sample weights, or ones."""

    @property
    def n_samples(self) -> float:
        """Sum of the sample weights."""

    def on_rows(self, rows: np.ndarray, n_atoms: int) -> TargetEvidence:
        """Return the same on some of the rows, over a dictionary of another length."""

    def split_outputs(self) -> list[TargetEvidence]:
        """Targets of one output each, in place of this one."""

    @property
    def noise_precisions(self) -> tuple[float, float, float]:
        """Least, first and largest noise precision of a climb; ones where there is no noise."""

    def evaluate_all(self, Phi: np.ndarray, alpha: np.ndarray, beta: float, mean: np.ndarray | None) -> JointEvaluation:
        """Fit all columns Phi (n, M) at precisions alpha (M,); the mean is looked for from the one given."""

    def atoms(self, model) -> np.ndarray:
        """Return the dictionary atoms of a model (k,), in the order `evaluate` wants their columns in."""

    def evaluate(self, C: np.ndarray, model, settle: bool) -> EvaluatedModel:
        """Return the evidence of a model on these columns, its precisions re-estimated first if ``settle``."""

    def search(self, design: DenseDesign, order: np.ndarray, model, clock: Clock):
        """Search the dictionary from a model, or from nothing."""

    def renumber(self, model, atoms: np.ndarray, n_atoms: int):
        """Return a model over another dictionary of that length, in which the atoms have the given numbers."""

    def entries(self, model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Output, atom and precision of everything a model holds, each (u,)."""

    def with_entries(self, model, outputs: np.ndarray, atoms: np.ndarray, alpha: np.ndarray, n_atoms: int):
        """Return the model with other entries, over a dictionary of that length."""

    def posterior(self, C: np.ndarray, model) -> LatentPosterior:
        """Return the posterior of the weights on these columns, and how the likelihood bends there."""

    def log_prob(self, f: np.ndarray, model) -> tuple[float, np.ndarray]:
        """Log likelihood of latent functions f (n, K), and its derivative (n, K)."""


@dataclass(frozen=True, eq=False)
class EvaluatedModel:
    """A model with its evidence, the number of well-determined weights, and dL/dC (n, k)."""

    model: object
    value: float
    gamma: float
    C_bar: np.ndarray


@dataclass(frozen=True, eq=False)
class JointEvaluation:
    """A model of all functions at given precisions: evidence, its derivatives, well-determined weights, mean (M,).

    The derivatives are with respect to the columns (n, M), log alpha (M,) and log beta.
    """

    value: float
    Phi_bar: np.ndarray
    by_alpha: np.ndarray
    by_beta: float
    gamma: float
    mean: np.ndarray


@dataclass(frozen=True, eq=False)
class LatentPosterior:
    """A posterior with the likelihood around it, for latent functions f (n, K) of samples that are not weighted."""

    # (k,), (k, k) with Sigma = root root', of the weights of the columns given
    mean: np.ndarray
    root: np.ndarray
    # (k,) output of each weight, and its place among the columns
    outputs: np.ndarray
    places: np.ndarray
    r: np.ndarray  # (n, K) dlog p/df
    # (n,) the curvature -d2log p/df2 of one output; for K outputs (n, K) class probabilities p, with the curvature
    # weight_n (diag(p_n) - p_n p_n')
    W: np.ndarray
    weights: np.ndarray  # (n,) sample weights

    def half(self, F: np.ndarray) -> np.ndarray:
        """R'F (n, K, ...) for F (n, K, ...), where the curvature is R R'."""
        if self.W.ndim == 1:
            return np.sqrt(self.W).reshape(-1, *[1] * (F.ndim - 1)) * F
        s = np.sqrt(self.W).reshape(*self.W.shape, *[1] * (F.ndim - 2))  # unit vectors: (I - s s')^2 = I - s s'
        G = s * F
        G = G - s * (s * G).sum(axis=1, keepdims=True)
        return np.sqrt(self.weights).reshape(-1, *[1] * (F.ndim - 1)) * G


@dataclass(frozen=True, eq=False)
class GaussianTarget:
    """A target (n,) of unit mean square with sample weights (n,); ``problem`` has everything but the design.

    Rows that stand for several equal ones have their mean target, the sum of their weights, and in ``within`` (n,) the
    weighted squares of their targets about that mean.
    """

    target: np.ndarray
    weights: np.ndarray
    problem: Problem
    within: np.ndarray | None = None

    @property
    def root(self) -> np.ndarray:
        return np.sqrt(self.weights)

    @property
    def n_samples(self) -> float:
        return float(self.weights.sum())

    @property
    def rest(self) -> float:
        """Squared length of the targets that no function of the rows can explain."""
        return 0.0 if self.within is None else float(self.within.sum())

    def on_rows(self, rows: np.ndarray, n_atoms: int) -> GaussianTarget:
        within = None if self.within is None else self.within[rows]
        return GaussianTarget(self.target[rows], self.weights[rows], self.problem, within)

    def split_outputs(self) -> list[TargetEvidence]:
        return [self]

    def atoms(self, model: Start) -> np.ndarray:
        return model.active

    @property
    def first_beta(self) -> float:
        """Noise precision to start from."""
        return 1.0 / (self.problem.noise_variance or self.problem.noise_start)

    def evaluate(self, C: np.ndarray, model: Start, settle: bool) -> EvaluatedModel:
        t, n = self.root * self.target, self.n_samples
        keep = np.arange(C.shape[1])
        if settle:
            keep, alpha, beta = self._settle(C, t, model)
            model = Start(model.active[keep], alpha, beta)
        p = gaussian(C[:, keep], t, self.rest, n, model.alpha, model.beta)
        C_bar = np.zeros_like(C)
        C_bar[:, keep] = p.design_gradient()
        return EvaluatedModel(model, p.log_evidence, float(p.gamma.sum()), C_bar)

    @property
    def noise_precisions(self) -> tuple[float, float, float]:
        if self.problem.fixed_noise:
            return (self.first_beta,) * 3
        return 1.0 / MAX_NOISE, 1.0 / FIRST_NOISE, 1.0 / min(self.problem.noise_floor, FIRST_NOISE)

    def evaluate_all(self, Phi: np.ndarray, alpha: np.ndarray, beta: float, mean: np.ndarray | None) -> JointEvaluation:
        p = gaussian(Phi, self.root * self.target, self.rest, self.n_samples, alpha, beta)
        by_alpha, by_beta = gradient(p.alpha, p.mean, p.gamma, p.beta, p.residual, self.n_samples)
        Phi_bar = p.design_gradient()  # T01 eq. (55)
        return JointEvaluation(p.log_evidence, Phi_bar, by_alpha, by_beta, float(p.gamma.sum()), p.mean)

    def _settle(self, C: np.ndarray, t: np.ndarray, model: Start) -> tuple[np.ndarray, np.ndarray, float]:
        """Newton steps on precisions and noise of a fixed support, on its k + 1 coordinates: columns kept, both."""
        k = C.shape[1]
        R = np.column_stack([C, t])
        if len(R) > k + 1:
            R = qr(R, mode="r", overwrite_a=True, check_finite=False)[0][: k + 1]
        design = DenseDesign(R[:, :k])
        local = np.flatnonzero(design.scale > _MIN_NORM)
        problem = replace(self.problem, design=design, target=np.ascontiguousarray(R[:, k]), order=local,
                          target_norm2_outside=self.rest, n_samples=self.n_samples, start=None)  # fmt: skip
        start = Start(local, model.alpha[local] * design.scale[local] ** -2.0, model.beta)
        best = model_of(problem, start).relax(30, min_gain_nats=1e-3)
        p, keep = best.posterior, best.active
        return keep, p.alpha * design.scale[keep] ** 2, p.beta

    def search(self, design: DenseDesign, order: np.ndarray, model: Start | None, clock: Clock) -> Start:
        problem = replace(
            self.problem, design=design, target=self.root * self.target, target_norm2_outside=self.rest,
            n_samples=self.n_samples, order=order, bias=-1, essential=np.zeros(0, dtype=np.intp), start=model,
            tol=SEARCH_TOL_NATS, clock=clock,
        )  # fmt: skip
        solver = Sequential(restarts=0, exchange=False)
        state = solve(solver, problem, 10_000).state
        return Start(state.active, state.posterior.alpha, state.posterior.beta)

    def renumber(self, model: Start, atoms: np.ndarray, n_atoms: int) -> Start:
        return Start(atoms[model.active], model.alpha, model.beta)

    def entries(self, model: Start) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros(len(model.active), dtype=np.intp), model.active, model.alpha

    def with_entries(self, model: Start, outputs: np.ndarray, atoms: np.ndarray, alpha: np.ndarray, n_atoms: int):
        return Start(atoms, alpha, model.beta)

    def posterior(self, C: np.ndarray, model: Start) -> LatentPosterior:
        p = gaussian(C, self.root * self.target, self.rest, self.n_samples, model.alpha, model.beta)
        k = C.shape[1]
        r = (p.beta * self.root * p.remainder)[:, None]
        outputs = np.zeros(k, dtype=np.intp)
        return LatentPosterior(p.mean, p.root, outputs, np.arange(k), r, p.beta * self.weights, self.weights)

    def log_prob(self, f: np.ndarray, model: Start) -> tuple[float, np.ndarray]:
        error = self.target - f[:, 0]
        return float(-0.5 * model.beta * (self.weights @ error**2 + self.rest)), (model.beta * self.weights * error)[
            :, None
        ]


@dataclass(frozen=True, eq=False)
class LaplaceTarget:
    """Classes or counts over M atoms; ``problem`` has everything but the design. A model is (units, alpha).

    ``accuracy`` (nats) is how near to their optimum `evaluate` brings precisions; a thousandth of tol where None.
    """

    problem: LaplaceProblem
    n_atoms: int
    accuracy: float | None = None

    @property
    def root(self) -> np.ndarray:
        return np.ones(len(self.problem.weights))

    @property
    def n_samples(self) -> float:
        return float(self.problem.weights.sum())

    def on_rows(self, rows: np.ndarray, n_atoms: int) -> LaplaceTarget:
        problem = self.problem
        thinned = replace(problem, target=problem.target[rows], weights=problem.weights[rows], shift=0.0)
        return LaplaceTarget(thinned if len(rows) < len(problem.weights) else problem, n_atoms, self.accuracy)

    def split_outputs(self) -> list[TargetEvidence]:
        """Return the dichotomies that a softmax is learned from: all functions of all classes would be too many."""
        problem = self.problem
        if problem.K == 1:
            return [self]
        each = [replace(problem, target=np.ascontiguousarray(t), likelihood=Bernoulli()) for t in problem.target.T]
        return [LaplaceTarget(one, self.n_atoms, self.accuracy) for one in each]

    def atoms(self, model) -> np.ndarray:
        return np.unique(model[0] % self.n_atoms)

    def evaluate(self, C: np.ndarray, model, settle: bool) -> EvaluatedModel:
        M, k = self.n_atoms, C.shape[1]
        found, used = self._on_columns(C, model), self.atoms(model)
        problem = found.problem
        if settle:
            found = relax(found, 20, self.accuracy)[0]
        p = found.posterior
        each = p.design_gradient(problem.likelihood, problem.weights)
        C_bar = np.zeros_like(C)
        np.add.at(C_bar.T, problem.pairs(found.active)[1], each.T)
        units = (found.active // k) * M + used[found.active % k]
        alpha = np.maximum(found.alpha, np.finfo(float).tiny)
        return EvaluatedModel((units, alpha), found.objective, float(p.gamma.sum()), C_bar)

    @property
    def noise_precisions(self) -> tuple[float, float, float]:
        return 1.0, 1.0, 1.0  # there is no noise

    def evaluate_all(self, Phi: np.ndarray, alpha: np.ndarray, beta: float, mean: np.ndarray | None) -> JointEvaluation:
        likelihood, weights = self.problem.likelihood, self.problem.weights
        p = laplace(Phi, self.problem.target, weights, alpha, likelihood, mean)
        slopes = p.slopes(likelihood, weights)
        by_alpha = gradient(p.alpha, p.mean, p.gamma, 1.0, 0.0, 0.0)[0] + p.implicit_gradient(slopes)
        Phi_bar = p.design_gradient(likelihood, weights)
        return JointEvaluation(p.log_evidence, Phi_bar, by_alpha, 0.0, float(p.gamma.sum()), p.mean)

    def _on_columns(self, C: np.ndarray, model) -> LaplaceModel:
        """Return a model with the columns (n, k) of its atoms."""
        outputs, atoms = model[0] // self.n_atoms, model[0] % self.n_atoms
        local = outputs * C.shape[1] + np.searchsorted(np.unique(atoms), atoms)
        problem = replace(self.problem, design=DenseDesign(C), order=np.arange(C.shape[1]), start=None)
        return LaplaceModel(problem, local, problem.fit(local, model[1]))

    def posterior(self, C: np.ndarray, model) -> LatentPosterior:
        found = self._on_columns(C, model)
        p, weights = found.posterior, self.problem.weights
        outputs, places = found.problem.pairs(found.active)
        r = p.r if p.r.ndim == 2 else p.r[:, None]
        return LatentPosterior(p.mean, p.root, outputs, places, r, p.W, weights)

    def log_prob(self, f: np.ndarray, model) -> tuple[float, np.ndarray]:
        one = self.problem.likelihood.n_outputs == 1
        value, r, _ = self.problem.likelihood.evaluate(self.problem.target, f[:, 0] if one else f, self.problem.weights)
        return value, r[:, None] if one else r

    def search(self, design: DenseDesign, order: np.ndarray, model, clock: Clock):
        problem = replace(self.problem, design=design, order=order, bias=-1, start=model, tol=SEARCH_TOL_NATS,
                          clock=clock)  # fmt: skip
        solver = Sequential(restarts=0, exchange=False)
        state = solve_laplace(solver, problem, 10_000).state
        return state.active, state.posterior.alpha[:: problem.per_unit]

    def renumber(self, model, atoms: np.ndarray, n_atoms: int):
        return model[0] // self.n_atoms * n_atoms + atoms[model[0] % self.n_atoms], model[1]

    def entries(self, model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return model[0] // self.n_atoms, model[0] % self.n_atoms, model[1]

    def with_entries(self, model, outputs: np.ndarray, atoms: np.ndarray, alpha: np.ndarray, n_atoms: int):
        return outputs * n_atoms + atoms, alpha
