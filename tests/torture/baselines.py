"""Awkward tables for models as they come, whose densities of fresh rows are held against those of simple baselines.

A regression is compared with a constant and with a ridge that has leave-one-out error bars; a classification with the
shares of the classes and with a logistic regression. Both see the rows of the fit only, and 2,000 fresh ones judge.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

import relvec

FRESH = 2000  # rows that judge
FAR_BEHIND, BEHIND = 0.3, 0.08  # nats a row behind the better baseline: a failure, and one to be counted
COVERAGE, LEAST_COVERED = 0.9, 0.8  # of fresh targets in intervals of 90 %, where rows are exchangeable
JUDGED_ROWS = 10  # of the fit, from which on intervals are held to it
LEAST_CHANCE = 1e-3  # that intervals between order statistics of few rows, which are exact, hold less
# Of a baseline's error bars, in standard deviations of the targets: without noise densities have no bound, and whose is
# larger says nothing.
_LEAST_STD = 1e-3

_MOST_LOG = 50.0  # of a target: squares of larger ones are refused

Draw = Callable[[int], tuple[np.ndarray, np.ndarray]]  # rows and targets


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of the fit and fresh ones, with the kind of table that they are."""

    kind: str
    X: np.ndarray
    y: np.ndarray
    fresh_X: np.ndarray
    fresh_y: np.ndarray
    weights: np.ndarray | None = None


def draw_inputs(rng: np.random.Generator, n: int, d: int, form: int) -> np.ndarray:
    """Inputs (n, d) of a form: normal, uniform, skewed, correlated, or with columns of few values."""
    X = rng.normal(size=(n, d))
    if form == 1:
        X = rng.uniform(-1.7, 1.7, (n, d))
    elif form == 2:
        X = np.exp(X)
    elif form == 3:
        X = X + rng.normal(size=(n, 1))
    elif form == 4:
        X[:, ::2] = X[:, ::2] > 0.3
    return X


def make_function(rng: np.random.Generator, kinds: int = 5) -> Callable[[np.ndarray], np.ndarray]:
    """A function of the first columns: waves, a line, a product, a step, or nothing as the last of five kinds."""
    kind, slope, pace = int(rng.integers(kinds)), rng.normal(size=2), rng.uniform(1.0, 3.0)

    def f(X: np.ndarray) -> np.ndarray:
        a, b = X[:, 0], X[:, min(1, X.shape[1] - 1)]
        found = (np.sin(pace * a) + 0.5 * b, slope[0] * a + slope[1] * b, a * b, np.sign(a) + 0.3 * b, 0.0 * a)
        return found[kind]

    return f


Shape = Callable[[np.random.Generator, np.ndarray, float], np.ndarray]


def _skewed(least: float, most: float) -> Shape:
    return lambda rng, f, p: np.exp(np.minimum(f, _MOST_LOG) + (least + p * (most - least)) * rng.normal(size=len(f)))


# Kinds of targets of rows that are exchangeable: of (rng, f (n,), p), p from 0 to 1 how hard they are.
TARGETS: dict[str, Shape] = {
    "plain": lambda rng, f, p: f + 0.05 * 40.0**p * rng.normal(size=len(f)),
    "no noise": lambda rng, f, p: f,
    "lognormal": _skewed(0.5, 1.5),
    "lognormal, sigma 3": _skewed(2.0, 3.0),
    "negative skew": lambda rng, f, p: -_skewed(1.0, 2.5)(rng, f, p),
    "Pareto": lambda rng, f, p: np.exp(f) * (1.0 + rng.pareto(2.5 - 1.7 * p, len(f))),
    "Student-t": lambda rng, f, p: f + rng.standard_t(4.0 - 3.0 * p, len(f)),
    "two-sided lognormal": lambda rng, f, p: f + rng.choice([-1, 1], len(f)) * _skewed(1.0, 2.5)(rng, 0.0 * f, p),
    "outliers": lambda rng, f, p: (
        np.where(rng.random(len(f)) < 0.01, 10.0 ** (1.0 + 5.0 * p), 1.0) * (f + 0.2 * rng.normal(size=len(f)))
    ),
    "zeros": lambda rng, f, p: np.where(rng.random(len(f)) < 0.5 + 0.45 * p, 0.0, np.exp(f)),
    "counts of 0 to 3": lambda rng, f, p: np.minimum(rng.poisson(np.exp(np.clip(f - 2.0 * p, -5, 2))), 3).astype(float),
    "counts": lambda rng, f, p: rng.poisson(np.exp(np.clip(f + 3.0 * p, -5, 5))).astype(float),
    "censored at zero": lambda rng, f, p: np.maximum(f + 0.5 - p + 0.5 * rng.normal(size=len(f)), 0.0),
    "shares": lambda rng, f, p: 1.0 / (1.0 + np.exp(-3.0 * f - (0.2 + 2.0 * p) * rng.normal(size=len(f)))),
    "rounded": lambda rng, f, p: np.round((f + 0.3 * rng.normal(size=len(f))) * (5.0 - 4.0 * p)) / (5.0 - 4.0 * p),
    "two branches": lambda rng, f, p: rng.choice([-2.0, 2.0], len(f)) + 0.5 * f + p * rng.normal(size=len(f)),
    "noise by the inputs": lambda rng, f, p: f + np.exp((0.5 + p) * np.clip(f, -5, 5)) * 0.3 * rng.normal(size=len(f)),
    "uniform noise": lambda rng, f, p: f + 2.0 * p * rng.uniform(-1.0, 1.0, len(f)),
    "units of 1e8": lambda rng, f, p: 1e8 * (f + 0.3 * rng.normal(size=len(f))) + 1e11,
}
GROUPED = ("subjects", "copies with jitter", "a common error")
SHAPES = (*TARGETS, *GROUPED, "one huge target", "few rows", "many columns", "weights that sum to 1", "noise alone")


