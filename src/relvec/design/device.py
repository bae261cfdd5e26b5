"""Designs on a device: the dictionary stays there, small matrices and what scans find come to the host.

A fit holds the factor (N, rank) of the dictionary, or the dictionary itself; everything else is computed in pieces of
rows of a few hundred megabytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from relvec.basis import Basis
from relvec.design.approximate import factor_design
from relvec.design.arrays import ArrayDesign
from relvec.design.base import Combine, Compression, Design, OnPiece, Rows, Value
from relvec.design.dense import DenseDesign, not_finite, tame
from relvec.design.low_rank import compress, pivoted_root, tall_r
from relvec.design.samples import Block, Samples
from relvec.runtime.arrays import Array, device_of, like, namespace, row_slices, squares, take, to_host

_MAX_GRAM_ATOMS = 4096  # of a dictionary whose rows are reduced through its Gram matrix
_MAX_UNREDUCED_ROWS = 4096  # of a design that is not reduced further for a part of its atoms
_MAX_WHOLE_NUMBERS = (
    2**31
)  # of a design held whole for scans; a larger one goes through a factor where the kernel has one
_BLOCK_ROWS = 8192  # of samples worked on at once
_DEPENDENT = 1e-14  # pivots of a Gram matrix below this, relative to the largest, are rounding


class DeviceSamples(Samples):
    """Rows X (N, d) on a device, with targets (N, q) and weights (N,) on the host; the blocks have X there.

    >>> samples = DeviceSamples(np.ones((5, 2)), np.zeros((5, 1)), np.ones(5), block_rows=2)
    >>> samples.reduce(lambda block: block.X.sum(), lambda a, b: a + b), samples.n_blocks
    (np.float64(10.0), 3)
    """

    def __init__(self, X: Array, targets: np.ndarray, weights: np.ndarray, block_rows: int = _BLOCK_ROWS):
        self._X, self._targets, self._weights, self._block_rows = X, targets, weights, block_rows
        self.n_rows, self.n_features = (int(size) for size in X.shape)
        self.n_targets, self.n_blocks = targets.shape[1], -(-self.n_rows // block_rows)

    def blocked(self, rows: int) -> DeviceSamples:
        return DeviceSamples(self._X, self._targets, self._weights, max(rows, _BLOCK_ROWS))

    def reduce(self, function: Callable[[Block], Value], combine: Combine[Value]) -> Value:
        def value(start: int) -> Value:
            some = slice(start, min(start + self._block_rows, self.n_rows))
            return function(Block(start, self._X[some, :], self._targets[some], self._weights[some]))

        return functools.reduce(combine, map(value, range(0, self.n_rows, self._block_rows)))

    def take(self, rows: np.ndarray) -> np.ndarray:
        return to_host(take(self._X, rows)).astype(float)


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
        if self.n_rows > _MAX_UNREDUCED_ROWS:
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
        if self.n_rows <= max(_MAX_UNREDUCED_ROWS, 2 * len(atoms)):
            return super().restrict(atoms, target, outside)
        A = take(self._Phi, atoms).T
        R, y, norm2 = reduce_by_gram(lambda rows: A[rows, :], like(A, target[:, None]), len(atoms))
        return DenseDesign.of(R, self.scale[atoms]), y[:, 0], outside + float(norm2[0])


class DeviceScanDesign(DeviceDesign, ArrayDesign):
    """Phi (n, M) held whole on a device, for n rows of samples; its columns are arrays there.

    >>> import numpy as np
    >>> d = DeviceScanDesign(np.array([[3.0, 4.0], [0.0, 1.0]]))
    >>> d.diagonal(np.array([1.0, 0.0])).round(2).tolist()
    [0.36, 0.0]
    """

    scan_error = 1e-13  # of rounding

    @property
    def scan_size(self) -> float:
        return self.n_rows * self.n_atoms

    def columns(self, atoms) -> Array:
        return take(self._Phi, np.asarray(atoms, dtype=np.intp)).T

    def project(self, Y: Array) -> np.ndarray:
        return to_host(self._Phi @ Y).T.astype(float)

    def diagonal(self, W: Array) -> np.ndarray:
        Phi = self._Phi
        found = [to_host(Phi[rows, :] ** 2 @ W) for rows in row_slices(self.n_atoms, self.n_rows)]
        return np.concatenate(found).T.astype(float)

    def subset(self, atoms) -> DeviceScanDesign:
        part = object.__new__(DeviceScanDesign)
        part._Phi, part.scale = take(self._Phi, atoms), self.scale[atoms]
        return part


def device_rows(basis: Basis, X: Array, targets: np.ndarray, weights: np.ndarray) -> Rows | None:
    """A bound basis on the rows X (N, d) of a device, with targets (N, q) and weights (N,) of the host.

    Compressed through a partial Cholesky factorisation where the kernel allows it, through the Gram matrix where the
    atoms are fewer than the rows, and whole otherwise. None where the numbers ask for the host's care.
    """
    rows = compress(basis, X, targets, weights, DeviceDesign)
    if rows is not None:
        return rows
    N, M = X.shape[0], basis.n_atoms
    root = np.sqrt(weights)
    if M <= _MAX_GRAM_ATOMS and 2 * M < N:
        return _by_gram(basis, X, targets * root[:, None], root)
    design = DeviceDesign(device_matrix(basis, X, root))
    return Rows(design, targets * root[:, None], np.zeros(targets.shape[1]))


def device_scan_design(basis: Basis, X: Array) -> ArrayDesign:
    """The dictionary on the rows X (n, d) of a device: whole, or through a factor where it is large."""
    if X.shape[0] * basis.n_atoms > _MAX_WHOLE_NUMBERS and (design := factor_design(basis, X)) is not None:
        return design
    return DeviceScanDesign(device_matrix(basis, X, np.ones(X.shape[0])))


def device_matrix(basis: Basis, X: Array, root: np.ndarray) -> Array:
    """Phi' (M, N) of a basis on the rows X (N, d) times root (N,)."""
    weight = like(X, root)
    if isinstance(X, np.ndarray):
        Phi = np.empty((basis.n_atoms, len(X)))
    else:
        device = device_of(X)
        Phi = device.xp.empty((basis.n_atoms, X.shape[0]), dtype=X.dtype, device=device.device)
    for rows in row_slices(X.shape[0], basis.n_atoms):
        Phi[:, rows] = (basis(X[rows, :]) * weight[rows][:, None]).T
    return Phi


