"""Designs that are approximate as a whole and exact column by column, in memory or on a device.

Scans of the dictionary propose moves, which the refitted evidence confirms: a few digits are enough for them. The
columns of a model are computed from the basis again, so its mode and evidence are exact. `SingleDesign` holds Phi in
single precision; `FactorDesign` holds Phi ~= G D' with G (n, c) and D (M, c). Regression reduces its rows once
(`relvec.design.low_rank`); here the curvature B changes from step to step, so the n rows stay, and a scan costs
n k c + c k M instead of n k M. The squares of the entries, which phi' B phi asks for, are themselves a positive
definite kernel and have a factor of their own.
"""

from __future__ import annotations

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis, numbers_per_entry
from relvec.design.arrays import ArrayDesign
from relvec.design.cholesky import MAX_RANK_SHARE, MIN_ROWS_TO_COMPRESS, SquaredKernel, kernel_on_training_rows
from relvec.design.dense import DenseDesign, weighted_squares
from relvec.design.low_rank import factor_columns, split_parts
from relvec.runtime.arrays import Array, dots, is_device_array, like, namespace, row_slices, take, to_host
from relvec.runtime.machine import product

MODEL_BYTES_PER_ROW = 3200  # in the models of a search: eight arrays of fifty columns
_SINGLE_BYTES = 5.0  # of an entry of the matrix in single precision, with the numbers that compute it
_FACTOR_BYTES = 36  # for a row and a column of the factor: two factors of both sides, while they are made
_HELD_NUMBERS_PER_BYTE = 1 / 128  # numbers of exact columns kept for a byte of the memory limit
_MIN_SCAN_ATOMS = 64  # atoms that are scanned whatever the memory limit
_MIN_SINGLE_NUMBERS = 2_000_000  # above, scans read the matrix from memory and its size decides
_MAX_BLOCK_NUMBERS = 2_000_000  # of the basis computed at once
_MAX_HELD_NUMBERS, _MAX_HELD_NUMBERS_ON_DEVICE = 32_000_000, 2**31  # of exact columns kept


class ColumnCache:
    """Exact columns of a bound basis on the rows X (n, d); the last ones computed are kept, up to ``max_numbers``."""

    def __init__(self, basis: Basis, X: Array, max_numbers: int):
        self.basis, self.X, self.max_numbers = basis, X, max_numbers
        self._held: dict[int, Array] = {}

    def columns(self, atoms: list[int]) -> Array:
        """The columns (n, k) of the given atoms."""
        held = {a: c for a in atoms if (c := self._held.get(a)) is not None}  # other threads may empty the store
        new = [a for a in dict.fromkeys(atoms) if a not in held]
        n = self.X.shape[0]
        fresh: dict[int, Array] = {}
        for some in row_slices(len(new), n, _MAX_BLOCK_NUMBERS) if new else ():
            columns = self.basis.take(new[some])(self.X)
            fresh.update((a, _own(columns[:, j])) for j, a in enumerate(new[some]))
        if new:
            if (len(self._held) + len(new)) * n > self.max_numbers:
                self._held = dict(held)
            self._held.update(fresh)
            held.update(fresh)
        if not isinstance(self.X, np.ndarray):
            return namespace(self.X).stack([held[a] for a in atoms], axis=1) if atoms else self.X[:, :0]
        columns = np.empty((n, len(atoms)), order="F")
        for j, a in enumerate(atoms):
            columns[:, j] = held[a]
        return columns


def _own(column: Array) -> Array:
    return column.copy() if isinstance(column, np.ndarray) else column


class ExactColumns(ArrayDesign):
    """A design of some atoms of a cache of exact columns."""

    scan_error = 1e-5  # of the approximation

    def __init__(self, cache: ColumnCache, atoms: np.ndarray, scale: np.ndarray):
        self._cache, self._atoms, self.scale = cache, atoms, scale

    @property
    def n_rows(self) -> int:
        return self._cache.X.shape[0]

    def columns(self, atoms) -> Array:
        atoms = np.asarray(atoms, dtype=np.intp)
        columns, scale = self._cache.columns(self._atoms[atoms].tolist()), self.scale[atoms]
        safe = like(columns, np.where(scale > 0.0, scale, 1.0))
        if not isinstance(columns, np.ndarray):
            return columns / safe
        columns /= safe
        return columns


