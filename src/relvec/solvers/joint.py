"""Weights that share a precision: groups of columns, and one column in the models of several outputs (M-SBL).

A unit is a set of weights with one precision alpha. With every unit but one fixed, its part of the log evidence is

    l(alpha) = 1/2 sum_i [log alpha - log(alpha + s_i) + q_i^2 / (alpha + s_i)],

where s are the eigenvalues of Phi_u' C^-1 Phi_u without the unit, in each output, and q the projections of
Phi_u' C^-1 t on its eigenvectors: TF03 eq. (18), summed. There is no closed form for its maximum; a search on a line
finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.evidence import Posterior, gaussian, mackay_noise
from relvec.solvers.loop import Problem, Result, State, Status, Step, at_noise_floor
from relvec.solvers.stepwise import Stepwise

LOG_ALPHA = np.linspace(-14.0, 14.0, 57)  # around log of the mean s: precisions looked at before the root is refined
REFINEMENTS = 40  # bisections of a bracket two grid steps wide: to the last digits


def best_alpha(s: np.ndarray, q2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Precisions (U,) that maximise l, inf where none is finite, and their gains (U,), for s and q^2 (U, w).

    Weights that a unit has not are filled up with s = q^2 = 0, which change nothing.

    >>> alpha, gain = best_alpha(np.array([[1.0]]), np.array([[4.0]]))
    >>> round(float(alpha[0]), 6)  # TF03 eq. (20): s^2 / (q^2 - s)
    0.333333
    """
    s, q2 = np.maximum(s, 0.0), np.where(s > 0.0, q2, 0.0)
    size = np.maximum(s.max(axis=1), np.finfo(float).tiny)
    alpha = size[:, None] * np.exp(LOG_ALPHA)
    value = contribution(alpha, s, q2)
    at = np.argmax(value, axis=1)
    lower, upper = (alpha[np.arange(len(s)), np.clip(at + move, 0, len(LOG_ALPHA) - 1)] for move in (-1, 1))
    for _ in range(REFINEMENTS):
        middle = np.sqrt(lower * upper)
        rising = np.sum(s / (middle[:, None] + s) - middle[:, None] * q2 / (middle[:, None] + s) ** 2, axis=1) > 0.0
        lower, upper = np.where(rising, middle, lower), np.where(rising, upper, middle)
    best = np.sqrt(lower * upper)
    gain = contribution(best[:, None], s, q2)[:, 0]
    finite = (gain > 0.0) & (at < len(LOG_ALPHA) - 1)
    return np.where(finite, best, np.inf), np.where(finite, gain, 0.0)


def contribution(alpha: np.ndarray, s: np.ndarray, q2: np.ndarray) -> np.ndarray:
    """Return the values l (U, a) of units with s and q^2 (U, w) at precisions alpha (U, a)."""
    total = alpha[:, :, None] + s[:, None, :]
    return 0.5 * np.sum(np.log(alpha[:, :, None] / total) + q2[:, None, :] / total, axis=2)


