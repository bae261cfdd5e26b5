"""Sparse linear regression: which columns are found, how well, and how long it takes.

On a grid of correlation between neighbouring columns (an autoregressive process), signal-to-noise ratio (variance of
the function over that of the noise) and number of columns p, at n = 200 rows and ten columns with slopes from 0.5 to
1.5 in size, of either sign: F1 of the set of columns, error of the slopes relative to their length, coverage of
`coef_` +- 1.96 `coef_std_` on the columns that were selected, and CPU seconds. Ridge regressions select nothing: their
F1 counts the ten largest slopes, which they could not know to be ten.

    python benchmarks/linear.py [--columns 50,500,2000,20000] [--repeats 5] [--peers relvec;LassoCV] [--sparse]
                                [--classes] [--evidence 50,500,2000] [--jobs 8]

`--classes` measures two classes, with and without a price for columns and by l1 regularisation in folds. `--evidence`
compares the log evidence of ARDRegression with that of relvec: both without a prior over sets, in one formula, T01 eq.
(15), each at its own precisions and noise for centred columns and targets. `--sparse` fits 50,000 sparse columns of 500
rows as well. skglm is compared where it is installed. ARDRegression, BayesianRidge and relvec without a prior over sets
are left out above 2,000 columns. `--jobs` measures in that many processes, one thread each; every process fits a small
table first, so that no time counts imports and compilation.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from harness.parallel import measure_groups
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import ARDRegression, BayesianRidge, LassoCV, LogisticRegressionCV
from threadpoolctl import threadpool_limits

from relvec import SparseBayesianClassifier, SparseBayesianRegressor
from relvec.solvers import Sequential

N_ROWS, N_TRUE = 200, 10
CORRELATIONS, RATIOS = (0.0, 0.5, 0.9), (1.0, 10.0)
# Most columns: ridge and ARD hold a matrix of all pairs of columns, and without a prior over sets the model passes
# through the targets.
MAX_COLUMNS = {"ARDRegression": 2000, "BayesianRidge": 2000, "relvec, flat": 2000}


class Score(NamedTuple):
    """Of one fit; coverage is nan where there are no error bars."""

    f1: float
    error: float
    coverage: float
    seconds: float
    size: float


def draw(p: int, correlation: float, ratio: float, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Rows X (n, p), targets (n,) and slopes (p,)."""
    noise = rng.standard_normal((N_ROWS, p))
    X = np.empty_like(noise)
    X[:, 0] = noise[:, 0]
    for j in range(1, p):
        X[:, j] = correlation * X[:, j - 1] + np.sqrt(1.0 - correlation**2) * noise[:, j]
    slopes = np.zeros(p)
    true = rng.choice(p, N_TRUE, replace=False)
    slopes[true] = rng.choice([-1.0, 1.0], N_TRUE) * rng.uniform(0.5, 1.5, N_TRUE)
    f = X @ slopes
    return X, f + f.std() / np.sqrt(ratio) * rng.standard_normal(N_ROWS), slopes


def of_relvec(model: SparseBayesianRegressor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slopes, the columns selected and the standard deviations."""
    return model.coef_, model.selected_, model.coef_std_


def of_ard(model: ARDRegression) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ARDRegression keeps the columns of precisions below its threshold."""
    kept = model.lambda_ < model.threshold_lambda
    std = np.zeros(len(kept))
    std[kept] = np.sqrt(np.diag(model.sigma_))
    return model.coef_, kept & (model.coef_ != 0.0), std


def of_ridge(model: BayesianRidge) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A ridge keeps every column: the largest slopes count."""
    top = np.zeros(len(model.coef_), dtype=bool)
    top[np.argsort(-np.abs(model.coef_))[:N_TRUE]] = True
    return model.coef_, top, np.sqrt(np.maximum(np.diag(model.sigma_), 0.0))


def of_lasso(model: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A lasso has no error bars."""
    coef = np.ravel(model.coef_)
    return coef, coef != 0.0, np.full(len(coef), np.nan)


def peers() -> dict[str, tuple[Callable[[], Any], Callable]]:
    """Makers of regressors by name, and what reads them."""
    found: dict[str, tuple[Callable[[], Any], Callable]] = {
        "relvec": (SparseBayesianRegressor, of_relvec),
        "relvec, flat": (lambda: SparseBayesianRegressor(solver=Sequential(support_prior="flat")), of_relvec),
        "ARDRegression": (ARDRegression, of_ard),
        "BayesianRidge": (BayesianRidge, of_ridge),
        "LassoCV": (LassoCV, of_lasso),
    }
    # numba, which skglm needs, looks for the package coverage and would find benchmarks/coverage.py
    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]
    try:
        from skglm import MCPRegression

        found["skglm MCP"] = (lambda: FoldedMCP(MCPRegression), of_lasso)
    except ImportError:
        pass
    return found