class SingleDesign(ExactColumns):
    """Phi (n, M) held in single precision: half the memory, and scans twice as fast.

    >>> import numpy as np
    >>> from relvec.basis import Concat, KernelBasis
    >>> X = np.linspace(0.0, 10.0, 20)[:, None]
    >>> design = single_design(Concat((KernelBasis("gaussian"), "bias")).bind(X), X)
    >>> design.n_atoms, design.project(np.ones((20, 1))).dtype.name
    (21, 'float64')
    """

    def __init__(self, cache: ColumnCache, atoms: np.ndarray, scale: np.ndarray, Phi: np.ndarray):
        super().__init__(cache, atoms, scale)
        self._Phi = Phi

    @property
    def scan_size(self) -> float:
        return 0.5 * self._Phi.size

    def approximate(self, atoms) -> np.ndarray:
        return self._Phi[:, atoms].astype(float)

    def project(self, Y: np.ndarray) -> np.ndarray:
        return (Y.T.astype(np.float32) @ self._Phi).astype(float)

    def diagonal(self, W: np.ndarray) -> np.ndarray:
        return weighted_squares(self._Phi, W.astype(np.float32)).astype(float)

    def subset(self, atoms) -> SingleDesign:
        Phi = np.asfortranarray(self._Phi[:, atoms])
        return SingleDesign(self._cache, self._atoms[atoms], self.scale[atoms], Phi)


