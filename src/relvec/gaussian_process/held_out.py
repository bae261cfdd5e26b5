"""What rows left out say of a process: how wide error bars have to be, and whether a constant or a line does better.

A process has one noise and one smoothness everywhere, and is sure of both. Rows left out tell where that is wrong: the
logarithm of their squared errors, in predicted variances, is learned as a sparse sum of functions of single inputs and
of the mean (`relvec.inference.error_bars`). What these rows leave open of it, the variance of that logarithm, and
errors that are larger than any normal ones, make the predictive distribution a Student t (`relvec.inference.tails`).

Before a process is returned, the density that it has at such rows is compared with those of a constant and of a
straight line, both processes with a kernel of that form, on the scale of the target and on the target's own. Rows that
nearly repeat others are left out together with them: a row whose copies were fitted proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.gaussian_process.bound import bounds
from relvec.gaussian_process.component import Component, exact_component, sparse_component
from relvec.gaussian_process.evidence import leave_one_out, leave_out, posterior
from relvec.gaussian_process.kernel import Structure
from relvec.gaussian_process.learn import Floors, Mode, climb, default_prior, log_posterior
from relvec.gaussian_process.predictor import Compared, ProcessPredictor, mix
from relvec.gaussian_process.rows import (
    COMPARED_ROWS,
    LEAST_HELD_ROWS,
    MOST_HELD_ROWS,
    NEAR_COPY,
    Rows,
    Units,
    join_labels,
    near_groups,
    number_labels,
    rounded_hash,
)
from relvec.gaussian_process.selection import Merit
from relvec.gaussian_process.vectors import pivots
from relvec.inference import tails
from relvec.inference.error_bars import FOLDS, LEAST_VARYING_ROWS, columns_of_noise, gain_clearly, learn_varying
from relvec.inference.heteroscedastic import constant_noise
from relvec.inference.scale import Scale
from relvec.inference.tails import best_tail

_PRIOR_CURVATURE = 0.3  # of the logarithms of hyperparameters under the priors: 1/2^2 to 1/1.7^2


def measure_spread(structure: Structure, theta: np.ndarray, rows: Rows) -> float:
    """How much too narrow the densities are: the mean of z^2 over rows left out one at a time, at least one.

    Multiplying all variances of a process leaves its mean as it is, and this factor is the best for those rows (Bachoc
    2013). It differs from one where no candidate fits well.
    """
    few = rows.take(slice(0, MOST_HELD_ROWS))
    mean, variance = leave_one_out(structure, theta, few)
    single = single_variance(variance, structure.noise(theta), few.weight)
    errors = (few.y - mean) ** 2 + few.scatter / few.weight
    return max(1.0, float(np.mean(errors / single))) if len(few) >= LEAST_HELD_ROWS else 1.0


def single_variance(variance: np.ndarray, noise: float, weight: np.ndarray) -> np.ndarray:
    """Variances (n,) of one target each from those of the means of w targets, noise s / w included."""
    return np.maximum(variance - noise / weight, 0.0) + noise


def vary_error_bars(
    parts: list[Component], shares: np.ndarray, rows: Rows, units: Units, scale: Scale
) -> list[Component]:
    """Return the components with variances and tails as rows left out one at a time ask for."""
    few = rows.take(slice(0, MOST_HELD_ROWS))
    left = [leave_one_out(part.structure, part.theta, few) for part in parts]
    variances = [single_variance(v, part.noise, few.weight) for (_, v), part in zip(left, parts)]
    mean, variance = mix(shares, [mean for mean, _ in left], variances)
    seen = _means_without_folds(parts, shares, few) if len(few) >= LEAST_VARYING_ROWS else None
    return follow_inputs(parts, few, mean, variance, units, scale, seen)


def follow_inputs(
    parts: list[Component], rows: Rows, mean: np.ndarray, variance: np.ndarray, units: Units, scale: Scale,
    seen: np.ndarray | None = None,
) -> list[Component]:  # fmt: skip
    """Return the components with error bars that depend on the inputs where rows that took no part gain clearly by it.

    mean, variance : (n,) of the targets of such rows, in the order of their hash.
    seen : (n,) means that error bars may depend on, where those of the rows left out tell the targets.
    """
    if len(rows) < LEAST_HELD_ROWS:
        return parts
    squares, w = ((rows.y - mean) ** 2 + rows.scatter / rows.weight) / variance, rows.weight
    level = constant_noise(mean[:, None], squares, w).level
    plain, tail = best_tail(squares, np.full(len(rows), level), 0.0, w, np.ones(1))[1:]
    constant = [replace(part, tail=tail) for part in parts]
    if len(rows) < LEAST_VARYING_ROWS:
        return constant
    Z = columns_of_noise(rows.X, mean if seen is None else seen, w)
    varied = learn_varying(Z, squares, w, rows.labels, plain)
    if varied is None:
        return constant
    if scale.sign:  # those who take mean and deviation of the target are to gain as well
        u, v = units.y_mean + units.y_scale * np.array([rows.y, mean]), units.y_scale**2 * variance
        with_inputs, alike = (_moment_losses(u, v * np.exp(log), scale) for log in (varied.logs, level))
        if not gain_clearly(alike - with_inputs, w, rows.labels):
            return constant
    # the factor is one on average over the rows; the spread has what is the same for all, in units of one noise
    found = varied.noise
    average = float(w @ found.variance(Z) / rows.total)
    varying = replace(found, level=found.level - np.log(average), least=found.least / average)
    more = average / np.exp(level)
    return [replace(part, spread=part.spread * more, varying=varying, tail=varied.tail) for part in parts]


def _moment_losses(u: np.ndarray, variance: np.ndarray, scale: Scale) -> np.ndarray:
    """Return the losses (n,) of normal densities of y, for targets and means u (2, n) and variances (n,) on a scale."""
    mean, spread = scale.moments(u[1], variance)
    return 0.5 * (np.log(spread) + (scale.inverse(u[0]) - mean) ** 2 / spread)


def _means_without_folds(parts: list[Component], shares: np.ndarray, rows: Rows) -> np.ndarray:
    """Return the mean (n,) of the mixture at the rows of each fold from those of the others.

    The mean of a nearly constant process of all rows but one tells what that one is; of all but a fifth it does not.
    """
    fold, total = rows.labels % FOLDS, np.zeros(len(rows))
    for share, part in zip(shares, parts):
        total += share * leave_out(posterior(part.structure, part.theta, rows), rows.y, fold)[0]
    return total


def prediction_error(merit: Merit, n_rows: float) -> float:
    """How much larger squared errors at new rows are than at the rows that p hyperparameters were fitted to.

    (n + p) / (n - p), Akaike's final prediction error (1969), where p counts the hyperparameters that the rows
    determine: directions whose curvature is mostly the evidence's and not the prior's. At most 2.
    """
    determined = 1.0 - _PRIOR_CURVATURE / np.maximum(merit.eigenvalues, _PRIOR_CURVATURE)
    p = min(float(np.nansum(determined)), n_rows / 3.0)
    return (n_rows + p) / (n_rows - p)


_LEAST_ROWS = 3  # that can be left out
_FOLDED_ROWS = 500  # up to so many rows each is left out once; of more, a part of them
FEW_ROWS = 20  # up to so many, each row is a fold, and what they say is uncertain
_RELEARNED_ROWS = 200  # up to so many, hyperparameters are learned without the rows left out
_RELEARN_STEPS, _LINE_STEPS = 8, 15  # evaluations
_BEHIND = 0.02  # nats a row, and one standard error, that a baseline has to be ahead by
GROUPED_ERRORS = 2.0  # standard errors to be ahead by where rows come in groups: evidence counts each row of them
_FAR_BEHIND = 0.3  # nats a row from which on the standard error, which a few rows make large, does not count


@dataclass(frozen=True, eq=False)
class Target:
    """Rows on a scale of the target, in their units: `log_slope` (n,) takes densities to the target's own units."""

    rows: Rows
    raw_X: np.ndarray
    units: Units
    scale: Scale
    floors: Floors
    log_slope: np.ndarray