class FoldedMCP:
    """skglm's regression under the minimax concave penalty, its strength chosen by five folds as LassoCV does."""

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make

    def fit(self, X: np.ndarray, y: np.ndarray) -> FoldedMCP:
        """Fit a grid of thirty strengths in folds, then the best to all rows."""
        from sklearn.model_selection import cross_val_score

        largest = np.abs((X - X.mean(axis=0)).T @ (y - y.mean())).max() / len(y)
        strengths = largest * np.geomspace(1.0, 1e-2, 30)
        scores = [cross_val_score(self.make(alpha=a), X, y, cv=5, scoring="r2").mean() for a in strengths]
        self.coef_ = self.make(alpha=strengths[int(np.argmax(scores))]).fit(X, y).coef_
        return self


def measure(make: Callable[[], Any], read: Callable, X: Any, y: np.ndarray, slopes: np.ndarray) -> Score:
    """Fit once and compare with the slopes (p,)."""
    began = time.process_time()
    model = make().fit(X, y)
    seconds = time.process_time() - began
    coef, selected, std = read(model)
    true = slopes != 0.0
    f1 = 2.0 * np.sum(selected & true) / (selected.sum() + true.sum())
    error = np.linalg.norm(coef - slopes) / np.linalg.norm(slopes)
    inside = np.abs(coef - slopes)[selected] <= 1.96 * std[selected]
    coverage = float(inside.mean()) if selected.any() and not np.isnan(std).any() else np.nan
    return Score(float(f1), float(error), coverage, seconds, float(selected.sum()))


@cache
def warm_up(name: str) -> tuple[Callable[[], Any], Callable]:
    """A peer that has fitted a small table in this process."""
    make, read = peers()[name]
    make().fit(*draw(20, 0.0, 10.0, np.random.default_rng(0))[:2])
    return make, read


def measure_cell(case: tuple[int, float, float, str, int, int]) -> Score:
    """One fit of a cell of the grid."""
    p, correlation, ratio, name, seed, i = case
    return measure(*warm_up(name), *draw(p, correlation, ratio, np.random.default_rng([seed, p, i])))


