"""Regression on a device: the dictionary stays there, small matrices come to the host.

What the host does for the N rows in `relvec.design.low_rank` is done here in pieces of rows, in the array library of
X: the partial Cholesky factorisation, the Gram matrix of its factor, the coordinates of the targets. A piece is a few
hundred megabytes, so that the factor itself, (N, rank), is all that a fit holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from relvec.basis import Basis, Concat
from relvec.design.base import Combine, Compression, Design, OnPiece, Rows, Value
from relvec.design.dense import DenseDesign, not_finite, tame
from relvec.design.low_rank import (
    _BLOCK,
    _MOST_RANK,
    MIN_ROWS_TO_COMPRESS,
    TOLERANCE,
    _blocks_to_go,
    candidates,
    kernel_on_training_rows,
    row_means,
)
from relvec.design.streamed import WHOLE, Factor, sampled, unexplained
from relvec.runtime.arrays import (
    Array,
    Device,
    device_of,
    like,
    namespace,
    row_slices,
    squares,
    take,
    to_host,
    unique_rows,
)

_MOST_GRAM = 4096  # atoms of a dictionary whose rows are reduced through its Gram matrix
_MOST_NUMBERS = 2**33  # of a factor: 64 GiB
_FEW_ROWS = 4096  # of a design that is not reduced further for a part of its atoms
_DEPENDENT = 1e-14  # pivots of a Gram matrix below this, relative to the largest, are rounding
_ILL = 1e-7  # a diagonal of Cholesky's factor below this, relative to its column, has lost half of its digits


class DeviceDesign(Design):
    """Phi' (M, n) on a device, with rows of unit norm; the array given is overwritten.

    >>> import numpy as np
    >>> d = DeviceDesign(np.array([[3.0, 4.0], [0.0, 0.0]]))
    >>> d.scale.tolist(), d.project(np.array([[1.0], [0.0]])).tolist()
    ([5.0, 0.0], [[0.6, 0.0]])
    """

    def __init__(self, transposed: Array):
        self._Phi = transposed
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # a library may be NumPy underneath
            squared = self._squared()
        safe = np.ones(len(squared))
        if not tame(squared).all():
            xp = namespace(transposed)
            safe = to_host(xp.max(xp.abs(transposed), axis=1)).astype(float)
            if not np.isfinite(safe).all():
                raise not_finite(int(np.argmin(np.isfinite(safe))))
            safe = np.where(safe > 0.0, safe, 1.0)
            self._Phi /= like(transposed, safe)[:, None]
            squared = self._squared()
        norm = np.sqrt(squared)
        self._Phi /= like(transposed, np.where(norm > 0.0, norm, 1.0))[:, None]
        self.scale = safe * norm
        if self.n_rows > _FEW_ROWS:
            self.max_active_set = 1024  # what `subset` takes to the host

    def _squared(self) -> np.ndarray:
        found = [to_host(squares(self._Phi[rows, :], 1)) for rows in row_slices(*self._Phi.shape)]
        return np.concatenate(found).astype(float)

    @property
    def n_rows(self) -> int:
        return self._Phi.shape[1]

    def columns(self, atoms) -> np.ndarray:
        return to_host(take(self._Phi, atoms)).astype(float).T

    def project(self, Y: np.ndarray) -> np.ndarray:
        return self.scan(Y, lambda atoms, YPhi: to_host(YPhi).astype(float), lambda a, b: np.hstack([a, b]))

    def scan(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        Y = like(self._Phi, Y)
        values = (
            function(np.arange(rows.start, rows.stop), (self._Phi[rows, :] @ Y).T)
            for rows in row_slices(self.n_atoms, Y.shape[1])
        )
        return functools.reduce(combine, values)

    def subset(self, atoms) -> Design:
        return DenseDesign.of(self.columns(atoms), self.scale[atoms])

    def restrict(self, atoms, target: np.ndarray, outside: float) -> tuple[Design, np.ndarray, float]:
        if self.n_rows <= max(_FEW_ROWS, 2 * len(atoms)):
            return super().restrict(atoms, target, outside)
        A = take(self._Phi, atoms).T
        R, y, norm2 = reduced(lambda rows: A[rows, :], device_of_any(A), target[:, None])
        return DenseDesign.of(R, self.scale[atoms]), y[:, 0], outside + float(norm2[0])


def device_rows(basis: Basis, X: Array, targets: np.ndarray, weights: np.ndarray) -> Rows | None:
    """A bound basis on the rows X (N, d) of a device, with targets (N, q) and weights (N,) of the host.

    Compressed through a partial Cholesky factorisation where the kernel allows it, through the Gram matrix where the
    atoms are fewer than the rows, and whole otherwise. None where the numbers ask for the host's care.
    """
    rows = _compressed(basis, X, targets, weights)
    if rows is not None:
        return rows
    N, M = X.shape[0], basis.n_atoms
    root = np.sqrt(weights)
    if M <= _MOST_GRAM and 2 * M < N:
        return _by_gram(basis, X, targets * root[:, None], root)
    design = DeviceDesign(device_matrix(basis, X, root))
    return Rows(design, targets * root[:, None], np.zeros(targets.shape[1]))


def device_matrix(basis: Basis, X: Array, root: np.ndarray) -> Array:
    """Phi' (M, N) of a basis on the rows X (N, d) times root (N,)."""
    place, weight = device_of_any(X), like(X, root)
    Phi = place.xp.empty((basis.n_atoms, X.shape[0]), dtype=X.dtype, device=place.device)
    for rows in row_slices(X.shape[0], basis.n_atoms):
        Phi[:, rows] = (basis(X[rows, :]) * weight[rows][:, None]).T
    return Phi


