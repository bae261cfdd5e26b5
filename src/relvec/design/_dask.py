"""Rows that Dask holds, on this machine's cores or on the workers of a cluster.

A pass over them is a reduction: every chunk of rows is looked at where it lies, a few thousand rows at a time, and the
results are combined in a tree. Dask schedules, moves, retries and recomputes; nothing here keeps anything on a worker,
so that a lost one costs its chunks' work and no more. What comes back to this process are matrices of the size of the
model, and a sample of rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis, scattered
from relvec.design._base import Combine, Compression, Design, OnPiece, Rows, Value
from relvec.design._blocks import DenseDesign
from relvec.design._lowrank import TOLERANCE, partial_cholesky
from relvec.design._source import BLOCK_ROWS, Block, Samples
from relvec.design._stream import _DIRECTIONS, Factor, Moments, _block_rows, _Pass, most_rank, placed, reduced
from relvec.kernels import Kernel
from relvec.progress import report

_FAN = 8  # results combined at once
_DRAWN = 262_144  # rows looked at together for a draw
_SAMPLE = 20_000  # rows that pivots are chosen from
_MOST_RANK = 0.4  # of the sample: above, it does not tell what the others need


def is_dask(X: Any) -> bool:
    """Whether X is a collection of Dask, without importing that.

    >>> is_dask([[1.0]])
    False
    """
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


class Facts(NamedTuple):
    """What is known of rows X (n, d) with targets (n, q): how many, and moments of those with a positive weight."""

    n_rows: int
    n_used: int
    weight: float
    mean: np.ndarray  # (d + q,)
    spread: np.ndarray  # (d + q,) roots of the sums of squares about the means
    low: np.ndarray  # (d,)
    high: np.ndarray  # (d,)
    finite: tuple[bool, bool, bool]  # X, targets, weights
    negative: bool  # a weight

    @classmethod
    def of(cls, X: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> Facts:
        """The facts of some rows."""
        finite = bool(np.isfinite(X).all()), bool(np.isfinite(targets).all()), bool(np.isfinite(weights).all())
        negative = bool(np.any(weights < 0.0))
        values, used = np.column_stack([X, targets]), weights > 0.0
        values, w = values[used], weights[used]
        if negative or not all(finite) or not len(w):
            nothing, d = np.zeros(values.shape[1]), X.shape[1]
            return cls(len(X), 0, 0.0, nothing, nothing, np.full(d, np.inf), np.full(d, -np.inf), finite, negative)
        total = float(w.sum())
        largest = np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)  # whose square may overflow
        mean = largest * ((w / total) @ (values / largest))
        spread = largest * np.sqrt(w @ ((values - mean) / largest) ** 2)
        own = values[:, : X.shape[1]]
        return cls(len(X), len(w), total, mean, spread, own.min(axis=0), own.max(axis=0), finite, negative)

    def merged(self, other: Facts) -> Facts:
        """The facts of both."""
        weight = self.weight + other.weight
        share = other.weight / weight if weight else 0.0
        apart = other.mean - self.mean
        between = np.abs(apart) * np.sqrt(self.weight * share)
        return Facts(
            self.n_rows + other.n_rows,
            self.n_used + other.n_used,
            weight,
            self.mean + share * apart,
            np.hypot(np.hypot(self.spread, other.spread), between),
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
            tuple(a and b for a, b in zip(self.finite, other.finite, strict=True)),  # type: ignore[arg-type]
            self.negative or other.negative,
        )


class DaskSamples(Samples):
    """Samples in the chunks of Dask collections; rows of weight zero are left out.

    Attributes
    ----------
    names : columns of a table X, or None.
    single : whether y is one target, (n,).
    facts : of all rows.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None):
        import dask

        self.names = [str(name) for name in X.columns] if _is_table(X) else None
        X, y = _as_array(X, "X", 2), _as_array(y, "y", None)
        self.single = y.ndim == 1
        chunks = [_chunks(X)]
        chunks += [_chunks(_aligned(v, X, name)) for v, name in ((y, "y"), (sample_weight, "sample_weight"))]
        self._chunks = [dask.delayed(_chunk)(*three) for three in zip(*chunks, strict=True)]
        with _plain_messages():
            facts = dask.compute(*(dask.delayed(_facts)(chunk) for chunk in self._chunks))
        self.facts = reduce(Facts.merged, facts)
        _check(self.facts)
        self._first = np.cumsum([0, *(f.n_used for f in facts)])  # row among those used that each chunk begins with
        self._first_row = np.cumsum([0, *(f.n_rows for f in facts)])
        self.n_rows, self.n_features = self.facts.n_used, X.shape[1]
        self.n_targets = 1 if self.single else y.shape[1]
        self._taken: dict[int, np.ndarray] = {}
        self._scaled = np.ones(self.n_targets)
        self._at_once = BLOCK_ROWS

    def persisted(self) -> DaskSamples:
        """The same rows, kept by Dask in the memory of the workers, or on their disks, and computed anew if lost."""
        import dask

        other = object.__new__(DaskSamples)
        other.__dict__.update(self.__dict__)
        with _plain_messages():
            other._chunks = list(dask.persist(*self._chunks))
        return other

    def in_units(self, units: np.ndarray) -> DaskSamples:
        """The same rows with targets divided by units (q,)."""
        other = object.__new__(DaskSamples)
        other.__dict__.update(self.__dict__)
        other._scaled = units
        return other

    def blocked(self, rows: int) -> DaskSamples:
        other = object.__new__(DaskSamples)
        other.__dict__.update(self.__dict__)
        other._at_once = rows
        return other

    def kept(self, function: Callable[[Block], np.ndarray]) -> list:
        """A function's values (b,) on the rows of every chunk, kept by Dask where they were computed.

        They are given back to functions of `reduce`, and computed anew where a worker is lost.
        """
        import dask

        with _plain_messages():
            return list(dask.persist(*self._values(function, _side_by_side, None)))

    def _values(self, function: Callable, combine: Callable, beside: list | None) -> list:
        import dask

        both = function, combine, self._scaled, self._at_once
        if len(self._chunks) <= _FAN:  # what they are asked goes with every task: sharing it takes another trip
            value = dask.delayed(partial(_value, both))
        else:
            value = partial(dask.delayed(_value), dask.delayed(both, traverse=False))
        places = zip(self._chunks, self._first, beside or [None] * len(self._chunks), strict=False)
        return [value(chunk, int(first), more) for chunk, first, more in places]

    def reduce(
        self, function: Callable[..., Value], combine: Callable[[Value, Value], Value], beside: list | None = None
    ) -> Value:
        """As everywhere; with values ``beside`` the rows, from `kept`, the function is given those of the block too."""
        import dask

        values = self._values(function, combine, beside)
        if len(values) > _FAN:
            both = dask.delayed(combine, traverse=False)
            while len(values) > _FAN:
                values = [dask.delayed(_combined)(both, values[i : i + _FAN]) for i in range(0, len(values), _FAN)]
        with _plain_messages():
            found = _combined(combine, dask.compute(*values))
        if found is None:
            raise ValueError("no rows of positive weight are left: check sample_weight")
        return found

    def take(self, rows: np.ndarray) -> np.ndarray:
        import dask

        rows = np.asarray(rows, dtype=np.intp)
        new = np.array(sorted(set(rows.tolist()) - self._taken.keys()), dtype=np.intp)
        if new.size:
            chunk = np.searchsorted(self._first, new, side="right") - 1
            wanted = [
                dask.delayed(_rows)(self._chunks[c], new[chunk == c] - self._first[c])
                for c in np.unique(chunk).tolist()
            ]
            with _plain_messages():
                self._taken.update(zip(new.tolist(), np.concatenate(dask.compute(*wanted)), strict=True))
        return np.array([self._taken[row] for row in rows.tolist()]).reshape(len(rows), self.n_features)

    def given_rows(self, rows: np.ndarray) -> np.ndarray:
        """Numbers, among all rows given, of rows (k,) among those used."""
        import dask

        if self.facts.n_used == self.facts.n_rows or not len(rows):
            return np.asarray(rows)
        chunk = np.searchsorted(self._first, rows, side="right") - 1
        kept = {c: dask.delayed(_kept)(self._chunks[c]) for c in np.unique(chunk).tolist()}
        (found,) = dask.compute(kept)
        local = rows - self._first[chunk]
        return np.array([self._first_row[c] + found[c][i] for c, i in zip(chunk.tolist(), local, strict=True)])

    def draw(self, size: int) -> Drawn:
        """An even draw of rows, by content: whatever their order and their chunks it is the same."""
        drawn = self.blocked(_DRAWN).reduce(_Draw(size), _Draw(size).combined)
        order = np.argsort(drawn.rows)
        drawn = Drawn(*(values[order] for values in drawn))
        self._taken.update(zip(drawn.rows.tolist(), drawn.X, strict=True))
        return drawn

    def distinct(self, most: int) -> np.ndarray | None:
        """The first of each set of equal rows, ascending; None where they are more than ``most``."""
        found = self.reduce(_Distinct(most), _Distinct(most).combined)
        return None if len(found.rows) > most else np.sort(found.rows)


