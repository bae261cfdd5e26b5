"""Conformal prediction: how far scores of rows that took no part in a fit reach bounds those of new rows.

Let rows that took no part in the fit have scores S_1, ..., S_n, large where the model is wrong, and let a new row be
exchangeable with them: all n + 1 drawn from one distribution, in any order. Its score is then at most the k-th least of
theirs with a probability of at least k / (n + 1), whatever the model and the distribution (Vovk et al. 2005). With
k = ceil((n + 1) coverage) that is `coverage`; where k is above n no bound is known, and it is infinite.

Rows of one group (a patient, a machine) tell less than as many of different ones. Where K groups are exchangeable, and
a new row is one of a new group, the rows of a group count as one row together, each of n_k rows as 1 / n_k: the score
of the new row is at most the least one up to which rows count (K + 1) coverage or more (Lee, Barber and Willett 2023).

Cross-conformal prediction (`cross_interval`, `cross_set`; Barber et al. 2021, Romano et al. 2020) takes the score of
every training row from the model of the folds without it, and compares a new row with it by that same model: the
coverage is at least 1 - 2 alpha - sqrt(2 / n) for alpha = 1 - coverage (Barber et al., theorem 4), and in practice
about 1 - alpha.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from relvec.runtime.record import Record, is_index

OWN_SHARE = 0.5  # of its own probability in the score of a class: all would make the score of every last class 1


@dataclass(frozen=True, eq=False)
class ConformalScores(Record):
    """Scores of rows that took no part in the fit of the models they are compared by.

    Attributes
    ----------
    scores : (q, n) for each output; for classes q = 1. Ascending, where `folds` is empty.
    randomised : whether scores of classes are randomised (`class_scores`).
    shares : (q, n) what each of the scores counts, one a group of rows; None where every row is on its own.
    fold : (n,) the fold of each row, or None where the rows are no training rows.
    folds : the model of all other folds, for each fold (`relvec.estimators.fitted.FittedModel`).

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=1.0).fit(X, np.sin(X[:, 0]))
    >>> model.calibrate(X + 0.1, np.sin(X[:, 0] + 0.1)).calibration_.n_rows
    30
    """

    SHAPES: ClassVar[dict[str, str]] = {"scores": "qn", "shares": "qn", "fold": "n"}
    FINITE: ClassVar[bool] = False

    scores: np.ndarray
    randomised: bool = False
    shares: np.ndarray | None = None
    fold: np.ndarray | None = None
    folds: tuple[Any, ...] = ()

    @classmethod
    def of_rows(cls, scores: np.ndarray, randomised: bool, groups: np.ndarray | None = None) -> ConformalScores:
        """Return the scores (q, n) of rows that are no training rows, with the numbers (n,) of their groups."""
        order = np.argsort(scores, axis=1, kind="stable")
        shares = None if groups is None else (1.0 / np.bincount(groups)[groups])[order]
        return cls(np.take_along_axis(scores, order, axis=1), randomised, shares)

    @property
    def n_rows(self) -> int:
        """Number of calibration rows."""
        return self.scores.shape[1]

    @property
    def n_groups(self) -> int:
        """Number of their groups; of rows, where each is on its own."""
        return self.n_rows if self.shares is None else round(float(self.shares[0].sum()))

    @property
    def unit(self) -> str:
        """What `n_groups` counts, in words."""
        return "calibration rows" if self.shares is None else "calibration groups"

    @property
    def max_coverage(self) -> float:
        """The largest coverage with finite intervals.

        >>> ConformalScores(np.arange(9.0)[None]).max_coverage
        0.9
        """
        return self.n_groups / (self.n_groups + 1)

    def by_fold(self) -> list[tuple[Any, np.ndarray]]:
        """Return the model of each fold, and the scores (q, m) of its rows."""
        assert self.fold is not None
        return [(model, self.scores[:, np.flatnonzero(self.fold == i)]) for i, model in enumerate(self.folds)]

    def thresholds(self, coverage: float) -> np.ndarray:
        """Return the bound (q,) on the scores of a new row with the probability `coverage`; inf for too few rows.

        >>> ConformalScores(np.arange(9.0)[None]).thresholds(0.5).tolist()
        [4.0]
        >>> groups = np.array([0, 0, 0, 0, 0, 0, 1, 2, 3])
        >>> ConformalScores.of_rows(np.arange(9.0)[None], False, groups).thresholds(0.5).tolist()
        [7.0]
        """
        shares = np.ones(self.scores.shape) if self.shares is None else self.shares
        wanted = (self.n_groups + 1) * coverage - 1e-9  # 10 * 0.9 is 9, however it is rounded
        below = [int(np.searchsorted(np.cumsum(own), wanted)) for own in shares]
        return np.array([own[k] if k < len(own) else np.inf for own, k in zip(self.scores, below, strict=True)])

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        scores, fold = self.scores, self.fold
        if self.shares is not None and (fold is not None or not (self.shares > 0.0).all()):
            return False
        if scores.dtype.kind != "f" or np.isnan(scores).any() or (fold is None) != (not self.folds):
            return False
        return bool((np.diff(scores) >= 0.0).all()) if fold is None else is_index(fold, len(self.folds))


def rank(n: int, coverage: float) -> int:
    """Return the k for which the k-th least of n scores bounds a new one with probability `coverage`; n + 1 for none.

    >>> rank(9, 0.9), rank(8, 0.9), rank(200, 0.9)
    (9, 9, 181)
    """
    return min(math.ceil((n + 1) * coverage - 1e-9), n + 1)  # 10 * 0.9 is 9, however it is rounded


def standardised_residuals(y: np.ndarray, centre: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Scores |y - centre| / deviation (n,)."""
    residual = np.abs(y - centre)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(residual > 0.0, residual / deviation, 0.0)


