"""Three approximations to the evidence of two classes, at fixed functions: Laplace's, a variational bound, and EP.

    RELVEC_DATA=FOLDER python benchmarks/approximations.py --sets overlap,ripley,banana --splits 3

The functions are Gaussians on 30 rows and a constant. Each approximation re-estimates their precisions by 300 steps of
expectation-maximisation, alpha = 1 / (mu^2 + Sigma), T01 eq. (47). "overlap" is T01's figure 10, x uniform in [0, 1]
against [.5, 1.5], 200 rows. Laplace's approximation also with one row of the base rates spread over all rows, as in
`RVC()`. Prints means over the splits: the approximate log evidence, the largest log-odds of the mean weights, functions
with gamma above .01, log loss of test rows, and CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402
from classes import splits_of  # noqa: E402
from scipy.special import expit, log_expit  # noqa: E402

WIDTHS = {"overlap": 0.1, "ripley": 0.5, "banana": 0.7}
CENTRES, STEPS = 30, 300
MOST_LOG_PRECISION = 25.0  # functions beyond are out
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(30)


@dataclass
class Gaussian:
    """The posterior of weights (k,), its covariance (k, k), and the approximate log evidence."""

    mean: np.ndarray
    covariance: np.ndarray
    log_evidence: float


def laplace(Phi: np.ndarray, t: np.ndarray, alpha: np.ndarray, start: Gaussian | None) -> Gaussian:
    """Return Laplace's approximation (T01 eqs. (24) to (26)), for shares t (n,) of the second class."""

    def value(w: np.ndarray) -> float:
        f = Phi @ w
        return float(t @ log_expit(f) + (1.0 - t) @ log_expit(-f) - 0.5 * alpha @ w**2)

    w = np.zeros(len(alpha)) if start is None else start.mean
    for _ in range(100):
        p = expit(Phi @ w)
        H = (Phi.T * (p * (1.0 - p))) @ Phi + np.diag(alpha)
        step, size = np.linalg.solve(H, Phi.T @ (t - p) - alpha * w), 1.0
        while value(w + size * step) < value(w) and size > 1e-10:
            size *= 0.5
        w = w + size * step
        if np.abs(size * step).max() < 1e-9 * (1.0 + np.abs(w).max()):
            break
    p = expit(Phi @ w)
    H = (Phi.T * (p * (1.0 - p))) @ Phi + np.diag(alpha)
    return Gaussian(w, np.linalg.inv(H), value(w) + 0.5 * (np.log(alpha).sum() - np.linalg.slogdet(H)[1]))


def bound(Phi: np.ndarray, t: np.ndarray, alpha: np.ndarray, start: Gaussian | None) -> Gaussian:
    """Return the Gaussian of most lower bound on the evidence (Jaakkola and Jordan, 2000)."""
    xi = np.ones(len(t)) if start is None else _spread(Phi, start)
    for _ in range(30):
        slope = np.tanh(0.5 * xi) / (4.0 * xi)
        P = 2.0 * (Phi.T * slope) @ Phi + np.diag(alpha)
        S = np.linalg.inv(P)
        mean = S @ (Phi.T @ (t - 0.5))
        xi, old = _spread(Phi, Gaussian(mean, S, 0.0)), xi
        if np.abs(xi - old).max() < 1e-6:
            break
    slope = np.tanh(0.5 * xi) / (4.0 * xi)
    P = 2.0 * (Phi.T * slope) @ Phi + np.diag(alpha)
    S = np.linalg.inv(P)
    mean = S @ (Phi.T @ (t - 0.5))
    rows = float(np.sum(log_expit(xi) - 0.5 * xi + slope * xi**2))
    evidence = rows + 0.5 * (np.log(alpha).sum() - np.linalg.slogdet(P)[1] + mean @ P @ mean)
    return Gaussian(mean, S, float(evidence))


def _spread(Phi: np.ndarray, q: Gaussian) -> np.ndarray:
    return np.sqrt(np.einsum("ij,jk,ik->i", Phi, q.covariance, Phi) + (Phi @ q.mean) ** 2) + 1e-12