class Drawn(NamedTuple):
    """Rows of a draw: their scattered content (n,), their numbers (n,), X (n, d), targets (n, q) and weights (n,)."""

    hashed: np.ndarray
    rows: np.ndarray
    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


def _joined(a: Any, b: Any) -> Any:
    """Arrays of two of a kind, one behind the other."""
    return type(a)(*(np.concatenate(pair) for pair in zip(a, b, strict=True)))


@dataclass(frozen=True)
class _Draw:
    size: int

    def __call__(self, block: Block) -> Drawn:
        keys = np.column_stack([np.zeros(len(block.X)), block.X])  # as `Concat.order_keys` has them
        rows = block.start + np.arange(len(block.X))
        return self._lowest(Drawn(scattered(keys), rows, block.X, block.targets, block.weights))

    def combined(self, a: Drawn, b: Drawn) -> Drawn:
        """The lowest of both."""
        return self._lowest(_joined(a, b))

    def _lowest(self, drawn: Drawn) -> Drawn:
        top = np.argsort(drawn.hashed, kind="stable")[: self.size]
        return Drawn(*(values[top] for values in drawn))


class _Rows(NamedTuple):
    hashed: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class _Distinct:
    """The first rows of each content, no more than one too many."""

    most: int

    def __call__(self, block: Block) -> _Rows:
        return self._first(_Rows(scattered(block.X), block.start + np.arange(len(block.X))))

    def combined(self, a: _Rows, b: _Rows) -> _Rows:
        """Those of both."""
        return self._first(_joined(a, b))

    def _first(self, found: _Rows) -> _Rows:
        order = np.argsort(found.rows)
        first = order[np.unique(found.hashed[order], return_index=True)[1]][: self.most + 1]
        return _Rows(found.hashed[first], found.rows[first])