@dataclass(frozen=True, eq=False)
class JointModel:
    """Units with their precisions, and the posterior of every output."""

    problems: Sequence[Problem]  # one for each output, over one design
    units: Sequence[np.ndarray]  # atoms of each unit
    active: tuple[int, ...]  # units of the model
    alpha: np.ndarray  # (u,) their precisions
    posteriors: tuple[Posterior, ...]

    @classmethod
    def of(
        cls, problems: Sequence[Problem], units: Sequence[np.ndarray], active: tuple[int, ...], alpha: np.ndarray,
        betas: Sequence[float],
    ) -> JointModel:  # fmt: skip
        """Return the model of some units at given precisions of weights and noise."""
        atoms = _atoms(units, active)
        columns = problems[0].design.columns(atoms)
        each = np.repeat(alpha, [len(units[u]) for u in active])
        found = tuple(
            gaussian(columns, p.target, p.target_norm2_outside, p.n_samples, each, beta)
            for p, beta in zip(problems, betas, strict=True)
        )
        return cls(problems, units, active, alpha, found)

    def at(self, active: tuple[int, ...], alpha: np.ndarray, betas: Sequence[float] | None = None) -> JointModel:
        """Other units or precisions."""
        return JointModel.of(self.problems, self.units, active, alpha, betas or [p.beta for p in self.posteriors])

    @property
    def objective(self) -> float:
        """Log evidence of all outputs."""
        return sum(p.log_evidence for p in self.posteriors)

    def statistics(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the numbers s and q^2 (U, w) of every unit, those of the model without themselves (TF03 eq. (19))."""
        design, width = self.problems[0].design, max(map(len, self.units)) * len(self.problems)
        s, q2 = np.zeros((len(self.units), width)), np.zeros((len(self.units), width))
        place = np.cumsum([0, *(len(self.units[u]) for u in self.active)])
        single = np.array([u for u in range(len(self.units)) if len(self.units[u]) == 1], dtype=np.intp)
        for output, p in enumerate(self.posteriors):
            first = output * (width // len(self.problems))
            Y = np.column_stack([p.leverage, p.remainder])
            projected = design.project(Y)
            T, Q = projected[:-1], p.beta * projected[-1]
            alone = np.array([int(self.units[u][0]) for u in single], dtype=np.intp)
            s[single, first] = p.beta * np.maximum(
                (design.scale[alone] > 0.0) - np.einsum("ij,ij->j", T[:, alone], T[:, alone]), 0.0
            )
            q2[single, first] = Q[alone] ** 2
            for u in set(range(len(self.units))).difference(single.tolist()).difference(self.active):
                atoms = self.units[u]
                own = design.columns(atoms)
                values, vectors = np.linalg.eigh(p.beta * (own.T @ own - T[:, atoms].T @ T[:, atoms]))
                s[u, first : first + len(atoms)] = np.maximum(values, 0.0)
                q2[u, first : first + len(atoms)] = (vectors.T @ Q[atoms]) ** 2
            for i, u in enumerate(self.active):
                block = slice(place[i], place[i + 1])
                values, vectors = np.linalg.eigh(p.covariance[block, block])
                inside = slice(first, first + len(self.units[u]))
                s[u, inside] = np.maximum(1.0 / values - self.alpha[i], 0.0)
                q2[u, inside] = (vectors.T @ p.mean[block] / values) ** 2
        return s, q2


def _atoms(units: Sequence[np.ndarray], active: Sequence[int]) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype=np.intp), *(units[u] for u in active)]).astype(np.intp)


def solve_joint(problems: Sequence[Problem], labels: np.ndarray, prior: Stepwise, max_iter: int) -> list[Result]:
    """Maximise the evidence of all outputs, and the prior over sets of units, one unit at a time; a result an output.

    Parameters
    ----------
    problems : one for each output, over one design.
    labels : (M,) atoms with the same label have one precision. The unit of the constant costs nothing.
    prior : the prior over sets, and the most units.
    max_iter : most moves.
    """
    order = np.argsort(labels, kind="stable")
    units = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    betas = [1.0 / (p.noise_variance or p.noise_start) for p in problems]
    model = _with_noise(JointModel.of(problems, units, (), np.zeros(0), betas))
    history = [_step("start", -1, model, model.objective)]
    free = {u for u, atoms in enumerate(units) if problems[0].bias in atoms}
    largest, status = np.inf, Status.MAX_ITER
    for _ in range(max_iter):
        u, alpha, largest = _best_move(model, prior, free)
        before = model.objective
        if largest <= problems[0].tolerance(len(model.active)):
            status = Status.CONVERGED
            break
        moved = _with_noise(_move(model, u, alpha))
        action = "delete" if np.isinf(alpha) else "reestimate" if u in model.active else "add"
        model = moved
        history.append(_step(action, int(units[u][0]), model, before))
    if any(at_noise_floor(p, own.beta) for p, own in zip(problems, model.posteriors, strict=True)):
        status = Status.NOISE_FLOOR
    atoms = _atoms(units, model.active)
    return [
        Result(State(atoms, p, p.log_evidence, done=True, largest_gain=largest), status, history, len(history) - 1)
        for p in model.posteriors
    ]


def _step(action: str, atom: int, model: JointModel, before: float) -> Step:
    noise = float(np.mean([1.0 / p.beta for p in model.posteriors]))
    return Step(action, atom, model.objective - before, model.objective, len(_atoms(model.units, model.active)), noise)


def _best_move(model: JointModel, prior: Stepwise, free: set[int]) -> tuple[int, float, float]:
    """Return the unit whose addition, deletion or re-estimation gains most, its best precision, and the gain."""
    s, q2 = model.statistics()
    alpha, gains = best_alpha(s, q2)
    counted, M = len(set(model.active) - free), len(model.units) - len(free)
    cost = np.full(len(gains), prior.cost(counted, M))
    cost[list(free)] = 0.0
    full = counted >= prior.max_size(model.problems[0])
    outside = np.setdiff1d(np.arange(len(gains)), model.active)
    gains[outside] = np.where(full & ~np.isin(outside, list(free)), 0.0, gains[outside] - cost[outside])
    for i, u in enumerate(model.active):
        now = contribution(np.array([[model.alpha[i]]]), s[[u]], q2[[u]])[0, 0]
        refund = 0.0 if u in free else prior.cost(counted - 1, M)
        stays = gains[u] - now
        leaves = refund - now
        if leaves > stays:
            alpha[u], gains[u] = np.inf, leaves
        else:
            gains[u] = stays
    u = int(np.argmax(gains))
    return u, float(alpha[u]), float(gains[u])


def _move(model: JointModel, u: int, alpha: float) -> JointModel:
    keep = [i for i, own in enumerate(model.active) if own != u]
    active, precisions = tuple(model.active[i] for i in keep), model.alpha[keep]
    if np.isfinite(alpha):
        active, precisions = (*active, u), np.append(precisions, alpha)
    return model.at(active, precisions)


def _with_noise(model: JointModel) -> JointModel:
    """Return the model with the noise of every output re-estimated, where its evidence rises."""
    for _ in range(3):
        betas = []
        for problem, p in zip(model.problems, model.posteriors, strict=True):
            noise = mackay_noise(p.residual, p.n_samples, p.gamma.sum(), problem.prior.c, problem.prior_d)
            betas.append(p.beta if problem.fixed_noise else 1.0 / max(noise, problem.noise_floor))
        moved = model.at(model.active, model.alpha, betas)
        kept = [
            new if new.log_evidence > old.log_evidence else old
            for new, old in zip(moved.posteriors, model.posteriors, strict=True)
        ]
        model = replace(model, posteriors=tuple(kept))
    return model
