"""Kernels on centres as basis functions, columns of a kernel matrix computed beforehand, and any functions of X."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from relvec.basis.base import (
    Basis,
    ParameterFreeBasis,
    Seed,
    abbreviate,
    freeze,
    name_row,
    rows_of_positive_weight,
    set_fields,
)
from relvec.kernels import Kernel, as_kernel, as_rows, check_values
from relvec.runtime.arrays import is_device_array, like, take, to_host, unique_rows
from relvec.runtime.record import is_index


@dataclass(frozen=True, eq=False, repr=False)
class KernelBasis(Basis):
    """The atoms k(x, z_m), one for each centre z_m, of a kernel (or anything that `as_kernel` takes).

    The centres are the training rows: each distinct row once, in lexicographic order, none of weight zero.
    `centres` (M, d) gives others; `n_random=M` draws them uniformly in the bounding box of the training rows.

    >>> basis = KernelBasis("gaussian").bind([[2.0], [0.0], [2.0]])
    >>> basis.labels()
    ['K(., row 1)', 'K(., row 0)']
    >>> basis.take([1])
    KernelBasis(Gaussian(width=0.94...), 1 centre)
    """

    SHAPES: ClassVar[dict[str, str]] = {"centres": "md", "centre_rows": "m"}

    kernel: Kernel
    centres: np.ndarray | None = None
    n_random: int | None = None
    centre_rows: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.n_random is not None and (self.centres is not None or self.n_random < 1):
            raise ValueError("n_random must be a positive number, without centres; give one of the two")
        centres = None if self.centres is None else freeze(as_rows(self.centres))
        set_fields(self, kernel=as_kernel(self.kernel), centres=centres)

    def __repr__(self) -> str:
        if self.centres is None:
            what = "" if self.n_random is None else f", n_random={self.n_random}"
        else:
            what = f", {len(self.centres)} centre{'s' if len(self.centres) != 1 else ''}"
        return f"KernelBasis({self.kernel!r}{what})"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        kernel, kept = self.kernel.resolve(X, sample_weight), rows_of_positive_weight(X, sample_weight)
        if self.centres is not None:
            return replace(self, kernel=kernel)
        if self.n_random is not None:
            low, high = X[kept].min(axis=0), X[kept].max(axis=0)
            draws = np.random.default_rng(rng).uniform(size=(self.n_random, X.shape[1]))
            return KernelBasis(kernel, low + draws * (high - low))  # TF03 section 4.2: candidates drawn at random
        centres, first, _ = unique_rows(X if len(kept) == len(X) else X[kept])
        return KernelBasis(kernel, centres, centre_rows=freeze(kept[first]))

    @property
    def n_features(self) -> int | None:
        return None if self.centres is None else self.centres.shape[1]

    @property
    def n_atoms(self) -> int:
        return len(self.bound_centres())

    @property
    def rows(self) -> np.ndarray:
        return np.full(self.n_atoms, -1) if self.centre_rows is None else self.centre_rows

    @property
    def theta(self) -> np.ndarray:
        return self.kernel.theta

    def with_theta(self, theta: ArrayLike) -> Basis:
        return replace(self, kernel=self.kernel.with_theta(theta))

    def learned_mask(self, n_features: int) -> np.ndarray:
        return self.kernel.learned_mask(n_features)

    def labels(self) -> list[str]:
        return [name_row(row) if row >= 0 else _name_centre(z) for row, z in zip(self.rows, self.bound_centres())]

    def order_keys(self) -> np.ndarray | None:
        return self.bound_centres()

    def bound_centres(self) -> np.ndarray:
        """Return the centres (M, d); a ValueError before `bind`."""
        self._require_bound()
        assert self.centres is not None
        return self.centres

    def _columns(self, X: np.ndarray) -> np.ndarray:
        return self.kernel(X, self.bound_centres())

    def _take(self, atoms: np.ndarray) -> Basis:
        rows = None if self.centre_rows is None else freeze(self.centre_rows[atoms])
        return KernelBasis(self.kernel, self.bound_centres()[atoms], centre_rows=rows)

    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.kernel.vjp(X, self.bound_centres(), Phi_bar)


@dataclass(frozen=True, eq=False, repr=False)
class Precomputed(ParameterFreeBasis):
    """The columns of a kernel matrix computed beforehand: X is (N, N) at `bind`, (n, N) afterwards.

    >>> basis = Precomputed().bind([[1.0, 0.5], [0.5, 1.0]], sample_weight=[0.0, 1.0])
    >>> basis([[0.3, 0.7]])
    array([[0.7]])
    """

    SHAPES: ClassVar[dict[str, str]] = {"columns": "m"}

    columns: np.ndarray | None = field(default=None, kw_only=True)
    n_features: int | None = field(default=None, kw_only=True)

    def __repr__(self) -> str:
        return (
            "Precomputed()"
            if self.columns is None
            else f"Precomputed({len(self.columns)} of {self.n_features} columns)"
        )

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        if self.n_features is not None:
            return self
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                f"a precomputed kernel matrix must be square at fit, (N, N), got shape {X.shape}: "
                "give k(x_i, x_j) for all pairs of training rows, or the inputs themselves and a kernel"
            )
        return Precomputed(columns=freeze(rows_of_positive_weight(X, sample_weight)), n_features=len(X))

    @property
    def n_atoms(self) -> int:
        return len(self.rows)

    @property
    def rows(self) -> np.ndarray:
        self._require_bound()
        assert self.columns is not None
        return self.columns

    def labels(self) -> list[str]:
        return [name_row(row) for row in self.rows]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        return take(X, self.rows, axis=1)

    def _take(self, atoms: np.ndarray) -> Basis:
        return Precomputed(columns=freeze(self.rows[atoms]), n_features=self.n_features)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return self.columns is None or is_index(self.columns, self.n_features or 0)


def _name_centre(z: np.ndarray) -> str:
    return f"K(., [{abbreviate([f'{value:.4g}' for value in z])}])"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Functions(ParameterFreeBasis):
    """Any functions of X (n, d), each returning one atom (n,) or several (n, m).

    >>> import numpy as np
    >>> basis = Functions(np.cos, lambda X: X[:, 0] > 2).bind([[1.0], [3.0]])
    >>> basis.labels()
    ['cos', 'f1']
    >>> basis([[0.0], [np.pi]])
    array([[ 1.,  0.],
           [-1.,  1.]])
    """

    functions: tuple[Callable[[np.ndarray], ArrayLike], ...]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ()  # () for a function that returns (n,), (m,) for one that returns (n, m)
    atoms: tuple[tuple[int, int], ...] = ()  # (function, column of its result)
    n_features: int | None = None

    def __init__(self, *functions: Callable[[np.ndarray], ArrayLike]) -> None:
        if not functions or not all(callable(function) for function in functions):
            raise ValueError(f"Functions needs one or more functions of X (n, d); got {functions!r}")
        names = tuple(_name_function(function, i) for i, function in enumerate(functions))
        set_fields(self, functions=functions, names=names, shapes=(), atoms=(), n_features=None)

    def __repr__(self) -> str:
        return f"Functions({abbreviate(self.names if self.n_features is None else self.labels())})"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        if self.n_features is not None:
            return self
        some = X[:3]  # a few rows tell how many columns a function returns
        shapes = tuple(np.shape(function(some))[1:] for function in self.functions)
        atoms = tuple((f, column) for f, shape in enumerate(shapes) for column in range(int(np.prod(shape))))
        return set_fields(copy(self), shapes=shapes, atoms=atoms, n_features=X.shape[1])

    @property
    def n_atoms(self) -> int:
        self._require_bound()
        return len(self.atoms)

    def labels(self) -> list[str]:
        self._require_bound()
        return [self.names[f] + ("" if self.shapes[f] in ((), (1,)) else f"[{c}]") for f, c in self.atoms]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        if is_device_array(X):  # the functions are called with NumPy arrays
            return like(X, self._columns(to_host(X)))
        results = [self._call(f, X) for f in range(len(self.functions))]
        return np.column_stack([results[f][:, c] for f, c in self.atoms])

    def _call(self, f: int, X: np.ndarray) -> np.ndarray:
        hint = f"It was called with X {X.shape}: return one value, or a fixed number of values, for each row."
        shape = (len(X), *self.shapes[f]) if len(self.shapes[f]) < 2 else (len(X),)
        values = check_values(self.functions[f](X), [shape], f"the basis function {self.names[f]!r}", hint)
        return values.reshape(len(X), -1)

    def _take(self, atoms: np.ndarray) -> Basis:
        kept = [self.atoms[m] for m in atoms]
        used = sorted({f for f, _ in kept})
        return set_fields(
            copy(self),
            functions=tuple(self.functions[f] for f in used),
            names=tuple(self.names[f] for f in used),
            shapes=tuple(self.shapes[f] for f in used),
            atoms=tuple((used.index(f), column) for f, column in kept),
        )


def _name_function(function: Callable, position: int) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"f{position}" if name == "<lambda>" else name