def class_scores(proba: np.ndarray, share: np.ndarray | float = OWN_SHARE) -> np.ndarray:
    """Scores (n, K) of every class, from probabilities (n, K): the total probability of the classes before it.

    Classes are ordered from the most probable on, equal ones by their number. A class itself counts with `share`
    (n,), from 0 to 1: half, or a uniform random part (Romano et al. 2020), so that scores do not pile up at 0 or 1.

    >>> class_scores(np.array([[0.5, 0.2, 0.3]])).round(6).tolist()
    [[0.25, 0.9, 0.65]]
    """
    order = np.argsort(-proba, axis=1, kind="stable")
    sorted_ = np.take_along_axis(proba, order, axis=1)
    before = np.cumsum(sorted_, axis=1) - sorted_
    found = np.empty_like(proba)
    np.put_along_axis(found, order, before + np.reshape(share, (-1, 1)) * sorted_, axis=1)
    return found


def add_most_probable(members: np.ndarray, proba: np.ndarray) -> np.ndarray:
    """Return sets of classes (n, K) with the most probable class of probabilities (n, K) in each: no set is empty."""
    members = members.copy()
    members[np.arange(len(proba)), proba.argmax(axis=1)] = True
    return members


def credible_set(proba: np.ndarray, coverage: float) -> np.ndarray:
    """Return the most probable classes (n, K) that have the probability `coverage` together, by the model itself.

    >>> credible_set(np.array([[0.5, 0.2, 0.3]]), 0.7).tolist()
    [[True, False, True]]
    """
    return class_scores(proba, 0.0) < coverage


def cross_interval(lower: np.ndarray, upper: np.ndarray, coverage: float) -> tuple[np.ndarray, np.ndarray]:
    """Join the ends (m, n) that m training rows give for n new ones to intervals (n,) (CV+, Barber et al. 2021)."""
    m = len(lower)
    k = rank(m, coverage)
    if k > m:
        return np.full(lower.shape[1], -np.inf), np.full(lower.shape[1], np.inf)
    return np.partition(lower, m - k, axis=0)[m - k], np.partition(upper, k - 1, axis=0)[k - 1]


def cross_set(scores: list[np.ndarray], new: list[np.ndarray], coverage: float) -> np.ndarray:
    """Return the set of classes (n, K) by scores of each fold's rows (m_i,), and of new rows by its model (n, K).

    A class is in the set where more than m - k of all m training rows conform as badly as it does.
    """
    m, above = sum(map(len, scores)), np.zeros(new[0].shape, dtype=int)
    for known, own in zip(scores, new, strict=True):
        above += len(known) - np.searchsorted(np.sort(known), own, side="left")
    return above > m - rank(m, coverage)