def make_regression(seed: int, number: int) -> Table:
    """Table ``number`` of a seed: its kind goes round, the rest is drawn."""
    kind = SHAPES[number % len(SHAPES)]
    rng = np.random.default_rng([seed, number])
    n, d, form = int(rng.integers(40, 300)), int(rng.integers(1, 8)), int(rng.integers(5))
    f = make_function(rng, 4 if kind == "no noise" else 5)
    if kind == "few rows":
        n = int(rng.integers(3, 21))
    elif kind == "many columns":
        n, d = int(rng.integers(15, 60)), int(rng.choice([200, 600, 2000]))
    if kind in GROUPED:
        return _split(kind, _draw_groups(rng, kind, d, form, f), n)
    shape = TARGETS.get(kind, TARGETS["plain"])
    p = float(rng.random())

    def draw(m: int) -> tuple[np.ndarray, np.ndarray]:
        X = draw_inputs(rng, m, d, form)
        g = np.zeros(m) if kind == "noise alone" else f(X)
        return X, shape(rng, g, p)

    table = _split(kind, draw, n)
    if kind == "one huge target":
        table.y[rng.integers(n)] *= 10.0 ** rng.uniform(2, 6)
    weights = np.full(n, 1.0 / n) if kind == "weights that sum to 1" else None
    return Table(kind, table.X, table.y, table.fresh_X, table.fresh_y, weights)


def _draw_groups(rng: np.random.Generator, kind: str, d: int, form: int, f: Callable) -> Draw:
    """Rows in groups of the same inputs but for a jitter: measured again, copied, or with an error in common."""
    k, own, jitter = int(rng.integers(3, 11)), rng.uniform(0.3, 1.5), 0.01 if kind == "subjects" else 1e-6
    within = 0.05 if kind == "subjects" else 0.0 if kind == "copies with jitter" else rng.uniform(0.0, 0.05)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        m = -(-n // k)
        C, place = draw_inputs(rng, m, d, form), np.repeat(np.arange(m), k)[:n]
        y = f(C) + own * rng.normal(size=m)
        return C[place] + jitter * rng.normal(size=(n, d)), y[place] + within * rng.normal(size=n)

    return draw


def _split(kind: str, draw: Draw, n: int) -> Table:
    return Table(kind, *draw(n), *draw(FRESH))


CLASSES = (
    "two", "three", "five, unequal", "separated", "labels of chance", "some labels wrong", "one in fifty",
    *GROUPED, "few rows", "many columns", "skewed inputs", "a checkerboard", "weights that sum to 1",
)  # fmt: skip


def make_classes(seed: int, number: int) -> Table:
    """Table ``number`` of a seed with classes for targets."""
    kind = CLASSES[number % len(CLASSES)]
    rng = np.random.default_rng([seed, number, 1])
    n, d = int(rng.integers(40, 300)), int(rng.integers(1, 8))
    form, f = 2 if kind == "skewed inputs" else int(rng.integers(5)), make_function(rng)
    if kind == "few rows":
        n = int(rng.integers(6, 21))
    elif kind == "many columns":
        n, d = int(rng.integers(15, 60)), int(rng.choice([200, 600, 2000]))
    spread = {"separated": 0.0, "labels of chance": 50.0}.get(kind, rng.uniform(0.1, 1.0))
    cuts = {"three": (-0.5, 0.5), "five, unequal": (-1.0, -0.2, 0.8, 1.5), "one in fifty": (2.2 * (1 + spread),)}

    def label(score: np.ndarray) -> np.ndarray:
        y = np.digitize(score, np.array(cuts.get(kind, (0.1,))))
        return np.where(rng.random(len(y)) < (0.15 if kind == "some labels wrong" else 0.0), 1 - y, y)

    def draw(m: int) -> tuple[np.ndarray, np.ndarray]:
        if kind in GROUPED:
            X, score = _draw_groups(rng, kind, d, form, f)(m)
            return X, label(score)
        X = draw_inputs(rng, m, d, form)
        g = np.sign(np.sin(3.0 * X[:, 0]) * np.sin(3.0 * X[:, -1])) if kind == "a checkerboard" else f(X)
        return X, label(g + spread * rng.normal(size=m))

    X, y = draw(n)
    for _ in range(100):
        if len(np.unique(y)) > 1 and np.unique(y, return_counts=True)[1].min() > 1:
            break
        X, y = draw(n)
    else:
        y = np.arange(n) % 2
    Z, t = draw(FRESH)
    known = np.isin(t, y)  # a class that no row of the fit has cannot be judged
    return Table(kind, X, y, Z[known], t[known], np.full(n, 1.0 / n) if kind == "weights that sum to 1" else None)


def density_of_baseline(table: Table) -> float:
    """Mean log density of the fresh targets by a constant or a ridge, whichever is better."""
    X, y, n = table.X, table.y, len(table.y)
    unit = float(y.std()) or 1.0

    def density(mean: np.ndarray | float, std: float) -> float:
        std = max(std, _LEAST_STD * unit)
        z = (table.fresh_y - mean) / std
        return float(np.mean(-0.5 * z**2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)))

    found = [density(float(y.mean()), float(y.std()) * np.sqrt(1.0 + 1.0 / n))]
    if n > 5:
        scaler = StandardScaler().fit(X)
        ridge = RidgeCV(np.logspace(-3, 5, 17), scoring="neg_mean_squared_error").fit(scaler.transform(X), y)
        found.append(density(ridge.predict(scaler.transform(table.fresh_X)), float(np.sqrt(-ridge.best_score_))))
    return max(found)