# ---------------------------------------------------------------- a kernel on every row


@dataclass(frozen=True, eq=False)
class RowKernel:
    """A dictionary with a kernel on every row of some samples, and a few functions besides.

    Attributes
    ----------
    basis : the dictionary over a part of the rows; ``part`` is the number of the kernel among its parts.
    samples : the rows.
    """

    basis: Concat
    part: int
    samples: DaskSamples

    @property
    def _kernel(self) -> KernelBasis:
        kernel = self.basis.parts[self.part]
        assert isinstance(kernel, KernelBasis)
        return kernel

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        return self._kernel.kernel

    @property
    def others(self) -> Concat | None:
        """The functions besides."""
        parts = tuple(part for i, part in enumerate(self.basis.parts) if i != self.part)
        return Concat(parts, n_features=self.basis.n_features) if parts else None

    @property
    def n_others(self) -> int:
        """How many those are."""
        return 0 if self.others is None else self.others.n_atoms

    @property
    def n_atoms(self) -> int:
        """Number of atoms: those of the rows first, then the others."""
        return self.samples.n_rows + self.n_others

    @property
    def rows(self) -> np.ndarray:
        """Row each atom stands on (M,); -1 where there is none."""
        return np.append(np.arange(self.samples.n_rows), np.full(self.n_others, -1))

    def take(self, atoms: np.ndarray) -> Concat:
        """The dictionary of some atoms (k,), sorted: those of the rows, then the others."""
        return self._taken(atoms, self.samples.given_rows(atoms[atoms < self.samples.n_rows]))

    def unnumbered(self, atoms: np.ndarray) -> Concat:
        """The same without the numbers of the rows, which may have to be asked for."""
        return self._taken(atoms, None)

    def _taken(self, atoms: np.ndarray, rows: np.ndarray | None) -> Concat:
        own = atoms[atoms < self.samples.n_rows]
        rest = atoms[atoms >= self.samples.n_rows] - self.samples.n_rows
        parts: list[Basis] = []
        if len(own):
            parts.append(KernelBasis(self.kernel, self.samples.take(own), centre_rows=rows))
        if len(rest):
            assert self.others is not None
            parts.append(self.others.take(rest))
        return Concat(tuple(parts), n_features=self.samples.n_features)

    def order(self, atoms: np.ndarray) -> np.ndarray:
        """Ranks (k,) of some atoms among each other, by content."""
        n = self.samples.n_rows
        X = np.zeros((len(atoms), self.samples.n_features))
        X[atoms < n] = self.samples.take(atoms[atoms < n])
        ranks = np.empty(len(atoms), dtype=np.intp)
        ranks[np.lexsort((atoms, *X.T[::-1], atoms >= n))] = np.arange(len(atoms))
        return ranks

    def draw(self, size: int) -> np.ndarray:
        """Atoms of an even draw."""
        return self.samples.draw(size).rows


