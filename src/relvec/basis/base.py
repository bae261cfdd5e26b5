"""The contract of a dictionary of basis functions, and dictionaries of monomials of the inputs."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, reduce
from itertools import combinations_with_replacement
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from relvec.kernels import as_rows
from relvec.runtime.arrays import like, namespace
from relvec.runtime.record import Record

Seed = np.random.Generator | int | None


class Basis(ABC, Record):
    """A dictionary of M atoms, functions of a row x of d features; two are equal if all their fields are equal.

    Atoms of one's own are functions of X (`Functions`), which ``RVR(basis=...)`` takes as they are.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec.basis import as_basis
    >>> basis = as_basis(["linear", np.cos]).bind([[0.0], [1.0]])
    >>> basis.labels()
    ['x0', 'cos']
    >>> basis([[0.0], [np.pi]]).shape, basis.take([1])([[0.0], [np.pi]]).tolist()
    ((2, 2), [[1.0], [-1.0]])
    """

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
    def learned_mask(self, n_features: int) -> np.ndarray:
        """Which entries (p,) of theta are to be learned, once bound to d features; asked before `bind`."""

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
        """Fix what depends on the training rows X (N, d), their weights (N,) and chance; once fixed it stays."""
        return self._bind(as_rows(X) if self.n_features is None else self._check_rows(X), sample_weight, rng)

    def __call__(self, X: ArrayLike) -> np.ndarray:
        """Return the design matrix phi_m(x_i), shape (n, M): float64, or in the array library of X."""
        return self._columns(self._check_rows(X))

    def take(self, atoms: ArrayLike) -> Basis:
        """Keep the `atoms` (k,), indices without repetition or a mask, in the order given."""
        M, index = self.n_atoms, np.asarray(atoms)
        if index.dtype == bool and index.shape == (M,):
            index = np.flatnonzero(index)
        if index.size == 0:
            return EmptyBasis(self.n_features)
        if index.ndim != 1 or index.dtype.kind not in "iu" or len(set(index.tolist())) < index.size:
            raise ValueError(f"atoms must be different indices, or a mask of length {M}; got {atoms!r}")
        if index.min() < 0 or index.max() >= M:
            raise ValueError(f"atoms must lie between 0 and {M - 1}; got {atoms!r}")
        return self._take(index)

    def vjp(self, X: ArrayLike, Phi_bar: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the derivatives of sum(Phi_bar * basis(X)) with respect to theta (p,) and to the centres (M, d).

        Atoms without a centre have zeros there.
        """
        X, bar = self._check_rows(X), np.asarray(Phi_bar, dtype=np.float64)
        if bar.shape != (len(X), self.n_atoms):
            raise ValueError(f"Phi_bar must have the shape of Phi, {(len(X), self.n_atoms)}; got {bar.shape}")
        return self._vjp(X, bar)

    def _check_rows(self, X: ArrayLike) -> np.ndarray:
        X = as_rows(X)
        self._require_bound()
        if X.shape[1] != self.n_features:
            raise ValueError(f"X has {X.shape[1]} features, but the basis was bound to {self.n_features}")
        return X

    def _require_bound(self) -> None:
        if self.n_features is None:
            raise ValueError(f"{self!r} is not bound to training rows yet: call bind(X) first")

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        cached = {name for name in vars(self) if isinstance(getattr(type(self), name, None), cached_property)}
        return all(_equal(value, vars(other)[name]) for name, value in vars(self).items() if name not in cached)

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_bound(self) -> bool:
        """Whether the atoms know their columns, those of all parts."""
        return self.n_features is not None


class ParameterFreeBasis(Basis):
    """Atoms without centres or free parameters."""

    @property
    def rows(self) -> np.ndarray:
        return np.full(self.n_atoms, -1)

    @property
    def theta(self) -> np.ndarray:
        return np.empty(0)

    def with_theta(self, theta: ArrayLike) -> Basis:
        if np.shape(theta) != (0,):
            raise ValueError(f"{self!r} has no parameters; got theta of shape {np.shape(theta)}")
        return self

    def learned_mask(self, n_features: int) -> np.ndarray:
        return np.zeros(0, dtype=bool)

    def order_keys(self) -> np.ndarray | None:
        return None

    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.theta, np.zeros((self.n_atoms, X.shape[1]))


@dataclass(frozen=True, eq=False)
class EmptyBasis(ParameterFreeBasis):
    """The dictionary of no atoms, which a model without any keeps.

    >>> EmptyBasis(2)([[1.0, 2.0]]).shape
    (1, 0)
    """

    n_features: int | None = None

    @property
    def n_atoms(self) -> int:
        return 0

    def labels(self) -> list[str]:
        return []

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        return EmptyBasis(X.shape[1])

    def _columns(self, X: np.ndarray) -> np.ndarray:
        return X[:, :0]

    def _take(self, atoms: np.ndarray) -> Basis:
        return self


Term = tuple[int, ...]


