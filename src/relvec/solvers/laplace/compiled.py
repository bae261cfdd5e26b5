"""The Laplace search of one output in C, where the extension was built; its other modules do without it too."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from relvec.inference.laplace import PosteriorOnRows
from relvec.inference.likelihoods import Bernoulli, Likelihood, Poisson
from relvec.runtime.machine import n_threads

try:
    _laplace_engine: Any = import_module("relvec.solvers._native._laplace_engine")
except ImportError:  # no compiler when the package was installed
    _laplace_engine = None

_KINDS: dict[type, int] = {Bernoulli: 0, Poisson: 1}
_MOST = 60  # weights: beyond, BLAS is faster than plain loops
_LARGEST = 4_000_000  # numbers of a dictionary: likewise
_MANY = 16_384  # samples: fewer are not worth further threads
GROW, SHRINK, EXCHANGE, SETTLE, CLIMB = range(5)


def in_use(likelihood: Likelihood, k: int, t) -> bool:
    """Whether a model of k weights for the target t (n,) goes to C: it was built, and t is on the host.

    The environment variable RELVEC_PURE_PYTHON keeps it from C.
    """
    return (
        _laplace_engine is not None
        and isinstance(t, np.ndarray)
        and k <= _MOST
        and type(likelihood) in _KINDS
        and os.environ.get("RELVEC_PURE_PYTHON", "") in ("", "0")
    )


def searches(problem) -> bool:
    """Whether the moves of a `LaplaceProblem` are made in C: its dictionary is small, or has factors that are."""
    return (
        in_use(problem.likelihood, 0, problem.target)
        and problem.prior_b is None
        and 0 < problem.design.scan_size <= _LARGEST
        and problem.design.native_arrays is not None
    )


@dataclass(frozen=True, eq=False)
class Answer:
    """The result of C: the places kept of the model it was given, those refused among them, and their posterior.

    After a search ``places`` are atoms. ``expected`` is what `problem.relax` returns, or the gain of a move, ``spent``
    the work it took.
    """

    places: np.ndarray
    refused: np.ndarray
    posterior: PosteriorOnRows
    expected: float
    spent: float


def _threads(t: np.ndarray) -> int:
    return n_threads() if len(t) >= _MANY else 1


def mode(likelihood: Likelihood, Phi, t, weights, alpha, start, constant: float) -> Answer | None:
    """`relvec.inference.laplace.laplace` with Phi (n, k), t (n,), weights (n,), alpha (k,), start (k,) or None.

    None where the problem is too badly conditioned for it.
    """
    start = np.zeros(len(alpha)) if start is None else np.ascontiguousarray(start, dtype=float)
    alpha = np.ascontiguousarray(alpha, dtype=float)
    found = _laplace_engine.mode(
        _KINDS[type(likelihood)], np.ascontiguousarray(Phi.T), t, weights, alpha, start, constant, _threads(t)
    )
    return None if found is None else _answer(found, Phi)


def relax(
    likelihood: Likelihood, p: PosteriorOnRows, t, weights, refused: np.ndarray, steps: int, accuracy: float,
    trusted: float, shift: float, constant: float,
) -> Answer | None:  # fmt: skip
    """`problem.relax` from the posterior p, with the places not to be deleted in ``refused`` (k,)."""
    columns = np.ascontiguousarray(p.Phi.T)
    arrays = (np.ascontiguousarray(a) for a in (p.alpha, p.mean, p.root, p.f, p.r, p.W))
    found = _laplace_engine.relax(
        _KINDS[type(likelihood)], columns, t, weights, *arrays, p.log_evidence,
        refused, steps, accuracy, trusted, shift, constant, _threads(t),
    )  # fmt: skip
    return None if found is None else _answer(found, columns.T)


def move(
    problem, what: int, active, p: PosteriorOnRows, refused: frozenset, batch: int, tol: float, flag: int = 0,
    work: float = np.inf,
) -> tuple[Answer | None, float, int] | None:  # fmt: skip
    """A move of `relvec.solvers.laplace.moves` from the model of the active atoms, with the posterior p.

    Returns what it led to (None where none helps; its posterior is without columns, and as exact as the dictionary
    is), the largest refitted gain, and the atom moved; None where Python has to do it. ``flag`` is whether to exchange
    (SETTLE), or how many atoms are min_gain_nats (CLIMB).
    """
    k, design = len(active), problem.design
    if k > _MOST:
        return None
    closed = np.zeros(design.n_atoms, bool)
    closed[list(problem.closed)] = True
    kept = np.isin(active, list(refused)) if refused else np.zeros(k, bool)
    found = _laplace_engine.search(
        what, _KINDS[type(problem.likelihood)], *design.native_arrays, problem.target, problem.weights,
        np.ascontiguousarray(problem.order, dtype=np.int64), closed, np.ascontiguousarray(active, dtype=np.int64),
        np.ascontiguousarray(p.alpha), np.ascontiguousarray(p.mean), kept, batch, flag, tol, work, design.scan_size,
        design.scan_error, problem.trusted, problem.shift, problem.constant, problem.tol, _MOST,
    )  # fmt: skip
    if found is False:
        return None
    if not isinstance(found[0], tuple):
        problem.budget.spent += found[1]
        return None, found[0], -1
    answer = _answer(found[0])
    problem.budget.spent += answer.spent
    return answer, answer.expected, found[1]


def _answer(found: tuple, columns: np.ndarray | None = None) -> Answer:
    kept, refused, alpha, mean, root, state, log_evidence, expected, spent = found
    places, k = np.array(kept, dtype=np.intp), len(kept)
    f, r, W = np.frombuffer(state).reshape(3, -1)
    if columns is None:
        columns = np.zeros((len(f), 0))
    elif k < columns.shape[1]:
        columns = np.asfortranarray(columns[:, places])
    posterior = PosteriorOnRows(
        np.zeros(k, np.intp), np.frombuffer(alpha), np.frombuffer(mean), np.frombuffer(root).reshape(k, k),
        log_evidence, columns, f, r, W,
    )  # fmt: skip
    return Answer(places, np.array(refused, dtype=bool), posterior, expected, spent)