def single_design(basis: Basis, X: np.ndarray, memory: float = 4e9) -> SingleDesign | DenseDesign:
    """The basis on the rows X (n, d) in single precision, or in double where its numbers are out of range.

    Blocks take a tenth of ``memory`` bytes while they are computed.
    """
    Phi = np.empty((len(X), basis.n_atoms), dtype=np.float32)
    norms, largest = np.zeros(basis.n_atoms), np.zeros(basis.n_atoms)
    numbers = min(_MAX_BLOCK_NUMBERS, 0.1 * memory / (8 * numbers_per_entry(basis)))
    rows = max(1, int(numbers // basis.n_atoms))
    with np.errstate(over="ignore", invalid="ignore"):  # such numbers are left to the dense design
        for start in range(0, len(X), rows):
            block = basis(X[start : start + rows])
            Phi[start : start + rows] = block
            norms += np.einsum("ij,ij->j", block, block)
            largest = np.maximum(largest, np.maximum(block.max(axis=0), -block.min(axis=0)))
        if not np.all((largest < 1e15) & ((largest > 1e-15) | (largest == 0.0))):
            return DenseDesign(basis(X), overwrite=True)
    scale = np.sqrt(norms)
    Phi /= np.where(scale > 0.0, scale, 1.0).astype(np.float32)
    return SingleDesign(_cache(basis, X, memory), np.arange(basis.n_atoms), scale, Phi)


def _cache(basis: Basis, X: Array, memory: float) -> ColumnCache:
    if is_device_array(X):
        return ColumnCache(basis, X, _MAX_HELD_NUMBERS_ON_DEVICE)
    return ColumnCache(basis, X, int(min(_MAX_HELD_NUMBERS, _HELD_NUMBERS_PER_BYTE * memory)))


Pair = tuple[Array, Array]  # G (n, c) and D (M, c)


class FactorDesign(ExactColumns):
    """Phi (n, M) with columns of about unit norm, through a low-rank factor.

    Parameters
    ----------
    cache : exact columns of the M atoms.
    values : G (n, c), D (M, c) with basis(X) ~= G D'.
    squares : such a pair for the squares of the entries, where its rank is low too.
    norms2 : (M,) squared lengths of the columns, where they are known better than from the pairs.
    """

    def __init__(self, cache: ColumnCache, values: Pair, squares: Pair | None, norms2: np.ndarray | None = None):
        super().__init__(cache, np.arange(cache.basis.n_atoms), np.ones(cache.basis.n_atoms))
        (self._G, self._D), self._squares = values, squares
        norms2 = self.diagonal(0.0 * cache.X[:, 0] + 1.0) if norms2 is None else norms2
        self.scale = np.sqrt(np.maximum(norms2, 0.0))
        safe = np.where(self.scale > 0.0, self.scale, 1.0)[:, None]
        self._D = self._D / like(self._D, safe)
        if squares is not None:
            self._squares = squares[0], squares[1] / like(squares[1], safe**2)

    @property
    def rank(self) -> int:
        """Columns c of the factor."""
        return self._G.shape[1]

    @property
    def scan_size(self) -> float:
        return (self.n_rows + self.n_atoms) * self.rank

    def approximate(self, atoms) -> Array:
        columns = product(self._G, take(self._D, atoms).T)
        return columns.astype(float, copy=False) if isinstance(columns, np.ndarray) else columns

    def project(self, Y: Array) -> np.ndarray:
        if is_device_array(Y):
            return to_host(self._D @ (self._G.T @ Y)).T.astype(float)
        return product(product(Y.T.astype(self._G.dtype, copy=False), self._G), self._D.T).astype(float, copy=False)

    def diagonal(self, W: Array) -> np.ndarray:
        if self._squares is not None:
            E, R = self._squares
            if is_device_array(W):
                return to_host(R @ (E.T @ W)).T.astype(float)
            return ((W.T.astype(E.dtype, copy=False) @ E) @ R.T).astype(float, copy=False)
        if W.ndim == 2:
            return np.stack([self.diagonal(W[:, c]) for c in range(W.shape[1])])
        inner = self._G.T @ (self._G * W[:, None])
        return to_host(dots(self._D @ inner, self._D)).astype(float)

    def subset(self, atoms) -> FactorDesign:
        part = object.__new__(FactorDesign)
        ExactColumns.__init__(part, self._cache, self._atoms[atoms], self.scale[atoms])
        part._G, part._D = self._G, take(self._D, atoms)
        part._squares = None if self._squares is None else (self._squares[0], take(self._squares[1], atoms))
        return part


def scan_design(basis: Basis, X: np.ndarray, compression: bool = True, memory: float = 4e9) -> ArrayDesign | None:
    """The dictionary on the rows X (n, d) for scans: through a low-rank factor where that is smaller.

    Otherwise the whole matrix, in single precision where it is large; None where that exceeds ``memory`` bytes.

    >>> import numpy as np
    >>> from relvec.basis import Concat, KernelBasis
    >>> X = np.linspace(0.0, 10.0, 600)[:, None]
    >>> design = scan_design(Concat((KernelBasis("gaussian"), "bias")).bind(X), X)
    >>> type(design).__name__, design.n_atoms
    ('FactorDesign', 601)
    """
    room = memory - MODEL_BYTES_PER_ROW * len(X)
    design = factor_design(basis, X, room, memory) if compression else None
    if design is not None:
        return design
    if basis.n_atoms > max_scan_atoms(len(X), memory):
        return None
    if len(X) * basis.n_atoms > _MIN_SINGLE_NUMBERS:
        return single_design(basis, X, memory)
    with np.errstate(over="ignore", invalid="ignore"):  # numbers that are not finite are refused by the design
        return DenseDesign(basis(X), overwrite=True)


def scan_bytes(n_rows: int, n_atoms: int) -> float:
    """Memory that `scan_design` takes for a matrix of this size and the models on its rows."""
    return n_rows * (MODEL_BYTES_PER_ROW + _SINGLE_BYTES * (n_atoms + 1))


def max_scan_atoms(n_rows: int, memory: float) -> int:
    """The longest dictionary that `scan_design` takes as a matrix on so many rows; some atoms are always possible."""
    room = memory - MODEL_BYTES_PER_ROW * n_rows
    return max(int(min(room / (_SINGLE_BYTES * n_rows), 2.0**31)), _MIN_SCAN_ATOMS)


def factor_design(basis: Basis, X: Array, room: float = np.inf, memory: float = 4e9) -> FactorDesign | None:
    """The dictionary on the rows X (n, d) through a factor of at most ``room`` bytes; None for a high rank."""
    part = kernel_on_training_rows(basis)
    n = X.shape[0]
    if part is None or n < MIN_ROWS_TO_COMPRESS or part.centres is None or part.n_atoms != n:
        return None
    if basis.n_atoms - n > 0.1 * n or not bool(namespace(X).all(X == like(X, part.centres))):
        return None
    assert isinstance(basis, Concat)
    p, max_rank = basis.n_atoms - n, int(min(MAX_RANK_SHARE * n, room / (_FACTOR_BYTES * n)))
    if max_rank < 1:
        return None
    found = factor_columns(part.kernel, X, max_rank, p)
    if found is None:
        return None
    G = found[0]
    found = factor_columns(SquaredKernel(part.kernel), X, max_rank, p)
    if found is None:
        return FactorDesign(_cache(basis, X, memory), _all_atoms(basis, part, X, G, 1), None)
    E, R = _all_atoms(basis, part, X, found[0], 2)
    norms2 = R @ E.sum(axis=0) if isinstance(E, np.ndarray) else None
    squares = _single(E), _single(R)
    del found, E, R
    G, D = _all_atoms(basis, part, X, G, 1)
    return FactorDesign(_cache(basis, X, memory), (_single(G), _single(D)), squares, norms2)


def _single(A: Array) -> Array:
    """In single precision on the host: a hundred times finer than `ExactColumns.scan_error`, half as much to read."""
    return A.astype(np.float32) if isinstance(A, np.ndarray) else A


def _all_atoms(basis: Concat, part: KernelBasis, X: Array, G: Array, power: int) -> Pair:
    """G (n, p + r) with the powers of the other p columns before the kernel's factor, and D (M, p + r) of all atoms."""
    kernel_atoms, others = split_parts(basis, part)
    n, p = X.shape[0], basis.n_atoms - X.shape[0]
    column = 0
    for other, where in others:
        G[:, column : column + len(where)] = other(X) ** power
        column += len(where)
    if isinstance(G, np.ndarray):
        D = np.zeros((basis.n_atoms, G.shape[1]))
        D[kernel_atoms, p:] = G[:, p:]
        for j, where in enumerate(np.concatenate([w for _, w in others]) if others else ()):
            D[where, j] = 1.0
        return G, D
    xp = namespace(G)
    D = xp.concat([xp.concat([0.0 * G[:, :p], G[:, p:]], axis=1), like(G, np.eye(p, G.shape[1]))])
    order = np.concatenate([kernel_atoms, *(where for _, where in others)])
    return G, D if np.array_equal(order, np.arange(n + p)) else take(D, np.argsort(order))
