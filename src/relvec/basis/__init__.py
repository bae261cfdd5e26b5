"""Dictionaries of basis functions: the M atoms phi_m(x) a model may choose from.

A `Basis` is immutable. `bind(X)` fixes what depends on the training rows (centres, widths, number of features)
and gives a new one; `basis(X)` is the design matrix Phi (n, M); `take(atoms)` keeps some atoms and only what they
need, which is all a fitted model stores.
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from relvec.kernels import (
    FromCallable,
    Kernel,
    Product,
    Sum,
    as_kernel,
    as_rows,
    in_numbers,
    real_finite,
    scale_width,
    split_theta,
)
from relvec.runtime.arrays import is_device_array, like, namespace, take, to_host, unique_rows

__all__ = ["Basis", "Bias", "Concat", "Functions", "KernelBasis", "Linear", "Polynomial", "Precomputed", "as_basis",
           "multi_scale"]  # fmt: skip

Seed = np.random.Generator | int | None


class Basis(ABC):
    """A dictionary of M atoms, functions of a row x of d features; two are equal where all they hold is equal."""

    @property
    @abstractmethod
    def n_features(self) -> int | None:
        """Number d of columns X must have; None before `bind`."""

    @property
    @abstractmethod
    def n_atoms(self) -> int:
        """Number M of atoms."""

    @property
    @abstractmethod
    def rows(self) -> np.ndarray:
        """Training row each atom is centred on, shape (M,); -1 where there is none."""

    @property
    @abstractmethod
    def theta(self) -> np.ndarray:
        """Logarithms of the free positive parameters, shape (p,)."""

    @abstractmethod
    def with_theta(self, theta: ArrayLike) -> Basis:
        """Give the same atoms the parameters exp(theta), theta of shape (p,)."""

    @abstractmethod
    def learned(self, n_features: int) -> np.ndarray:
        """Which entries of theta are to be learned once bound to d features, shape (p,); asked before `bind`."""

    @abstractmethod
    def labels(self) -> list[str]:
        """Return a short name for each atom."""

    @abstractmethod
    def order_keys(self) -> np.ndarray | None:
        """Content (M, q) that ranks equally good atoms, whatever the order of the rows; None: by position."""

    @abstractmethod
    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis: ...

    @abstractmethod
    def _columns(self, X: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def _take(self, atoms: np.ndarray) -> Basis: ...

    @abstractmethod
    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...

    def bind(self, X: ArrayLike, sample_weight: ArrayLike | None = None, rng: Seed = None) -> Basis:
        """Fix what depends on the training rows X (N, d), their weights (N,) and chance; atoms once fixed stay."""
        return self._bind(as_rows(X) if self.n_features is None else self._checked(X), sample_weight, rng)

    def __call__(self, X: ArrayLike) -> np.ndarray:
        """Return the design matrix phi_m(x_i), shape (n, M): float64, or in the array library of X."""
        return self._columns(self._checked(X))

    def take(self, atoms: ArrayLike) -> Basis:
        """Keep the `atoms` (k,), indices without repetition or a mask, in the order given."""
        M, index = self.n_atoms, np.asarray(atoms)
        if index.dtype == bool and index.shape == (M,):
            index = np.flatnonzero(index)
        if index.size == 0:
            return Concat((), n_features=self.n_features)
        if index.ndim != 1 or index.dtype.kind not in "iu" or len(np.unique(index)) < index.size:
            raise ValueError(f"atoms must be different indices, or a mask of length {M}; got {atoms!r}")
        if index.min() < 0 or index.max() >= M:
            raise ValueError(f"atoms must lie between 0 and {M - 1}; got {atoms!r}")
        return self._take(index)

    def vjp(self, X: ArrayLike, Phi_bar: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of sum(Phi_bar * basis(X)) with respect to theta (p,) and to the centres (M, d).

        Atoms without a centre have zeros there.
        """
        X, bar = self._checked(X), np.asarray(Phi_bar, dtype=np.float64)
        if bar.shape != (len(X), self.n_atoms):
            raise ValueError(f"Phi_bar must have the shape of Phi, {(len(X), self.n_atoms)}; got {bar.shape}")
        return self._vjp(X, bar)

    def _checked(self, X: ArrayLike) -> np.ndarray:
        X = as_rows(X)
        self._require_bound()
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, but the basis was bound to {self.n_features}")
        return X

    def _require_bound(self) -> None:
        if self.n_features is None:
            raise ValueError(f"{self!r} does not know its training rows yet: call bind(X) first")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(_same(value, vars(other)[name]) for name, value in vars(self).items())

    __hash__ = None  # type: ignore[assignment]