def raise_to_floor(
    process: ProcessPredictor, own: Target, others: list[Target], max_vectors: int | None = None
) -> ProcessPredictor:
    """Return the process, or the baseline that is ahead of it by the density of rows that took no part.

    own, others : the rows on the scale of the process, and on others that baselines are tried on.
    max_vectors : rows kept at most, where that was asked for.
    """
    if len(own.rows) < _LEAST_ROWS:
        return process
    rows = own.rows
    near = near_groups(rows.X) if len(rows) <= COMPARED_ROWS else rounded_hash(rows.X, rows.weight, NEAR_COPY)
    group = number_labels(near) if rows.group is None else join_labels(near, rows.group)
    if not group.any():
        return process
    folds = split_rows(rows, group)
    return choose_better(process, held_densities(process, own, folds), folds, [own, *others], group, max_vectors)


def choose_better(
    process: ProcessPredictor, density: np.ndarray, folds: list[np.ndarray], targets: list[Target],
    group: np.ndarray | None = None, max_vectors: int | None = None,
) -> ProcessPredictor:  # fmt: skip
    """Return the process, with these log densities (h,) at the rows of all folds, or a baseline clearly ahead of it.

    Where rows come in groups (n,), the evidence for the process has counted every group as often as it has rows, and
    very few rows tell little: the process has to be clearly ahead of the baseline then. A straight line in d inputs
    keeps d + 1 rows, and is no choice where fewer may be kept.
    """
    index = np.concatenate(folds)
    weight = targets[0].rows.weight[index]
    number = index if group is None else np.unique(group[index], return_inverse=True)[1]
    kinds = (False, True) if max_vectors is None or targets[0].rows.X.shape[1] < max_vectors else (False,)
    found = [_Line.fit(linear, target, folds) for target in targets for linear in kinds]
    means = [float(weight @ (line.density - density) / weight.sum()) for line in found]
    line = found[int(np.argmax(means))]
    return line.process(process, max(means)) if leads(line.density - density, weight, number) else process


