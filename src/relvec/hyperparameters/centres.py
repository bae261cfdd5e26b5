"""Kernels at arbitrary points: centres that move by evidence (TF03 6.2, GRVM).

A model whose kernels sit on training rows is the start. Then, in turn and only while the evidence of the weights rises,

- `shift`: every centre climbs the evidence, by the vector-Jacobian products that learn widths;
- `merge_centres`: two functions become one at their midpoint;
- `split`: one becomes two, along the direction in which the evidence bends upwards;
- `search_centres`: the solvers' additions, deletions and re-estimations, the training rows and the moved centres as
  candidates.

Centres stay in the box of the training rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.optimize import minimize

from relvec.basis import Basis, Concat, KernelBasis, content_ranks, leaves
from relvec.design import DenseDesign
from relvec.hyperparameters.targets import EvaluatedModel, LaplaceTarget
from relvec.kernels import Kernel
from relvec.runtime.clock import NO_LIMIT, Clock
from relvec.runtime.machine import one_thread

MAX_MAGNITUDE = 1e60  # of inputs, and one over the least: the evidence over centres has their fourth powers
MAX_ROUNDS = 6
MIN_ROUND_GAIN_NATS = 0.3  # a round must gain so much to be followed by another
MIN_RISE_NATS = 1e-6  # what counts as a rise of the evidence
SHIFT_STEPS = 20  # of L-BFGS-B in a shift
PRECISION_ACCURACY_NATS = 1e-3  # of precisions on the way
TRIAL_STEPS = 5  # of the same, before a merge or split is judged
MAX_TRIALS = 3  # merges, and splits, tried in a round
MAX_MERGE_DISTANCE_WIDTHS = 3.0  # widths: centres further apart are not merged
SPLIT_DISTANCE_WIDTHS = 0.5  # widths between a centre and each of the two it splits into
MAX_TRIAL_LOSS_NATS = 5.0  # a trial this far below before its centres have moved is given up
MAX_SEARCH_NUMBERS = 20_000_000  # of a dictionary searched for additions


@dataclass(frozen=True, eq=False)
class Space:
    """The box of the centres, and the rows and targets that judge them."""

    X: np.ndarray  # (n, d) training rows, with targets (`relvec.hyperparameters.targets.TargetEvidence`)
    targets: list
    kernels: tuple[Kernel, ...]  # the kernels whose centres move
    rows: tuple[np.ndarray, ...]  # for each kernel the points (m, d) that `search_centres` may add
    rest: Concat | None  # the other functions of the dictionary, or None
    # (d,) the box
    low: np.ndarray
    high: np.ndarray
    clock: Clock = NO_LIMIT

    @classmethod
    def of(cls, basis: Basis, X: np.ndarray, targets: list, clock: Clock = NO_LIMIT) -> Space:
        """Return the space of a bound dictionary with kernels."""
        parts = leaves(basis)
        own = [part for part in parts if isinstance(part, KernelBasis)]
        if not own:
            raise ValueError("centres='move' needs kernels with centres, and this model has none")
        low, high = X.min(axis=0), X.max(axis=0)
        span = (high - low)[high > low]
        if np.abs(X).max() > MAX_MAGNITUDE or span.min(initial=1.0) < 1.0 / MAX_MAGNITUDE:
            raise ValueError(
                f"X has values up to {np.abs(X).max():.3g} and columns of range {span.min(initial=1.0):.3g}: "
                "the evidence over centres has fourth powers of them, which overflow. Rescale X (StandardScaler)"
            )
        others = tuple(part for part in parts if not isinstance(part, KernelBasis))
        rest = Concat(others, n_features=X.shape[1]) if others else None
        kernels, rows = tuple(part.kernel for part in own), tuple(part.bound_centres() for part in own)
        targets = [replace(t, accuracy=PRECISION_ACCURACY_NATS) if isinstance(t, LaplaceTarget) else t for t in targets]
        return cls(X, targets, kernels, rows, rest, low, high, clock)

    @property
    def n_rest(self) -> int:
        """Number of functions without a centre."""
        return 0 if self.rest is None else self.rest.n_atoms

    @property
    def is_late(self) -> bool:
        """Whether no time is left."""
        return self.clock.left() <= 0.0

    def basis(self, Z: np.ndarray, group: np.ndarray) -> Basis:
        """Return the dictionary of kernels at Z (p, d), of kernels ``group`` (p,) in ascending order, and the rest."""
        parts: list[Basis] = [KernelBasis(k, Z[group == g]) for g, k in enumerate(self.kernels) if np.any(group == g)]
        return Concat((*parts, *([] if self.rest is None else self.rest.parts)), n_features=self.X.shape[1])

    def minimise(
        self, function: Callable[[np.ndarray], tuple[float, np.ndarray]], Z: np.ndarray, **options: Any
    ) -> np.ndarray:
        """Centres (p, d) in the box to which L-BFGS-B moves Z; the function has a value and a derivative (p, d) there.

        A centre given by the user may lie outside of the box: it may stay there.
        """
        unit = np.where(self.high > self.low, self.high - self.low, 1.0)
        start = (Z - self.low) / unit
        low, high = np.minimum(start, 0.0), np.maximum(start, np.where(self.high > self.low, 1.0, 0.0))

        def scaled(values: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = function(self.low + values.reshape(Z.shape) * unit)
            return value, (slope * unit).ravel()

        bounds = list(zip(low.ravel(), high.ravel(), strict=True))
        found = minimize(scaled, start.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        return self.low + found.x.reshape(Z.shape) * unit

    def targets_over(self, n_atoms: int) -> list:
        """Return the targets, over a dictionary of that many atoms."""
        everything = np.arange(len(self.X))
        return [target.on_rows(everything, n_atoms) for target in self.targets]


@dataclass(frozen=True, eq=False)
class Placed:
    """Kernels at the points Z (p, d), and a model of each target over them and the rest of the dictionary."""

    space: Space
    Z: np.ndarray
    group: np.ndarray
    models: list
    found: list[EvaluatedModel]

    @property
    def value(self) -> float:
        """Evidence of the weights, the sum over the targets."""
        return float(sum(e.value for e in self.found))

    @property
    def basis(self) -> Basis:
        """The dictionary: kernels first, then all of the rest."""
        return self.space.basis(self.Z, self.group)

    @property
    def targets(self) -> list:
        """The targets over this dictionary."""
        return self.space.targets_over(len(self.Z) + self.space.n_rest)


def place(space: Space, Z: np.ndarray, group: np.ndarray, models: list, settle: bool = True) -> Placed:
    """Kernels at Z (p, d) with precisions re-estimated from those of the models; kernels in no model are dropped."""
    found = evaluate_centres(space, Z, group, models, settle)[0]
    return _drop_unused(Placed(space, Z, group, [e.model for e in found], found))


def _drop_unused(placed: Placed) -> Placed:
    p = len(placed.Z)
    used, models = _among_used(placed.targets, placed.models, np.arange(p + placed.space.n_rest) < p)
    if used.all():
        return placed
    found = [replace(e, model=m) for e, m in zip(placed.found, models, strict=True)]
    return Placed(placed.space, placed.Z[used[:p]], placed.group[used[:p]], models, found)


def _among_used(targets: list, models: list, kernel: np.ndarray) -> tuple[np.ndarray, list]:
    """Which atoms (M,) are in a model or, by a mask (M,), no kernels; and the models over these, kernels first."""
    used = ~kernel
    for target, model in zip(targets, models, strict=True):
        used[target.atoms(model)] = True
    chosen = np.concatenate([np.flatnonzero(kernel & used), np.flatnonzero(~kernel)])
    to = np.full(len(kernel), -1)
    to[chosen] = np.arange(len(chosen))
    return used, [t.renumber(m, to, len(chosen)) for t, m in zip(targets, models, strict=True)]


def evaluate_centres(
    space: Space, Z: np.ndarray, group: np.ndarray, models: list, settle: bool = True
) -> tuple[list[EvaluatedModel], np.ndarray]:
    """Return the models at these centres, and dL/dPhi (n, M) of the sum of their evidences."""
    basis, targets = space.basis(Z, group), space.targets_over(len(Z) + space.n_rest)
    root = targets[0].root
    design = DenseDesign(basis(space.X) * root[:, None], overwrite=True)
    C, scale = design.columns(slice(None)), design.scale
    C_bar, found = np.zeros_like(C), []
    for target, model in zip(targets, models, strict=True):
        atoms = target.atoms(model)
        one = target.evaluate(C[:, atoms], model, settle)
        C_bar[:, atoms] += one.C_bar
        found.append(one)
    # columns are divided by their norms: only what changes their direction counts
    Phi_bar = C_bar - C * np.einsum("ij,ij->j", C, C_bar)
    Phi_bar *= root[:, None] / np.where(scale > 0.0, scale, np.inf)
    return found, Phi_bar


def centre_gradient(space: Space, Z: np.ndarray, group: np.ndarray, Phi_bar: np.ndarray) -> np.ndarray:
    """Return the derivatives of sum(Phi_bar * Phi) with respect to the centres (p, d)."""
    Z_bar = np.zeros_like(Z)
    for g, kernel in enumerate(space.kernels):
        own = np.flatnonzero(group == g)
        if own.size:
            Z_bar[own] = kernel.vjp(space.X, Z[own], Phi_bar[:, own])[1]
    return Z_bar


def shift(placed: Placed, steps: int = SHIFT_STEPS) -> Placed:
    """Every centre moved by L-BFGS-B to where the evidence of the weights is higher, within the box."""
    space, group = placed.space, placed.group
    if not len(placed.Z):
        return placed
    best = [placed]

    def minus_evidence(Z: np.ndarray) -> tuple[float, np.ndarray]:
        found, Phi_bar = evaluate_centres(space, Z, group, best[0].models)  # from the best precisions so far
        trial = Placed(space, Z, group, [e.model for e in found], found)
        if trial.value > best[0].value:
            best[0] = trial
        return -trial.value, -centre_gradient(space, Z, group, Phi_bar)

    space.minimise(minus_evidence, placed.Z, maxiter=steps, maxfun=2 * steps)
    return _drop_unused(best[0])


# Models as entries (output, atom, precision), which merging and splitting rewrite -----------------------------------


def _rewrite_models(placed: Placed, changes: dict[int, list[tuple[int, float]]], n_atoms: int) -> list:
    """Models over another dictionary: atom a becomes the atoms and factors of its precision ``changes[a]``.

    Where several become the same their prior variances add.
    """
    models = []
    for target, model in zip(placed.targets, placed.models, strict=True):
        table: dict[tuple[int, int], float] = {}
        for output, atom, alpha in zip(*target.entries(model), strict=True):
            for new, factor in changes[atom]:
                table[output, new] = table.get((output, new), 0.0) + 1.0 / (factor * alpha)
        outputs, atoms = np.array(sorted(table), dtype=np.intp).reshape(-1, 2).T
        alpha = np.array([1.0 / table[key] for key in sorted(table)])
        models.append(target.with_entries(model, outputs, atoms, alpha, n_atoms))
    return models


def _accept_if_better(placed: Placed, trial: Placed) -> Placed | None:
    """Return the trial after a few steps of its centres if its evidence is higher, else None."""
    if trial.value < placed.value - MAX_TRIAL_LOSS_NATS:
        return None
    trial = shift(trial, TRIAL_STEPS)
    return trial if trial.value > placed.value + MIN_RISE_NATS else None


def merge_pair(placed: Placed, i: int, j: int) -> Placed:
    """Return the model with one function at the midpoint of the centres i < j (TF03 6.2), precisions re-estimated."""
    p, M = len(placed.Z), len(placed.Z) + placed.space.n_rest
    Z = placed.Z.copy()
    Z[i] = 0.5 * (Z[i] + Z[j])
    keep = np.arange(p) != j
    to = np.cumsum(np.arange(M) != j) - 1
    to[j] = to[i]
    models = _rewrite_models(placed, {a: [(int(to[a]), 1.0)] for a in range(M)}, M - 1)
    return place(placed.space, Z[keep], placed.group[keep], models)


def merge_centres(placed: Placed, tries: int = MAX_TRIALS) -> Placed | None:
    """Return the first of the closest pairs whose merger raises the evidence, or None."""
    pairs = []
    for g, kernel in enumerate(placed.space.kernels):
        own = np.flatnonzero(placed.group == g)
        eta = kernel.inverse_square_widths(placed.Z.shape[1])
        for i, j in combinations(own.tolist(), 2):
            pairs.append((float(np.sqrt(eta @ (placed.Z[i] - placed.Z[j]) ** 2)), i, j))
    for distance, i, j in sorted(pairs)[:tries]:
        if distance >= MAX_MERGE_DISTANCE_WIDTHS or placed.space.is_late:
            break
        if trial := _accept_if_better(placed, merge_pair(placed, i, j)):
            return trial
    return None


def split_at(placed: Placed, k: int, step: np.ndarray) -> Placed:
    """Return the model with the function k in two, at z_k - step and z_k + step (d,), precisions re-estimated."""
    space, M = placed.space, len(placed.Z) + placed.space.n_rest
    both = np.clip(placed.Z[k] + np.outer([-1.0, 1.0], step), space.low, space.high)
    Z = np.insert(placed.Z, k + 1, both[1], axis=0)
    Z[k] = both[0]
    to = np.arange(M) + (np.arange(M) > k)
    changes = {a: [(int(to[a]), 1.0)] for a in range(M)}
    changes[k] = [(k, 4.0), (k + 1, 4.0)]  # half the weight each
    models = _rewrite_models(placed, changes, M + 1)
    return place(space, Z, np.insert(placed.group, k, placed.group[k]), models)


def split(placed: Placed, tries: int = MAX_TRIALS) -> Placed | None:
    """Return the first function whose split raises the evidence, those tried first that promise most; or None.

    At z_k +- v with half the weight each, the sum of two functions differs from the one by v'(d2 phi/dz2)v w/2: where
    the gradient over the centre vanishes this is what dL/dPhi sees, and its steepest direction is the split's.
    """
    promise, steps = split_directions(placed)
    for k in np.argsort(-promise)[:tries].tolist():
        if promise[k] <= 0.0 or placed.space.is_late:
            break
        if trial := _accept_if_better(placed, split_at(placed, k, steps[k])):
            return trial
    return None


def split_directions(placed: Placed) -> tuple[np.ndarray, np.ndarray]:
    """How far the evidence bends upwards along the best direction of every centre (p,), and a step along it (p, d)."""
    space, Z, group = placed.space, placed.Z, placed.group
    Phi_bar = evaluate_centres(space, Z, group, placed.models, settle=False)[1]
    p, d = Z.shape
    size = np.empty((p, d))  # a width along each feature
    for g, kernel in enumerate(space.kernels):
        eta = kernel.inverse_square_widths(d)
        size[group == g] = np.where(eta > 0.0, 1.0 / np.sqrt(np.where(eta > 0.0, eta, 1.0)), space.high - space.low)
    bend = np.empty((p, d, d))
    for j in range(d):
        h = np.zeros((p, d))
        h[:, j] = 1e-4 * size[:, j]
        change = centre_gradient(space, Z + h, group, Phi_bar) - centre_gradient(space, Z - h, group, Phi_bar)
        bend[:, j] = change / 2e-4 * size  # in units of the width
    values, vectors = np.linalg.eigh(0.5 * (bend + bend.transpose(0, 2, 1)))
    return values[:, -1], SPLIT_DISTANCE_WIDTHS * vectors[:, :, -1] * size


def search_centres(placed: Placed) -> Placed:
    """Additions, deletions and re-estimations by the solvers, the training rows and the centres as candidates."""
    space = placed.space
    most = max(1, MAX_SEARCH_NUMBERS // len(space.X) // len(space.kernels))
    extra = [rows[:: -(-len(rows) // most)] for rows in space.rows]
    Z = np.vstack([np.vstack([placed.Z[placed.group == g], rows]) for g, rows in enumerate(extra)])
    group = np.concatenate([np.full(np.sum(placed.group == g) + len(rows), g) for g, rows in enumerate(extra)])
    own = np.concatenate([np.arange(np.sum(group < g), np.sum(group < g) + np.sum(placed.group == g))
                          for g in range(len(extra))])  # fmt: skip
    M = len(Z) + space.n_rest
    to = np.concatenate([own, np.arange(len(Z), M)]).astype(np.intp)
    basis, targets = space.basis(Z, group), space.targets_over(M)
    design = DenseDesign(basis(space.X) * targets[0].root[:, None], overwrite=True)
    order = content_ranks(basis, design.scale)
    models = [
        new.search(design, order, old.renumber(model, to, M), space.clock)
        for new, old, model in zip(targets, placed.targets, placed.models, strict=True)
    ]
    used, models = _among_used(targets, models, np.arange(M) < len(Z))
    found = place(space, Z[used[: len(Z)]], group[used[: len(Z)]], models)
    return found if found.value > placed.value + MIN_RISE_NATS else placed


def start(basis: Basis, space: Space, models: list, settle: bool = True) -> Placed:
    """Join models over a bound dictionary (its order is kernels and rest, as it stands) to one model in a space."""
    parts = leaves(basis)
    kernel = np.concatenate([np.full(part.n_atoms, isinstance(part, KernelBasis)) for part in parts])
    group = np.repeat(np.cumsum([isinstance(part, KernelBasis) for part in parts]) - 1, [p.n_atoms for p in parts])
    used, lifted = _among_used(space.targets_over(basis.n_atoms), models, kernel)
    Z = np.vstack([part.bound_centres() for part in parts if isinstance(part, KernelBasis)])
    return place(space, Z[used[kernel]], group[kernel & used], lifted, settle)


@dataclass(frozen=True)
class Move:
    """One step of `move`: its action, the evidence of the weights after it, and the number of kernels.

    Examples
    --------
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> model = RVR(width=2.0, noise_variance=0.01, centres="grvm").fit(X, np.sin(X[:, 0]))
    >>> moves = model.placement_.moves
    >>> moves[0].action, bool(moves[-1].value >= moves[0].value)
    ('start', True)
    """

    action: str
    value: float
    size: int


def move(placed: Placed, searching: bool = True, rounds: int = MAX_ROUNDS) -> tuple[Placed, list[Move]]:
    """Shifts, mergers, splits and searches in turn while the evidence of the weights rises; and the way there."""
    history = [Move("start", placed.value, len(placed.Z))]

    def accept(action: str, new: Placed | None) -> bool:
        nonlocal placed
        if new is None or not new.value > placed.value + MIN_RISE_NATS:
            return False
        placed = new
        history.append(Move(action, placed.value, len(placed.Z)))
        return True

    with one_thread():
        for _ in range(rounds):
            before = placed.value
            accept("shift", shift(placed))
            while len(placed.Z) > 1 and accept("merge", merge_centres(placed)):
                pass
            accept("split", split(placed))
            if searching:
                accept("search", search_centres(placed))
            if placed.value < before + MIN_ROUND_GAIN_NATS or placed.space.is_late or not len(placed.Z):
                break
    return placed, history
