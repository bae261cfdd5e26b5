"""Made tables with the troubles of real ones: what `benchmarks/tables.py --names made` compares methods on.

Each function takes a generator of random numbers and gives X (n, d) and y (n,); its docstring says what is hard about
the table. Formulas are inventions, some after physical laws; no row is taken from elsewhere.
"""

from __future__ import annotations

from itertools import product

import numpy as np

Table = tuple[np.ndarray, np.ndarray]


def hulls(rng) -> Table:
    """A design: 22 forms at 14 speeds; without noise, steep in one input, rounded to two digits."""
    forms = rng.normal(size=(22, 4))
    speed = np.linspace(0.12, 0.45, 14)
    X = np.array([[*form, v] for form in forms for v in speed])
    level = 1.0 + 0.08 * X[:, 0] - 0.12 * X[:, 1] + 0.05 * X[:, 2] * X[:, 3]
    return X, np.round(level * (40.0 * X[:, 4] ** 2 + np.exp(22.0 * (X[:, 4] - 0.29))), 2)


def buildings(rng) -> Table:
    """A full grid of discrete inputs, some functions of others; little noise, which depends on the inputs."""
    area = np.repeat([514.5, 563.5, 588.0, 637.0, 686.0, 735.0], 2)
    height = np.where(area > 600.0, 3.5, 7.0)
    shapes = np.c_[area, height, 220.5 * height / 3.5 + 0.2 * area, 0.5 * area - 60.0 + 10.0 * (np.arange(12) % 2)]
    X = np.array([[*s, o, g, h] for s in shapes for o, g, h in product(range(4), (0.1, 0.25, 0.4), range(5))])
    load = (
        6.0 * X[:, 1] + 20.0 * X[:, 5] * (1.0 + 0.1 * X[:, 6] * (X[:, 4] == 1)) + 0.01 * X[:, 2] - 5e-5 * X[:, 0] ** 2
    )
    return X, np.round(load + 0.01 * X[:, 1] * rng.normal(size=len(X)), 2)


def spectra(rng) -> Table:
    """Third-octave spectra: peaks in the logarithm of an input whose place depends on the others; levels of inputs."""
    chord, angle = rng.choice([2.5, 5.0, 10.0, 15.0, 30.0], 110), rng.uniform(0, 20, 110)
    speed = rng.choice([31.7, 39.6, 55.5, 71.3], 110)
    rows = []
    for c, a, v in zip(chord, angle, speed):
        thickness = 0.002 * c * np.exp(0.1 * a)
        for f in 200.0 * 2 ** (np.arange(rng.integers(9, 16)) / 1.5):
            peak = np.log10(0.5 * v / thickness / f)
            rows.append(
                (f, a, c, v, thickness, 130.0 + 25.0 * np.log10(v / 40.0) - 12.0 * np.tanh(peak) ** 2 - 3.0 * peak)
            )
    data = np.array(rows)
    return data[:, :5], data[:, 5] + rng.normal(0.0, 1.5, len(data))


def mixtures(rng) -> Table:
    """Mixtures measured at several ages: many zeros among the inputs, growth with the logarithm of one of them."""
    rows = []
    for _ in range(220):
        slag, ash = rng.uniform(0, 250) * (rng.random() < 0.5), rng.uniform(0, 180) * (rng.random() < 0.45)
        mix = (rng.uniform(120, 500), slag, ash, rng.uniform(140, 230), rng.uniform(0, 20) * (rng.random() < 0.6))
        rows += [(*mix, age) for age in rng.choice([1, 3, 7, 14, 28, 56, 90, 180, 365], rng.integers(2, 7), False)]
    X = np.array(rows, dtype=float)
    binder = X[:, 0] + 0.8 * X[:, 1] + 0.6 * X[:, 2]
    strength = 90.0 / 6.0 ** (X[:, 3] / binder * 1.6) * (0.3 + 0.22 * np.log1p(X[:, 5])) * (1.0 + 0.015 * X[:, 4])
    return X, np.round(strength * np.exp(rng.normal(0, 0.08, len(X))) + rng.normal(0, 2.0, len(X)), 2)


