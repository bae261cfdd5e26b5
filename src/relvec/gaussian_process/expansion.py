"""Fitted processes as sums of basis functions in the user's units: what attributes show and exports write down.

With phi(x) = [k_p(z_j, x) for every part p and vector j; the inputs of a linear part; 1] a component is

    mean(x) = w'phi(x),    variance(x) = max(prior + |T'phi(x)|^2 - |S'phi(x)|^2, 0) + noise,

where k(Z, x) of `predictor` is linear in phi, the stationary parts have the variance ``prior`` everywhere, and T'phi
holds the linear part and the constant. The factor f of `predictor` is in all terms of the variance, exp(h) beside them.

The features of `classes.model` are phi'T, and a latent function of a member of a classifier has

    mean(x) = w'phi(x),    variance(x) = |R'phi(x)|^2 + max(prior - |S'phi(x)|^2, 0),

with S the columns of T that belong to vectors. It adds slope * mean / sqrt(1 + moderation * variance) to the log-odds
of two classes, or to the logarithm of the probability of its class.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular

from relvec.basis import Basis, Bias, Concat, KernelBasis, Linear
from relvec.gaussian_process.classes.fit import ClassModel, Member
from relvec.gaussian_process.classes.model import PROBIT, ClassProcess
from relvec.gaussian_process.kernel import CONSTANT, Shape, Structure
from relvec.gaussian_process.predictor import Component, ProcessPredictor
from relvec.gaussian_process.rows import Units
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive.linear import LinearExpansion
from relvec.kernels import Gaussian, Kernel, Matern

_IGNORED_WIDTH = 1e100  # of a column that the process leaves out, or its largest value


def expand(
    process: ProcessPredictor, n_features: int, rows: np.ndarray | None = None, variance: bool = True
) -> list[LinearExpansion]:
    """Return the components of a process as expansions over their own functions, in the units of X and y.

    ``n_features`` counts the columns of X, ``rows`` (m,) are the training rows of the vectors; ``variance``
    tells whether the roots of variances, much larger than the means, are to be computed.
    """
    return [_expand(process, component, n_features, rows, variance) for component in process.components]


def basis_of(
    structure: Structure, theta: np.ndarray, units: Units, vectors: np.ndarray, rows: np.ndarray | None
) -> Concat:
    """Return the functions phi of a kernel on vectors (m, n_features), the training rows of these numbers (m,)."""
    parts: list[Basis] = [
        KernelBasis(part_kernel(structure, theta, units, i, vectors), vectors, centre_rows=rows)
        for i in range(len(structure.parts))
    ]
    if structure.linear and len(units.columns):
        parts.append(Linear(features=tuple(units.columns.tolist())).bind(vectors))
    return Concat((*parts, Bias().bind(vectors)), n_features=vectors.shape[1])


def part_kernel(structure: Structure, theta: np.ndarray, units: Units, part: int, vectors: np.ndarray) -> Kernel:
    """Write a stationary part as a kernel of relvec, with widths in the units of X; vectors (m, d) are rows of it."""
    length = np.exp(structure.parts[part].log_lengths(theta[structure.widths[part]])) * units.scale
    width = np.maximum(np.abs(vectors).max(0, initial=0.0), _IGNORED_WIDTH)
    width[units.columns] = length
    shape = structure.parts[part].shape
    if shape == Shape.GAUSSIAN:
        return Gaussian(width=tuple(np.sqrt(2.0) * width))  # exp(-|x - z|^2 / r^2) with r^2 = 2 l^2
    return Matern(nu=1.5 if shape == Shape.MATERN32 else 2.5, width=tuple(width))


def _expand(
    process: ProcessPredictor, c: Component, n_features: int, rows: np.ndarray | None, variance: bool
) -> LinearExpansion:
    s, u, y_scale = c.structure, process.units, process.units.y_scale
    basis = basis_of(s, c.theta, u, process.vectors, rows)
    d = len(u.columns) if s.linear else 0
    m = len(process.vectors)
    at = len(s.parts) * m
    amplitudes = np.array([np.exp(c.theta[i]) for i in s.amplitudes])
    slope = np.exp(c.theta[s.linear_at]) / s.n_inputs if d else 0.0  # a_0 / d

    def lift(A: np.ndarray) -> np.ndarray:
        """Return the functionals A'k(Z, .), A (m, j), as weights (k, j) of phi."""
        out = np.zeros((basis.n_atoms, A.shape[1]))
        for i, a in enumerate(amplitudes):
            out[i * m : (i + 1) * m] = a * A
        out[-1] = CONSTANT * A.sum(0)
        if d:
            along = slope * (c.Z.T @ A) / u.scale[:, None]
            out[at : at + d] = along
            out[-1] -= u.centre @ along
        return y_scale * out

    root = np.zeros((basis.n_atoms, d + 1 if variance else 0))
    if variance:
        steep = y_scale * np.sqrt(slope) / u.scale[:d]
        root[at + np.arange(d), np.arange(d)] = steep
        root[-1] = np.append(-steep * u.centre[:d], y_scale * np.sqrt(CONSTANT))
    weights = lift(c.weights[:, None])[:, 0]
    weights[-1] += u.y_mean
    f = c.spread
    prior = f * float(amplitudes.sum()) * y_scale**2
    roots = np.sqrt(f) * root, np.sqrt(f) * lift(c.R.T if variance else c.R.T[:, :0])
    varying = None if c.varying is None else _in_units(c.varying, u, n_features)
    return LinearExpansion(basis, weights, *roots, prior, c.noise_variance * y_scale**2, varying)


