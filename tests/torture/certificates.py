"""Certificates of random problems computed again, for `tests/guards.py --only certificates`.

A fit that ends `converged` says that no single move gains more than tol: no addition, deletion, re-estimation or
exchange, and no change of the noise. For regression all of them are computed again in 50 digits from the training data
and the reported precisions alone. For classes and counts moves are looked for in double precision among a grid of
precisions, inside the region where Laplace's approximation is trusted, and what they gain is computed in 50 digits.
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, replace
from typing import Any

import mpmath as mp
import numpy as np
from scipy.special import expit

import oracle
from relvec import RVC, RVR

DIGITS = 50
MAX_EXCHANGES = 400  # pairs: more of them are not tried
TRUST = 0.5  # least share of w'Aw in the sum of gamma at which a class model is trusted
WIDTHED = ("gaussian", "laplace", "cauchy", "matern32", "polynomial")
NOISE_FACTORS = ("0.9", "0.99", "0.999", "1.001", "1.01", "1.1")
mp.mp.dps = DIGITS


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, rows X (n, d), targets (n,) and weights (n,) or None."""

    model: Any
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None


def draw(kind: str, seed: int, number: int) -> Problem:
    """A random problem: "regression", "hard regression", "classes", "counts", or one of the last two with weights."""
    if kind == "hard regression":
        return draw_hard_regression(seed, number)
    rng = np.random.default_rng([seed, number])
    if kind.startswith("weighted "):
        problem = draw(kind.removeprefix("weighted "), seed, number)
        rng = np.random.default_rng([seed, number, 1])
        size = rng.choice([0.01, 1.0, 100.0]) * 10.0 ** rng.uniform(-2.0, 2.0, len(problem.y)) ** rng.integers(2)
        problem.model.fit_intercept = bool(rng.random() < 0.7)
        return replace(problem, weights=size)
    n, d = int(rng.integers(6, 21)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) if rng.random() < 0.8 else np.sort(rng.integers(-3, 4, (n, d)), axis=0).astype(float)
    signal, weights = np.sin(2.0 * X[:, 0]), None
    if kind == "regression":
        y = signal + 10.0 ** rng.uniform(-4, 0) * rng.normal(size=n) + rng.choice([0.0, 5.0])
        weights = 10.0 ** rng.uniform(-2, 2, n) if rng.random() < 0.4 else None
        kernel = str(rng.choice([*WIDTHED, "linear"]))
        options = {"kernel": kernel} | ({"width": float(10.0 ** rng.uniform(-2, 3))} if kernel in WIDTHED else {})
        if rng.random() < 0.2:
            options["noise_variance"] = float(10.0 ** rng.uniform(-4, 1))
        return Problem(RVR(**options), X, y, weights)
    signal = signal * 10.0 ** rng.uniform(-1, 0.7)
    width = float(10.0 ** rng.uniform(-1, 1.3))
    if kind == "counts":
        y = rng.poisson(np.exp(np.clip(signal + 1.0, -5.0, 5.0))).astype(float)
        return Problem(RVR(width=width, likelihood="poisson"), X, y, weights)
    y = (signal + 10.0 ** rng.uniform(-3, 0) * rng.normal(size=n) > 0.0).astype(float)
    return Problem(RVC(width=width), X, y, weights)


def draw_hard_regression(seed: int, number: int) -> Problem:
    """Rows that repeat or lie far away, targets of any size, weights over eight decades, and noise down to 1e-8."""
    rng = np.random.default_rng([seed, number])
    n, d = int(rng.integers(5, 36)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, d))
    if rng.random() < 0.2:
        X = X[rng.integers(n, size=n)]
    if rng.random() < 0.2:
        X = np.round(X, 1)
    if rng.random() < 0.1:
        X = X + 1e4
    signal, noise = 10.0 ** rng.uniform(-3, 3) * np.sin(2.0 * X[:, 0]), 10.0 ** rng.uniform(-8, 0)
    y = signal + noise * rng.normal(size=n) + rng.choice([0.0, 0.0, 100.0])
    weights = 10.0 ** rng.uniform(-4, 4, n) if rng.random() < 0.4 else None
    kernel = str(rng.choice([*WIDTHED, "linear", "matern52", "log_distance"]))
    options = {"kernel": kernel, "fit_intercept": bool(rng.random() < 0.7)}
    if kernel in (*WIDTHED, "matern52"):
        options["width"] = float(10.0 ** rng.uniform(-2, 3))
    elif kernel == "log_distance":
        options["width"] = 1.0  # a learned width may hold the noise
    if rng.random() < 0.2:
        options["noise_variance"] = float(10.0 ** rng.uniform(-8, 1))
    return Problem(RVR(**options), X, y, weights)