def exact_columns(
    basis: Basis, X: Array, root: np.ndarray, scale: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The k atoms of a basis on the rows X (N, d) over scale (k,), and a target (N,), both times root (N,).

    As the k + 1 rows of their QR factorisation: (k + 1, k) and (k + 1,).
    """
    place = device_of_any(X)
    xp, weight, divisor, t = place.xp, place.to_device(root), place.to_device(scale), place.to_device(root * target)

    def columns(piece: slice) -> Array:
        return xp.concat([basis(X[piece, :]) * weight[piece][:, None] / divisor, t[piece][:, None]], axis=1)

    R = tall_r(columns, place, len(root), len(scale) + 1)
    return R[:, :-1], R[:, -1]


def tall_r(columns: Callable[[slice], Array], place: Device, n: int, c: int) -> np.ndarray:
    """R (c, c) of the QR factorisation of A (n, c), whose rows ``columns(rows)`` gives on the device.

    Cholesky's factor of A'A, then of Q'Q for Q = A R^-1 (CholeskyQR2), is as accurate as Householder's for A of
    condition up to 1e7; beyond, Householder's is taken, piece by piece.
    """
    R, eye = np.eye(c), np.eye(c)
    for _ in range(2):
        inverse, gram = place.to_device(solve_triangular(R, eye, check_finite=False)), np.zeros((c, c))
        for piece in row_slices(n, c):
            Q = columns(piece) @ inverse
            gram += to_host(Q.T @ Q)
        size = np.sqrt(gram.diagonal())
        more, info = lapack.dpotrf(gram, lower=0, clean=1)
        if info or np.any(more.diagonal() < _ILL * size):
            break
        R = more @ R
    else:
        return R
    R = np.zeros((0, c))
    for piece in row_slices(n, c):
        R = np.vstack([R, to_host(place.xp.linalg.qr(columns(piece), mode="reduced").R)])
        R = qr(R, mode="r", check_finite=False)[0][:c]
    return np.vstack([R, np.zeros((c - len(R), c))])


def device_of_any(x: Array) -> Device:
    """Where an array lives, NumPy arrays included."""
    return Device(np, "cpu", x.dtype) if isinstance(x, np.ndarray) else device_of(x)


def reduced(columns: Callable[[slice], Array], place: Device, targets: np.ndarray):
    """R (c, c) with R'R = A'A, coordinates y (c, q) of the targets (n, q) with R'y = A't, and |t|^2 - |y|^2 (q,).

    ``columns(rows)`` gives rows of A (n, c) on the device. What inner products cannot tell from the span of other
    columns counts as inside it, and has rows of zeros in R.
    """
    n, c = targets.shape[0], columns(slice(0, 1)).shape[1]
    gram, cross, t = np.zeros((c, c)), np.zeros((c, targets.shape[1])), place.to_device(targets)
    for piece in row_slices(n, c):
        A = columns(piece)
        gram += to_host(A.T @ A)
        cross += to_host(A.T @ t[piece, :])
    U, order, rank, _ = lapack.dpstrf(gram, lower=0, tol=_DEPENDENT * float(gram.diagonal().max(initial=0.0)))
    order, R, y = order - 1, np.zeros((c, c)), np.zeros(cross.shape)
    R[:rank, order] = np.triu(U)[:rank]
    y[:rank] = solve_triangular(U[:rank, :rank], cross[order[:rank]], trans=1, check_finite=False)
    return R, y, np.maximum(to_host(squares(t, 0)) - np.einsum("ij,ij->j", y, y), 0.0)


def _by_gram(basis: Basis, X: Array, targets: np.ndarray, root: np.ndarray) -> Rows | None:
    """Many rows of few atoms: as many rows as there are atoms, with the same inner products."""
    weight, N, M = like(X, root), len(root), basis.n_atoms
    squared = 0.0
    for piece in row_slices(N, M):
        squared = squared + squares(basis(X[piece, :]) * weight[piece][:, None], 0)
    norms = to_host(squared).astype(float)
    if not tame(norms).all():
        return None
    scale = np.sqrt(norms)
    R, y, rest = reduced(
        lambda piece: basis(X[piece, :]) * weight[piece][:, None] / like(X, scale), device_of_any(X), targets
    )
    error = float(np.sqrt(np.finfo(float).eps))
    return Rows(DenseDesign.of(R, scale), y, rest, Compression(N, M, 0.0, error))


def _compressed(basis: Basis, X: Array, targets: np.ndarray, weights: np.ndarray) -> Rows | None:
    """What `relvec.design.compress` does, on the device."""
    kernel_part = kernel_on_training_rows(basis)
    if kernel_part is None or kernel_part.n_atoms < MIN_ROWS_TO_COMPRESS or kernel_part.centres is None:
        return None
    assert isinstance(basis, Concat)
    place = device_of_any(X)
    xp, m = place.xp, kernel_part.n_atoms
    p = basis.n_atoms - m
    centres, first, row_of = unique_rows(X)
    if centres.shape[0] != m or p > 0.1 * m or not bool(xp.all(centres == place.to_device(kernel_part.centres))):
        return None
    found = device_factor(kernel_part.kernel, centres, p, p)
    if found is None:
        return None
    C, left = found  # (m + p, p + r)
    if m == len(weights):
        order = to_host(first)
        size, mean, within = weights[order], targets[order], np.zeros(targets.shape[1])
    else:
        mean, size, within = row_means(to_host(row_of), targets, weights)
    others = [(part, where) for part, where in zip(basis.parts, basis.part_columns()) if part is not kernel_part]
    if p:
        C[:m, :p] = xp.concat([part(centres) for part, _ in others], axis=1)
    root = place.to_device(np.sqrt(size))
    R, y, rest = reduced(lambda rows: C[rows, :] * root[rows][:, None], place, mean * np.sqrt(size)[:, None])
    # the dictionary in these coordinates is C R', with F for the kernel's atoms and the identity for the others
    if p:
        C[:m, :p] = 0.0
        C[m:, :] = place.to_device(np.eye(p, len(R)))
    transposed = place.to_device(R.T)
    for piece in row_slices(m + p, len(R)):
        C[piece, :] = C[piece, :] @ transposed
    order = np.concatenate([basis.part_columns()[basis.parts.index(kernel_part)], *(where for _, where in others)])
    design = DeviceDesign(C if np.array_equal(order, np.arange(len(order))) else take(C, np.argsort(order)))
    tiny, norms = np.finfo(float).tiny, design.scale[order[:m]]
    error = np.sqrt(np.maximum(left, 0.0) * np.sum(size * left)) / np.maximum(norms, tiny)
    return Rows(design, y, rest + within, Compression(len(weights), design.n_rows, TOLERANCE, float(error.max())))


def device_factor(kernel: Any, Z: Array, room: int = 0, below: int = 0) -> tuple[Array, np.ndarray] | None:
    """F (m, r) with K(Z, Z) ~= F F' for rows Z (m, d), and what is left of the diagonal (m,); None for a high rank.

    ``room`` columns are left free before F, and ``below`` rows below it. The pivots are those the host would choose
    (`relvec.design.compress`, `relvec.design.compress_in_passes`), so that the search sees the same numbers.
    """
    place, m = device_of_any(Z), Z.shape[0]
    xp, whole = place.xp, m <= WHOLE
    most = int(min(_MOST_RANK * m, _MOST_NUMBERS / m))
    sample, most_here = (Z, most) if whole else sampled(Z, most, np.inf)
    found = _factor_of_sample(kernel, sample, TOLERANCE if whole else 0.5 * TOLERANCE, most_here)
    if found is None:
        return None
    factor, stop = found
    rank = factor.rank
    while True:
        C = xp.empty((m + below, room + factor.rank), dtype=Z.dtype, device=place.device)
        pivots, inverse, left = place.to_device(factor.pivots), place.to_device(factor.inverse.T), kernel.diag(Z)
        for rows in row_slices(m, factor.rank):
            F = kernel(Z[rows, :], pivots) @ inverse
            C[rows, room:] = F
            left[rows] -= squares(F, 1)
        rest = np.maximum(to_host(left).astype(float), 0.0)
        worst = np.flatnonzero(rest > stop) if not whole else np.zeros(0, dtype=np.intp)
        if not worst.size:
            return C, rest
        more = take(Z, unexplained(worst, rest[worst], rank))
        longer = factor.extended(to_host(more).astype(float), 0.5 * stop)
        if longer is None or longer.rank > most:
            return None
        factor = longer


def _factor_of_sample(kernel: Any, Z: Array, tolerance: float, most: int) -> tuple[Factor, float] | None:
    """`relvec.design.low_rank.partial_cholesky` on a device: pivots with their factor, and what may be left."""
    place, m = device_of_any(Z), Z.shape[0]
    xp = place.xp
    left = to_host(kernel.diag(Z)).astype(float)
    if not 0.0 < left.max() < np.inf:
        return None
    stop, rng = tolerance * float(left.max()), np.random.default_rng(0)
    goal = TOLERANCE / tolerance * stop
    F, chosen, history = Z[:, :0], np.zeros(0, dtype=np.intp), [float(left.sum())]
    while left.max() > stop:
        first = candidates(left, stop, rng)
        Zp, Fp = take(Z, first), take(F, first)
        K = to_host(kernel(Zp, Zp) - Fp @ Fp.T).astype(float)
        L, pivots, found, _ = lapack.dpstrf(K, lower=1, tol=0.1 * stop)
        if found == 0 or len(chosen) + found > most:
            return None
        pivots = pivots[:found] - 1
        inverse = place.to_device(solve_triangular(L[:found, :found], np.eye(found), lower=True, check_finite=False).T)
        new = (kernel(Z, take(Zp, pivots)) - F @ take(Fp, pivots).T) @ inverse
        F, chosen = xp.concat([F, new], axis=1), np.append(chosen, first[pivots])
        left = np.maximum(left - to_host(squares(new, 1)), 0.0)
        left[first[pivots]] = 0.0
        history.append(float(left.sum()))
        if len(chosen) + _blocks_to_go(history, stop * m) * _BLOCK > 2 * most:
            return None
    L = np.asfortranarray(np.tril(to_host(take(F, chosen)).astype(float)))
    return Factor.of(kernel, to_host(take(Z, chosen)).astype(float), L), goal
