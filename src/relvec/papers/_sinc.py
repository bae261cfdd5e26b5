"""The sinc function as T00 and T01 sample it, and what is measured on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from relvec import RVR
from relvec.papers._experiment import Context, Outcome
from relvec.papers._figures import fits_figure

X = np.linspace(-10.0, 10.0, 100)[:, None]
X_TEST = np.linspace(-10.0, 10.0, 1000)[:, None]

# T01 eq. (1) has a constant; the papers do not say whether "vectors" counts it.
CONSTANT = "the model has a constant (T01 eq. (1)), which is not counted among the vectors"
TEST = "the deviation from the true function is taken over 1000 equally spaced points, as in T01 E.1"

Noise = Callable[[np.random.Generator, int], np.ndarray]


def sinc(X: np.ndarray) -> np.ndarray:
    """sin(x)/x of the first column of X (n, d)."""
    return np.sinc(X[:, 0] / np.pi)


def gaussian(deviation: float) -> Noise:
    """Gaussian noise of this standard deviation."""
    return partial(_normal, deviation)


def uniform(half_width: float) -> Noise:
    """Uniform noise between -half_width and half_width."""
    return partial(_uniform, half_width)


def _normal(deviation: float, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(0.0, deviation, n)


def _uniform(half_width: float, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.uniform(-half_width, half_width, n)


def rms(model: RVR) -> float:
    """Root mean square deviation of the fitted function from sinc over the test points."""
    return float(np.sqrt(np.mean((model.predict(X_TEST) - sinc(X_TEST)) ** 2)))


def largest_error(model: RVR) -> float:
    """Largest deviation of the fitted function from sinc over the test points."""
    return float(np.abs(model.predict(X_TEST) - sinc(X_TEST)).max())


def noise_free(context: Context) -> Outcome:
    """Sinc without noise, the noise variance fixed; what changes without the constant and with the solver EM."""
    t = sinc(X)
    model, plain, em = (
        RVR(kernel="linear_spline", noise_variance=0.01**2, **options).fit(X, t)
        for options in ({}, {"fit_intercept": False}, {"solver": "em"})
    )
    below = [model.log_marginal_likelihood_ - other.log_marginal_likelihood_ for other in (plain, em)]
    notes = (
        f"without the constant: {len(plain.relevance_)} vectors, largest error {largest_error(plain):.4f}, "
        f"log evidence {below[0]:.3f} below",
        f"the evidence is flat here: EM, T01's other algorithm, ends {below[1]:.3f} nats below with "
        f"{len(em.relevance_)} vectors and the largest error {largest_error(em):.4f}",
    )
    values = {"vectors": len(model.relevance_), "largest error": largest_error(model)}
    return Outcome(values, {"fit": partial(fits_figure, [(model, t, "")], X, sinc)}, notes)


def spline_fit(noise: Noise, rng: np.random.Generator) -> tuple[RVR, np.ndarray]:
    """Linear splines fitted to one draw of the noise, and its targets (100,)."""
    t = sinc(X) + noise(rng, len(X))
    return RVR(kernel="linear_spline", width="scale").fit(X, t), t


def spline_draw(noise: Noise, rng: np.random.Generator) -> dict[str, float]:
    """What is measured on one draw."""
    model, _ = spline_fit(noise, rng)
    return {
        "vectors": len(model.relevance_),
        "RMS deviation": rms(model),
        "noise": float(np.sqrt(model.noise_variance_)),
    }


def noisy(noise: Noise, context: Context) -> Outcome:
    """Linear splines on every draw of the noise; the picture shows the first draw."""
    return Outcome(context.repeat(partial(spline_draw, noise)), {"fit": partial(noisy_figure, noise, context)})


def noisy_figure(noise: Noise, context: Context) -> Any:
    """The fit to the first draw."""
    return fits_figure([(*spline_fit(noise, context.rng()), "")], X, sinc)