class _Unparametrised(Basis):
    """Atoms without centres or free parameters."""

    @property
    def theta(self) -> np.ndarray:
        return np.empty(0)

    def with_theta(self, theta: ArrayLike) -> Basis:
        if np.shape(theta) != (0,):
            raise ValueError(f"{self!r} has no parameters; got theta of shape {np.shape(theta)}")
        return self

    def learned(self, n_features: int) -> np.ndarray:
        return np.zeros(0, dtype=bool)

    def order_keys(self) -> np.ndarray | None:
        return None

    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.theta, np.zeros((self.n_atoms, X.shape[1]))


Term = tuple[int, ...]


class _Monomials(_Unparametrised):
    """Products of inputs: the term (0, 0, 2) is x0^2*x2 and the term () is 1."""

    terms: tuple[Term, ...]

    @abstractmethod
    def _terms_of(self, d: int) -> list[Term]:
        """All terms for d features."""

    def __repr__(self) -> str:
        if self.n_features is not None:
            return f"{type(self).__name__}({_shortened(self.labels())})"
        shown = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        if self.n_features is not None:
            return self
        d = X.shape[1]
        return replace(self, terms=tuple(self._terms_of(d)), n_features=d)  # type: ignore[type-var]

    @property
    def n_atoms(self) -> int:
        self._require_bound()
        return len(self.terms)

    @property
    def rows(self) -> np.ndarray:
        return np.full(self.n_atoms, -1)

    def labels(self) -> list[str]:
        self._require_bound()
        return [_monomial_name(term) for term in self.terms]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        xp = namespace(X)
        if xp is not np:
            ones = 0.0 * X[:, 0] + 1.0
            return xp.stack([reduce(operator.mul, [X[:, k] for k in term], ones) for term in self.terms], axis=1)
        Phi = np.empty((len(X), self.n_atoms))
        for m, term in enumerate(self.terms):
            Phi[:, m] = X[:, list(term)].prod(axis=1)
        return Phi

    def _take(self, atoms: np.ndarray) -> Basis:
        return replace(self, terms=tuple(self.terms[m] for m in atoms))  # type: ignore[type-var]


@dataclass(frozen=True, eq=False, repr=False)
class Bias(_Monomials):
    """The constant 1.

    >>> Bias().bind([[3.0], [4.0]])([[5.0], [6.0]])
    array([[1.],
           [1.]])
    """

    terms: tuple[Term, ...] = field(default=(), kw_only=True, repr=False)
    n_features: int | None = field(default=None, kw_only=True, repr=False)

    def _terms_of(self, d: int) -> list[Term]:
        return [()]


@dataclass(frozen=True, eq=False, repr=False)
class Linear(_Monomials):
    """The inputs themselves: all of them, or those of the columns `features` (T01 section 4.3).

    >>> Linear(features=(0, 2)).bind([[1.0, 2.0, 3.0]]).labels()
    ['x0', 'x2']
    """

    features: tuple[int, ...] | None = None
    terms: tuple[Term, ...] = field(default=(), kw_only=True, repr=False)
    n_features: int | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.features is not None:
            object.__setattr__(self, "features", tuple(int(k) for k in self.features))

    def _terms_of(self, d: int) -> list[Term]:
        features = range(d) if self.features is None else self.features
        if not all(0 <= k < d for k in features) or len(set(features)) < len(features):
            raise ValueError(f"features must be different columns from 0 to {d - 1}; got {self.features}")
        return [(k,) for k in features]