def grades(rng) -> Table:
    """Integer marks of six levels, a weak signal in skewed inputs, and one row in six is a copy of another."""
    X = np.round(np.exp(rng.normal(size=(1200, 9)) @ (0.25 * np.eye(9) + 0.05)), 2)
    score = 5.6 + 1.2 * np.log(X[:, 0]) - 0.9 * np.log(X[:, 1]) + 0.5 * np.tanh(3.0 * (X[:, 2] - 1.0))
    y = np.clip(np.round(score + rng.normal(0, 0.6, len(X))), 3, 8)
    again = rng.integers(0, len(X), 200)
    return np.r_[X, X[again]], np.r_[y, y[again]]


def patients(rng) -> Table:
    """Courses of 40 patients: the target is a piecewise line in time for each; the other inputs tell them apart."""
    rows = []
    for _ in range(40):
        self, level, slope = rng.normal(size=6), rng.normal(30, 9), rng.normal(0, 0.05, 2)
        for t in np.sort(rng.uniform(0, 210, 50)):
            rows.append(
                (*(self + rng.normal(0, 0.3, 6)), np.round(self[0] * 9 + 65), t, level + slope @ (t, max(t - 90, 0)))
            )
    data = np.array(rows)
    return data[:, :-1], data[:, -1]


def arm(rng) -> Table:
    """An arm of eight joints: how far its hand is from a point; every input matters, with some noise."""
    X = rng.uniform(-1, 1, size=(1500, 8)) * np.pi / 3
    heading = np.cumsum(X, axis=1)
    place = np.c_[np.cos(heading).sum(1), np.sin(heading).sum(1)] / 8.0
    return X, np.hypot(place[:, 0] - 0.1, place[:, 1] - 0.1) + rng.normal(0, 0.02, len(X))


def heavy_tails(rng) -> Table:
    """Noise of two degrees of freedom: some targets are far off."""
    X = rng.normal(size=(600, 6))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] * X[:, 2] + 0.3 * rng.standard_t(2, 600)


def outliers(rng) -> Table:
    """One target in forty is wrong."""
    X = rng.uniform(-2, 2, size=(500, 4))
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 + 0.1 * rng.normal(size=500)
    return X, np.where(rng.random(500) < 0.025, y + 8.0 * rng.normal(size=500), y)


def irrelevant(rng) -> Table:
    """Sixty inputs of which five matter, and 250 rows."""
    X = rng.uniform(size=(250, 60))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]
    return X, y + rng.normal(size=250)


def wide(rng) -> Table:
    """Almost as many inputs as rows, which are combinations of a few."""
    hidden = rng.normal(size=(80, 5))
    X = hidden @ rng.normal(size=(5, 70)) + 0.5 * rng.normal(size=(80, 70))
    return X, hidden[:, 0] + 0.5 * hidden[:, 1] ** 2 + 0.3 * rng.normal(size=80)


def categories(rng) -> Table:
    """Three factors with interactions as indicator columns, two numbers; 180 rows, a skewed target."""
    a, b, c = rng.integers(0, 5, 180), rng.integers(0, 4, 180), rng.integers(0, 3, 180)
    numbers = rng.integers(1, 6, size=(180, 2)).astype(float)
    X = np.c_[np.eye(5)[a], np.eye(4)[b], np.eye(3)[c], numbers]
    effect = rng.gamma(1.0, 1.0, size=(5, 4)) + 0.3 * rng.normal(size=(4, 3))[b][:, c[0]].mean()
    return X, effect[a, b] * (1 + (c == 1)) / numbers[:, 0] + 0.05 * rng.normal(size=180)