def exact_columns(
    basis: Basis, X: Array, root: np.ndarray, scale: np.ndarray, target: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The k atoms of a basis on the rows X (N, d) over scale (k,), and a target (N,), both times root (N,).

    As the k + 1 rows of their QR factorisation: (k + 1, k) and (k + 1,).
    """
    xp, weight, divisor, t = namespace(X), like(X, root), like(X, scale), like(X, root * target)

    def columns(rows: slice) -> Array:
        return xp.concat([basis(X[rows, :]) * weight[rows][:, None] / divisor, t[rows][:, None]], axis=1)

    R = tall_r(columns, X, len(scale) + 1)
    return R[:, :-1], R[:, -1]


def reduce_by_gram(columns: Callable[[slice], Array], targets: Array, c: int):
    """R (c, c) with R'R = A'A, coordinates y (c, q) of the targets (n, q) with R'y = A't, and |t|^2 - |y|^2 (q,).

    ``columns(rows)`` gives rows of A (n, c) on the device. Columns that inner products cannot tell from the span of
    others count as inside it, and leave rows of zeros in R.
    """
    gram, cross = np.zeros((c, c)), np.zeros((c, targets.shape[1]))
    for rows in row_slices(targets.shape[0], c):
        A = columns(rows)
        gram += to_host(A.T @ A)
        cross += to_host(A.T @ targets[rows, :])
    root, y = pivoted_root(gram, cross, _DEPENDENT * float(gram.diagonal().max(initial=0.0)))
    empty = np.zeros((c - len(y), c + targets.shape[1]))
    R, y = np.vstack([root, empty[:, :c]]), np.vstack([y, empty[:, c:]])
    return R, y, np.maximum(to_host(squares(targets, 0)) - np.einsum("ij,ij->j", y, y), 0.0)


def _by_gram(basis: Basis, X: Array, targets: np.ndarray, root: np.ndarray) -> Rows | None:
    """Many rows of few atoms: as many rows as there are atoms, with the same inner products."""
    weight, N, M = like(X, root), len(root), basis.n_atoms
    squared = 0.0
    for rows in row_slices(N, M):
        squared = squared + squares(basis(X[rows, :]) * weight[rows][:, None], 0)
    norms = to_host(squared).astype(float)
    if not tame(norms).all():
        return None
    scale = np.sqrt(norms)
    divisor = like(X, scale)
    R, y, outside = reduce_by_gram(
        lambda rows: basis(X[rows, :]) * weight[rows][:, None] / divisor, like(X, targets), M
    )  # fmt: skip
    error = float(np.sqrt(np.finfo(float).eps))
    return Rows(DenseDesign.of(R, scale), y, outside, Compression(N, M, 0.0, error))