@dataclass(frozen=True, eq=False, repr=False)
class Polynomial(_Monomials):
    """Monomials of the inputs up to a total degree, without the constant.

    `interactions=False` leaves powers of single inputs, `include_linear=False` drops the inputs themselves.

    >>> Polynomial(degree=2).bind([[1.0, 2.0]]).labels()
    ['x0', 'x1', 'x0^2', 'x0*x1', 'x1^2']
    """

    degree: int = 2
    interactions: bool = True
    include_linear: bool = True
    terms: tuple[Term, ...] = field(default=(), kw_only=True, repr=False)
    n_features: int | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        lowest = 1 if self.include_linear else 2
        if self.degree != int(self.degree) or self.degree < lowest:
            raise ValueError(f"degree must be a whole number, {lowest} or more; got {self.degree!r}")

    def _terms_of(self, d: int) -> list[Term]:
        powers = range(1 if self.include_linear else 2, int(self.degree) + 1)
        terms = [term for p in powers for term in combinations_with_replacement(range(d), p)]
        return terms if self.interactions else [term for term in terms if len(set(term)) == 1]


@dataclass(frozen=True, eq=False, repr=False, init=False)
class Functions(_Unparametrised):
    """Any functions of X (n, d), each returning one atom (n,) or several (n, m).

    >>> import numpy as np
    >>> basis = Functions(np.cos, lambda X: X[:, 0] > 2).bind([[1.0], [3.0]])
    >>> basis.labels()
    ['cos', 'f1']
    >>> basis([[0.0], [np.pi]])
    array([[ 1.,  0.],
           [-1.,  1.]])
    """

    functions: tuple[Callable[[np.ndarray], Any], ...]
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...] = ()  # () for a function that returns (n,), (m,) for one that returns (n, m)
    atoms: tuple[tuple[int, int], ...] = ()  # (function, column of its result)
    n_features: int | None = None

    def __init__(self, *functions: Callable[[np.ndarray], Any]) -> None:
        if not functions or not all(callable(function) for function in functions):
            raise ValueError(f"Functions needs one or more functions of X (n, d); got {functions!r}")
        names = tuple(_function_name(function, i) for i, function in enumerate(functions))
        _assign(self, functions=functions, names=names, shapes=(), atoms=(), n_features=None)

    def __repr__(self) -> str:
        return f"Functions({_shortened(self.names if self.n_features is None else self.labels())})"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        if self.n_features is not None:
            return self
        some = X[:3]  # a few rows tell how many columns a function returns
        shapes = tuple(np.shape(function(some))[1:] for function in self.functions)
        atoms = tuple((f, column) for f, shape in enumerate(shapes) for column in range(int(np.prod(shape))))
        return _assign(copy(self), shapes=shapes, atoms=atoms, n_features=X.shape[1])

    @property
    def n_atoms(self) -> int:
        self._require_bound()
        return len(self.atoms)

    @property
    def rows(self) -> np.ndarray:
        return np.full(self.n_atoms, -1)

    def labels(self) -> list[str]:
        self._require_bound()
        return [self.names[f] + ("" if self.shapes[f] in ((), (1,)) else f"[{c}]") for f, c in self.atoms]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        if is_device_array(X):  # the functions are called with NumPy arrays
            return like(X, self._columns(to_host(X)))
        results = [self._result(f, X) for f in range(len(self.functions))]
        return np.column_stack([results[f][:, c] for f, c in self.atoms])

    def _result(self, f: int, X: np.ndarray) -> np.ndarray:
        hint = f"It was called with X {X.shape}: return one value, or a fixed number of values, for each row."
        shape = (len(X), *self.shapes[f]) if len(self.shapes[f]) < 2 else (len(X),)
        values = real_finite(self.functions[f](X), [shape], f"the basis function {self.names[f]!r}", hint)
        return values.reshape(len(X), -1)

    def _take(self, atoms: np.ndarray) -> Basis:
        kept = [self.atoms[m] for m in atoms]
        used = sorted({f for f, _ in kept})
        return _assign(
            copy(self),
            functions=tuple(self.functions[f] for f in used),
            names=tuple(self.names[f] for f in used),
            shapes=tuple(self.shapes[f] for f in used),
            atoms=tuple((used.index(f), column) for f, column in kept),
        )


