"""Predictions of a process, and its construction from a fitted model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from relvec.basis import Basis, Bias, Concat, KernelBasis, leaves
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive.linear import WeightPredictor
from relvec.inference.process.fit import MAX_WIDTH_LOG_STEP, Covariance, TrainingRows, evidence, maximise_evidence
from relvec.inference.process.options import Process
from relvec.kernels import Cauchy, Gaussian, Kernel, Laplace, Matern, Product, Sum

_TREND_WEIGHT_DEVIATION = 10.0  # broad: columns and target have unit root mean square
_WEIGHT_DEVIATION_SHARES = (0.3, 1.0)  # for the RVM's kernels, in root mean squares of their weights
_MAX_VARIANCE_FACTOR = 4.0  # of `selection_factor`


@dataclass(frozen=True, eq=False)
class ProcessPredictor(WeightPredictor):
    """A process on inducing inputs, in the units of the target: a posterior over the m + p weights of [psi, h]."""

    prior: Covariance  # c, for targets divided by ``unit``
    Z: np.ndarray  # (m, d) inducing inputs
    others: Basis  # bound basis of the functions h (p,)
    scale: np.ndarray  # (p,) divisors of their columns
    whitener: np.ndarray  # (m, m) L^-T
    log_evidence: float  # log evidence of the parameters, in the target's own units

    @property
    def prior_variance(self) -> np.ndarray:
        """Prior variance of the function (q,), one for each kernel that has one variance everywhere."""
        return self.prior.amplitudes * self.unit**2

    def columns(self, X: np.ndarray) -> np.ndarray:
        """The features [psi, h] at X: (n, m + p)."""
        P = self.prior(X, self.Z) @ self.whitener
        return np.hstack([P, self.others(X) / self.scale])

    def unrepresented(self, X: np.ndarray, Phi: np.ndarray, joint: bool) -> np.ndarray:
        """c(x, x') - psi(x)'psi(x'): the part of the prior that the inducing inputs do not determine."""
        P = Phi[:, : len(self.Z)]
        if not joint:
            return np.maximum(self.prior.diag(X) - np.einsum("ij,ij->i", P, P), 0.0)
        C = self.prior(X, X) - P @ P.T
        C.flat[:: len(C) + 1] = np.maximum(C.diagonal(), 0.0)
        return C


@dataclass(frozen=True, eq=False)
class LinearExpansion:
    """Mean w'phi(x) and variance max(prior + |root'phi(x)|^2 - |represented'phi(x)|^2, 0) + noise of new targets.

    Where error bars depend on the inputs, exp(h) of `varying`, a function of the inputs and the mean, multiplies them.
    """

    basis: Basis  # bound basis of the k functions phi
    # (k,), (k, j), (k, m)
    weights: np.ndarray
    root: np.ndarray
    represented: np.ndarray
    # variances
    prior: float
    noise: float
    varying: LogNoise | None = None


def expand_process(process: ProcessPredictor) -> LinearExpansion:
    """A process as weighted sums of kernels and functions, for exports; NotImplementedError if it has no such form."""
    if not all(_has_unit_variance(kernel) for kernel in process.prior.kernels):
        raise NotImplementedError(
            "exports of predictive='process' need kernels that are functions of the distance (gaussian, laplace, "
            "cauchy, matern32, matern52): use one of them, or predictive='rvm'"
        )
    m, terms = len(process.Z), list(process.prior.terms())
    kernels = [KernelBasis(kernel, process.Z).bind(process.Z) for _, kernel in terms]
    basis = Concat((*kernels, process.others), n_features=process.Z.shape[1])
    to_features = np.zeros((basis.n_atoms, len(process.mean)))
    for j, (s, _) in enumerate(terms):
        to_features[j * m : (j + 1) * m, :m] = process.unit * s * process.whitener
    to_features[len(terms) * m :, m:] = np.diag(process.unit / process.scale)
    variance = float(process.prior_variance.sum())
    weights, root, represented = to_features @ process.mean, to_features @ process.root, to_features[:, :m]
    return LinearExpansion(basis, weights, root, represented, variance, process.noise * process.unit**2)


def process_predictor(
    spec: Process, kernels: tuple[Kernel, ...], kept: Basis, weight: np.ndarray, rows: TrainingRows, trend: bool,
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
    parts = leaves(kept)
    centres = [part.centres for part in parts if isinstance(part, KernelBasis) and part.centres is not None]
    if not centres or variance == 0.0:
        return None
    Z = np.unique(np.concatenate(centres), axis=0)
    constant = trend and not any(isinstance(part, Bias) for part in parts)
    others = Concat((kept, Bias().bind(rows.X)), n_features=rows.X.shape[1]) if constant else kept
    H, local = others(rows.X), _kernel_atoms(others)
    size = np.sqrt((rows.weights / rows.weights.sum()) @ H**2)
    broad = np.where(size > 0.0, _TREND_WEIGHT_DEVIATION / np.where(size > 0.0, size, 1.0), 1.0)
    common = np.sqrt(np.mean(weight[local[: len(weight)]] ** 2))
    start = Covariance(
        tuple(_covariance_kernel(kernel) for kernel in kernels), np.full(len(kernels), variance / len(kernels))
    )
    least = variance / len(kernels)
    reach = MAX_WIDTH_LOG_STEP if spec.retune else 0.0
    scale, wide = (1.0 / np.where(local, share * common, broad) for share in _WEIGHT_DEVIATION_SHARES)
    found = maximise_evidence(start, noise, Z, replace(rows, H=H / scale), noise_floor, least, reach)
    if evidence(found.covariance, found.noise, Z, replace(rows, H=H / wide))[0] - found.value > len(Z):
        scale = wide
        found = maximise_evidence(start, noise, Z, replace(rows, H=H / scale), noise_floor, least, reach)
    if noise_floor is not None:
        factor = selection_factor(float(rows.weights.sum()), len(Z) + sum(len(kernel.theta) for kernel in kernels))
        scale = scale / np.sqrt(factor)
        found = found.scale_variances(factor, replace(rows, H=H / scale))
    whitener = solve_triangular(found.covariance.root(Z), np.eye(len(Z)), lower=True).T
    value = found.value - found.posterior.n_samples * np.log(unit)
    p = found.posterior
    return ProcessPredictor(found.covariance, Z, others, scale, whitener, value, unit=unit, mean=p.mean, root=p.root,
                            noise=found.noise)  # fmt: skip


def selection_factor(n: float, chosen: int) -> float:
    """Factor for variances where ``chosen`` quantities were selected to suit n targets: n / (n - chosen).

    >>> selection_factor(100.0, 20), selection_factor(10.0, 20)
    (1.25, 4.0)
    """
    return n / max(n - chosen, n / _MAX_VARIANCE_FACTOR)


def _kernel_atoms(basis: Basis) -> np.ndarray:
    """Mask (M,) of the atoms of a dictionary that are kernels."""
    if not isinstance(basis, Concat):
        return np.full(basis.n_atoms, isinstance(basis, KernelBasis))
    found = np.zeros(basis.n_atoms, dtype=bool)
    for part, where in zip(basis.parts, basis.part_columns(), strict=True):
        found[where] = _kernel_atoms(part)
    return found


def _covariance_kernel(kernel: Kernel) -> Kernel:
    """The covariance function to start from: widths sqrt(2) times the basis functions' (RQ05 eq. (10))."""
    if isinstance(kernel, Sum | Product):
        return type(kernel)(tuple(_covariance_kernel(part) for part in kernel.parts))
    if isinstance(kernel, Gaussian | Laplace | Cauchy | Matern):
        return kernel.with_theta(kernel.theta + 0.5 * np.log(2.0))
    return kernel


def _has_unit_variance(kernel: Kernel) -> bool:
    """Whether a kernel is 1 at its centre, wherever that is."""
    if isinstance(kernel, Product):
        return all(_has_unit_variance(part) for part in kernel.parts)
    return isinstance(kernel, Gaussian | Laplace | Cauchy | Matern)