class Lookup:
    """Numbers of all atoms that are found when some are asked for."""

    def __init__(self, size: int, find: Callable[[np.ndarray], np.ndarray]):
        self._size, self._find = size, find

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, atoms: Any) -> np.ndarray:
        return self._find(np.asarray(atoms, dtype=np.intp))


class DaskDesign(Design):
    """A dictionary (c, M) on the workers: columns are R [0; F(x)] for every row x, over their norms.

    Parameters
    ----------
    dictionary : a kernel on every row, and p functions besides.
    columns : of the kernel, as a function of rows.
    norms : of the kernel's columns, in the chunks of the rows.
    """

    def __init__(self, dictionary: RowKernel, columns: Columns, norms: list):
        self._dictionary, self._columns, self._norms = dictionary, columns, norms
        self._others = columns.R[:, : dictionary.n_others]
        self.scale = Lookup(dictionary.n_atoms, lambda atoms: self._unscaled(atoms)[1])  # type: ignore[assignment]

    @property
    def n_rows(self) -> int:
        return len(self._columns.R)

    def _unscaled(self, atoms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        samples = self._dictionary.samples
        D, own = np.empty((self.n_rows, len(atoms)), order="F"), atoms < samples.n_rows
        D[:, own] = self._columns(samples.take(atoms[own]))
        D[:, ~own] = self._others[:, atoms[~own] - samples.n_rows]
        return D, np.sqrt(np.einsum("ij,ij->j", D, D))

    def columns(self, atoms) -> np.ndarray:
        D, norm = self._unscaled(np.asarray(atoms, dtype=np.intp))
        return D / np.where(norm > 0.0, norm, 1.0)

    def project(self, Y: np.ndarray) -> np.ndarray:
        raise NotImplementedError("a dictionary on the workers is looked at in pieces: see `sweep`")

    def sweep(self, Y: np.ndarray, function: OnPiece[Value], combine: Combine[Value]) -> Value:
        factor, r = self._columns.factor, self._columns.factor.rank
        # Y' R [0; L^-1 k] with what does not depend on the row first
        look = _Sweep(factor.kernel, factor.pivots, Y.T @ self._columns.R[:, -r:] @ factor.inverse, function)
        total = self._dictionary.samples.reduce(look, combine, self._norms)
        if self._dictionary.n_others:
            own = self._dictionary.samples.n_rows + np.arange(self._dictionary.n_others)
            total = combine(total, function(own, Y.T @ self.columns(own)))
        return total

    def subset(self, atoms) -> DenseDesign:
        D, norm = self._unscaled(np.asarray(atoms, dtype=np.intp))
        return DenseDesign.of(D / np.where(norm > 0.0, norm, 1.0), norm)


@dataclass(frozen=True, eq=False)
class Columns:
    """What becomes of rows in the coordinates of a dictionary: R [0; F(x)] (c, b), not divided by its norms."""

    factor: Factor
    R: np.ndarray

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return placed(self.R, True, self.factor(X)) if len(X) else np.zeros((len(self.R), 0))


@dataclass(frozen=True, eq=False)
class _Norms:
    columns: Columns

    def __call__(self, block: Block) -> np.ndarray:
        D = self.columns(block.X)
        return np.sqrt(np.einsum("ij,ij->j", D, D))


@dataclass(frozen=True, eq=False)
class _Sweep:
    """A look at kernels on the rows of a block: M (j, r) takes their values at the pivots to Y'Phi."""

    kernel: Kernel
    pivots: np.ndarray
    M: np.ndarray
    function: Callable

    def __call__(self, block: Block, norms: np.ndarray) -> Any:
        projected = (self.M @ self.kernel(block.X, self.pivots).T) / np.where(norms > 0.0, norms, 1.0)
        return self.function(block.start + np.arange(len(block.X)), projected)


@dataclass(frozen=True, eq=False)
class _Extremes:
    """The rows of a block that go furthest along directions (d, k), and how far."""

    directions: np.ndarray

    def __call__(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        along = block.X @ np.hstack([self.directions, -self.directions])
        best = along.argmax(axis=0)
        return along[best, np.arange(len(best))], block.X[best]

    @staticmethod
    def combined(a: tuple, b: tuple) -> tuple:
        """The furthest of both."""
        further = b[0] > a[0]
        return np.where(further, b[0], a[0]), np.where(further[:, None], b[1], a[1])


def compress_rows(dictionary: RowKernel, memory: float) -> Rows | None:
    """`relvec.design.compress` by reductions on the workers; None where the rank is not low.

    This process and each worker use no more than ``memory`` bytes.

    Pivots come from a sample of the rows, then from what a pass over all rows finds unexplained, until nothing is.
    """
    samples, others = dictionary.samples, dictionary.others
    if not dictionary.kernel.positive_definite:
        return None
    found = row_factor(samples, dictionary.kernel, memory, others)
    if found is None:
        return None
    factor, total, stop = found
    samples = samples.blocked(_block_rows(factor.rank))
    R, y, rest = reduced(samples, factor, others, total)
    columns = Columns(factor, R)
    held = samples.kept(_Norms(columns))
    error = samples.reduce(_Error(stop, total.left), max, held)
    return Rows(DaskDesign(dictionary, columns, held), y, rest, Compression(samples.n_rows, len(R), TOLERANCE, error))


def row_factor(
    samples: DaskSamples, kernel: Any, memory: float, others: Basis | None = None
) -> tuple[Factor, Moments, float] | None:
    """A factor of a kernel on all rows, its moments with the columns of ``others``, and what it may leave of k(x, x).

    None where the rank is not low.
    """
    Z = samples.draw(_SAMPLE).X
    if len(Z) < samples.n_rows:
        d = samples.n_features
        look = _Extremes(np.hstack([np.eye(d), np.random.default_rng(0).standard_normal((d, _DIRECTIONS))]))
        Z = np.vstack([Z, samples.reduce(look, _Extremes.combined)[1]])
    Z = np.unique(Z, axis=0)
    most = min(most_rank(samples.n_rows, memory), int(_MOST_RANK * len(Z)))
    found = partial_cholesky(kernel, Z, 0.5 * TOLERANCE, most)
    if found is None or (others is not None and others.n_atoms > len(found[2])):
        return None
    F, _, pivots = found
    factor = Factor.of(kernel, Z[pivots], np.asfortranarray(np.tril(F[pivots])))
    stop = TOLERANCE * float(kernel.diag(Z).max())
    samples = samples.blocked(_block_rows(factor.rank))
    while True:
        total = samples.reduce(_Pass(factor, others, stop), Moments.__add__)
        report(factor.rank)
        if not len(total.worst):
            return factor, total, stop
        longer = factor.extended(total.worst, 0.5 * stop)
        if longer is None or longer.rank > most:
            return None
        factor = longer


@dataclass(frozen=True)
class _Error:
    """A bound on the largest relative error of the columns of some rows: see `relvec.design.compress`."""

    most_left: float  # of any k(x, x)
    left: float  # of all together

    def __call__(self, block: Block, norms: np.ndarray) -> float:
        return float(np.sqrt(self.most_left * self.left) / max(norms.min(), np.finfo(float).tiny))


# ---------------------------------------------------------------- predictions


def lazily(X: Any, function: Callable[[Any], np.ndarray], shape: tuple[int, ...] = (), dtype: Any = float) -> Any:
    """A function of rows, with values (n, *shape), of every chunk of X: an array of Dask, computed when asked for.

    A table gives its partitions as tables, and an array with chunks of unknown length.
    """
    import dask.array as da
    from dask import delayed

    empty = np.zeros((0, *shape), dtype=dtype)
    if _is_table(X):
        X = X.to_delayed()
        parts = [da.from_delayed(delayed(function)(part), (np.nan, *shape), meta=empty) for part in X]
        return da.concatenate(parts, allow_unknown_chunksizes=True)
    X = _one_column(X)
    if not shape:
        return da.map_blocks(function, X, drop_axis=1, meta=empty)
    chunks = (X.chunks[0], *((size,) for size in shape))
    return da.map_blocks(function, X, chunks=chunks, new_axis=list(range(2, 1 + len(shape))), meta=empty)


def as_series(values: Any, X: Any, names: list[str] | None) -> Any:
    """Values (n,) or (n, q) for the rows of X; for a table a series, or a table with these names, with X's index."""
    if not _is_table(X):
        return values
    import dask.dataframe as dd

    return dd.from_dask_array(values, columns="prediction" if names is None else names, index=X.index)


def check_columns(model: Any, X: Any) -> None:
    """Refuse a collection that has not the columns the model was fitted with."""
    if len(X.shape) != 2 or X.shape[1] != model.n_features_in_:
        raise ValueError(f"X has shape {X.shape}, but the model expects {model.n_features_in_} features as input")
    expected = getattr(model, "feature_names_in_", None)
    if expected is not None and _is_table(X) and [str(name) for name in X.columns] != list(expected):
        raise ValueError(
            f"The feature names should match those that were passed during fit: {list(expected)}, got {list(X.columns)}"
        )


def each_chunk(values: Any, function: Callable[[Any], Any]) -> tuple:
    """A function of every chunk of an array of Dask, computed where the chunks are."""
    import dask

    with _plain_messages():
        return dask.compute(*(dask.delayed(function)(chunk) for chunk in _chunks(values)))


def gathered(*collections: Any) -> tuple:
    """Collections of Dask brought here; others as they are."""
    import dask

    return dask.compute(*collections)


# ---------------------------------------------------------------- what runs on the workers

Chunk = tuple[np.ndarray, np.ndarray, np.ndarray]


def _chunk(X: Any, targets: Any, weights: Any) -> Chunk:
    X = np.asarray(X, dtype=np.float64)
    T = np.asarray(targets, dtype=np.float64).reshape(len(targets), -1)
    w = np.ones(len(X)) if weights is None else np.asarray(weights, dtype=np.float64).ravel()
    if not len(X) == len(T) == len(w):
        raise ValueError(
            f"a chunk of X has {len(X)} rows, the same chunk of y {len(T)} and of sample_weight {len(w)}: "
            "give all three the same chunks or partitions"
        )
    return X, T, w


def _facts(chunk: Chunk) -> Facts:
    return Facts.of(*chunk)


def _used(chunk: Chunk) -> Chunk:
    X, T, w = chunk
    used = w > 0.0
    return chunk if used.all() else (X[used], T[used], w[used])


def _value(both: tuple, chunk: Chunk, first: int, beside: np.ndarray | None) -> Any:
    function, combine, units, at_once = both
    X, T, w = _used(chunk)

    def value(start: int) -> Any:
        part = slice(start, start + at_once)
        block = Block(first + start, X[part], T[part] / units, w[part])
        return function(block) if beside is None else function(block, beside[part])

    return reduce(combine, map(value, range(0, len(X), at_once))) if len(X) else None


def _combined(combine: Callable, values: Sequence) -> Any:
    there = [value for value in values if value is not None]
    # what a task has been given stays as it is: it may be needed again where a worker is lost
    return reduce(combine, there[1:], deepcopy(there[0])) if there else None


def _side_by_side(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.concatenate([a, b])


def _rows(chunk: Chunk, local: np.ndarray) -> np.ndarray:
    return _used(chunk)[0][local]


def _kept(chunk: Chunk) -> np.ndarray:
    return np.flatnonzero(chunk[2] > 0.0)


# ---------------------------------------------------------------- what is given


def _is_table(X: Any) -> bool:
    return is_dask(X) and "array" not in type(X).__module__.split(".")


def _as_array(values: Any, name: str, ndim: int | None) -> Any:
    """A collection of Dask as an array of Dask; other arrays as they are."""
    with _plain_messages():
        array = values.to_dask_array() if _is_table(values) else values if is_dask(values) else np.asarray(values)
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimensions (n_samples, n_features), got {array.ndim}")
    return array


def _one_column(values: Any) -> Any:
    return values.rechunk({1: -1}) if values.ndim == 2 and values.numblocks[1] > 1 else values


def _chunks(values: Any) -> list:
    return _one_column(values).to_delayed().ravel().tolist()


def _aligned(values: Any, X: Any, name: str) -> Any:
    """Values (n,) or (n, q) in the chunks of the rows of X; ones for None."""
    import dask.array as da

    if values is None:
        return da.map_blocks(lambda chunk: np.ones(len(chunk)), _one_column(X), drop_axis=1, dtype=float)
    values = _as_array(values, name, None)
    if values.ndim not in (1, 2):
        raise ValueError(f"{name} must have one or two dimensions, got {values.ndim}")
    known = not np.isnan(X.shape[0]), not np.isnan(values.shape[0])
    if all(known):
        if X.shape[0] != values.shape[0]:
            raise ValueError(
                f"Found input variables with inconsistent numbers of samples: X {X.shape[0]}, {name} {values.shape[0]}"
            )
        if isinstance(values, np.ndarray):
            return da.from_array(values, chunks=(X.chunks[0], *values.shape[1:]))
        return values.rechunk({0: X.chunks[0]})
    if isinstance(values, np.ndarray) or values.numblocks[0] != X.numblocks[0]:
        raise ValueError(
            f"X or {name} has chunks of unknown length, so both must have the same partitions: take them from one "
            "table, or call compute_chunk_sizes() on both"
        )
    return values


def _check(facts: Facts) -> None:
    for name, finite in zip(("X", "y", "sample_weight"), facts.finite, strict=True):
        if not finite:
            raise ValueError(f"Input {name} contains NaN or infinity: remove or impute such rows")
    if facts.negative:
        raise ValueError("Negative values in data passed to `sample_weight`")
    if facts.n_used < 2:
        raise ValueError(f"at least 2 samples need a positive weight, got {facts.n_used}: check sample_weight")


@contextmanager
def _plain_messages() -> Iterator[None]:
    """Without the scheduler's advice to scatter what a pass needs: what is scattered is lost with its worker.

    Nor word of strings that become objects, as they would in memory.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        warnings.filterwarnings("ignore", message="Dask currently has limited support for converting pandas extension")
        yield
