"""Which atoms of a long dictionary a model would gain by: a look at all of them, in passes over the rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relvec.design import Piece
from relvec.solvers.laplace.exchange import ExchangeTask
from relvec.solvers.laplace.problem import LaplaceModel
from relvec.solvers.laplace.scan import ScanRows, ScanTask, places_by_class, roots_of

_CHUNK_ATOMS = 1024  # of a pass over the rows

Products = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def most_promising(
    model: LaplaceModel, own: np.ndarray, atoms: np.ndarray, n_atoms: int, products: Products, room: int
) -> np.ndarray:
    """At most ``room`` of the atoms: the best in exchange for each unit, then those of largest gain.

    A search of the whole dictionary would propose no others: where one of these gains nothing, it ends.

    own : atoms (m,) of the dictionary that the model's are numbers of; atoms : those looked at, of ``n_atoms``.
    products : Y'Phi (J, c) and W'Phi^2 (K, c) of atoms (c,), for Y (n, J) and W (n, K).
    """
    problem, p, weights = model.problem, model.posterior, model.problem.weights
    K, exact = problem.K, problem.K == 1
    rows = ScanRows(K, exact, roots_of(model, exact), places_by_class(model))
    Y, W = np.hstack([rows.directions(p, weights, c) for c in range(K)]), rows.curvature(p, weights)
    output, mine = model.active // len(own), own[model.active % len(own)]
    taken = [mine[output == c] for c in range(1 if problem.share else K)]
    task = ScanTask(rows, problem.share, n_atoms, taken, np.zeros(0, np.intp), problem.design.scan_error, room)
    exchanges = ExchangeTask(task, p.variance, p.mean, problem.share)
    best = partners = None
    for start in range(0, len(atoms), _CHUNK_ATOMS):
        some = atoms[start : start + _CHUNK_ATOMS]
        projected, squares = products(some, Y, W)
        piece = Piece(some, some, some, np.split(projected, np.cumsum(rows.widths)[:-1]), squares)
        found = task(piece), exchanges(piece)
        best = found[0] if best is None else task.combine(best, found[0])
        partners = found[1] if partners is None else exchanges.combine(partners, found[1])
    if best is None or partners is None:
        return atoms
    entering = np.unique(partners[0].entering[partners[0].ratio > 0.0] % n_atoms)[:room]
    return np.append(entering, np.setdiff1d(best.atoms, entering, assume_unique=True)[: room - len(entering)])