@dataclass(frozen=True, eq=False, repr=False)
class KernelBasis(Basis):
    """The atoms k(x, z_m), one for each centre z_m, of a kernel (or what `as_kernel` makes one of).

    The centres are the training rows: each distinct row once, in lexicographic order, none of weight zero.
    `centres` (M, d) gives others; `n_random=M` draws them uniformly in the bounding box of the training rows.

    >>> basis = KernelBasis("gaussian").bind([[2.0], [0.0], [2.0]])
    >>> basis.labels()
    ['K(., row 1)', 'K(., row 0)']
    >>> basis.take([1])
    KernelBasis(Gaussian(width=0.94...), 1 centre)
    """

    kernel: Kernel
    centres: np.ndarray | None = None
    n_random: int | None = None
    centre_rows: np.ndarray | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.n_random is not None and (self.centres is not None or self.n_random < 1):
            raise ValueError("n_random must be a positive number, without centres; give one of the two")
        centres = None if self.centres is None else _frozen(as_rows(self.centres))
        _assign(self, kernel=as_kernel(self.kernel), centres=centres)

    def __repr__(self) -> str:
        if self.centres is None:
            what = "" if self.n_random is None else f", n_random={self.n_random}"
        else:
            what = f", {len(self.centres)} centre{'s' if len(self.centres) != 1 else ''}"
        return f"KernelBasis({self.kernel!r}{what})"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        kernel, kept = self.kernel.resolve(X, sample_weight), _weighted_rows(X, sample_weight)
        if self.centres is not None:
            return replace(self, kernel=kernel)
        if self.n_random is not None:
            low, high = X[kept].min(axis=0), X[kept].max(axis=0)
            draws = np.random.default_rng(rng).uniform(size=(self.n_random, X.shape[1]))
            return KernelBasis(kernel, low + draws * (high - low))  # TF03 section 4.2: candidates drawn at random
        centres, first, _ = unique_rows(X if len(kept) == len(X) else X[kept])
        return KernelBasis(kernel, centres, centre_rows=_frozen(kept[first]))

    @property
    def n_features(self) -> int | None:
        return None if self.centres is None else self.centres.shape[1]

    @property
    def n_atoms(self) -> int:
        return len(self._centres())

    @property
    def rows(self) -> np.ndarray:
        return np.full(self.n_atoms, -1) if self.centre_rows is None else self.centre_rows

    @property
    def theta(self) -> np.ndarray:
        return self.kernel.theta

    def with_theta(self, theta: ArrayLike) -> Basis:
        return replace(self, kernel=self.kernel.with_theta(theta))

    def learned(self, n_features: int) -> np.ndarray:
        return self.kernel.learned(n_features)

    def labels(self) -> list[str]:
        return [_row_name(row) if row >= 0 else _centre_name(z) for row, z in zip(self.rows, self._centres())]

    def order_keys(self) -> np.ndarray | None:
        return self._centres()

    def _centres(self) -> np.ndarray:
        self._require_bound()
        assert self.centres is not None
        return self.centres

    def _columns(self, X: np.ndarray) -> np.ndarray:
        return self.kernel(X, self._centres())

    def _take(self, atoms: np.ndarray) -> Basis:
        rows = None if self.centre_rows is None else _frozen(self.centre_rows[atoms])
        return KernelBasis(self.kernel, self._centres()[atoms], centre_rows=rows)

    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.kernel.vjp(X, self._centres(), Phi_bar)


