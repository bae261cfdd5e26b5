r"""The generalised relevance vector machine: an evidence over weights and centres, and the width it prefers (GRVM).

With kernels at z_1 .. z_p in the training box of volume V, Laplace's approximation over weights and centres gives

    log E = log p(t | alpha, z)  -  p log V  +  (p d / 2) log 2 pi  -  (1/2) log |S|,

the evidence of the weights at the best z, times the share of the box that fits as well. S is minus the Hessian of
log p(t | w, z) p(w | alpha) in z, its Schur complement with respect to the weights. GRVM section 5 has one variable a
centre, its distance from the rows, and nothing mixed (`diagonal_evidence`). In units of the box's sides a direction
with a curvature below 2 pi is one in which the data place the centre no better than the prior does. There, and where S
is not positive definite, the prior's width counts instead, so that no centre adds to the evidence for being
undetermined.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial.distance import cdist

from relvec.design import DenseDesign
from relvec.hyperparameters.centres import Move, Placed, centre_gradient, place
from relvec.hyperparameters.targets import LatentPosterior
from relvec.kernels import Cauchy, Gaussian, Kernel, LogDistance, Matern

SMOOTH = (Gaussian, Cauchy, LogDistance, Matern)  # kernels with second derivatives over their centres
MAX_ROUNDS = 12  # of steps 2 to 6 of section 4
LIKELIHOOD_STEPS = 15  # of L-BFGS-B in step 5
SETTLED_NATS = 0.05  # between rounds
MAX_BLOCK_NUMBERS = 4_000_000  # numbers held at once


@dataclass(frozen=True)
class CentresEvidence:
    """The evidence over weights and centres, in nats.

    Attributes
    ----------
    weights : evidence of the weights alone, log p(t | alpha, z).
    centres : what integrating over the centres adds; never positive under the uniform prior.
    open : number of directions, of p d, in which the data do not place a centre.
    size : p, the number of kernels.
    """

    weights: float
    centres: float
    open: int
    size: int

    @property
    def total(self) -> float:
        """The logarithm of E."""
        return self.weights + self.centres


def grvm_evidence(placed: Placed) -> CentresEvidence:
    """Return the evidence over weights and centres of a model at its mode, by the exact Hessian.

    The prior over each centre is uniform on the training box: the evidence does not depend on the units of X.
    """
    _check(placed.space.kernels)
    return integrate(placed, np.linalg.eigvalsh(_hessian_in_box(placed)) if len(placed.Z) else np.zeros(0))


def diagonal_evidence(placed: Placed) -> CentresEvidence:
    """Return the evidence over weights and centres as GRVM section 5 has it: one variable a centre, nothing mixed.

    The box of the prior has the side V^(1/d), in units of the kernel's width.
    """
    _check(placed.space.kernels)
    side, curvature = placed.space.high - placed.space.low, diagonal_curvature(placed)
    for g, kernel in enumerate(placed.space.kernels):
        sides = side * np.sqrt(kernel.inverse_square_widths(len(side)))
        log_sides = np.log(sides[sides > 0.0])
        curvature[placed.group == g] *= np.exp(2.0 * log_sides.mean()) if log_sides.size else 0.0
    return integrate(placed, curvature)


def integrate(placed: Placed, curvature: np.ndarray) -> CentresEvidence:
    """Return the evidence over centres of these curvatures in units of the box: all p d directions, or one of each."""
    determined = curvature > 2.0 * np.pi
    adds = 0.5 * float(np.log(2.0 * np.pi / curvature[determined]).sum())
    return CentresEvidence(placed.value, adds, int(np.sum(~determined)), len(placed.Z))


def _hessian_in_box(placed: Placed) -> np.ndarray:
    side = np.tile(placed.space.high - placed.space.low, len(placed.Z))
    return exact_hessian(placed) * np.outer(side, side)


@dataclass(frozen=True, eq=False)
class Placement:
    """How well the data place the centres of a fitted model.

    Attributes
    ----------
    log_evidence : over weights and centres, in nats; nan for kernels without second derivatives.
    log_share : what it adds to the evidence of the weights: the logarithm of the share of the box that fits as well.
    deviation : (p, d) posterior standard deviation of each coordinate of each centre; that of the box at most.
    open : number of directions, of p d, that the data leave open.
    moves : the way to the centres (`relvec.hyperparameters.centres.Move`).

    Examples
    --------
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> model = RVR(width=2.0, noise_variance=0.01, centres="grvm").fit(X, np.sin(X[:, 0]))
    >>> model.placement_.deviation.shape == model.centres_.shape, model.placement_.open
    (True, 0)
    """

    log_evidence: float
    log_share: float
    deviation: np.ndarray
    open: int
    moves: tuple[Move, ...]


def placement(placed: Placed, moves: list[Move]) -> Placement:
    """Return the placement of a model at its mode, by the exact Hessian."""
    p, d = placed.Z.shape
    if not all(isinstance(kernel, SMOOTH) for kernel in placed.space.kernels):
        return Placement(np.nan, np.nan, np.full((p, d), np.nan), 0, tuple(moves))
    values, vectors = np.linalg.eigh(_hessian_in_box(placed))
    variance = (vectors**2) @ (1.0 / np.maximum(values, 12.0))  # a uniform variable has the variance 1/12
    found = integrate(placed, values)
    deviation = np.sqrt(variance).reshape(p, d) * (placed.space.high - placed.space.low)
    return Placement(found.total, found.centres, deviation, found.open, tuple(moves))


def _check(kernels: tuple[Kernel, ...]) -> None:
    for kernel in kernels:
        if not isinstance(kernel, SMOOTH):
            names = ", ".join(sorted(kind.__name__ for kind in SMOOTH))
            raise ValueError(
                f"the evidence over centres needs second derivatives of the kernel, which {names} have; got {kernel!r}"
            )


# Hessians ------------------------------------------------------------------------------------------------------------


def posteriors(placed: Placed) -> list[tuple[LatentPosterior, np.ndarray]]:
    """Return each target's posterior in the units of the functions as given, and the weights of the kernels (K, p)."""
    basis, targets, p = placed.basis, placed.targets, len(placed.Z)
    root = targets[0].root
    design = DenseDesign(basis(placed.space.X) * root[:, None], overwrite=True)
    found = []
    for target, model in zip(targets, placed.models, strict=True):
        atoms = target.atoms(model)
        own = target.posterior(design.columns(atoms), model)
        places = atoms[own.places]
        scale = design.scale[places]
        own = replace(own, mean=own.mean / scale, root=own.root / scale[:, None], places=places)
        weights = np.zeros((own.r.shape[1], p))
        kernels = places < p
        weights[own.outputs[kernels], places[kernels]] = own.mean[kernels]
        found.append((own, weights))
    return found