def leads(gains: np.ndarray, weight: np.ndarray, number: np.ndarray) -> bool:
    """Tell whether a baseline takes the place of a model, for its gains (h,) in nats at rows left out.

    weight : (h,) of the rows; number : (h,) of the groups that they are in. Where these have several rows, evidence for
    the model has counted each as often as it has rows, and very few rows tell little: a model has to be ahead then.
    """
    mean = float(weight @ gains / weight.sum())
    error = float(np.linalg.norm(np.bincount(number, weight * (gains - mean)))) / weight.sum()
    least = -error if len(gains) <= FEW_ROWS else max(_BEHIND, error)
    if len(np.unique(number)) <= len(gains) // 2:
        least = -GROUPED_ERRORS * error
    return bool(mean > min(least, _FAR_BEHIND))


def split_rows(rows: Rows, group: np.ndarray) -> list[np.ndarray]:
    """Return rows left out together, those of a group (n,): folds of all of a small table, or some of a large one."""
    n = len(group)
    n_groups = int(group.max()) + 1
    if n > _FOLDED_ROWS:
        most = min(_FOLDED_ROWS, n // FOLDS)
        if n_groups == n:
            return [np.arange(n - most, n)]
        size, order = np.bincount(group), np.random.default_rng(0).permutation(n_groups)
        order = order[size[order] <= n // 2]  # a group of most rows is never left out
        before = np.cumsum(size[order]) - size[order]
        return [np.flatnonzero(np.isin(group, order[before < most]))]
    fold = group % (n_groups if n <= FEW_ROWS else min(FOLDS, n_groups))
    return [np.flatnonzero(fold == i) for i in np.unique(fold)]


def held_densities(process: ProcessPredictor, own: Target, folds: list[np.ndarray]) -> np.ndarray:
    """Log densities (h,) of the targets of all folds, in their own units, by processes without the rows of each."""
    rows, found = own.rows, []
    for fold in folds:
        rest = rows.take(np.setdiff1d(np.arange(len(rows)), fold))
        held, parts = rows.take(fold), [_without(part, rest, own, fold) for part in process.components]
        logs = []
        for share, part in zip(process.shares, parts):
            mean, variance = part.predict(held.X)
            squares = (held.y - mean) ** 2 + held.scatter / held.weight
            logs.append(np.log(share) + tails.log_density(squares, variance, part.tails(held.X, mean)))
        found.append(np.logaddexp.reduce(logs, axis=0) + own.log_slope[fold])
    return np.concatenate(found)


def _without(part: Component, rest: Rows, own: Target, fold: np.ndarray) -> Component:
    """Return a component without the rows of a fold: learned anew on few rows, on the same vectors on many."""
    structure, theta = part.structure, part.theta
    if len(rest) <= _RELEARNED_ROWS:
        prior = default_prior(structure, own.floors)
        theta = climb(log_posterior(structure, prior, rest), theta, prior, _RELEARN_STEPS).theta
    if len(part.Z) >= len(own.rows):
        apart = exact_component(structure, theta, rest)
    else:
        held = {row.tobytes() for row in own.rows.X[fold]}
        Z = part.Z[[row.tobytes() not in held for row in part.Z]]
        if not len(Z):
            Z = rest.X[pivots(structure, theta, rest, len(part.Z)).index]
        apart = sparse_component(structure, theta, rest, Z)
    return replace(apart, spread=part.spread, varying=part.varying, tail=part.tail)


@dataclass(frozen=True, eq=False)
class _Line:
    """A constant or straight line on a scale: its mode, the tail of its densities, and those of the rows held out."""

    structure: Structure
    target: Target
    mode: Mode
    tail: float
    density: np.ndarray

    @classmethod
    def fit(cls, linear: bool, target: Target, folds: list[np.ndarray]) -> _Line:
        """Fit the line of most evidence on the first rows; its error bars are those that rows held out ask for."""
        rows, structure = target.rows, Structure((), linear, target.rows.X.shape[1])
        prior = default_prior(structure, replace(target.floors, width=0.0))
        start = np.where(np.arange(structure.n_theta) == structure.n_theta - 1, np.log(0.5), prior.mean)
        mode = climb(log_posterior(structure, prior, rows.take(slice(0, _FOLDED_ROWS))), start, prior, _LINE_STEPS)
        squares, logs = [], []
        for fold in folds:
            held, rest = rows.take(fold), rows.take(np.setdiff1d(np.arange(len(rows)), fold))
            theta = mode.theta
            if len(rest) <= _RELEARNED_ROWS:
                theta = climb(log_posterior(structure, prior, rest), theta, prior, _RELEARN_STEPS).theta
            mean, variance = _component(structure, theta, rest)[0].predict(held.X)
            squares.append((held.y - mean) ** 2 + held.scatter / held.weight)
            logs.append(np.log(variance))
        index = np.concatenate(folds)
        spread = 2.0 * tails.least_tail(len(rows))  # of the logarithm of the variance
        held_out = np.concatenate(squares), np.concatenate(logs), spread, rows.weight[index]
        _, density, tail = best_tail(*held_out, np.ones(1))
        return cls(structure, target, mode, float(tails.join(tail, spread)), density + target.log_slope[index])

    def process(self, instead_of: ProcessPredictor, ahead: float) -> ProcessPredictor:
        """Return the line as a process that takes the place of another, which it is ahead of by so many nats a row."""
        rows, target = self.target.rows, self.target
        part, index = _component(self.structure, self.mode.theta, rows)
        name, other = "a straight line" if self.structure.linear else "a constant", instead_of.selection[0].name
        told = f"{name} is ahead of {other} by {ahead:.2f} nats a row at rows left out, and is the model"
        merit = Merit(self.mode.value, np.full(self.structure.n_theta, np.nan), 0, False)
        own = Compared(self.structure.name, self.mode.value, False, len(rows), float("nan"), 1.0, "")
        others = tuple(replace(each, share=0.0) for each in instead_of.selection)
        return replace(
            instead_of, units=target.units, scale=target.scale, shares=np.ones(1), selection=(own, *others),
            components=(replace(part, tail=self.tail),), merit=merit,
            bounds=bounds(self.structure, self.mode.theta, rows, part.Z), vectors=target.raw_X[index],
            status="baseline", messages=(*instead_of.messages, told), relevant=None,
        )  # fmt: skip


def _component(structure: Structure, theta: np.ndarray, rows: Rows) -> tuple[Component, np.ndarray]:
    """Return the process on the few rows that a line needs, and their numbers."""
    most = (rows.X.shape[1] if structure.linear else 0) + 1
    index = pivots(structure, theta, rows, most).index
    return sparse_component(structure, theta, rows, rows.X[index]), index