@dataclass(frozen=True, eq=False, repr=False)
class Precomputed(_Unparametrised):
    """The columns of a kernel matrix computed beforehand: X is (N, N) at `bind`, (n, N) afterwards.

    >>> basis = Precomputed().bind([[1.0, 0.5], [0.5, 1.0]], sample_weight=[0.0, 1.0])
    >>> basis([[0.3, 0.7]])
    array([[0.7]])
    """

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
        return Precomputed(columns=_frozen(_weighted_rows(X, sample_weight)), n_features=len(X))

    @property
    def n_atoms(self) -> int:
        return len(self.rows)

    @property
    def rows(self) -> np.ndarray:
        self._require_bound()
        assert self.columns is not None
        return self.columns

    def labels(self) -> list[str]:
        return [_row_name(row) for row in self.rows]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        return take(X, self.rows, axis=1)

    def _take(self, atoms: np.ndarray) -> Basis:
        return Precomputed(columns=_frozen(self.rows[atoms]), n_features=self.n_features)


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Basis):
    """The atoms of several dictionaries (or what `as_basis` makes ones of), one after the other.

    >>> basis = Concat(["bias", KernelBasis("gaussian", centres=[[0.0], [2.0]])]).bind([[0.0], [1.0], [2.0]])
    >>> basis.labels()
    ['bias', 'K(., [0])', 'K(., [2])']
    >>> basis.take([2, 0]).labels()
    ['K(., [2])', 'bias']
    """

    parts: tuple[Basis, ...]
    order: np.ndarray | None = field(default=None, kw_only=True)  # atom m is number order[m] of the parts' atoms
    n_features: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.parts and self.n_features is None:
            raise ValueError("Concat needs one or more dictionaries; got none")
        _assign(self, parts=tuple(as_basis(part) for part in self.parts))

    def __repr__(self) -> str:
        return f"Concat([{', '.join(map(repr, self.parts))}])"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        rng = np.random.default_rng(rng)  # one stream for all: no part repeats the draws of another
        parts = tuple(part.bind(X, sample_weight, rng) for part in self.parts)
        return replace(self, parts=parts, n_features=X.shape[1])

    @property
    def n_atoms(self) -> int:
        return sum(part.n_atoms for part in self.parts)

    @property
    def rows(self) -> np.ndarray:
        return self._arranged([np.empty(0, dtype=int), *(part.rows for part in self.parts)])

    @property
    def theta(self) -> np.ndarray:
        return np.concatenate([np.empty(0), *(part.theta for part in self.parts)])

    def with_theta(self, theta: ArrayLike) -> Basis:
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != self.theta.shape:
            raise ValueError(f"{self!r} has theta of shape {self.theta.shape}; got {theta.shape}")
        pieces = zip(self.parts, split_theta(self.parts, theta))
        return replace(self, parts=tuple(part.with_theta(piece) for part, piece in pieces))

    def learned(self, n_features: int) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype=bool), *(part.learned(n_features) for part in self.parts)])

    def labels(self) -> list[str]:
        names = [name for part in self.parts for name in part.labels()]
        return names if self.order is None else [names[m] for m in self.order]

    def order_keys(self) -> np.ndarray | None:
        """(part, content of the atom): position stands for content in the parts that have none."""
        own = [part.order_keys() for part in self.parts]
        if all(key is None for key in own):
            return None
        keys = [np.arange(p.n_atoms)[:, None] if key is None else key for p, key in zip(self.parts, own)]
        ranked = np.zeros((self.n_atoms, 1 + max(key.shape[1] for key in keys)))
        for i, (where, key) in enumerate(zip(self.places(), keys)):
            ranked[where, 0] = i
            ranked[where, 1 : 1 + key.shape[1]] = key
        return ranked

    def places(self) -> list[np.ndarray]:
        """For each part, where its atoms stand among the M."""
        places = np.arange(self.n_atoms) if self.order is None else np.argsort(self.order)
        return np.split(places, np.cumsum([part.n_atoms for part in self.parts])[:-1])

    def _arranged(self, pieces: list[np.ndarray]) -> np.ndarray:
        stacked = np.concatenate(pieces)
        return stacked if self.order is None else stacked[self.order]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        if len(self.parts) == 1 and self.order is None:
            return self.parts[0](X)
        if is_device_array(X):
            Phi = namespace(X).concat([X[:, :0], *(part(X) for part in self.parts)], axis=1)
            return Phi if self.order is None else take(Phi, self.order, axis=1)
        Phi = np.empty((len(X), self.n_atoms))
        for part, where in zip(self.parts, self.places()):
            together = self.order is None and len(where) > 0
            Phi[:, slice(where[0], where[-1] + 1) if together else where] = part(X)  # a slice is copied faster
        return Phi

    def _take(self, atoms: np.ndarray) -> Basis:
        wanted = np.full(self.n_atoms, -1)
        wanted[atoms] = np.arange(len(atoms))
        parts, places = [], []
        for part, where in zip(self.parts, self.places()):
            new = wanted[where]  # place after the choice of each of the part's atoms, -1 where it goes
            kept = np.flatnonzero(new >= 0)
            if kept.size:
                parts.append(part.take(kept))
                places.append(new[kept])
        order = np.argsort(np.concatenate(places))
        identity = np.array_equal(order, np.arange(len(order)))
        return Concat(tuple(parts), order=None if identity else _frozen(order), n_features=self.n_features)

    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pulled = [part.vjp(X, Phi_bar[:, where]) for part, where in zip(self.parts, self.places())]
        theta_bars, centres_bars = [[pair[i] for pair in pulled] for i in (0, 1)]
        return np.concatenate([np.empty(0), *theta_bars]), self._arranged([np.empty((0, X.shape[1])), *centres_bars])


