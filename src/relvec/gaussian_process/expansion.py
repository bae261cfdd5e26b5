"""Fitted processes as sums of basis functions in the user's units: what attributes show and exports write down.

With phi(x) = [k_p(z_j, x) for every part p and vector j; the inputs of a linear part; 1] a component is

    mean(x) = w'phi(x),    variance(x) = max(prior + |T'phi(x)|^2 - |S'phi(x)|^2, 0) + noise,

where k(Z, x) of `component` is linear in phi, the stationary parts have the variance ``prior`` everywhere, and T'phi
holds the linear part and the constant. The factor f of `component` is in all terms of the variance, exp(h) beside them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.basis import Basis, Bias, Concat, KernelBasis, Linear
from relvec.gaussian_process.component import Component
from relvec.gaussian_process.kernel import CONSTANT, Shape, Structure
from relvec.gaussian_process.rows import Units
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive.expansion import LinearExpansion
from relvec.kernels import Gaussian, Kernel, Matern

_IGNORED_WIDTH = 1e100  # of a column that the process leaves out, or its largest value


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


def expand_component(
    c: Component, u: Units, vectors: np.ndarray, n_features: int, rows: np.ndarray | None, variance: bool
) -> LinearExpansion:
    """Return a component with vectors (m, d) in the units of X as an expansion: see `ProcessPredictor`."""
    s, y_scale = c.structure, u.y_scale
    basis = basis_of(s, c.theta, u, vectors, rows)
    d = len(u.columns) if s.linear else 0
    m = len(vectors)
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
