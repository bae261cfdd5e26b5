"""Widths learned by evidence: kernels' parameters theta climb between searches for the support (T01 4.3, C).

The evidence of a sparse model has many maxima over theta, and not every high one is good: with one precision a sample
and narrow kernels it can explain each target by itself. Hence

- several starts, from widths of the data's own scale to several times that, where few functions suffice;
- from each, T01's interleaving from the whole dictionary (`interleave`), then climbing and moves in turn, each
  starting from the model before it and kept only if the evidence rises (`refine`);
- a choice among the ends by evidence less ln(N)/2 for every well-determined weight (`Trial.score`), what a precision
  fitted to the data costs if the evidence is integrated over it (the BIC form of the smoothness prior of
  Schmolck and Everson, 2007);
- a second chance for features whose width has run away, where its gradient vanishes.

Many rows are thinned while starts are compared; the best then climbs on more of them.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
from scipy.linalg import qr
from scipy.optimize import minimize

from relvec import checkpoint
from relvec._threads import one_thread, side_by_side, thread_count
from relvec.basis import Basis, Concat, content_ranks
from relvec.checkpoint import NOWHERE, Cell, check_model, checked
from relvec.design import DenseDesign
from relvec.evidence import mackay_alpha, mackay_noise
from relvec.posterior import gaussian
from relvec.progress import advance, report, stage
from relvec.solvers import Problem, Sequential, solve
from relvec.solvers._frame import Frame
from relvec.solvers._iterate import Start
from relvec.solvers._laplace import LaplaceModel, LaplaceProblem, relax
from relvec.solvers._laplace_search import solve_laplace
from relvec.solvers._moves import Model

logger = logging.getLogger("relvec")

STARTS = (1.0, 2.0, 4.0)  # widths to start from, in units of sqrt(d) standard deviations
NARROW = {1: (0.1, 0.3), 2: (0.2,), 3: (0.4,)}  # and more of them where few features leave room for detail
_SECOND_CHANCE = 2.5  # the same unit: wider features come back to this once more
_CHANCES = 3  # how often, at most
_LOWEST, _HIGHEST = np.log(1e-3), np.log(1e3)  # bounds of log width around that unit
_BOX = 0.5  # log units a width may move before the support is looked at again
_STEPS = 10  # of L-BFGS-B within a box
_ETA_STEPS = 5  # of the same within one update of the precisions (T01 C: 1 to 5)
_UPDATES = 150  # such updates, at most
_FEW_ROWS, _FEW_ATOMS = 500, 260  # what starts are compared on
_MORE_ROWS, _MORE_ATOMS = 5000, 2000  # what the best one climbs on
_ROUNDS = 40
_ENOUGH = 0.05  # nats a round of climbing and moves must gain to be followed by another
_SETTLED = 0.5  # nats in ten updates: what is left to gain is left to `refine`
_PRUNE = 1e9  # precision, for unit columns, beyond which the interleaving drops an atom
_SEARCH_TOL = 1e-2  # nats: smaller moves wait for the final search


class Target(Protocol):
    """One target on the rows X: its evidence over columns, and the search for its support.

    A model is a `Start`, or units and precisions under the Laplace approximation. Columns C (n, k) have unit norm.
    """

    @property
    def root(self) -> np.ndarray:
        """What multiplies the rows of the basis (n,)."""
        ...

    @property
    def n_samples(self) -> float:
        """Sum of the sample weights."""
        ...

    def on(self, rows: np.ndarray, n_atoms: int) -> Target:
        """The same on some of the rows, over a dictionary of another length."""
        ...

    def atoms(self, model) -> np.ndarray:
        """Dictionary atoms of a model (k,), in the order `evaluate` wants their columns in."""
        ...

    def evaluate(self, C: np.ndarray, model, settle: bool) -> Evaluated:
        """The evidence of a model on these columns, its precisions re-estimated first if ``settle``."""
        ...

    def search(self, design: DenseDesign, order: np.ndarray, model, time_limit: float | None):
        """Moves over the dictionary from a model, or from nothing."""
        ...

    def lifted(self, model, atoms: np.ndarray, scale: np.ndarray, n_atoms: int):
        """A model of a part of the dictionary as one of the whole; scale (M',) divides the norms of the part's."""
        ...

    def entries(self, model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Output, atom and precision of everything a model holds, each (u,)."""
        ...

    def with_entries(self, model, outputs: np.ndarray, atoms: np.ndarray, alpha: np.ndarray, n_atoms: int):
        """The model with other entries, over a dictionary of that length."""
        ...

    def working(self, C: np.ndarray, model) -> Working:
        """The posterior of the weights on these columns, and how the likelihood bends there."""
        ...

    def log_prob(self, f: np.ndarray, model) -> tuple[float, np.ndarray]:
        """Log likelihood of latent functions f (n, K), and its derivative (n, K)."""
        ...


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A model with its evidence, the number of well-determined weights, and dL/dC (n, k)."""

    model: object
    value: float
    gamma: float
    C_bar: np.ndarray
    updated: object = None  # the model after one update of T01 eq. (16)-(18)


@dataclass(frozen=True, eq=False)
class Working:
    """A posterior with the likelihood around it, for latent functions f (n, K) of samples that are not weighted.

    Attributes
    ----------
    mean, root : (k,), (k, k) with Sigma = root root', of the weights of the columns given.
    outputs, places : (k,) output of each weight, and its place among the columns.
    r : (n, K) dlog p/df.
    W : (n,) the curvature -d2log p/df2 of one output; for K outputs (n, K) class probabilities p, with the curvature
        weight_n (diag(p_n) - p_n p_n').
    weights : (n,) sample weights.
    bend : (n,) dW/df, for one output.
    """

    mean: np.ndarray
    root: np.ndarray
    outputs: np.ndarray
    places: np.ndarray
    r: np.ndarray
    W: np.ndarray
    weights: np.ndarray
    bend: np.ndarray | None = None

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
    """A target (n,) of unit mean square with sample weights (n,); ``problem`` says all but the design."""

    target: np.ndarray
    weights: np.ndarray
    problem: Problem

    @property
    def root(self) -> np.ndarray:
        return np.sqrt(self.weights)

    @property
    def n_samples(self) -> float:
        return float(self.weights.sum())

    def on(self, rows: np.ndarray, n_atoms: int) -> GaussianTarget:
        return GaussianTarget(self.target[rows], self.weights[rows], self.problem)

    def atoms(self, model: Start) -> np.ndarray:
        return model.active

    def everything(self, design: DenseDesign) -> Start:
        """Every atom, at precisions so small that the data decide."""
        active = np.flatnonzero(design.scale > 0.0)
        return Start(active, np.full(len(active), 1.0 / self.n_samples), self._first_beta)

    @property
    def _first_beta(self) -> float:
        return 1.0 / (self.problem.noise_variance or self.problem.noise_start)

    def evaluate(self, C: np.ndarray, model: Start, settle: bool) -> Evaluated:
        t, n = self.root * self.target, self.n_samples
        keep = np.arange(C.shape[1])
        if settle:
            keep, alpha, beta = self._settled(C, t, model)
            model = Start(model.active[keep], alpha, beta)
        p = gaussian(C[:, keep], t, 0.0, n, model.alpha, model.beta)
        C_bar = np.zeros_like(C)
        C_bar[:, keep] = p.design_gradient()
        beta = p.beta
        if not self.problem.fixed_noise:
            noise = mackay_noise(p.residual, n, p.gamma.sum())  # T01 eq. (18)
            beta = 1.0 / max(noise, self.problem.noise_floor)
        alpha = mackay_alpha(p.gamma, p.mean)  # T01 eq. (16)
        alive = (alpha < _PRUNE) & (alpha > 0.0)
        updated = Start(model.active[alive], alpha[alive], beta)
        return Evaluated(model, p.log_evidence, float(p.gamma.sum()), C_bar, updated)

    def _settled(self, C: np.ndarray, t: np.ndarray, model: Start) -> tuple[np.ndarray, np.ndarray, float]:
        """Newton steps on precisions and noise of a fixed support, on its k + 1 coordinates: columns kept, both."""
        k = C.shape[1]
        R = np.column_stack([C, t])
        if len(R) > k + 1:
            R = qr(R, mode="r", overwrite_a=True, check_finite=False)[0][: k + 1]
        design = DenseDesign(R[:, :k])
        local, none = np.arange(k), np.zeros(0, dtype=np.intp)
        problem = replace(self.problem, design=design, target=np.ascontiguousarray(R[:, k]), rest=0.0, order=local,
                          n_samples=self.n_samples, start=None)  # fmt: skip
        frame = Frame(design, problem.target, 0.0)
        empty = Model(problem, frame, none, frame.posterior(none, np.zeros(0), model.beta, self.n_samples))
        best = empty.at(local, model.alpha * design.scale**-2.0, model.beta).relaxed(30, enough=1e-3)
        p, keep = best.posterior, best.active
        return keep, p.alpha * design.scale[keep] ** 2, p.beta

    def search(self, design: DenseDesign, order: np.ndarray, model: Start | None, time_limit: float | None) -> Start:
        problem = replace(
            self.problem, design=design, target=self.root * self.target, rest=0.0, n_samples=self.n_samples,
            order=order, bias=-1, essential=np.zeros(0, dtype=np.intp), start=model, tol=_SEARCH_TOL,
        )  # fmt: skip
        solver = Sequential(restarts=0, exchange=False, time_limit=time_limit)
        state = solve(solver, problem, 10_000).state
        return Start(state.active, state.posterior.alpha, state.posterior.beta)

    def lifted(self, model: Start, atoms: np.ndarray, scale: np.ndarray, n_atoms: int) -> Start:
        return Start(atoms[model.active], model.alpha / scale[model.active] ** 2, model.beta)

    def entries(self, model: Start) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return np.zeros(len(model.active), dtype=np.intp), model.active, model.alpha

    def with_entries(self, model: Start, outputs: np.ndarray, atoms: np.ndarray, alpha: np.ndarray, n_atoms: int):
        return Start(atoms, alpha, model.beta)

    def working(self, C: np.ndarray, model: Start) -> Working:
        p = gaussian(C, self.root * self.target, 0.0, self.n_samples, model.alpha, model.beta)
        k, zeros = C.shape[1], np.zeros(len(self.target))
        r = (p.beta * self.root * p.remainder)[:, None]
        outputs = np.zeros(k, dtype=np.intp)
        return Working(p.mean, p.root, outputs, np.arange(k), r, p.beta * self.weights, self.weights, zeros)

    def log_prob(self, f: np.ndarray, model: Start) -> tuple[float, np.ndarray]:
        error = self.target - f[:, 0]
        return float(-0.5 * model.beta * (self.weights @ error**2)), (model.beta * self.weights * error)[:, None]


@dataclass(frozen=True, eq=False)
class LaplaceTarget:
    """Classes or counts over M atoms; ``problem`` says all but the design. A model is (units, alpha).

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

    def on(self, rows: np.ndarray, n_atoms: int) -> LaplaceTarget:
        problem = self.problem
        thinned = replace(problem, target=problem.target[rows], weights=problem.weights[rows], shift=0.0)
        return LaplaceTarget(thinned if len(rows) < len(problem.weights) else problem, n_atoms, self.accuracy)

    def atoms(self, model) -> np.ndarray:
        return np.unique(model[0] % self.n_atoms)

    def evaluate(self, C: np.ndarray, model, settle: bool) -> Evaluated:
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
        return Evaluated((units, alpha), found.objective, float(p.gamma.sum()), C_bar)

    def _on_columns(self, C: np.ndarray, model) -> LaplaceModel:
        """A model with the columns (n, k) of its atoms."""
        outputs, atoms = model[0] // self.n_atoms, model[0] % self.n_atoms
        local = outputs * C.shape[1] + np.searchsorted(np.unique(atoms), atoms)
        problem = replace(self.problem, design=DenseDesign(C), order=np.arange(C.shape[1]), start=None)
        return LaplaceModel(problem, local, problem.posterior(local, model[1]))

    def working(self, C: np.ndarray, model) -> Working:
        found = self._on_columns(C, model)
        p, weights = found.posterior, self.problem.weights
        outputs, places = found.problem.pairs(found.active)
        bend = None
        if p.W.ndim == 1:  # of a variance of one: what multiplies the variance of f in the slope of the curvature
            bend = self.problem.likelihood.curvature_slope(p.W, p.f, weights, np.ones(len(weights)))
        r = p.r if p.r.ndim == 2 else p.r[:, None]
        return Working(p.mean, p.root, outputs, places, r, p.W, weights, bend)

    def log_prob(self, f: np.ndarray, model) -> tuple[float, np.ndarray]:
        one = self.problem.likelihood.n_outputs == 1
        value, r, _ = self.problem.likelihood.evaluate(self.problem.target, f[:, 0] if one else f, self.problem.weights)
        return value, r[:, None] if one else r

    def search(self, design: DenseDesign, order: np.ndarray, model, time_limit: float | None):
        problem = replace(self.problem, design=design, order=order, bias=-1, start=model, tol=_SEARCH_TOL)
        solver = Sequential(restarts=0, exchange=False, time_limit=time_limit)
        state = solve_laplace(solver, problem, 10_000).state
        return state.active, state.posterior.alpha[:: problem.per_unit]

    def lifted(self, model, atoms: np.ndarray, scale: np.ndarray, n_atoms: int):
        outputs, own = model[0] // self.n_atoms, model[0] % self.n_atoms
        return outputs * n_atoms + atoms[own], model[1] / scale[own] ** 2

    def entries(self, model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return model[0] // self.n_atoms, model[0] % self.n_atoms, model[1]

    def with_entries(self, model, outputs: np.ndarray, atoms: np.ndarray, alpha: np.ndarray, n_atoms: int):
        return outputs * n_atoms + atoms, alpha


@dataclass(frozen=True, eq=False)
class Setting:
    """The rows X (n, d) and targets widths are learned from, which parameters are free (p,), and their bounds (p,)."""

    X: np.ndarray
    targets: list
    free: np.ndarray
    low: np.ndarray
    high: np.ndarray
    deadline: float = np.inf
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        """Whether the time is up, or the fit was interrupted."""
        return self.stop.is_set() or time.monotonic() > self.deadline

    @classmethod
    def of(cls, basis: Basis, X: np.ndarray, targets: list, free: np.ndarray, deadline: float = np.inf) -> Setting:
        """With the bounds that the parameters of a bound basis, in the unit of `STARTS`, are kept in."""
        return cls(X, targets, free, basis.theta + _LOWEST, basis.theta + _HIGHEST, deadline)

    def within(self, theta: np.ndarray, box: float) -> list[tuple[float, float]]:
        """Bounds of the free parameters no further than ``box`` from theta (p,)."""
        low, high = np.maximum(self.low, theta - box)[self.free], np.minimum(self.high, theta + box)[self.free]
        return list(zip(low, np.maximum(low, high), strict=True))

    def part(self, basis: Basis, n_rows: int, n_atoms: int, rng: np.random.Generator):
        """At most so many rows and atoms, drawn by content: the setting on them, the rows and the atoms."""
        rows, atoms = np.arange(len(self.X)), np.arange(basis.n_atoms)
        if len(rows) > n_rows:
            ranked = np.lexsort(self.X.T[::-1])
            rows = np.sort(ranked[rng.choice(len(rows), n_rows, replace=False)])
        if len(atoms) > n_atoms:
            fixed = atoms[basis.rows < 0][: n_atoms // 2]
            others = np.setdiff1d(atoms, fixed)
            atoms = np.sort(np.concatenate([fixed, rng.choice(others, n_atoms - len(fixed), replace=False)]))
        targets = [target.on(rows, len(atoms)) for target in self.targets]
        return replace(self, X=self.X[rows], targets=targets), rows, atoms


@dataclass(frozen=True, eq=False)
class Trial:
    """Where one start of the widths ended.

    Attributes
    ----------
    start, theta : (p,) logarithms of the kernels' parameters at the start and at the end.
    log_evidence : nats, of scaled targets: only differences between trials mean something.
    score : the same less ln(N)/2 for every well-determined weight.
    size : number of weights.
    """

    start: np.ndarray
    theta: np.ndarray
    log_evidence: float
    score: float
    size: int


@dataclass(frozen=True, eq=False)
class Tuning:
    """How the widths of a fitted model were learned: where every start ended (`Trial`), in the order tried."""

    trials: tuple[Trial, ...]

    @property
    def agreement(self) -> float:
        """Share of starts that ended within one nat of the best score.

        Below 1 the surface has several maxima; near 1 / (number of starts) others may be better still.
        """
        scores = np.array([trial.score for trial in self.trials])
        return float(np.mean(scores >= scores.max() - 1.0))


@dataclass(frozen=True, eq=False)
class Learned:
    """What `learn` found: the basis with its parameters, a model of each target (or None), and the way there."""

    basis: Basis
    models: list
    tuning: Any


def learn(basis: Basis, setting: Setting, seed: int = 0, verbose: bool = False) -> Learned:
    """Learn the free parameters of a bound basis by evidence; see the module.

    Parameters
    ----------
    basis : bound dictionary of M atoms, its theta in the unit of `STARTS`.
    setting : rows, targets, bounds.
    seed : for the draws where rows or atoms are too many.
    verbose : whether to log each start.
    """
    unit, rng = basis.theta, np.random.default_rng(seed)
    few, _, atoms = setting.part(basis, _FEW_ROWS, _FEW_ATOMS, rng)
    part = basis.take(atoms) if len(atoms) < basis.n_atoms else basis
    factors = sorted({*STARTS, *NARROW.get(setting.X.shape[1], ())})
    whole_at_once = len(atoms) == basis.n_atoms and len(few.X) == len(setting.X)
    workers = thread_count()
    with one_thread(), stage("widths", len(factors) + (0 if whole_at_once else 2)):
        found, trials = _all_starts(part, few, unit, factors, workers, verbose)
        best = max(found, key=lambda f: f.score)
        if whole_at_once:
            return Learned(best.basis, best.models, Tuning(tuple(trials)))
        # few rows favour few functions: where there are more, the highest evidence is followed too
        ends = [best] + [f for f in [max(found, key=lambda f: f.value)] if f is not best]
        _, rows, wider = setting.part(basis, _MORE_ROWS, _MORE_ATOMS, rng)
        follow = partial(_on_more, basis, atoms, few, setting, rows, wider)
        followed = side_by_side(follow, list(enumerate(ends)), workers, setting.stop)
        whole, models, _ = max(followed, key=lambda end: end[2])
    return Learned(whole, models, Tuning(tuple(trials)))


def _all_starts(
    basis: Basis, setting: Setting, unit: np.ndarray, factors: list[float], workers: int, verbose: bool
) -> tuple[list[Found], list[Trial]]:
    """Where every start ends; the best gets a second chance for features whose width has run away."""
    starts = [np.clip(np.where(setting.free, unit + np.log(c), unit), setting.low, setting.high) for c in factors]
    found: list[Found] = []
    trials: list[Trial] = []

    def end_of(chance: int, i: int) -> Found | None:  # without time there is still the first one
        if i and setting.over:
            return None
        with checkpoint.part(f"widths {chance} {i}"):
            end = _from(basis.with_theta(starts[i]), setting)
        advance(more=int(len(found) >= len(factors)))
        if report(end.size, end.value):
            setting.stop.set()
        return end

    for chance in range(1 + _CHANCES):
        before = max((f.score for f in found), default=-np.inf)
        ends = side_by_side(partial(end_of, chance), range(len(starts)), workers, setting.stop)
        for theta, end in zip(starts, ends, strict=True):
            if end is None:
                continue
            found.append(end)
            trials.append(Trial(theta, end.basis.theta, end.value, end.score, end.size))
            if verbose:
                text = "widths: start %d evidence %.3f score %.3f size %d"
                logger.info(text, len(found), end.value, end.score, end.size)
        best = max(found, key=lambda f: f.score)
        again = np.where(setting.free, np.minimum(best.basis.theta, unit + np.log(_SECOND_CHANCE)), unit)
        if setting.over or best.score <= before + _ENOUGH or not np.any(again < best.basis.theta):
            break
        starts = [again]
    return found, trials


def _on_more(
    basis: Basis, atoms: np.ndarray, few: Setting, setting: Setting, rows: np.ndarray, wider: np.ndarray,
    numbered: tuple[int, Found],
) -> tuple[Basis, list, float]:  # fmt: skip
    """Go on from where a start ended on a few rows and atoms, with more of both.

    Returns the basis and the models, of the whole dictionary and all rows, and the score.
    """
    number, end = numbered
    basis = basis.with_theta(end.basis.theta)
    models = _lifted(few, end.models, atoms, np.ones(len(atoms)), basis.n_atoms)
    used = _used(setting, models)
    wider = np.union1d(wider, used)
    targets = [target.on(rows, len(wider)) for target in setting.targets]
    more = replace(setting, X=setting.X[rows], targets=targets)
    place = np.full(basis.n_atoms, -1)
    place[wider] = np.arange(len(wider))
    local = _lifted(setting, models, place, _grown(basis, used, few, more), len(wider))
    with checkpoint.part(f"widths on more rows {number}"), checkpoint.cell() as cell:
        found = refine(basis.take(wider), more, local, cell)
    basis = basis.with_theta(found.basis.theta)
    held = _used(more, found.models)
    grown = np.ones(len(wider))
    grown[held] = _grown(basis, wider[held], more, setting)[wider[held]]
    return basis, _lifted(more, found.models, wider, grown, basis.n_atoms), found.score


def _used(setting: Setting, models: list) -> np.ndarray:
    """Atoms of any of the models."""
    return np.unique(np.concatenate([t.atoms(m) for t, m in zip(setting.targets, models, strict=True)]))


def _lifted(setting: Setting, models: list, atoms: np.ndarray, grown: np.ndarray, n_atoms: int) -> list:
    return [t.lifted(m, atoms, grown, n_atoms) for t, m in zip(setting.targets, models, strict=True)]


def _grown(basis: Basis, atoms: np.ndarray, old: Setting, new: Setting) -> np.ndarray:
    """By what factor (M,) the norms of some atoms grow from the rows of one setting to those of another."""
    grown = np.ones(basis.n_atoms)
    grown[atoms] = _norms(basis, atoms, new) / np.maximum(_norms(basis, atoms, old), np.finfo(float).tiny)
    return np.where(grown > 0.0, grown, 1.0)


@dataclass(frozen=True, eq=False)
class Found:
    """A basis with its parameters, a model of each target, the evidence of all, and the well-determined weights."""

    basis: Basis
    models: list
    value: float
    gamma: float
    n_samples: float
    size: int = 0

    @property
    def score(self) -> float:
        """Evidence less ln(N)/2 for every well-determined weight."""
        return self.value - 0.5 * np.log(self.n_samples) * self.gamma


def _from(basis: Basis, setting: Setting) -> Found:
    """One start: T01's interleaving, or a search, then climbing and moves in turn."""
    with checkpoint.cell() as cell:
        models = None
        if cell.saved is None and all(isinstance(target, GaussianTarget) for target in setting.targets):
            basis, models = interleave(basis, setting)
        return refine(basis, setting, models, cell)


def interleave(basis: Basis, setting: Setting, eta_steps: int = _ETA_STEPS, updates: int = _UPDATES):
    """T01 Appendix C: from every atom, a few steps on the widths after each update of the precisions.

    Gaussian targets only. Returns the basis and the models; nothing here keeps the evidence from falling.
    """
    design = _design(basis, setting)
    models = [target.everything(design) for target in setting.targets]
    values: list[float] = []
    for _ in range(updates):
        basis, found = climb(basis, setting, models, eta_steps, settle=False)
        models = [e.updated for e in found]
        values.append(sum(e.value for e in found))
        if report(sum(len(m.active) for m in models), values[-1]):
            setting.stop.set()
        settled = len(values) > 15 and abs(values[-1] - values[-11]) < _SETTLED
        if settled or setting.over or not all(len(m.active) for m in models):
            break
    return basis, models


def refine(basis: Basis, setting: Setting, models: list | None = None, cell: Cell = NOWHERE) -> Found:
    """Moves and climbing in turn, each from the model before it, while the score rises; no step lowers the evidence.

    Rounds are kept in the cell of a checkpoint, and those of an earlier process are taken from there.
    """
    best = None if cell.saved is None else _read(cell.saved, basis, setting)
    if best is not None:
        basis, models = best.basis, best.models
    for _ in range(0 if cell.saved and cell.saved.get("done") else _ROUNDS):
        design = _design(basis, setting)
        order = content_ranks(basis, design.scale)
        left = setting.deadline - time.monotonic()
        limit = None if np.isinf(left) else max(left, 0.1)
        given = [None] * len(setting.targets) if models is None else models
        models = [t.search(design, order, m, limit) for t, m in zip(setting.targets, given, strict=True)]
        basis, found = climb(basis, setting, models, _STEPS, settle=True)
        models = [e.model for e in found]
        size = sum(len(t.atoms(m)) for t, m in zip(setting.targets, models, strict=True))
        value, gamma = sum(e.value for e in found), sum(e.gamma for e in found)
        new = Found(basis, models, value, gamma, setting.targets[0].n_samples, size)
        if best is not None and new.score < best.score + _ENOUGH:
            best = max(best, new, key=lambda f: f.score)
            break
        best = new
        if setting.over:
            break
        cell.keep(_record, best)
    assert best is not None
    cell.keep(_record, best, not setting.over, now=True)
    return best


def _record(found: Found, done: bool = False) -> dict:
    """A climb as it stands, in plain numbers and arrays."""
    models = [vars(m) if isinstance(m, Start) else {"active": m[0], "alpha": m[1]} for m in found.models]
    numbers = {name: float(getattr(found, name)) for name in ("value", "gamma", "n_samples")}
    return numbers | {"theta": found.basis.theta, "models": models, "size": found.size, "done": done}


def _read(saved: dict, basis: Basis, setting: Setting) -> Found:
    """The climb that was recorded."""
    with checked():
        theta, models = saved["theta"], []
        if theta.shape != basis.theta.shape or not np.all(np.isfinite(theta)):
            raise ValueError(f"parameters {theta}")
        for target, m in zip(setting.targets, saved["models"], strict=True):
            active, alpha = m["active"].astype(np.intp), m["alpha"]
            gaussian = isinstance(target, GaussianTarget)
            check_model(active, alpha, basis.n_atoms if gaussian else target.problem.K * basis.n_atoms)
            models.append(Start(active, alpha, float(m["beta"])) if gaussian else (active, alpha))
        numbers = {name: float(saved[name]) for name in ("value", "gamma", "n_samples")}
        return Found(basis.with_theta(theta), models, size=int(saved["size"]), **numbers)


def climb(basis: Basis, setting: Setting, models: list, steps: int, settle: bool) -> tuple[Basis, list[Evaluated]]:
    """L-BFGS-B on the free parameters of a fixed support, within a box.

    With ``settle`` precisions and noise follow the parameters to their optimum, where the derivative of the evidence
    is the partial one; without, they stay.
    """
    theta = basis.theta
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    visited: list[tuple[float, np.ndarray, list[Evaluated]]] = []

    def minus_evidence(values: np.ndarray):
        full = theta.copy()
        full[setting.free] = values
        evaluated, slope = _evidence_and_gradient(columns, full, setting, models, settle)
        total = sum(e.value for e in evaluated)
        if not visited or total > visited[-1][0]:
            visited[:] = [(total, full, evaluated)]
        return -total, -slope[setting.free]

    minimize(minus_evidence, theta[setting.free], jac=True, method="L-BFGS-B", bounds=setting.within(theta, _BOX),
             options={"maxiter": steps, "maxcor": 20})  # fmt: skip
    return basis.with_theta(visited[-1][1]), visited[-1][2]


def evidence_and_gradient(
    basis: Basis, setting: Setting, models: list, settle: bool
) -> tuple[list[Evaluated], np.ndarray]:
    """The evidence of each target's model, and the derivative of their sum with respect to theta (p,)."""
    columns = [Columns.of(basis, t.atoms(m)) for t, m in zip(setting.targets, models, strict=True)]
    return _evidence_and_gradient(columns, basis.theta, setting, models, settle)


def _evidence_and_gradient(
    columns: list[Columns], theta: np.ndarray, setting: Setting, models: list, settle: bool
) -> tuple[list[Evaluated], np.ndarray]:
    found, slope = [], np.zeros(len(theta))
    for own, target, model in zip(columns, setting.targets, models, strict=True):
        root = target.root
        design = DenseDesign(own(setting.X, theta) * root[:, None], overwrite=True)
        C, scale = design.columns(slice(None)), design.scale
        one = target.evaluate(C, model, settle)
        found.append(one)
        # columns are divided by their norms: only what changes their direction counts
        Phi_bar = one.C_bar - C * np.einsum("ij,ij->j", C, one.C_bar)
        Phi_bar *= root[:, None] / np.where(scale > 0.0, scale, np.inf)
        slope += own.theta_vjp(setting.X, theta, Phi_bar)  # T01 eq. (55)-(57)
    return found, slope


@dataclass(frozen=True, eq=False)
class Columns:
    """Some atoms of a basis as functions of its theta (p,): parts of it, where their columns stand, and their theta."""

    pieces: list[tuple[Basis, np.ndarray, slice]]
    n_atoms: int

    @classmethod
    def of(cls, basis: Basis, atoms: np.ndarray) -> Columns:
        """The given atoms (k,) of a bound basis."""
        if not isinstance(basis, Concat):
            return cls([(basis.take(atoms), np.arange(len(atoms)), slice(0, len(basis.theta)))], len(atoms))
        place = np.full(basis.n_atoms, -1)
        place[atoms] = np.arange(len(atoms))
        pieces, first = [], 0
        for part, where in zip(basis.parts, basis.places(), strict=True):
            chosen = np.flatnonzero(place[where] >= 0)
            if chosen.size:  # a part may have parts of its own, and lose some of them
                for piece, among, own in cls.of(part, chosen).pieces:
                    pieces.append((piece, place[where[chosen[among]]], slice(first + own.start, first + own.stop)))
            first += len(part.theta)
        return cls(pieces, len(atoms))

    def __call__(self, X: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """The columns (n, k) on the rows X."""
        Phi = np.empty((len(X), self.n_atoms))
        for part, where, own in self.pieces:
            Phi[:, where] = part.with_theta(theta[own])(X)
        return Phi

    def theta_vjp(self, X: np.ndarray, theta: np.ndarray, Phi_bar: np.ndarray) -> np.ndarray:
        """Derivatives of sum(Phi_bar * columns) with respect to theta (p,)."""
        slope = np.zeros(len(theta))
        for part, where, own in self.pieces:
            if own.start != own.stop:
                slope[own] = part.with_theta(theta[own]).vjp(X, Phi_bar[:, where])[0]
        return slope


def _design(basis: Basis, setting: Setting) -> DenseDesign:
    return DenseDesign(basis(setting.X) * setting.targets[0].root[:, None], overwrite=True)


def _norms(basis: Basis, atoms: np.ndarray, setting: Setting) -> np.ndarray:
    """Norms (k,) of some atoms' columns."""
    return DenseDesign(basis.take(atoms)(setting.X) * setting.targets[0].root[:, None], overwrite=True).scale
