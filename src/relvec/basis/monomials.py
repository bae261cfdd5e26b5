"""Products of the inputs as basis functions: the constant, the inputs themselves, polynomials."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import ArrayLike

from relvec.basis.base import Basis, ParameterFreeBasis, Seed, abbreviate
from relvec.runtime.arrays import namespace

Term = tuple[int, ...]


class Monomials(ParameterFreeBasis):
    """Products of inputs: the term (0, 0, 2) is x0^2*x2 and the term () is 1."""

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

    @property
    def rows(self) -> np.ndarray:
        return np.full(self.n_atoms, -1)

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

    def _list_terms(self, d: int) -> list[Term]:
        features = range(d) if self.features is None else self.features
        if not all(0 <= k < d for k in features) or len(set(features)) < len(features):
            raise ValueError(f"features must be different columns from 0 to {d - 1}; got {self.features}")
        return [(k,) for k in features]


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


def _name_term(term: Term) -> str:
    return "*".join(f"x{k}^{p}" if p > 1 else f"x{k}" for k, p in Counter(term).items()) or "bias"
