"""A fit that starts from the model of the last one, where the new dictionary has its functions."""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis
from relvec.design.order import atom_keys
from relvec.estimators.units import scaled_precisions
from relvec.solvers import Problem, Start
from relvec.solvers.laplace.problem import LaplaceProblem


def last_fit(estimator, basis: Basis, n_functions: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Atoms of a dictionary that the last fit kept (k,), and their precisions (n_functions, k) as it left them."""
    if not estimator.warm_start or not hasattr(estimator, "basis_"):
        return None
    alpha = np.atleast_2d(estimator.alpha_)
    if len(alpha) != n_functions:
        return None
    place = {key: m for m, key in enumerate(atom_keys(basis))}
    kept = sorted((place[key], i) for i, key in enumerate(atom_keys(estimator.basis_)) if key in place)
    atoms, own = np.array(kept, dtype=np.intp).reshape(-1, 2).T
    return atoms, alpha[:, own]


def gaussian_starts(estimator, basis: Basis, problems: list[Problem], scale: np.ndarray, units: np.ndarray) -> list:
    """Models of the last fit of a regressor, one for each problem, for columns divided by scale (M,); None for none."""
    earlier = last_fit(estimator, basis, len(problems))
    if earlier is None:
        return [None] * len(problems)
    starts: list[Start | None] = []
    noises = np.atleast_1d(estimator.noise_variance_)
    for problem, unit, alpha, noise in zip(problems, units, earlier[1], noises, strict=True):
        active, precisions = scaled_precisions(scale / unit, earlier[0], alpha)
        learned = noise / unit / unit if np.isfinite(noise) else problem.noise_start
        beta = 1.0 / (problem.noise_variance or max(learned, problem.noise_floor))
        starts.append(Start(active, precisions, beta) if active.size else None)
    return starts


def laplace_start(problem: LaplaceProblem, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Units and their precisions to start from, for atoms (k,) and the precisions (K, k) each output had for them."""
    found = [scaled_precisions(problem.design.scale, atoms, row) for row in (alpha[:1] if problem.share else alpha)]
    units = [own + c * problem.design.n_atoms for c, (own, _) in enumerate(found)]
    return np.concatenate(units), np.concatenate([precisions for _, precisions in found])