def dictionary(model: Any, X: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """All functions of a fitted model at its training rows, (n, M), and the numbers of those it keeps."""
    Phi = np.column_stack([model.kernel_(X, X), *[np.ones(len(X))] * model.fit_intercept])
    return Phi, [*map(int, model.relevance_), *([len(X)] if "bias" in model.atoms_ else [])]


def exact(values: Any) -> list:
    """Numbers in 50 digits."""
    return [mp.mpf(float(v)) for v in values]


def factorise(C: list) -> list:
    """Lower Cholesky factor of a positive definite matrix, as rows."""
    L: list = []
    for i, row in enumerate(C):
        new: list = []
        for j in range(i):
            new.append((row[j] - mp.fdot(new, L[j][:j])) / L[j][j])
        L.append([*new, mp.sqrt(row[i] - mp.fdot(new, new))])
    return L


def solve(L: list, b: list) -> list:
    """x of L x = b."""
    x: list = []
    for row, value in zip(L, b, strict=True):
        x.append((value - mp.fdot(x, row[:-1])) / row[-1])
    return x


def gain_of_adding(s: Any, q: Any) -> Any:
    """The most that one function gains, TF03 eq. (18) at the precision of eq. (20); 0 where none gains."""
    if s <= 0 or q * q <= s:
        return mp.mpf(0)
    return (q * q / s - 1 - mp.log(q * q / s)) / 2


class GaussianCheck:
    """The evidence of a Gaussian model and the gains of its single moves, in 50 digits."""

    def __init__(self, problem: Problem) -> None:
        self.model = problem.model
        weights = np.ones(len(problem.y)) if problem.weights is None else problem.weights
        Phi, self.active = dictionary(problem.model, problem.X)
        root = [mp.sqrt(w) for w in exact(weights)]
        self.t = [v * r for v, r in zip(exact(problem.y), root, strict=True)]
        self.columns = [[v * r for v, r in zip(exact(column), root, strict=True)] for column in Phi.T]
        self.surplus = mp.fsum(exact(weights)) - len(root)  # samples that the weights stand for beyond the rows
        self.alpha = dict(zip(self.active, exact(problem.model.alpha_), strict=True))

    def factor(self, noise: Any) -> tuple[list, list, Any]:
        """Factor of C of TF03 eq. (7), L^-1 t and the log evidence."""
        n = len(self.t)
        scaled = [[v / mp.sqrt(self.alpha[a]) for v in self.columns[a]] for a in self.active]
        rows = list(zip(*scaled, strict=True)) or [()] * n
        C = [[mp.fdot(rows[i], rows[j]) + (noise if i == j else 0) for j in range(i + 1)] for i in range(n)]
        L = factorise(C)
        u = solve(L, self.t)
        logdet = 2 * mp.fsum(mp.log(row[-1]) for row in L)
        evidence = -(n * mp.log(2 * mp.pi) + logdet + mp.fdot(u, u)) / 2
        return L, u, evidence - self.surplus / 2 * mp.log(2 * mp.pi * noise)

    def gains(self) -> dict[str, Any]:
        """The largest gain of each kind of move, in nats."""
        noise = mp.mpf(float(self.model.noise_variance_))
        L, u, evidence = self.factor(noise)
        V = [solve(L, column) for column in self.columns]
        S, Q = [mp.fdot(v, v) for v in V], [mp.fdot(v, u) for v in V]
        outside = [j for j in range(len(V)) if j not in self.alpha]
        near = {j: {a for a in self.active if self.near(a, j)} for j in outside}
        price = 2 * mp.log(len(V))  # that a near-copy has to gain

        def entering(j: int, s: Any, q: Any, stays: set) -> Any:
            gain = gain_of_adding(s, q)
            return gain if not stays or gain > price else mp.mpf(0)

        found = {"add": max((entering(j, S[j], Q[j], near[j]) for j in outside), default=mp.mpf(0))}
        for a in self.active:
            alpha, rest = self.alpha[a], self.alpha[a] - S[a]
            s, q = alpha * S[a] / rest, alpha * Q[a] / rest  # TF03 eq. (23)
            here = (mp.log(alpha) - mp.log(alpha + s) + q * q / (alpha + s)) / 2
            self._raise(found, "delete", -here)
            self._raise(found, "re-estimate", gain_of_adding(s, q) - here)
            if len(outside) * len(self.active) <= MAX_EXCHANGES:
                for j in outside:
                    c = mp.fdot(V[a], V[j])
                    gain = entering(j, S[j] + c * c / rest, Q[j] + c * Q[a] / rest, near[j] - {a})
                    self._raise(found, "exchange", gain - here)
        if self.model.noise_variance is None:
            for factor in NOISE_FACTORS:
                self._raise(found, "noise", self.factor(noise * mp.mpf(factor))[2] - evidence)
        return found

    def near(self, a: int, j: int) -> bool:
        """Whether two columns are near-copies; the constant is none of any."""
        x, y = self.columns[a], self.columns[j]
        constant = self.model.fit_intercept and len(self.columns) - 1 in (a, j)
        return not constant and mp.fdot(x, y) ** 2 > mp.mpf("0.999") ** 2 * mp.fdot(x, x) * mp.fdot(y, y)

    @staticmethod
    def _raise(found: dict, kind: str, gain: Any) -> None:
        found[kind] = max(found.get(kind, mp.mpf(0)), gain)


class LaplaceCheck:
    """The evidence of a model of two classes or counts by Laplace's approximation, and moves that gain."""

    FACTORS = (0.1, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 10.0)
    PRECISIONS = 10.0 ** np.linspace(-2, 6, 9)

    def __init__(self, problem: Problem) -> None:
        self.counts, self.intercept = isinstance(problem.model, RVR), problem.model.fit_intercept
        self.t = problem.y if self.counts else oracle.with_prior_rows(problem.y, "bernoulli", problem.weights)
        self.Phi, self.active = dictionary(problem.model, problem.X)
        self.alpha = np.atleast_1d(problem.model.alpha_).astype(float)
        self.weights_found = np.ravel(problem.model.weights_)
        self.weights = np.ones(len(problem.y)) if problem.weights is None else problem.weights

    @staticmethod
    def root_of_hessian(Phi: np.ndarray, curvature: np.ndarray, root: np.ndarray) -> np.ndarray:
        """Upper triangular R (k, k) with R'R = I + A^-1/2 Phi'B Phi A^-1/2, without its squares."""
        X = np.sqrt(curvature)[:, None] * Phi * root
        return np.linalg.qr(np.vstack([X, np.eye(X.shape[1])]), mode="r")

    @np.errstate(over="ignore", invalid="ignore")  # such steps are shortened
    def mode(self, functions: list[int], alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mode (k,) by Newton's method from the model's weights, and the curvature of each row (n,)."""
        found = dict(zip(self.active, self.weights_found, strict=True))
        Phi, w = self.Phi[:, functions], np.array([found.get(j, 0.0) for j in functions])

        def log_posterior(w: np.ndarray) -> float:
            f = Phi @ w
            likelihood = self.t * f - (np.exp(np.minimum(f, 700.0)) if self.counts else np.logaddexp(0.0, f))
            return float(self.weights @ likelihood - 0.5 * (alpha * w * w).sum())

        for _ in range(200):
            f = Phi @ w
            mean = np.exp(np.minimum(f, 700.0)) if self.counts else expit(f)
            curvature = self.weights * (mean if self.counts else mean * (1.0 - mean))
            gradient = Phi.T @ (self.weights * (self.t - mean)) - alpha * w
            root = alpha**-0.5
            R = self.root_of_hessian(Phi, curvature, root)
            step = root * np.linalg.solve(R, np.linalg.solve(R.T, root * gradient))
            decrement, length, here = gradient @ step, 1.0, log_posterior(w)
            if decrement < 1e-14 * max(1.0, abs(here)):
                return w, curvature
            while length > 1e-10 and not log_posterior(w + length * step) >= here + 1e-4 * length * decrement:
                length /= 2.0
            if length < 1e-3 and decrement < 1e-9 * max(1.0, abs(here)):  # values no longer tell steps apart
                return w, curvature
            w = w + length * step
        return np.full(len(w), np.nan), curvature  # not found: it counts for nothing

    def value(self, functions: list[int], alpha: np.ndarray) -> tuple[float, float]:
        """Log evidence in double precision, -inf where no mode was found, and the trust in it, w'Aw / sum of gamma."""
        w, curvature = self.mode(functions, alpha)
        if not np.isfinite(w).all():
            return -np.inf, 0.0
        Phi, root = self.Phi[:, functions], alpha**-0.5
        R, f = self.root_of_hessian(Phi, curvature, root), Phi @ w
        likelihood = self.t * f - (np.exp(f) if self.counts else np.logaddexp(0.0, f))
        gamma = float(np.sum(1.0 - (np.linalg.inv(R) ** 2).sum(axis=1))) if len(w) else 0.0
        trust = float((alpha * w * w).sum() / gamma) if gamma > 0.0 else 1.0
        value = float(self.weights @ likelihood - 0.5 * (alpha * w * w).sum() - np.log(np.abs(np.diag(R))).sum())
        return value, trust

    def exact_value(self, functions: list[int], alpha: np.ndarray, start: np.ndarray | None = None) -> Any:
        """The same evidence in 50 digits: Newton's method goes on from the mode in double precision, or from a start.

        -inf where it does not come to an end: what is no mode has no evidence.
        """
        w, A = exact(self.mode(functions, alpha)[0] if start is None else start), exact(alpha)
        rows, t, weights = [exact(row) for row in self.Phi[:, functions]], exact(self.t), exact(self.weights)
        for _ in range(30):
            f = [mp.fdot(row, w) for row in rows]
            mean = [mp.exp(v) if self.counts else 1 / (1 + mp.exp(-v)) for v in f]
            curvature = [b * m * (1 if self.counts else 1 - m) for b, m in zip(weights, mean, strict=True)]
            H = [[mp.fsum(c * row[i] * row[j] for c, row in zip(curvature, rows, strict=True)) / mp.sqrt(A[i] * A[j])
                  + (1 if i == j else 0) for j in range(i + 1)] for i in range(len(w))]  # fmt: skip
            L = factorise(H)
            gradient = [mp.fsum(b * (y - m) * row[i] for b, y, m, row in zip(weights, t, mean, rows, strict=True))
                        - A[i] * w[i] for i in range(len(w))]  # fmt: skip
            half = solve(L, [g / mp.sqrt(a) for g, a in zip(gradient, A, strict=True)])
            if mp.fdot(half, half) < mp.mpf(10) ** -30:
                break
            step: list = []
            for i in reversed(range(len(w))):
                later = mp.fsum(L[k][i] * s for k, s in zip(range(len(w) - 1, i, -1), step, strict=True))
                step.append((half[i] - later) / L[i][i])
            w = [v + s / mp.sqrt(a) for v, s, a in zip(w, reversed(step), A, strict=True)]
        else:
            return -mp.inf
        f = [mp.fdot(row, w) for row in rows]
        likelihood = mp.fsum(b * (y * v - (mp.exp(v) if self.counts else mp.log(1 + mp.exp(v))))
                             for b, y, v in zip(weights, t, f, strict=True))  # fmt: skip
        return likelihood - mp.fsum(a * v * v for a, v in zip(A, w, strict=True)) / 2 - mp.fsum(
            mp.log(row[-1]) for row in L)  # fmt: skip

    def moves(self) -> Any:
        """Every move: its kind, functions and precisions."""
        for j, alpha in itertools.product(range(self.Phi.shape[1]), self.PRECISIONS):
            if j not in self.active:
                yield "add", [*self.active, j], np.append(self.alpha, alpha)
        for a in range(len(self.active)):
            rest = [*self.active[:a], *self.active[a + 1 :]]
            yield "delete", rest, np.delete(self.alpha, a)
            for factor in self.FACTORS:
                alpha = self.alpha.copy()
                alpha[a] *= factor
                yield "re-estimate", list(self.active), alpha

    def least_gains(self) -> np.ndarray:
        """Nats that each function has to gain to enter: near-copies of functions in the model, 2 log M."""
        constant = [self.Phi.shape[1] - 1] if self.intercept else []
        scaled = np.sqrt(self.weights)[:, None] * self.Phi
        inner, size = scaled.T @ scaled[:, self.active], np.sqrt((scaled**2).sum(axis=0))
        near = np.abs(inner) > 0.999 * np.outer(size, size[self.active])
        near[:, np.isin(self.active, constant)] = False
        near[constant] = False
        return np.where(near.any(axis=1), 2.0 * np.log(len(size)), 0.0)

    def gains(self) -> dict[str, Any]:
        """The largest gain of each kind of move among those tried, in nats."""
        (here, trust), least = self.value(self.active, self.alpha), self.least_gains()
        best: dict = {}
        for kind, functions, alpha in self.moves():
            there, new_trust = self.value(functions, alpha)
            if kind == "add" and there - here <= least[functions[-1]]:
                continue
            if new_trust >= min(TRUST, trust) and there - here > best.get(kind, (0.0,))[0]:
                best[kind] = there - here, functions, alpha
        start = self.exact_value(self.active, self.alpha, self.weights_found) if best else None
        return {kind: self.exact_value(functions, alpha) - start for kind, (_, functions, alpha) in best.items()}


def check(kind: str, seed: int, number: int) -> str:
    """Fit one problem and check its certificate: how it ended; an AssertionError where the certificate is false."""
    problem = draw(kind, seed, number)
    if len(np.unique(problem.y)) < 2:
        return "skipped"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = problem.model.fit(problem.X, problem.y, problem.weights)
        except ValueError:
            return "refused"
    if model.status_ != "converged":
        return model.status_
    gains = (GaussianCheck if kind.endswith("regression") else LaplaceCheck)(problem).gains()
    top = max(gains, key=gains.get, default="")
    limit = max((1e-4 if model.tol is None else model.tol), model.certificate_) * (1 + 1e-6)
    assert not top or gains[top] <= limit, (
        f"{top} gains {float(gains[top]):.3g} nats, certificate_ {model.certificate_:.3g}: {model}"
    )
    return "true"