def tiny(rng) -> Table:
    """Thirty rows of three inputs."""
    X = rng.normal(size=(30, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=30)


def counts(rng) -> Table:
    """Counts with a mean from 0.1 to 20."""
    X = rng.normal(size=(400, 5))
    return X, rng.poisson(np.exp(np.clip(0.8 + 0.7 * X[:, 0] + 0.5 * np.sin(2 * X[:, 1]), -2, 3))).astype(float)


def series(rng) -> Table:
    """Days of a year with a week's pattern: time, weekday as indicators, and the last two targets."""
    t = np.arange(502)
    noise = np.zeros(502)
    for i in range(1, 502):
        noise[i] = 0.7 * noise[i - 1] + 0.3 * rng.normal()
    y = 0.002 * t + np.sin(2 * np.pi * t / 180) + np.array([0, 0.1, 0.2, 0.1, 0.5, 1.5, 1.2])[t % 7] + noise
    return np.c_[t, np.eye(7)[t % 7], np.roll(y, 1), np.roll(y, 2)][2:], y[2:]


def heteroscedastic(rng) -> Table:
    """Noise that grows a hundredfold along one input."""
    X = rng.uniform(0, 1, size=(900, 4))
    return X, np.sin(5 * X[:, 0]) + X[:, 1] + 10 ** (-2 + 2 * X[:, 2]) * rng.normal(size=900)


def measured_again(rng) -> Table:
    """Ninety settings, each measured two to twelve times."""
    settings = rng.integers(0, 8, size=(90, 3)).astype(float)
    X = np.repeat(settings, rng.integers(2, 13, 90), axis=0)
    return X, np.cos(X[:, 0]) + 0.2 * X[:, 1] + rng.normal(0, 0.4, len(X))


def rounded(rng) -> Table:
    """A smooth function without noise, rounded to about twelve levels."""
    X = rng.uniform(-2, 2, size=(500, 4))
    return X, np.round(3 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2])


def steps(rng) -> Table:
    """Constant pieces with jumps."""
    X = rng.uniform(size=(700, 6))
    y = (X[:, 0] > 0.5) + 2.0 * ((X[:, 1] > 0.3) & (X[:, 2] > 0.6)) + np.floor(4 * X[:, 3]) / 2
    return X, y + 0.1 * rng.normal(size=700)


def multiplicative(rng) -> Table:
    """Products of skewed inputs with errors in per cent: prices."""
    X = np.exp(rng.normal(size=(450, 5)))
    return X, X[:, 0] * X[:, 1] ** 0.5 * np.exp(0.3 * (X[:, 2] > 1) + 0.2 * rng.normal(size=450))


def zeros(rng) -> Table:
    """Half of the targets are zero, the others have a long tail."""
    X = rng.normal(size=(600, 5))
    rate = 1 / (1 + np.exp(-2 * X[:, 0]))
    return X, np.where(rng.random(600) < rate, rng.gamma(1.0, np.exp(0.5 * X[:, 1])), 0.0)


def skewed_inputs(rng) -> Table:
    """Inputs over four decades, of whose logarithms the target is a smooth function."""
    X = np.exp(1.5 * rng.normal(size=(600, 6)))
    L = np.log(X)
    return X, np.sin(L[:, 0]) + 0.3 * L[:, 1] * np.tanh(L[:, 2]) + 0.1 * rng.normal(size=600)


def smooth(rng) -> Table:
    """A smooth function without noise."""
    X = rng.uniform(-1, 1, size=(400, 5))
    return X, np.exp(X[:, 0] * X[:, 1]) + np.sin(3 * X[:, 2]) * X[:, 3] + X[:, 4]


def two_scales(rng) -> Table:
    """A slow trend, and ripples in one region."""
    X = rng.uniform(-3, 3, size=(900, 3))
    return X, X[:, 0] + np.exp(-((X[:, 0] - 1) ** 2)) * np.sin(8 * X[:, 1]) + 0.1 * rng.normal(size=900)


def few_matter(rng) -> Table:
    """Four of 32 inputs matter, and none of them by itself: only products do."""
    X = rng.uniform(-1.7, 1.7, size=(2500, 32))
    return X, np.sin(1.5 * X[:, 3]) * X[:, 4] + 0.3 * X[:, 14] * X[:, 15] + 0.25 * rng.normal(size=2500)


def nothing(rng) -> Table:
    """No signal at all."""
    return rng.normal(size=(320, 6)), rng.normal(size=320)


MADE = {f.__name__: f for f in (
    hulls, buildings, spectra, mixtures, grades, patients, arm, heavy_tails, outliers, irrelevant, wide, categories,
    tiny, counts, series, heteroscedastic, measured_again, rounded, steps, multiplicative, zeros, skewed_inputs, smooth,
    two_scales, few_matter, nothing,
)}  # fmt: skip


def make_table(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, d), y (n,) and folds (n,) in 0..9 of a made table; time goes on from fold to fold in `series`."""
    rng = np.random.default_rng(list(MADE).index(name))
    X, y = MADE[name](rng)
    place = np.arange(len(y)) if name == "series" else rng.permutation(len(y))
    return X, y, place * 10 // len(y)