def table(columns: list[int], repeats: int, names: list[str], seed: int, jobs: int) -> None:
    """Print a row for each cell of the grid and each peer."""
    known = [name for name in names if name in peers()]
    print("| p | correlation | signal / noise | model | columns | F1 | error | coverage | CPU s |")
    print("|---|---|---|---|---|---|---|---|---|")
    cases = [case for case in product(columns, CORRELATIONS, RATIOS, known, [seed], range(repeats))
             if case[0] <= MAX_COLUMNS.get(case[3], case[0])]  # fmt: skip
    for (p, correlation, ratio, name, _), scores in measure_groups(measure_cell, cases, jobs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # no coverage at all
            mean = Score(*np.nanmean(np.array(scores), axis=0))
        coverage = "" if np.isnan(mean.coverage) else f"{mean.coverage:.2f}"
        print(
            f"| {p:,} | {correlation} | {ratio:g} | {name} | {mean.size:.0f} | {mean.f1:.2f} | "
            f"{mean.error:.2f} | {coverage} | {mean.seconds:.3g} |",
            flush=True,
        )


def sparse_columns(seed: int) -> None:
    """Fit 50,000 sparse columns of 500 rows and print what it took."""
    rng = np.random.default_rng(seed)
    n, p = 500, 50_000
    X = sparse.random(n, p, density=0.01, format="csc", random_state=seed)
    X.data = rng.lognormal(size=X.nnz)
    true = np.argsort(-np.diff(X.indptr))[:20]
    slopes = np.zeros(p)
    slopes[true] = rng.choice([-1.0, 1.0], 20) * rng.uniform(1.0, 3.0, 20)
    f = X @ slopes
    y = f + f.std() / np.sqrt(10.0) * rng.standard_normal(n)
    score = measure(SparseBayesianRegressor, of_relvec, X, y, slopes)
    tracemalloc.start()
    model = SparseBayesianRegressor().fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    explained = 1.0 - np.sum((model.predict(X) - f) ** 2) / np.sum((f - f.mean()) ** 2)
    print(
        f"\n{p:,} sparse columns, {n} rows, {X.nnz:,} entries: {score.seconds:.2f} CPU s, {score.size:.0f} columns, "
        f"F1 {score.f1:.2f}, R^2 of the function {explained:.2f}, peak {peak / 1e6:.0f} MB "
        f"(dense: {8e-6 * n * p:.0f} MB)"
    )


def log_evidence(X: np.ndarray, y: np.ndarray, columns: np.ndarray, alpha: np.ndarray, noise: float) -> float:
    """T01 eq. (15) for some columns with precisions alpha (k,), columns and target centred."""
    Phi, t = (X - X.mean(axis=0))[:, columns], y - y.mean()
    C = noise * np.eye(len(t)) + (Phi / alpha) @ Phi.T
    return float(-0.5 * (len(t) * np.log(2.0 * np.pi) + np.linalg.slogdet(C)[1] + t @ np.linalg.solve(C, t)))


def measure_evidence(case: tuple[int, float, float, int, int]) -> list[float]:
    """Evidence, columns and CPU seconds of ARDRegression and of relvec, both flat, and CPU seconds of relvec."""
    p, correlation, ratio, seed, i = case
    X, y, _ = draw(p, correlation, ratio, np.random.default_rng([seed, p, i]))
    models, spent = [], []
    for name in ("ARDRegression", "relvec, flat", "relvec"):
        make, _ = warm_up(name)
        began = time.process_time()
        models.append(make().fit(X, y))
        spent.append(time.process_time() - began)
    ard, flat, _ = models
    kept, own = np.flatnonzero(ard.lambda_ < ard.threshold_lambda), np.flatnonzero(flat.selected_)
    alpha = flat.alpha_[[name != "bias" for name in flat.atoms_]]
    peer = log_evidence(X, y, kept, ard.lambda_[kept], 1.0 / ard.alpha_)
    ours = log_evidence(X, y, own, alpha, flat.noise_variance_)
    return [peer, len(kept), spent[0], ours, len(own), spent[1], spent[2]]


def compare_evidence(columns: list[int], repeats: int, seed: int, jobs: int) -> None:
    """Print the evidence and CPU seconds of ARDRegression and of relvec, both without a prior over sets."""
    print(f"{'p':>7}{'corr.':>7}{'S/N':>5}{'ARDRegression':>15}{'columns':>9}{'CPU s':>8}{'flat':>12}{'columns':>9}"
          f"{'CPU s':>8}{'relvec CPU s':>14}")  # fmt: skip
    cases = list(product(columns, CORRELATIONS, RATIOS, [seed], range(repeats)))
    for (p, correlation, ratio, _), rows in measure_groups(measure_evidence, cases, jobs):
        m = np.mean(rows, axis=0)
        print(f"{p:7,}{correlation:7.1f}{ratio:5.0f}{m[0]:15.1f}{m[1]:9.0f}{m[2]:8.2f}{m[3]:12.1f}{m[4]:9.0f}"
              f"{m[5]:8.2f}{m[6]:14.3f}", flush=True)  # fmt: skip


CLASSIFIERS: dict[str, Callable[[], Any]] = {
    "relvec": SparseBayesianClassifier,
    "no price": lambda: SparseBayesianClassifier(solver=Sequential(price=0.0)),
    "l1, folds": lambda: LogisticRegressionCV(penalty="l1", solver="liblinear", scoring="neg_log_loss", cv=5),
}


def measure_classes(case: tuple[int, str, int, int]) -> list[float]:
    """Columns, F1, log loss above that of the true probabilities and CPU seconds of one fit."""
    p, name, seed, i = case
    rng = np.random.default_rng([seed, p, i])
    X, new, slopes = rng.standard_normal((N_ROWS, p)), rng.standard_normal((5000, p)), np.zeros(p)
    slopes[rng.choice(p, 5, replace=False)] = rng.choice([-1.0, 1.0], 5) * rng.uniform(1.0, 2.0, 5)
    y = rng.uniform(size=N_ROWS) < expit(X @ slopes)
    began = time.process_time()
    model = CLASSIFIERS[name]().fit(X, y)
    spent, true, found = time.process_time() - began, slopes != 0.0, np.ravel(model.coef_) != 0.0
    log_p, q = model.predict_log_proba(new), expit(new @ slopes)
    best = q * np.log(q) + (1.0 - q) * np.log1p(-q)
    loss = np.mean(best - q * log_p[:, 1] - (1.0 - q) * log_p[:, 0])
    return [found.sum(), 2.0 * np.sum(found & true) / (found.sum() + 5), loss, spent]


def classes(repeats: int, seed: int, jobs: int) -> None:
    """Print how many columns of two classes are found, and the log loss above that of the true probabilities."""
    print(f"{'p':>6}  {'model':12}{'columns':>8}{'F1':>6}{'loss':>7}{'CPU s':>8}")
    cases = list(product((50, 500, 2000), CLASSIFIERS, [seed], range(repeats)))
    for (p, name, _), rows in measure_groups(measure_classes, cases, jobs):
        m = np.mean(rows, axis=0)
        print(f"{p:6,}  {name:12}{m[0]:8.0f}{m[1]:6.2f}{m[2]:7.3f}{m[3]:8.2f}", flush=True)


def main() -> None:
    """Parse the command line and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", default="50,500,2000,20000")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peers", default=";".join(peers()))
    parser.add_argument("--sparse", action="store_true")
    parser.add_argument("--classes", action="store_true")
    parser.add_argument("--evidence", default="")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes; default 1")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    shared = arguments.repeats, arguments.seed, arguments.jobs
    columns = [int(p) for p in arguments.columns.split(",") if p]
    if columns:
        table(columns, arguments.repeats, arguments.peers.split(";"), arguments.seed, arguments.jobs)
    if arguments.evidence:
        compare_evidence([int(p) for p in arguments.evidence.split(",")], *shared)
    if arguments.classes:
        classes(*shared)
    if arguments.sparse:
        with threadpool_limits(1):
            sparse_columns(arguments.seed)


if __name__ == "__main__":
    main()