def _in_units(varying: LogNoise, u: Units, n_features: int) -> LogNoise:
    """Return the same function of the columns of X and the mean in their own units."""
    place, unit = np.append(u.columns, n_features), np.append(u.scale, u.y_scale)
    centre, scale = np.zeros(n_features + 1), np.ones(n_features + 1)
    centre[place], scale[place] = np.append(u.centre, u.y_mean) + unit * varying.centre, unit * varying.scale
    return replace(varying, centre=centre, scale=scale, columns=place[varying.columns])


@dataclass(frozen=True, eq=False)
class ExpandedMember:
    """The latent functions of a member over one basis: one for two classes, else K; factors of means and variances."""

    functions: tuple[LinearExpansion, ...]
    slope: float
    moderation: float

    @property
    def basis(self) -> Basis:
        """The basis of all functions."""
        return self.functions[0].basis


def log_prior_odds(model: ClassModel) -> np.ndarray:
    """Log-odds (1,) of the second of two classes away from the data, or the logarithms (K,) of the base rates."""
    logs = np.log(model.base_rates)
    return logs[1:] - logs[:1] if len(logs) == 2 else logs


def expand_members(
    model: ClassModel, n_features: int, found: list[tuple[np.ndarray, np.ndarray]] | None = None, variance: bool = True
) -> list[ExpandedMember]:
    """Return the members of a model as expansions over their own functions, in the units of X.

    ``n_features`` counts the columns of X, ``found`` are the numbers (m,) and contents (m, n_features) of the training
    rows that are the vectors of each member; ``variance`` tells whether the roots of variances are to be computed.
    """
    return [
        _expand_member(member, model.units, n_features, None if found is None else found[i], variance)
        for i, member in enumerate(model.members)
    ]


def restore_vectors(process: ClassProcess, units: Units, n_features: int) -> np.ndarray:
    """Return vectors (m, n_features) in the units of X, up to rounding; 0 in columns that the process leaves out."""
    vectors = np.zeros((process.n_vectors, n_features))
    vectors[:, units.columns] = process.vectors * units.scale + units.centre
    return vectors


def _expand_member(
    member: Member, units: Units, n_features: int, found: tuple | None, variance: bool
) -> ExpandedMember:
    process = member.model.widen() if variance else member.model
    structure, theta, m = process.kernel.structure, process.theta, process.n_vectors
    rows, vectors = (None, restore_vectors(process, units, n_features)) if found is None else found
    basis = basis_of(structure, theta, units, vectors, rows)
    T = _map_to_features(process, units, basis.n_atoms)
    share = 1.0 if len(process.factors) == 1 else np.sqrt(0.5)
    prior = process.kernel.amplitude(theta) if m else 0.0
    functions = tuple(
        LinearExpansion(
            basis, share * (T @ weights), _divide_right(T, L) if variance else T[:, :0], T[:, :m], prior, 0.0
        )
        for weights, L in zip(process.weights.T, process.factors, strict=True)
    )
    c = member.calibration
    return ExpandedMember(functions, member.share * c.slope, PROBIT * c.moderation)


def _map_to_features(process: ClassProcess, units: Units, n_atoms: int) -> np.ndarray:
    """T (k, q) with Phi = phi'T."""
    structure, theta, m = process.kernel.structure, process.theta, process.n_vectors
    d = structure.n_inputs if structure.linear else 0
    T = np.zeros((n_atoms, len(process.weights)))
    if m:
        whitener = solve_triangular(process.vector_factor, np.eye(m), lower=True, check_finite=False).T
        for j, i in enumerate(structure.amplitudes):
            T[j * m : (j + 1) * m, :m] = np.exp(theta[i]) * whitener
    if d:
        steep = np.sqrt(np.exp(theta[-1]) / d) / units.scale
        if process.directions is None:
            T[n_atoms - 1 - d + np.arange(d), m + np.arange(d)] = steep
            T[-1, m:-1] = -steep * units.centre
        else:
            T[-1 - d : -1, :-1] = steep[:, None] * process.directions
            T[-1, :-1] = -(steep * units.centre) @ process.directions
        T[-1, -1] = np.sqrt(CONSTANT)
    return T


def _divide_right(T: np.ndarray, L: np.ndarray) -> np.ndarray:
    """T L^-T for T (k, q) and lower L (q, q)."""
    return solve_triangular(L, T.T, lower=True, check_finite=False).T
