"""Regression on a device: the dictionary stays there, small matrices come to the host.

What the host does for the N rows in `relvec.design._lowrank` is done here in pieces of rows, in the array library of
X: the partial Cholesky factorisation, the Gram matrix of its factor, the coordinates of the targets. A piece is a few
hundred megabytes, so that the factor itself, (N, rank), is all that a fit holds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack, solve_triangular

from relvec._xp import Array, Place, largest, like, namespace, pieces, place_of, squares, take, to_host, unique_rows
from relvec.basis import Basis, Concat
from relvec.design._base import Combine, Compression, Design, Piece, Rows, Value
from relvec.design._blocks import DenseDesign, not_finite, tame
from relvec.design._lowrank import (
    _BLOCK,
    _MOST_RANK,
    LEAST_ROWS,
    TOLERANCE,
    _blocks_to_go,
    gram_root,
    kernel_on_training_rows,
    row_means,
)

_MOST_GRAM = 4096  # atoms of a dictionary whose rows are reduced through its Gram matrix


class DeviceDesign(Design):
    """Phi' (M, n) on a device, with rows of unit norm, as arrays (M, n_i) that stand side by side.

    >>> import numpy as np
    >>> d = DeviceDesign([np.array([[3.0], [0.0]]), np.array([[4.0], [0.0]])])
    >>> d.scale.tolist(), d.project(np.array([[1.0], [0.0]])).tolist()
    ([5.0, 0.0], [[0.6, 0.0]])
    """

    def __init__(self, parts: list[Array]):
        self._parts = parts  # overwritten
        xp = namespace(parts[0])
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # a library may be NumPy underneath
            squared = sum(squares(part, 1) for part in parts)
        safe = np.ones(parts[0].shape[0])
        if not tame(to_host(squared)).all():
            size = [xp.max(xp.abs(part), axis=1) for part in parts if part.shape[1]]
            safe = np.max([to_host(s) for s in size], axis=0)
            if not np.isfinite(safe).all():
                raise not_finite(int(np.argmin(np.isfinite(safe))))
            safe = np.where(safe > 0.0, safe, 1.0)
            self._divide(safe)
            squared = sum(squares(part, 1) for part in parts)
        norm = np.sqrt(to_host(squared).astype(float))
        self._divide(np.where(norm > 0.0, norm, 1.0))
        self.scale = safe * norm
        if self.n_rows > 4096:
            self.at_once = 1024  # what `subset` takes to the host

    def _divide(self, by: np.ndarray) -> None:
        for part in self._parts:
            part /= like(part, by)[:, None]

    @property
    def n_rows(self) -> int:
        return sum(part.shape[1] for part in self._parts)

    def columns(self, atoms) -> np.ndarray:
        return np.concatenate([to_host(take(part, atoms)) for part in self._parts], axis=1).T.astype(float, order="F")

    def project(self, Y: np.ndarray) -> np.ndarray:
        return self.sweep(Y, lambda atoms, YPhi: to_host(YPhi).astype(float), lambda a, b: np.hstack([a, b]))

    def sweep(self, Y: np.ndarray, function: Piece[Value], combine: Combine[Value]) -> Value:
        both = [(part, like(part, y)) for part, y in zip(self._parts, self._split(Y), strict=True)]
        values = (
            function(np.arange(rows.start, rows.stop), sum(part[rows, :] @ y for part, y in both).T)
            for rows in pieces(self.n_atoms, Y.shape[1])
        )
        return functools.reduce(combine, values)

    def subset(self, atoms) -> Design:
        return DenseDesign.of(self.columns(atoms), self.scale[atoms])

    def restricted(self, atoms, target: np.ndarray, rest: float) -> tuple[Design, np.ndarray, float]:
        if self.n_rows <= 2 * len(atoms):
            return super().restricted(atoms, target, rest)
        A = namespace(self._parts[0]).concat([take(part, atoms) for part in self._parts], axis=1).T
        R, y, outside = reduced(lambda rows: A[rows, :], place_of_any(A), target[:, None])
        return DenseDesign.of(R, self.scale[atoms]), y[:, 0], rest + float(outside[0])

    def _split(self, Y: np.ndarray) -> list[np.ndarray]:
        return np.split(Y, np.cumsum([part.shape[1] for part in self._parts])[:-1])


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
    design = DeviceDesign([device_matrix(basis, X, root)])
    return Rows(design, targets * root[:, None], np.zeros(targets.shape[1]))


def device_matrix(basis: Basis, X: Array, root: np.ndarray) -> Array:
    """Phi' (M, N) of a basis on the rows X (N, d) times root (N,)."""
    place, weight = place_of_any(X), like(X, root)
    Phi = place.xp.empty((basis.n_atoms, X.shape[0]), dtype=X.dtype, device=place.device)
    for rows in pieces(X.shape[0], basis.n_atoms):
        Phi[:, rows] = (basis(X[rows, :]) * weight[rows][:, None]).T
    return Phi