class Monomials(ParameterFreeBasis):
    """Products of inputs: the term (0, 0, 2) is x0^2*x2 and the term () is 1.

    Examples
    --------
    >>> from relvec.basis import Monomials, Polynomial
    >>> basis = Polynomial(degree=2).bind([[1.0, 2.0]])
    >>> isinstance(basis, Monomials), basis.terms
    (True, ((0,), (1,), (0, 0), (0, 1), (1, 1)))
    """

    terms: tuple[Term, ...]

    @abstractmethod
    def _list_terms(self, d: int) -> list[Term]:
        """All terms for d features."""

    def __repr__(self) -> str:
        if self.n_features is not None:
            return f"{type(self).__name__}({abbreviate(self.labels())})"
        shown = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        if self.n_features is not None:
            return self
        d = X.shape[1]
        return replace(self, terms=tuple(self._list_terms(d)), n_features=d)  # type: ignore[type-var]

    @property
    def n_atoms(self) -> int:
        self._require_bound()
        return len(self.terms)

    def labels(self) -> list[str]:
        self._require_bound()
        return [_name_term(term) for term in self.terms]

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

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return all(0 <= k < (self.n_features or 0) for term in self.terms for k in term)


@dataclass(frozen=True, eq=False, repr=False)
class Bias(Monomials):
    """The constant 1.

    >>> Bias().bind([[3.0], [4.0]])([[5.0], [6.0]])
    array([[1.],
           [1.]])
    """

    terms: tuple[Term, ...] = field(default=(), kw_only=True, repr=False)
    n_features: int | None = field(default=None, kw_only=True, repr=False)

    def _list_terms(self, d: int) -> list[Term]:
        return [()]


@dataclass(frozen=True, eq=False, repr=False)
class Linear(Monomials):
    """The inputs themselves: all of them, or those of the columns `features` (T01 section 4.3), less a `centre` (d,).

    >>> Linear(features=(0, 2)).bind([[1.0, 2.0, 3.0]]).labels()
    ['x0', 'x2']
    >>> Linear(centre=(1.0, 5.0)).bind([[0.0, 0.0]])([[1.5, 5.0]])
    array([[0.5, 0. ]])
    """

    features: tuple[int, ...] | None = None
    centre: tuple[float, ...] | None = field(default=None, kw_only=True, repr=False)
    terms: tuple[Term, ...] = field(default=(), kw_only=True, repr=False)
    n_features: int | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if self.features is not None:
            object.__setattr__(self, "features", tuple(int(k) for k in self.features))
        if self.centre is not None:
            object.__setattr__(self, "centre", tuple(float(value) for value in self.centre))

    def _list_terms(self, d: int) -> list[Term]:
        features = range(d) if self.features is None else self.features
        if not all(0 <= k < d for k in features) or len(set(features)) < len(features):
            raise ValueError(f"features must be different columns from 0 to {d - 1}; got {self.features}")
        if self.centre is not None and len(self.centre) != d:
            raise ValueError(f"centre must have a value for each of the {d} columns of X; got {len(self.centre)}")
        return [(k,) for k in features]

    @property
    def term_centres(self) -> np.ndarray:
        """What each atom (M,) has subtracted from its input."""
        columns = [k for (k,) in self.terms]
        return np.zeros(len(columns)) if self.centre is None else np.array(self.centre)[columns]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        if namespace(X) is not np:
            return super()._columns(X) - like(X, self.term_centres)
        columns = [k for (k,) in self.terms]
        whole = columns == list(range(X.shape[1]))
        if self.centre is None:
            return X.copy() if whole else X[:, columns]
        return (X if whole else X[:, columns]) - self.term_centres

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        whole = self.n_features is None or len(self.centre or ()) in (0, self.n_features)
        return whole and super().is_consistent(sizes)


@dataclass(frozen=True, eq=False, repr=False)
class Polynomial(Monomials):
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

    def _list_terms(self, d: int) -> list[Term]:
        powers = range(1 if self.include_linear else 2, int(self.degree) + 1)
        terms = [term for p in powers for term in combinations_with_replacement(range(d), p)]
        return terms if self.interactions else [term for term in terms if len(set(term)) == 1]


def rows_of_positive_weight(X: np.ndarray, sample_weight: ArrayLike | None) -> np.ndarray:
    """Return the indices of the rows of positive weight."""
    weight = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight)
    if weight.shape != (len(X),) or not (weight > 0).any():
        raise ValueError(f"expected {len(X)} weights, one or more of them positive; got {weight!r}")
    return np.flatnonzero(weight > 0)


def freeze(array: np.ndarray) -> np.ndarray:
    """Return a read-only array with the same values; the array itself if it is read-only."""
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array


def _equal(a: Any, b: Any) -> bool:
    return np.array_equal(a, b) if isinstance(a, np.ndarray) or isinstance(b, np.ndarray) else a == b


Fields = TypeVar("Fields")


def set_fields(basis: Fields, **values: object) -> Fields:
    """Set fields of a frozen dataclass that is just being made."""
    for name, value in values.items():
        object.__setattr__(basis, name, value)
    return basis


def name_row(row: int) -> str:
    """Name of the kernel on a training row."""
    return f"K(., row {row})"


def abbreviate(names: Sequence[str], most: int = 6) -> str:
    """Names separated by commas, a long list cut short."""
    return ", ".join(names if len(names) <= most else [*names[: most - 1], f"... {len(names)} in all"])


def _name_term(term: Term) -> str:
    return "*".join(f"x{k}^{p}" if p > 1 else f"x{k}" for k, p in Counter(term).items()) or "bias"