def density_of_class_baseline(table: Table) -> float:
    """Mean log probability of the fresh classes by their shares or a logistic regression, whichever is better."""
    classes, place = np.unique(table.y, return_inverse=True)
    t = np.searchsorted(classes, table.fresh_y)
    scaler = StandardScaler().fit(table.X)
    line = LogisticRegression(max_iter=1000).fit(scaler.transform(table.X), table.y)
    P = line.predict_proba(scaler.transform(table.fresh_X))
    shares = np.bincount(place) / len(place)
    return max(_log_probability(P, t), float(np.mean(np.log(shares[t]))))


def _log_probability(P: np.ndarray, t: np.ndarray) -> float:
    return float(np.mean(np.log(np.maximum(P[np.arange(len(t)), t], 1e-15))))


@dataclass(frozen=True, eq=False)
class Judged:
    """How a fit did: nats a row behind the better baseline, the share covered (nan for classes), and its status."""

    table: Table
    behind: float
    covered: float
    status: str
    told: list[str]


def judge(name: str, seed: int, number: int) -> Judged:
    """Fit the estimator of a name as it comes, to a table of its task."""
    model = getattr(relvec, name)()
    classes = hasattr(model, "predict_proba")
    table = (make_classes if classes else make_regression)(seed, number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(table.X, table.y, table.weights)
        if table.weights is not None:
            assert any("sum to the number of rows" in str(w.message) for w in caught), (
                "weights: no warning names the factor"
            )
            model.fit(table.X, table.y, table.weights / table.weights.mean())
    told = [str(w.message) for w in caught]
    if classes:
        t = np.searchsorted(model.classes_, table.fresh_y)
        own, covered = _log_probability(model.predict_proba(table.fresh_X), t), np.nan
        behind = density_of_class_baseline(table) - own
    else:
        own = float(np.mean(model.log_predictive_density(table.fresh_X, table.fresh_y)))
        low, high = model.predict_interval(table.fresh_X, COVERAGE).T
        covered = float(np.mean((low <= table.fresh_y) & (table.fresh_y <= high)))
        behind = density_of_baseline(table) - own
    return Judged(table, behind, covered, str(model.status_), told)


def check(name: str, seed: int, number: int) -> str:
    """How a fit ended; an AssertionError where it is far below a baseline, or where its intervals are too narrow."""
    found = judge(name, seed, number)
    kind, n = found.table.kind, len(found.table.y)
    words = f"{name} on {kind} ({n} x {found.table.X.shape[1]}, {found.status})"
    assert found.behind <= FAR_BEHIND, f"{words}: {found.behind:.2f} nats a row behind a baseline"
    exchangeable = kind not in GROUPED and kind != "one huge target" and n >= JUDGED_ROWS
    chance = beta.ppf(LEAST_CHANCE, COVERAGE * (n + 1), (1.0 - COVERAGE) * (n + 1))
    narrow = exchangeable and found.covered < min(LEAST_COVERED, chance)
    assert not narrow, f"{words}: intervals of 90 % hold {found.covered:.0%}"
    return f"behind by more than {BEHIND:g}" if found.behind > BEHIND else "not behind"