def kernel_profiles(placed: Placed) -> list[tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """For each kernel: its number, its centres' places, f' and f'' (n, q), and its widths (d,)."""
    found = []
    for g, kernel in enumerate(placed.space.kernels):
        own = np.flatnonzero(placed.group == g)
        if own.size:
            slope, bend = kernel.profile_derivatives(placed.space.X, placed.Z[own])  # type: ignore[attr-defined]
            found.append((g, own, slope, bend, kernel.inverse_square_widths(placed.Z.shape[1]) ** -0.5))
    return found


def diagonal_curvature(placed: Placed) -> np.ndarray:
    """Minus the second derivatives of the log likelihood by each centre's distance from the rows (p,), in widths.

    With D that distance in widths, dphi = -2 f' D and d2phi = 4 f'' D^2 + 2 f'; the paper's first derivative has
    another sign and the weight twice.
    """
    X, found = placed.space.X, np.zeros(len(placed.Z))
    profiles = kernel_profiles(placed)
    for own, weights in posteriors(placed):
        by_weight = np.broadcast_to(weights, (len(X), *weights.shape))
        squared, residual = (own.half(by_weight) ** 2).sum(axis=1), own.r @ weights
        for _, among, slope, bend, width in profiles:
            D2 = cdist(X / width, placed.Z[among] / width, "sqeuclidean")
            curved = 4.0 * squared[:, among] * slope**2 * D2 - residual[:, among] * (4.0 * bend * D2 + 2.0 * slope)
            found[among] += curved.sum(axis=0)
    return found


def exact_hessian(placed: Placed) -> np.ndarray:
    """Minus the Hessian over all centres (p d, p d), as the Schur complement with respect to the weights.

    The determinant over weights and centres together is that of A + Phi'B Phi, which the evidence of the weights
    holds, times this one's.
    """
    X, (p, d) = placed.space.X, placed.Z.shape
    S = np.zeros((p * d, p * d))
    groups, basis = kernel_profiles(placed), placed.basis
    for working, weights in posteriors(placed):
        if not len(working.mean):  # an output without functions
            continue
        K = weights.shape[0]
        mixed = np.zeros((len(working.mean), p, d))
        rows = max(1, MAX_BLOCK_NUMBERS // (K * p * d))
        for first in range(0, len(X), rows):
            part = slice(first, first + rows)
            own = replace(working, W=working.W[part], weights=working.weights[part])
            slopes = np.zeros((len(X[part]), p, d))  # dphi/dz
            for _, among, slope, bend, width in groups:
                e = X[part, None] - placed.Z[among]
                slopes[:, among] = -2.0 * slope[part, :, None] * e / width**2
                residual = working.r[part] @ weights[:, among]
                for i, k in enumerate(among):
                    block = slice(k * d, (k + 1) * d)
                    curved = (e[:, i] * (4.0 * residual[:, i] * bend[part, i])[:, None]).T @ e[:, i]
                    S[block, block] -= curved / np.outer(width**2, width**2)
                    S[block, block] -= np.diag(2.0 * (residual[:, i] @ slope[part, i]) / width**2)
            Gz = own.half(weights[None, :, :, None] * slopes[:, None]).reshape(-1, p * d)
            S += Gz.T @ Gz
            Phi = basis(X[part])[:, working.places]
            Gw = own.half(np.eye(K)[working.outputs].T[None] * Phi[:, None]).reshape(-1, len(working.mean))
            mixed += (Gw.T @ Gz).reshape(-1, p, d)
            for m in np.flatnonzero(working.places < p):
                mixed[m, working.places[m]] -= working.r[part, working.outputs[m]] @ slopes[:, working.places[m]]
        half = working.root.T @ mixed.reshape(-1, p * d)
        S -= half.T @ half
    return 0.5 * (S + S.T)


# Training, GRVM section 4 ---------------------------------------------------------------------------------------------


def train(placed: Placed, rounds: int = MAX_ROUNDS) -> tuple[Placed, list[Move]]:
    """Take steps 2 to 6 of GRVM section 4: re-estimate precisions, then move centres to the likelihood's maximum.

    The best evidence of the weights met on the way is kept; and the way there.
    """
    best, current = placed, placed
    history = [Move("start", placed.value, len(placed.Z))]
    for _ in range(rounds):
        if not len(current.Z) or placed.space.is_late:
            break
        moved = climb_likelihood(current)
        new = place(placed.space, moved, current.group, current.models)
        gained = new.value - current.value
        if new.value > best.value:
            best = new
            history.append(Move("likelihood", new.value, len(new.Z)))
        current = new
        if abs(gained) < SETTLED_NATS:
            break
    return best, history


def climb_likelihood(placed: Placed, steps: int = LIKELIHOOD_STEPS) -> np.ndarray:
    """Step 5: centres (p, d) in the box that raise the likelihood at fixed weights."""
    space, group, p = placed.space, placed.group, len(placed.Z)
    targets, workings = placed.targets, posteriors(placed)
    Phi = placed.basis(space.X)
    fixed = []  # the part of f without kernels, which does not move
    for own, _ in workings:
        still = own.places >= p
        f = np.zeros((len(space.X), own.r.shape[1]))
        for m in np.flatnonzero(still):
            f[:, own.outputs[m]] += Phi[:, own.places[m]] * own.mean[m]
        fixed.append(f)

    def minus_log_likelihood(Z: np.ndarray) -> tuple[float, np.ndarray]:
        columns = np.empty((len(space.X), p))
        for g, kernel in enumerate(space.kernels):
            columns[:, group == g] = kernel(space.X, Z[group == g])
        total, Phi_bar = 0.0, np.zeros_like(columns)
        for target, model, (_, weights), f in zip(targets, placed.models, workings, fixed, strict=True):
            value, r = target.log_prob(f + columns @ weights.T, model)
            total += value
            Phi_bar += r @ weights
        return -total, -centre_gradient(space, Z, group, Phi_bar)

    return space.minimise(minus_log_likelihood, placed.Z, maxiter=steps)
