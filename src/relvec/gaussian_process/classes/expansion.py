"""Fitted classes of a process as sums of basis functions in the user's units, for attributes and exports.

The features of `model` are phi'T with phi of `relvec.gaussian_process.expansion`, and a latent function of a member of
a classifier has

    mean(x) = w'phi(x),    variance(x) = |R'phi(x)|^2 + max(prior - |S'phi(x)|^2, 0),

with S the columns of T that belong to vectors. It adds slope * mean / sqrt(1 + moderation * variance) to the log-odds
of two classes, or to the logarithm of the probability of its class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from relvec.basis import Basis
from relvec.gaussian_process.classes.fit import ClassModel, Member
from relvec.gaussian_process.classes.model import PROBIT, ClassProcess
from relvec.gaussian_process.expansion import basis_of
from relvec.gaussian_process.kernel import CONSTANT
from relvec.gaussian_process.rows import Units
from relvec.inference.predictive.expansion import LinearExpansion


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
