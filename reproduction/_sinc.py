"""The sinc function as T00 and T01 sample it, and what is measured on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.svm import SVR

from relvec import RVR
from relvec.inference.evidence import gaussian as posterior_of
from relvec.inference.evidence import mackay_alpha
from relvec.kernels import LinearSpline
from reproduction import _svm
from reproduction._experiment import Context, Outcome
from reproduction._figures import fits_figure, pair_figure

OWN_UPDATE = "mackay"  # T01 eq. (16) and (18), by which T00 and T01 fit
NOISE = 0.01  # fixed, where the samples have none
STARTS = 10.0 ** np.arange(-4, 5)  # below, the Hessian is singular to rounding; above, the noise's precision
SHIFT = 10.0  # T01 eq. (29) is a Mercer kernel for x >= 0 alone
X = np.linspace(-10.0, 10.0, 100)[:, None]
X_TEST = np.linspace(-10.0, 10.0, 1000)[:, None]

BY_UPDATE = "by T01's own update, eq. (16) and (18), from all functions: solver='mackay'"
FROM_STARTS = (
    "the papers do not print where the precisions start: T01's update, eq. (16), from each of "
    f"{STARTS[0]:g} to {STARTS[-1]:g}, tenfold each"
)
# T01 eq. (1) has a constant; the papers do not say whether "vectors" counts it.
CONSTANT = "the model has a constant (T01 eq. (1)), which is not counted among the vectors"
SAMPLES = "the largest error is taken at the 100 samples"
TEST = "the deviation from the true function is taken over 1000 equally spaced points, as in T01 E.1"
SPLINE_SVM = "the SVM sees x + 10: T01 eq. (29) is a Mercer kernel for x >= 0 alone, which the RVM does not need"

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


def rms(model: Any) -> float:
    """Root mean square deviation of the fitted function from sinc over the test points."""
    return float(np.sqrt(np.mean((model.predict(X_TEST) - sinc(X_TEST)) ** 2)))


def largest_error(model: Any) -> float:
    """Largest deviation of the fitted function from sinc at the samples."""
    return float(np.abs(model.predict(X) - sinc(X)).max())


def noise_free(context: Context) -> Outcome:
    """Sinc without noise, the noise variance fixed: the papers' update from every start; no constant, other solvers."""
    values = context.one("fits", noise_free_fits)
    plain, search, em, svm = (values.pop(name) for name in ("plain", "search", "em", "svm"))
    ends = ", ".join(f"{error:.4f}" for error in values["largest error"])
    flat = (
        f"the update ends where its start leads it: from {STARTS[0]:g} to {STARTS[-1]:g}, tenfold each, at the largest "
        f"errors {ends}. T00 prints 0.0087 and T01 0.0070 of the same data, kernel and noise"
    )
    notes = (
        flat,
        f"without the constant: {plain[0]} vectors, largest error {plain[1]:.4f}, log evidence {plain[2]:.3f} below",
        f"the evidence is flat here: EM (T01 A.3) ends {em[2]:.3f} nats below relvec's solver='mackay', with {em[0]} "
        f"vectors and the largest error {em[1]:.4f}, the default search {-search[2]:.3f} nats above it, with "
        f"{search[0]} vectors and the largest error {search[1]:.4f}",
    )
    values |= {"vectors, SVM": svm[0], "largest error, SVM": svm[1]}
    return Outcome(values, {"fit": noise_free_figure}, notes, {"largest error": flat})


def noise_free_rvm(**options: Any) -> RVR:
    """Linear splines, the noise fixed at 0.01."""
    return RVR(kernel="linear_spline", noise_variance=NOISE**2, **{"solver": OWN_UPDATE} | options).fit(X, sinc(X))


def noise_free_svm() -> Spline:
    """Linear splines in an epsilon-tube of 0.01, C so large that it does not matter."""
    return Spline(SVR(kernel=LinearSpline(), C=1e3, epsilon=NOISE, tol=1e-5).fit(X + SHIFT, sinc(X)))


def update_from(start: float) -> tuple[int, float]:
    """Vectors and largest error where T01 eq. (16) ends, every precision being `start` at first."""
    t, Phi = sinc(X), np.column_stack([LinearSpline()(X, X), np.ones(len(X))])
    active, alpha, moved = np.arange(Phi.shape[1]), np.full(Phi.shape[1], start), True
    while moved:
        p = posterior_of(Phi[:, active], t, 0.0, len(t), alpha, NOISE**-2)
        new = mackay_alpha(p.gamma, p.mean)
        alive = (p.gamma >= np.finfo(float).eps) & (new < 1e14)  # T01 B.1; the second keeps numbers finite
        moved = not alive.all() or np.abs(np.log(new / alpha)).max() > 1e-6
        active, alpha = active[alive], new[alive]
    p = posterior_of(Phi[:, active], t, 0.0, len(t), alpha, NOISE**-2)
    return int(np.sum(active < len(X))), float(np.abs(Phi[:, active] @ p.mean - t).max())