_NAMES: dict[str, Basis] = {"bias": Bias(), "linear": Linear(), "quadratic": Polynomial(degree=2)}


def as_basis(spec: Basis | Kernel | str | Callable | Sequence) -> Basis:
    """The dictionary that `spec` means.

    A Basis stands for itself, "bias", "linear" and "quadratic" (which holds the linear terms) for monomials, a
    Kernel for a KernelBasis, a function of X (n, d) for `Functions`, a list of all these for a `Concat`.

    >>> as_basis(["bias", "linear"])
    Concat([Bias(), Linear(features=None)])
    """
    if isinstance(spec, Basis):
        return spec
    if isinstance(spec, Kernel):
        return KernelBasis(spec)
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]
    if isinstance(spec, list | tuple) and spec:
        return Concat(tuple(spec))
    if isinstance(spec, type) or not callable(spec):
        choices = ", ".join(map(repr, _NAMES))
        raise ValueError(
            f"a basis is one of {choices}, a Basis, a Kernel, a function of X, or a list of these; got {spec!r}"
        )
    return Functions(spec)


def multi_scale(
    kernel: str = "gaussian", widths: Sequence[float] = (0.5, 1.0, 2.0, 4.0), X: ArrayLike | None = None
) -> Concat:
    """Dictionary of one kernel at several widths on every training row, from which the evidence picks atom by atom.

    Parameters
    ----------
    kernel : name of a kernel with a width.
    widths : one or more positive numbers; in units of the scale of X, where that is given.
    X : (n, d) rows whose scale, as in ``width="scale"``, is the unit.

    Examples
    --------
    >>> from relvec import RVR
    >>> X = [[0.0], [0.1], [0.2], [2.0], [4.0]]
    >>> model = RVR(kernel=None, basis=multi_scale("gaussian", [0.2, 2.0])).fit(X, [1.0, 0.5, 1.0, 0.0, -0.5])
    >>> model.n_features_in_
    1
    """
    if not len(widths):
        raise ValueError("multi_scale needs one or more widths; got none")
    unit = 1.0 if X is None else scale_width(X)
    return Concat(tuple(KernelBasis(as_kernel(kernel, float(width) * unit)) for width in widths))


