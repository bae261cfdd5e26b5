"""A proper process on the relevance vectors: sparse, and sure only where there were data.

An RVM with a basis function at every point of the input space is a Gaussian process (RQ05 eq. (10)). Its covariance
function is of the kernel's family; for the Gaussian kernel of width r it is the Gaussian kernel of width sqrt(2) r.
The relevance vectors Z (m, d) become the inducing inputs of that process, beside the functions of the model:

    y = f(x) + h(x)'b + noise,   f ~ GP(0, c),   c = sum_j s_j k_j,   b ~ N(0, B).

h holds the RVM's own functions and the constant. The weights of its kernels have one prior variance in common, not one
each: that is what made the RVM too sure of itself where it had data. The other functions have broad priors.

With c(Z, Z) = L L' and the features psi(x) = L^-1 c(Z, x), the product psi(x)'psi(x') is the part of c that the vectors
can represent: a degenerate covariance function, as the RVM's is (RQ05 eq. (8)). What it lacks of the prior variance is
put back on the diagonal,

    c'(x, x') = psi(x)'psi(x') + [x = x'] (c(x, x) - |psi(x)|^2),

so that every point has its whole prior variance (Snelson and Ghahramani, 2006). The parameters maximise the evidence
of the targets under c', that of a linear model over [psi, h] with the noise variances
lambda_n = noise + c(x_n, x_n) - |psi(x_n)|^2 (`posterior.gaussian` on rows divided by sqrt(lambda_n)): O(N m^2) a
step. At a new x the mean is that of the linear model, and the variance its variance plus c(x, x) - |psi(x)|^2, which
is the whole prior variance away from the vectors: O(m^2) a point, and nothing of length N is kept.

Two things are assumed and not left to the data, which say nothing about the places where there are none: the prior
variance is at least that of the targets, as RQ05 has it for RVM*, and the widths stay within a factor of three of where
they start.

The m vectors and the p widths were chosen to suit the targets, and the evidence, which takes them as given, is too
fond of them. Each is charged a degree of freedom, twice. The prior standard deviation of the RVM's weights is 0.3 of
their root mean square, and all of it only where that gains more than a nat of evidence a vector. And as in the estimate
of a variance from residuals, all variances of the model, prior, noise and posterior, are multiplied by N / (N - m - p)
in the end, which leaves the mean as it is. The numbers were chosen on data sets of their own (benchmarks/choices.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize

from relvec.basis import Basis, Bias, Concat, KernelBasis
from relvec.inference.gaussian import Posterior, gaussian
from relvec.inference.predictive import Augmented, WeightPredictor
from relvec.kernels import Cauchy, Gaussian, Kernel, Laplace, Matern, Product, Sum, split_theta
from relvec.runtime.progress import report
from relvec.runtime.threads import one_thread

_JITTER = 1e-8  # added to the diagonal of a correlation matrix before it is factored
_BROAD = 10.0  # prior standard deviation of the weights of trends, columns and target of unit root mean square
_SHARES = (0.3, 1.0)  # that of the RVM's kernels, in root mean squares of their weights: one of the two
_MOST_FACTOR = 4.0  # the variances are multiplied by so much at most
_TUNED_ROWS = 5000  # rows the parameters are fitted to, at most
_STEPS = 100  # of L-BFGS-B
_REACH = np.log(1e3)  # how far, in log units, amplitude and noise may go from their start
_WIDTH_REACH = np.log(3.0)  # and a width


@dataclass(frozen=True, eq=False)
class Covariance:
    """c(x, z) = sum_j s_j k_j(x, z): kernels and their amplitudes s (q,)."""

    kernels: tuple[Kernel, ...]
    amplitudes: np.ndarray

    @property
    def theta(self) -> np.ndarray:
        """Logarithms of the amplitudes, then the kernels' parameters."""
        return np.concatenate([np.log(self.amplitudes), *(kernel.theta for kernel in self.kernels)])

    def with_theta(self, theta: np.ndarray) -> Covariance:
        """The same with other parameters."""
        q = len(self.kernels)
        pieces = zip(self.kernels, split_theta(self.kernels, theta[q:]), strict=True)
        return Covariance(tuple(kernel.with_theta(piece) for kernel, piece in pieces), np.exp(theta[:q]))

    def __call__(self, X: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """The matrix c(x_i, z_j) (n, m)."""
        return sum((s * kernel(X, Z) for s, kernel in self._terms()), np.zeros((len(X), len(Z))))

    def diag(self, X: np.ndarray) -> np.ndarray:
        """The prior variance c(x_i, x_i) (n,)."""
        return sum((s * kernel.diag(X) for s, kernel in self._terms()), np.zeros(len(X)))

    def root(self, Z: np.ndarray) -> np.ndarray:
        """Lower triangular L (m, m) with L L' = c(Z, Z) and a little on its diagonal."""
        C = self(Z, Z)
        C.flat[:: len(C) + 1] += _JITTER * C.diagonal().max(initial=0.0)
        return cholesky(C, lower=True, check_finite=False)

    def vjp(self, X: np.ndarray, Z: np.ndarray, bar: np.ndarray) -> np.ndarray:
        """Derivative of sum(bar * c(X, Z)) with respect to theta."""
        by_amplitude = [s * np.vdot(bar, kernel(X, Z)) for s, kernel in self._terms()]
        return np.concatenate([by_amplitude, *(kernel.vjp(X, Z, s * bar)[0] for s, kernel in self._terms())])

    def diag_vjp(self, X: np.ndarray, bar: np.ndarray, step: float = 1e-5) -> np.ndarray:
        """Derivative of bar @ c.diag(X) with respect to theta, by central differences; c.diag costs O(n) only."""
        theta, slope = self.theta, np.zeros(len(self.theta))
        for i in range(len(theta)):
            move = np.where(np.arange(len(theta)) == i, step, 0.0)
            above, below = self.with_theta(theta + move).diag(X), self.with_theta(theta - move).diag(X)
            slope[i] = bar @ (above - below) / (2.0 * step)
        return slope

    def _terms(self) -> Iterator[tuple[float, Kernel]]:
        return zip(self.amplitudes, self.kernels, strict=True)


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """What the bound is taken over: X (n, d), targets (n,) of unit mean square, weights (n,), columns H (n, p) of h."""

    X: np.ndarray
    target: np.ndarray
    weights: np.ndarray
    H: np.ndarray

    @property
    def root(self) -> np.ndarray:
        return np.sqrt(self.weights)

    def part(self, most: int) -> ProcessRows:
        """At most so many of the rows, evenly over their lexicographic order, their weights raised to the same sum."""
        if len(self.X) <= most:
            return self
        chosen = np.lexsort(self.X.T[::-1])[np.linspace(0, len(self.X) - 1, most).astype(np.intp)]
        weights = self.weights[chosen] * (self.weights.sum() / self.weights[chosen].sum())
        return ProcessRows(self.X[chosen], self.target[chosen], weights, self.H[chosen])


@dataclass(frozen=True, eq=False)
class Fitted:
    """A process conditioned on data, in units where the target has unit mean square.

    Attributes
    ----------
    covariance : c with its amplitudes and kernels.
    Z : (m, d) inducing inputs.
    noise : noise variance.
    value : what was maximised.
    posterior : of the weights of [psi, h].
    """

    covariance: Covariance
    Z: np.ndarray
    noise: float
    value: float
    posterior: Posterior

    def widened(self, factor: float, rows: ProcessRows) -> Fitted:
        """The same with all its variances times a factor, the columns of ``rows`` being so already."""
        covariance = Covariance(self.covariance.kernels, factor * self.covariance.amplitudes)
        with one_thread():
            value, p, _ = evidence(covariance, factor * self.noise, self.Z, rows)
        return Fitted(covariance, self.Z, factor * self.noise, value, p)


def spent(n: float, chosen: int) -> float:
    """What variances are multiplied by where so many things were chosen to suit n targets: n / (n - chosen).

    >>> spent(100.0, 20), spent(10.0, 20)
    (1.25, 4.0)
    """
    return n / max(n - chosen, n / _MOST_FACTOR)


Criterion = Callable[[Covariance, float, np.ndarray, ProcessRows], tuple[float, Posterior, np.ndarray]]


def evidence(
    covariance: Covariance, noise: float, Z: np.ndarray, rows: ProcessRows
) -> tuple[float, Posterior, np.ndarray]:
    """Log evidence under c', the posterior of the weights of [psi, h], and the derivative in (theta, log noise)."""
    L, P = features(covariance, Z, rows.X)
    left = np.maximum(covariance.diag(rows.X) - np.einsum("ij,ij->i", P, P), 0.0)
    variance = noise + left
    root = np.sqrt(rows.weights / variance)
    C, t = np.hstack([P, rows.H]) * root[:, None], root * rows.target
    p = gaussian(C, t, 0.0, float(rows.weights.sum()), np.ones(C.shape[1]), 1.0)
    C_bar = p.design_gradient()
    # rows and targets are divided by sqrt(variance), whose logarithm the evidence of targets in their own unit has too
    by_variance = -0.5 * (np.einsum("ij,ij->i", C, C_bar) - t * p.remainder + rows.weights) / variance
    P_bar = (C_bar * root[:, None])[:, : P.shape[1]] - 2.0 * P * by_variance[:, None]
    slope = pulled_back(covariance, Z, rows.X, L, P, P_bar) + covariance.diag_vjp(rows.X, by_variance)
    value = p.log_evidence - 0.5 * float(rows.weights @ np.log(variance))
    return value, p, np.append(slope, noise * by_variance.sum())


def features(covariance: Covariance, Z: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor L (m, m), and the rows psi(x_i) = L^-1 c(Z, x_i) (n, m)."""
    L = covariance.root(Z)
    return L, solve_triangular(L, covariance(Z, X), lower=True, check_finite=False).T


def pulled_back(
    covariance: Covariance, Z: np.ndarray, X: np.ndarray, L: np.ndarray, P: np.ndarray, P_bar: np.ndarray
) -> np.ndarray:
    """Derivative with respect to theta of what has the derivative P_bar (n, m) with respect to the features P."""
    # P = C L^-T: with S = lower(-P_bar'P), its diagonal halved, the derivative in L L' is L^-T (S + S')/2 L^-1
    cross_bar = solve_triangular(L, P_bar.T, lower=True, trans=1, check_finite=False).T
    S = np.tril(-P_bar.T @ P)
    S.flat[:: len(S) + 1] *= 0.5
    half = solve_triangular(L, 0.5 * (S + S.T), lower=True, trans=1, check_finite=False)
    inner_bar = solve_triangular(L, half.T, lower=True, trans=1, check_finite=False)
    return covariance.vjp(X, Z, cross_bar) + covariance.vjp(Z, Z, inner_bar)


def climb(
    start: Covariance, noise: float, Z: np.ndarray, rows: ProcessRows, noise_floor: float | None = None,
    least: float = 0.0, reach: float = _WIDTH_REACH, criterion: Criterion = evidence,
) -> Fitted:  # fmt: skip
    """Climb the evidence, or another criterion, from a covariance function and a noise variance by L-BFGS-B.

    Widths move by ``reach`` log units at most; amplitudes not below ``least``; the noise not below ``noise_floor``, and
    not at all where that is None. At most `_TUNED_ROWS` rows choose the parameters.
    """
    few, q = rows.part(_TUNED_ROWS), len(start.kernels)
    x0 = np.append(start.theta, np.log(noise))
    room = np.concatenate(
        [np.full(q, _REACH), np.full(len(x0) - q - 1, reach), [0.0 if noise_floor is None else _REACH]]
    )
    low, high = x0 - room, x0 + room
    if least > 0.0:
        low[:q] = np.minimum(np.log(least), x0[:q])
    if noise_floor is not None:
        low[-1] = min(np.log(noise_floor), x0[-1])
    best: list[tuple[float, np.ndarray]] = []

    def minus(x: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, _, slope = criterion(start.with_theta(x[:-1]), float(np.exp(x[-1])), Z, few)
        except np.linalg.LinAlgError:  # c(Z, Z) has lost its rank: too far
            return 1e300, np.zeros(len(x))
        if not best or value > best[0][0]:
            best[:] = [(value, x.copy())]
        report(len(Z), best[0][0])
        return -value, -slope

    with one_thread():
        minimize(minus, x0, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True)),
                 options={"maxiter": _STEPS, "maxcor": 20})  # fmt: skip
        x = best[0][1] if best else x0
        covariance, noise = start.with_theta(x[:-1]), float(np.exp(x[-1]))
        value, p, _ = criterion(covariance, noise, Z, rows)
    return Fitted(covariance, Z, noise, value, p)


@dataclass(frozen=True, eq=False)
class ProcessPredictor(WeightPredictor):
    """A process on inducing inputs, in the units of the target.

    Attributes
    ----------
    prior : c, for targets divided by ``unit``.
    Z : (m, d) inducing inputs.
    others : bound basis of the functions h (p,).
    scale : (p,) what their columns are divided by.
    whitener : (m, m) L^-T.
    unit : root mean square of the training target.
    mean, root : (m + p,), (m + p, m + p) posterior N(mean, root root') of the weights of [psi, h].
    noise : noise variance divided by unit^2.
    log_evidence : what the parameters maximise, in the target's own units.
    """

    prior: Covariance
    Z: np.ndarray
    others: Basis
    scale: np.ndarray
    whitener: np.ndarray
    unit: float
    mean: np.ndarray
    root: np.ndarray
    noise: float
    log_evidence: float

    @property
    def prior_variance(self) -> np.ndarray:
        """Prior variance of the function (q,), one for each kernel that has one variance everywhere."""
        return self.prior.amplitudes * self.unit**2

    def columns(self, X: np.ndarray) -> np.ndarray:
        """The features [psi, h] at X: (n, m + p)."""
        P = self.prior(X, self.Z) @ self.whitener
        return np.hstack([P, self.others(X) / self.scale])

    def left_out(self, X: np.ndarray, Phi: np.ndarray, joint: bool) -> np.ndarray:
        """c(x, x') - psi(x)'psi(x'): what the inducing inputs do not determine."""
        P = Phi[:, : len(self.Z)]
        if not joint:
            return np.maximum(self.prior.diag(X) - np.einsum("ij,ij->i", P, P), 0.0)
        C = self.prior(X, X) - P @ P.T
        C.flat[:: len(C) + 1] = np.maximum(C.diagonal(), 0.0)
        return C

    def expanded(self) -> Expanded:
        """The same as weighted sums of kernels and functions, for exports; NotImplementedError where it is none."""
        if not all(_stationary(kernel) for kernel in self.prior.kernels):
            raise NotImplementedError(
                "exports of predictive='process' need kernels that are functions of the distance (gaussian, laplace, "
                "cauchy, matern32, matern52): use one of them, or predictive='rvm'"
            )
        m, terms = len(self.Z), list(self.prior._terms())
        kernels = [KernelBasis(kernel, self.Z).bind(self.Z) for _, kernel in terms]
        basis = Concat((*kernels, self.others), n_features=self.Z.shape[1])
        to_features = np.zeros((basis.n_atoms, len(self.mean)))
        for j, (s, _) in enumerate(terms):
            to_features[j * m : (j + 1) * m, :m] = self.unit * s * self.whitener
        to_features[len(terms) * m :, m:] = np.diag(self.unit / self.scale)
        variance = float(self.prior_variance.sum())
        weights, root, lost = to_features @ self.mean, to_features @ self.root, to_features[:, :m]
        return Expanded(basis, weights, root, lost, variance, self.noise * self.unit**2)


@dataclass(frozen=True, eq=False)
class Expanded:
    """Mean w'phi(x) and variance |root'phi(x)|^2 + max(prior - |lost'phi(x)|^2, 0) + noise of new targets.

    Attributes
    ----------
    basis : bound basis of the k functions phi.
    weights, root, lost : (k,), (k, j), (k, m).
    prior, noise : variances.
    """

    basis: Basis
    weights: np.ndarray
    root: np.ndarray
    lost: np.ndarray
    prior: float
    noise: float


@dataclass(frozen=True)
class Process:
    """A Gaussian process with the relevance vectors as inducing inputs; see `relvec.inference.process`.

    Parameters
    ----------
    retune : bool, default True
        Whether the widths, which start at sqrt(2) times the RVM's (RQ05 eq. (10)), are learned anew by evidence, like
        amplitude and noise; False keeps them there.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> model = RVR(width=1.5, predictive="process").fit(X, y)
    >>> _, std = model.predict([[0.0], [20.0]], return_std=True)
    >>> std.round(1)
    array([0.1, 1. ])
    """

    retune: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.retune, bool | np.bool_):
            raise ValueError(f"retune must be True or False, got {self.retune!r}")


def as_predictive(spec: object) -> Augmented | Process | None:
    """The predictive distribution that a name or an object means; None is the RVM's own.

    >>> as_predictive("process")
    Process(retune=True)
    """
    names: dict[str, Augmented | Process | None] = {"rvm": None, "augmented": Augmented(), "process": Process()}
    if isinstance(spec, str) and spec in names:
        return names[spec]
    if isinstance(spec, Augmented | Process):
        return spec
    raise ValueError(f"predictive must be 'rvm', 'augmented', 'process', an Augmented() or a Process(), got {spec!r}")


def kernels_of(basis: Basis) -> tuple[Kernel, ...]:
    """The different kernels of a dictionary, in its order."""
    return tuple(dict.fromkeys(part.kernel for part in _leaves(basis) if isinstance(part, KernelBasis)))


def check_kernels(kernels: tuple[Kernel, ...], spec: Augmented | Process) -> None:
    """Refuse what a predictive distribution cannot be made of."""
    name = type(spec).__name__.lower()
    if not kernels:
        raise ValueError(f"predictive={name!r} needs a kernel as a function of the inputs: use predictive='rvm' here")
    unfit = [kernel for kernel in kernels if not kernel.positive_definite]
    if isinstance(spec, Process) and unfit:
        raise ValueError(
            f"predictive='process' needs a positive definite kernel, to be the covariance function of the process, and "
            f"{unfit[0]!r} is not known to be one: use predictive='augmented', or another kernel"
        )


def process_predictor(
    spec: Process, kernels: tuple[Kernel, ...], kept: Basis, weight: np.ndarray, rows: ProcessRows, trend: bool,
    unit: float, variance: float, noise: float, noise_floor: float | None,
) -> ProcessPredictor | None:  # fmt: skip
    """The process on the kernels' centres in a model; None where it has none.

    Parameters
    ----------
    kernels : of the dictionary; their covariance functions add up.
    kept : bound basis of the k functions of one output's model.
    weight : (k,) their weights, for a target divided by ``unit``.
    rows : training rows, targets divided by ``unit``; no columns yet.
    trend : whether a constant is among the functions even if the RVM has none.
    variance, noise : of the targets and of the RVM's noise, in that unit.
    noise_floor : least noise variance; None to keep ``noise``.
    """
    leaves = list(_leaves(kept))
    centres = [leaf.centres for leaf in leaves if isinstance(leaf, KernelBasis) and leaf.centres is not None]
    if not centres or variance == 0.0:
        return None
    Z = np.unique(np.concatenate(centres), axis=0)
    constant = trend and not any(isinstance(leaf, Bias) for leaf in leaves)
    others = Concat((kept, Bias().bind(rows.X)), n_features=rows.X.shape[1]) if constant else kept
    H, local = others(rows.X), _from_kernels(others)
    size = np.sqrt((rows.weights / rows.weights.sum()) @ H**2)
    broad = np.where(size > 0.0, _BROAD / np.where(size > 0.0, size, 1.0), 1.0)
    common = np.sqrt(np.mean(weight[local[: len(weight)]] ** 2))
    start = Covariance(tuple(_widened(kernel) for kernel in kernels), np.full(len(kernels), variance / len(kernels)))
    least = variance / len(kernels)
    reach = _WIDTH_REACH if spec.retune else 0.0
    scale, wide = (1.0 / np.where(local, share * common, broad) for share in _SHARES)
    found = climb(start, noise, Z, replace(rows, H=H / scale), noise_floor, least, reach)
    if evidence(found.covariance, found.noise, Z, replace(rows, H=H / wide))[0] - found.value > len(Z):
        scale = wide
        found = climb(start, noise, Z, replace(rows, H=H / scale), noise_floor, least, reach)
    if noise_floor is not None:
        factor = spent(float(rows.weights.sum()), len(Z) + sum(len(kernel.theta) for kernel in kernels))
        scale = scale / np.sqrt(factor)
        found = found.widened(factor, replace(rows, H=H / scale))
    whitener = solve_triangular(found.covariance.root(Z), np.eye(len(Z)), lower=True).T
    value = found.value - found.posterior.n_samples * np.log(unit)
    p = found.posterior
    return ProcessPredictor(found.covariance, Z, others, scale, whitener, unit, p.mean, p.root, found.noise, value)


def _from_kernels(basis: Basis) -> np.ndarray:
    """Which atoms of a dictionary are kernels (M,)."""
    if not isinstance(basis, Concat):
        return np.full(basis.n_atoms, isinstance(basis, KernelBasis))
    found = np.zeros(basis.n_atoms, dtype=bool)
    for part, where in zip(basis.parts, basis.part_columns(), strict=True):
        found[where] = _from_kernels(part)
    return found


def _widened(kernel: Kernel) -> Kernel:
    """The covariance function to start from: widths sqrt(2) times the basis functions' (RQ05 eq. (10))."""
    if isinstance(kernel, Sum | Product):
        return type(kernel)(tuple(_widened(part) for part in kernel.parts))
    if isinstance(kernel, Gaussian | Laplace | Cauchy | Matern):
        return kernel.with_theta(kernel.theta + 0.5 * np.log(2.0))
    return kernel


def _stationary(kernel: Kernel) -> bool:
    """Whether a kernel is 1 at its centre, wherever that is."""
    if isinstance(kernel, Product):
        return all(_stationary(part) for part in kernel.parts)
    return isinstance(kernel, Gaussian | Laplace | Cauchy | Matern)


def _leaves(basis: Basis) -> Iterator[Basis]:
    """The dictionaries a dictionary is made of."""
    if isinstance(basis, Concat):
        for part in basis.parts:
            yield from _leaves(part)
    else:
        yield basis