def noise_free_fits() -> dict[str, Any]:
    """Vectors and largest error from every start; of relvec's solvers also how far the evidence is below."""
    vectors, errors = zip(*map(update_from, STARTS), strict=True)
    values: dict[str, Any] = {"vectors": list(vectors), "largest error": list(errors)}
    variants: tuple[dict[str, Any], ...] = ({}, {"fit_intercept": False}, {"solver": "sequential"}, {"solver": "em"})
    model, plain, search, em = (noise_free_rvm(**options) for options in variants)
    for name, other in (("plain", plain), ("search", search), ("em", em)):
        below = model.log_marginal_likelihood_ - other.log_marginal_likelihood_
        values[name] = [len(other.relevance_), largest_error(other), below]
    svm = noise_free_svm()
    return values | {"svm": [len(svm.support_), largest_error(svm)]}


def noise_free_figure() -> Any:
    """Return the SVM's and the RVM's approximation (T01 figure 1)."""
    return pair_figure(noise_free_svm(), noise_free_rvm(), X, sinc(X), sinc)


class Spline:
    """A support vector machine on the moved inputs."""

    def __init__(self, model: Any) -> None:
        self.model, self.support_ = model, model.support_

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the function (n,) at X."""
        return self.model.predict(X + SHIFT)


def spline_fit(noise: Noise, rng: np.random.Generator) -> tuple[RVR, np.ndarray]:
    """Linear splines fitted to one draw of the noise, and its targets (100,)."""
    t = sinc(X) + noise(rng, len(X))
    return RVR(kernel="linear_spline", width="scale", solver=OWN_UPDATE).fit(X, t), t


def returned_draw(noise: Noise, rng: np.random.Generator) -> dict[str, float]:
    """How many deleted functions come back at the end of one fit, and the nats that they gain."""
    model, _ = spline_fit(noise, rng)
    back = model.history_[model.history_["action"] == "add"]
    return {"deleted functions that come back": len(back), "nats that they gain": float(back["gain"].sum())}


def returned(noise: Noise, context: Context) -> Outcome:
    """T01 B.1: whether the evidence would rise if deleted functions came back; it has found no such case."""
    values = context.repeat(partial(returned_draw, noise))
    back, gain = values["deleted functions that come back"] > 0, values["nats that they gain"]
    note = (
        f"T01 B.1 has found no case in which a deleted function would raise the evidence at the end; in {back.sum()} "
        f"of {len(back)} fits one does, by {gain[back].mean() if back.any() else 0.0:.2g} nats on average and at most "
        f"{gain.max():.2g}, and comes back"
    )
    return Outcome(values, notes=(note,))


def spline_svm(t: np.ndarray, rng: np.random.Generator) -> Spline:
    """Return the support vector machine of the same targets."""
    return Spline(_svm.spline_regressor(LinearSpline(), X + SHIFT, t, rng))


def spline_draw(noise: Noise, svm: bool, rng: np.random.Generator) -> dict[str, float]:
    """Return what is measured on one draw."""
    model, t = spline_fit(noise, rng)
    values = {
        "vectors": len(model.relevance_),
        "RMS deviation": rms(model),
        "noise": float(np.sqrt(model.noise_variance_)),
    }
    if svm:
        other = spline_svm(t, rng)
        values |= {"vectors, SVM": len(other.support_), "RMS deviation, SVM": rms(other)}
    return values


def by_solver(noise: Noise, rng: np.random.Generator) -> dict[str, float]:
    """RMS deviation and vectors of relvec's other solvers on one draw."""
    t = sinc(X) + noise(rng, len(X))
    fits = {s: RVR(kernel="linear_spline", width="scale", solver=s).fit(X, t) for s in ("em", "sequential")}
    return {s: rms(fit) for s, fit in fits.items()} | {f"vectors, {s}": len(fit.relevance_) for s, fit in fits.items()}


def other_solvers(others: Mapping[str, np.ndarray]) -> str:
    """Return what the number is by other algorithms."""
    return f"on the first {len(others['em'])} draws " + " and ".join(
        f"{words} ends at the mean deviation {others[s].mean():.4f} with {others[f'vectors, {s}'].mean():.1f} vectors"
        for s, words in (("em", "EM (T01 A.3)"), ("sequential", "the default search"))
    )


def lucky(values: Mapping[str, np.ndarray]) -> str:
    """How often a draw is as good as the published one."""
    ours = values["RMS deviation"]
    return f"the published one was a fortunate draw: {np.mean(ours <= 0.0245):.0%} of ours are as good"


def noisy(noise: Noise, svm: bool, context: Context) -> Outcome:
    """Linear splines on every draw of the noise; the picture shows the first draw."""
    values = context.repeat(partial(spline_draw, noise, svm))
    figures = {"fit": partial(noisy_figure, noise, svm, context)}
    if not svm:
        return Outcome(values, figures)
    others = replace(context, draws=min(10, context.draws)).repeat(partial(by_solver, noise), "other solvers, draw")
    return Outcome(values, figures, (other_solvers(others),), {"RMS deviation": lucky(values)})


def noisy_figure(noise: Noise, svm: bool, context: Context) -> Any:
    """Return the fit to the first draw."""
    rng = context.rng()
    model, t = spline_fit(noise, rng)
    if not svm:
        return fits_figure([(model, t, "")], X, sinc)
    return pair_figure(spline_svm(t, rng), model, X, t, sinc)