def is_fixed(basis: Basis) -> bool:
    """Whether the atoms are known before any training row: no centres, widths or kernel values come from the rows.

    >>> is_fixed(as_basis(["bias", KernelBasis(as_kernel("gaussian", 1.0), centres=[[0.0]])])), is_fixed(Precomputed())
    (True, False)
    """
    if isinstance(basis, Concat):
        return all(is_fixed(part) for part in basis.parts)
    if isinstance(basis, KernelBasis):
        return basis.centres is not None and in_numbers(basis.kernel)
    return isinstance(basis, _Monomials | Functions) or basis.n_features is not None


def leaves(basis: Basis) -> list[Basis]:
    """The parts of a bound dictionary that have no parts themselves, in order.

    >>> leaves(Concat(["bias", ["linear", "bias"]]).bind([[1.0]]))
    [Bias(bias), Linear(x0), Bias(bias)]
    """
    return [leaf for part in basis.parts for leaf in leaves(part)] if isinstance(basis, Concat) else [basis]


def centres_of(basis: Basis) -> np.ndarray:
    """Centre of each atom of a bound dictionary (M, d), nan where it has none.

    >>> centres_of(Concat([KernelBasis("gaussian", centres=[[2.0]]), "bias"]).bind([[1.0]]))
    array([[ 2.],
           [nan]])
    """
    if isinstance(basis, KernelBasis):
        return basis._centres()
    if isinstance(basis, Concat):
        return basis._arranged([np.empty((0, basis.n_features or 0)), *map(centres_of, basis.parts)])
    return np.full((basis.n_atoms, basis.n_features or 0), np.nan)


def workspace(basis: Basis) -> int:
    """Numbers that an entry of a bound dictionary takes while it is computed.

    A function is taken to form the differences of all features, and their squares.

    >>> workspace(KernelBasis("gaussian").bind([[1.0, 2.0]])), workspace(KernelBasis(np.dot).bind([[1.0, 2.0]]))
    (4, 8)
    """

    def of(kernel: Kernel) -> int:
        if isinstance(kernel, Sum | Product):
            return 1 + max(of(part) for part in kernel.parts)
        return 2 * (basis.n_features or 1) + 3 if isinstance(kernel, FromCallable) else 3

    return 1 + max((of(leaf.kernel) for leaf in leaves(basis) if isinstance(leaf, KernelBasis)), default=3)


def _weighted_rows(X: np.ndarray, sample_weight: ArrayLike | None) -> np.ndarray:
    """Indices of the rows of positive weight."""
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight)
    if weight.shape != (len(X),) or not (weight > 0).any():
        raise ValueError(f"expected {len(X)} weights, one or more of them positive; got {weight!r}")
    return np.flatnonzero(weight > 0)


def _frozen(array: np.ndarray) -> np.ndarray:
    """A read-only array with the same values; the array itself where it is read-only already."""
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


def _same(a: Any, b: Any) -> bool:
    return np.array_equal(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a == b


def _assign(basis: Any, **values: Any) -> Any:
    """Set fields of a frozen dataclass that nobody else holds yet."""
    for name, value in values.items():
        object.__setattr__(basis, name, value)
    return basis


def _function_name(function: Any, position: int) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return f"f{position}" if name == "<lambda>" else name


def _monomial_name(term: Term) -> str:
    return "*".join(f"x{k}^{p}" if p > 1 else f"x{k}" for k, p in Counter(term).items()) or "bias"


def _row_name(row: int) -> str:
    return f"K(., row {row})"


def _centre_name(z: np.ndarray) -> str:
    return f"K(., [{_shortened([f'{value:.4g}' for value in z])}])"


def _shortened(names: Sequence[str], most: int = 6) -> str:
    return ", ".join(names if len(names) <= most else [*names[: most - 1], f"... {len(names)} in all"])