class Propagation:
    """Expectation propagation (Minka, 2001), all rows at once and damped; its sites are kept from call to call."""

    def __init__(self) -> None:
        self.sites: tuple[np.ndarray, np.ndarray] | None = None

    def __call__(self, Phi: np.ndarray, t: np.ndarray, alpha: np.ndarray, start: Gaussian | None) -> Gaussian:
        """Return the Gaussian whose marginals match the tilted ones of every row."""
        sign = 2.0 * t - 1.0
        tau, nu = (np.full(len(t), 0.1), 0.25 * sign) if self.sites is None else self.sites
        for _ in range(40):
            P = (Phi.T * tau) @ Phi + np.diag(alpha)
            S = np.linalg.inv(P)
            mean = S @ (Phi.T @ nu)
            m, v = Phi @ mean, np.einsum("ij,jk,ik->i", Phi, S, Phi)
            cavity_v = 1.0 / np.maximum(1.0 / v - tau, 1e-10)
            cavity_m = cavity_v * (m / v - nu)
            f = cavity_m[:, None] + np.sqrt(cavity_v)[:, None] * NODES
            tilted = WEIGHTS / np.sqrt(2.0 * np.pi) * expit(sign[:, None] * f)
            Z = tilted.sum(axis=1)
            first = (tilted * f).sum(axis=1) / Z
            second = np.maximum((tilted * (f - first[:, None]) ** 2).sum(axis=1) / Z, 1e-10)
            new_tau = np.maximum(1.0 / second - 1.0 / cavity_v, 1e-10)
            change = np.abs(new_tau - tau).max()
            nu = 0.5 * nu + 0.5 * (first / second - cavity_m / cavity_v)
            tau = 0.5 * tau + 0.5 * new_tau
            if change < 1e-5:
                break
        self.sites = tau, nu
        rows = np.log(Z) + 0.5 * (cavity_m**2 / cavity_v + np.log(cavity_v) - m**2 / v - np.log(v))
        whole = 0.5 * (np.log(alpha).sum() - np.linalg.slogdet(P)[1] + mean @ P @ mean)
        return Gaussian(mean, S, float(rows.sum() + whole))


METHODS = {"Laplace": laplace, "Laplace, one row": laplace, "bound": bound, "EP": None}


def learn(method: str, Phi: np.ndarray, t: np.ndarray) -> tuple[Gaussian, np.ndarray]:
    """Return the posterior at re-estimated precisions, and these (k,)."""
    if method == "Laplace, one row":
        t = (t + t.mean() / len(t)) / (1.0 + 1.0 / len(t))
    approximate = METHODS[method] or Propagation()
    alpha, q = np.ones(Phi.shape[1]), None
    for _ in range(STEPS):
        q = approximate(Phi, t, alpha, q)
        alpha = np.minimum(1.0 / (q.mean**2 + np.diag(q.covariance)), np.exp(MOST_LOG_PRECISION))
    return approximate(Phi, t, alpha, q), alpha


def rows_of(name: str, split: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(X, t, X_test, t_test) of a split."""
    if name != "overlap":
        return list(splits_of(name, split + 1))[split]
    rng = np.random.default_rng(split)
    t = np.arange(2200) % 2
    x = rng.uniform(size=(2200, 1)) + 0.5 * t[:, None]
    return x[:200], t[:200], x[200:], t[200:]


def measure(name: str, split: int, method: str) -> list[float]:
    """Evidence, largest log-odds, functions, log loss of test rows, and CPU seconds."""
    X, t, Z, z = rows_of(name, split)
    centres = X[np.random.default_rng(split).permutation(len(X))[:CENTRES]]

    def columns(X: np.ndarray) -> np.ndarray:
        squares = ((X[:, None] - centres) ** 2).sum(axis=2)
        return np.column_stack([np.exp(-squares / WIDTHS[name] ** 2), np.ones(len(X))])

    begin, Phi = time.process_time(), columns(X)
    q, alpha = learn(method, Phi, t.astype(float))
    spent, new = time.process_time() - begin, columns(Z)
    gamma = 1.0 - alpha * np.diag(q.covariance)
    f = new @ q.mean
    spread = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", new, q.covariance, new), 0.0))
    p = expit(f[:, None] + spread[:, None] * NODES) @ WEIGHTS / np.sqrt(2.0 * np.pi)
    loss = -np.mean(np.log(np.clip(np.where(z == 1, p, 1.0 - p), 1e-12, 1.0)))
    return [q.log_evidence, np.abs(Phi @ q.mean).max(), float(np.sum(gamma > 0.01)), float(loss), spent]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", default=",".join(WIDTHS))
    parser.add_argument("--splits", type=int, default=3, help="at most so many a set (default 3)")
    options = parser.parse_args()
    print("| set | approximation | log evidence | largest log-odds | functions | log loss | CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in options.sets.split(","):
        splits = 1 if name == "ripley" else options.splits
        for method in METHODS:
            found = np.mean([measure(name, split, method) for split in range(splits)], axis=0)
            evidence, odds, size, loss, spent = found
            print(
                f"| {name} | {method} | {evidence:.1f} | {odds:.3g} | {size:.0f} | {loss:.3f} | {spent:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
