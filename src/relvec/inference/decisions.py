"""Decisions from class probabilities (T01 D.2): costs, rejection, changed class priors.

Every function takes the output (n, K) of any ``predict_proba``. A model that gives probabilities, rather than a
decision, can be used under costs and class frequencies that were not known when it was fitted.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

__all__ = ["bayes_decision", "change_priors", "expected_cost", "reject"]


def expected_cost(proba: ArrayLike, cost: ArrayLike) -> np.ndarray:
    """Return the expected cost (n, J) of each of J actions, for probabilities (n, K) and a cost matrix (K, J).

    ``cost[k, j]`` is what action j costs when the class is k.

    >>> expected_cost([[0.9, 0.1]], [[0.0, 1.0], [5.0, 0.0]]).tolist()
    [[0.5, 0.9]]
    """
    P, C = _probabilities(proba), np.asarray(cost, dtype=float)
    if C.ndim != 2 or C.shape[0] != P.shape[1] or not np.all(np.isfinite(C)):
        raise ValueError(
            f"cost must be a finite matrix with a row for each of the {P.shape[1]} classes and a column for each "
            f"action, got shape {C.shape}"
        )
    return P @ C


def bayes_decision(proba: ArrayLike, cost: ArrayLike) -> np.ndarray:
    """Return the action (n,) of least expected cost, an index of the columns of ``cost`` (K, J).

    The actions need not be the classes: a further column may stand for "ask an expert".

    >>> bayes_decision([[0.9, 0.1], [0.7, 0.3]], [[0.0, 1.0], [5.0, 0.0]]).tolist()
    [0, 1]
    """
    return expected_cost(proba, cost).argmin(axis=1)


def reject(proba: ArrayLike, threshold: float | None = None, *, cost: float | None = None) -> np.ndarray:
    """Return the most probable class (n,) as an index, -1 where its probability is below ``threshold``.

    ``cost`` states the same as the cost of a rejection when an error costs 1: then the threshold is 1 - cost, which
    has the least expected cost (Chow's rule).

    >>> reject([[0.95, 0.05], [0.55, 0.45]], 0.8).tolist()
    [0, -1]
    >>> reject([[0.95, 0.05], [0.55, 0.45]], cost=0.5).tolist()
    [0, 0]
    """
    P = _probabilities(proba)
    if (threshold is None) == (cost is None):
        raise ValueError("give either threshold, the least probability accepted, or cost, that of a rejection")
    least = 1.0 - cost if threshold is None else threshold  # type: ignore[operator]
    if not 0.0 <= least <= 1.0:
        raise ValueError(f"the least probability accepted must lie between 0 and 1, got {least!r}")
    return np.where(P.max(axis=1) >= least, P.argmax(axis=1), -1)


def change_priors(proba: ArrayLike, old: ArrayLike, new: ArrayLike) -> np.ndarray:
    """Probabilities (n, K) for class frequencies ``new`` (K,) of a model fitted under frequencies ``old`` (K,).

    p(k | x) is multiplied by new_k / old_k and normalised (T01 D.2). With class weights or a balanced sample the
    old frequencies are the weighted ones.

    >>> change_priors([[0.5, 0.5]], old=[0.5, 0.5], new=[0.9, 0.1]).round(6).tolist()
    [[0.9, 0.1]]
    """
    P = _probabilities(proba)
    ratio = []
    for name, value in (("old", old), ("new", new)):
        prior = np.asarray(value, dtype=float)
        wrong = prior.shape != (P.shape[1],) or not np.all(np.isfinite(prior)) or np.any(prior < 0.0)
        if wrong or prior.sum() <= 0.0 or (name == "old" and np.any(prior == 0.0)):
            raise ValueError(f"{name} must hold {P.shape[1]} class frequencies (positive ones in old); got {value!r}")
        ratio.append(prior / prior.sum())
    changed = P * (ratio[1] / ratio[0])
    total = changed.sum(axis=1, keepdims=True)
    if np.any(total <= 0.0):
        raise ValueError(
            "the new frequencies give some rows probability 0 for all classes: make them positive for all classes"
        )
    return changed / total


def _probabilities(proba: ArrayLike) -> np.ndarray:
    P = np.asarray(proba, dtype=float)
    if P.ndim != 2 or not np.all(np.isfinite(P)) or np.any(P < 0.0) or not np.allclose(P.sum(axis=1), 1.0, atol=1e-6):
        raise ValueError(f"proba must be (n, K) with rows that sum to one, as predict_proba gives; got shape {P.shape}")
    return P