def exact_columns(
    basis: Basis, X: Array, root: np.ndarray, scale: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The k atoms of a basis on the rows X (N, d) over scale (k,), and a target (N,), both times root (N,).

    As the k + 1 rows of their QR factorisation: (k + 1, k) and (k + 1,).
    """
    weight, divisor = like(X, root), like(X, scale)

    def columns(piece: slice) -> Array:
        return basis(X[piece, :]) * weight[piece][:, None] / divisor

    R, y, outside = reduced(columns, place_of_any(X), (root * target)[:, None], twice=True)
    return np.vstack([R, np.zeros((1, len(scale)))]), np.append(y[:, 0], np.sqrt(outside[0]))


def place_of_any(x: Array) -> Place:
    """Where an array lives, NumPy arrays included."""
    return Place(np, "cpu", x.dtype) if isinstance(x, np.ndarray) else place_of(x)


def reduced(columns: Callable[[slice], Array], place: Place, targets: np.ndarray, twice: bool = False):
    """R (c, c) with R'R = A'A, coordinates (c, q) of the targets (n, q) in A = Q R, and their squares outside (q,).

    ``columns(rows)`` gives rows of A (n, c) on the device. Done ``twice``, R is as accurate as that of Householder's
    QR, for A of condition up to 1e8 (CholeskyQR2); once, its inner products are.
    """
    n, width = targets.shape[0], columns(slice(0, 1)).shape[1]
    parts = list(pieces(n, width))
    gram: np.ndarray = np.zeros((width, width))
    for A in map(columns, parts):
        gram += to_host(A.T @ A)
    R, triangular = gram_root(gram)
    if twice and triangular:
        inverse = place.put(_inverse(R))
        again: np.ndarray = np.zeros((width, width))
        for Q in (columns(piece) @ inverse for piece in parts):
            again += to_host(Q.T @ Q)
        second, triangular = gram_root(again)
        R = second @ R
    inverse = _inverse(R) if triangular else np.linalg.pinv(R)
    y, outside = np.zeros((width, targets.shape[1])), place.put(targets)
    for _ in range(3):  # semi-normal equations, corrected twice
        product = sum(to_host(columns(piece).T @ outside[piece, :]).astype(float) for piece in parts)
        more = inverse.T @ product
        y += more
        left = place.put(inverse @ more)
        outside = place.xp.concat([outside[piece, :] - columns(piece) @ left for piece in parts])
    return R, y, to_host(squares(outside, 0)).astype(float)


def _inverse(R: np.ndarray) -> np.ndarray:
    return solve_triangular(R, np.eye(len(R)), check_finite=False)


def _by_gram(basis: Basis, X: Array, targets: np.ndarray, root: np.ndarray) -> Rows | None:
    """Many rows of few atoms: as many rows as there are atoms, with the same inner products."""
    weight, N, M = like(X, root), len(root), basis.n_atoms
    squared = 0.0
    for piece in pieces(N, M):
        squared = squared + squares(basis(X[piece, :]) * weight[piece][:, None], 0)
    norms = to_host(squared).astype(float)
    if not tame(norms).all():
        return None
    scale = np.sqrt(norms)
    R, y, rest = reduced(
        lambda piece: basis(X[piece, :]) * weight[piece][:, None] / like(X, scale), place_of_any(X), targets
    )
    error = float(np.sqrt(np.finfo(float).eps))
    return Rows(DenseDesign.of(R, scale), y, rest, Compression(N, M, 0.0, error))


def _compressed(basis: Basis, X: Array, targets: np.ndarray, weights: np.ndarray) -> Rows | None:
    """What `relvec.design.compress` does, on the device."""
    kernel_part = kernel_on_training_rows(basis)
    if kernel_part is None or kernel_part.n_atoms < LEAST_ROWS or kernel_part.centres is None:
        return None
    assert isinstance(basis, Concat)
    place = place_of_any(X)
    xp, m = place.xp, kernel_part.n_atoms
    p = basis.n_atoms - m
    centres, first, row_of = unique_rows(X)
    if centres.shape[0] != m or p > 0.1 * m or not bool(xp.all(centres == place.put(kernel_part.centres))):
        return None
    found = device_cholesky(kernel_part.kernel, centres, TOLERANCE, int(_MOST_RANK * m), p)
    if found is None:
        return None
    F, left = found  # arrays (m + p, r_i)
    if m == len(weights):
        order = to_host(first)
        size, mean, within = weights[order], targets[order], np.zeros(targets.shape[1])
    else:
        mean, size, within = row_means(to_host(row_of), targets, weights)
    others = [(part, where) for part, where in zip(basis.parts, basis.places()) if part is not kernel_part]
    if p:
        B = xp.concat([part(centres) for part, _ in others], axis=1)
        F = [xp.concat([B, B[:p, :]]), *F]
    root = place.put(np.sqrt(size))

    def columns(rows: slice) -> Array:
        return xp.concat([part[rows, :] for part in F], axis=1) * root[rows][:, None]

    R, y, rest = reduced(columns, place, mean * np.sqrt(size)[:, None])
    # the dictionary in these coordinates is C R', with C = F for the kernel's atoms and the identity for the others
    if p:
        F[0][:m, :] = 0.0
        for part, identity in zip(F, np.split(np.eye(p, len(R)), np.cumsum([f.shape[1] for f in F])[:-1], axis=1)):
            part[m:, :] = place.put(identity)
    ends = np.cumsum([0, *(part.shape[1] for part in F)])
    transposed = place.put(R.T)
    for piece in pieces(m + p, len(R)):
        D = xp.concat([part[piece, :] for part in F], axis=1) @ transposed
        for part, start, end in zip(F, ends[:-1].tolist(), ends[1:].tolist()):
            part[piece, :] = D[:, start:end]
    order = np.concatenate([basis.places()[basis.parts.index(kernel_part)], *(where for _, where in others)])
    if not np.array_equal(order, np.arange(len(order))):
        F = [take(part, np.argsort(order)) for part in F]
    design = DeviceDesign(F)
    tiny, norms = np.finfo(float).tiny, design.scale[order[:m]]
    error = np.sqrt(np.maximum(left, 0.0) * np.sum(size * left)) / np.maximum(norms, tiny)
    return Rows(design, y, rest + within, Compression(len(weights), design.n_rows, TOLERANCE, float(error.max())))


def device_cholesky(
    kernel, Z: Array, tolerance: float, most: int, below: int = 0
) -> tuple[list[Array], np.ndarray] | None:
    """Arrays F_i (m + below, r_i) that make up F with K(Z, Z) ~= F F', and what is left of the diagonal (m,).

    None if the rank would exceed ``most``. Pivots are chosen as in `relvec.design._lowrank.partial_cholesky`.
    """
    place, m = place_of_any(Z), Z.shape[0]
    xp = place.xp
    left = kernel.diag(Z)
    top = float(xp.max(left))
    if not 0.0 < top < np.inf:
        return None
    stop, rng = tolerance * top, np.random.default_rng(0)
    F: list[Array] = []
    rank, history = 0, [float(xp.sum(left))]
    while float(xp.max(left)) > stop:
        chosen = _pivots(left, stop, rng)
        Zp = take(Z, chosen)
        Fp = [take(part, chosen) for part in F]
        K = to_host(kernel(Zp, Zp)).astype(float) - sum(to_host(f @ f.T).astype(float) for f in Fp)
        L, pivots, found, _ = lapack.dpstrf(K, lower=1, tol=0.1 * stop)
        if found == 0 or rank + found > most:
            return None
        pivots = pivots[:found] - 1
        inverse = place.put(solve_triangular(L[:found, :found], np.eye(found), lower=True, check_finite=False).T)
        Zp, Fp = take(Zp, pivots), [take(f, pivots) for f in Fp]
        new = xp.empty((m + below, found), dtype=Z.dtype, device=place.device)
        for piece in pieces(m, found):
            block = kernel(Z[piece, :], Zp)
            for part, f in zip(F, Fp):
                block -= part[piece, :] @ f.T
            block = block @ inverse
            new[piece, :] = block
            left[piece] -= squares(block, 1)
        F.append(new)
        rank += found
        left = xp.where(left > 0.0, left, xp.zeros_like(left))
        for i in chosen[pivots].tolist():
            left[i] = 0.0
        history.append(float(xp.sum(left)))
        if rank + _blocks_to_go(history, stop * m) * _BLOCK > 2 * most:
            return None
    return F, to_host(left).astype(float)


def _pivots(left: Array, stop: float, rng: np.random.Generator) -> np.ndarray:
    """Rows (k,) of the host for the next round: the largest of what is left, and a draw in proportion to it."""
    xp = namespace(left)
    rest = xp.where(left > stop, left, xp.zeros_like(left))
    size = min(_BLOCK, int(xp.count_nonzero(rest)) if hasattr(xp, "count_nonzero") else int(xp.sum(rest > 0.0)))
    first = to_host(largest(rest, size if size < _BLOCK else size // 4 + 1))
    if size < _BLOCK:
        return first
    total = xp.cumulative_sum(rest) if xp is not np else np.cumsum(rest)
    draws = np.sort(rng.random(size - len(first))) * float(total[-1])
    drawn = to_host(xp.searchsorted(total, like(left, draws)))
    drawn = np.unique(drawn[drawn < left.shape[0]])
    return np.concatenate([first, np.setdiff1d(drawn, first)])
