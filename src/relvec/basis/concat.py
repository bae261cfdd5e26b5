"""Several dictionaries as one, and the dictionaries that names, kernels and functions stand for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from relvec.basis.base import Basis, Bias, EmptyBasis, Linear, Monomials, Polynomial, Seed, freeze, set_fields
from relvec.basis.kernel_basis import Functions, KernelBasis
from relvec.kernels import (
    FromCallable,
    Kernel,
    Product,
    Sum,
    as_kernel,
    has_numeric_widths,
    scale_width,
    split_theta,
)  # fmt: skip
from relvec.runtime.arrays import hash_rows, is_device_array, namespace, take


@dataclass(frozen=True, eq=False, repr=False)
class Concat(Basis):
    """The atoms of several dictionaries (or anything that `as_basis` takes), one after the other.

    >>> basis = Concat(["bias", KernelBasis("gaussian", centres=[[0.0], [2.0]])]).bind([[0.0], [1.0], [2.0]])
    >>> basis.labels()
    ['bias', 'K(., [0])', 'K(., [2])']
    >>> basis.take([2, 0]).labels()
    ['K(., [2])', 'bias']
    """

    SHAPES: ClassVar[dict[str, str]] = {"order": "m"}

    parts: tuple[Basis, ...]
    order: np.ndarray | None = field(default=None, kw_only=True)  # atom m is number order[m] of the parts' atoms
    n_features: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.parts and self.n_features is None:
            raise ValueError("Concat needs one or more dictionaries; got none")
        set_fields(self, parts=tuple(as_basis(part) for part in self.parts))

    def __repr__(self) -> str:
        return f"Concat([{', '.join(map(repr, self.parts))}])"

    def _bind(self, X: np.ndarray, sample_weight: ArrayLike | None, rng: Seed) -> Basis:
        rng = np.random.default_rng(rng)  # one stream for all: no part repeats the draws of another
        parts = tuple(part.bind(X, sample_weight, rng) for part in self.parts)
        return replace(self, parts=parts, n_features=X.shape[1])

    @cached_property
    def n_atoms(self) -> int:
        return sum(part.n_atoms for part in self.parts)

    @cached_property
    def rows(self) -> np.ndarray:
        return self._arrange([np.empty(0, dtype=int), *(part.rows for part in self.parts)])

    @property
    def theta(self) -> np.ndarray:
        return np.concatenate([np.empty(0), *(part.theta for part in self.parts)])

    def with_theta(self, theta: ArrayLike) -> Basis:
        theta = np.asarray(theta, dtype=np.float64)
        if theta.shape != self.theta.shape:
            raise ValueError(f"{self!r} has theta of shape {self.theta.shape}; got {theta.shape}")
        pieces = zip(self.parts, split_theta(self.parts, theta))
        return replace(self, parts=tuple(part.with_theta(piece) for part, piece in pieces))

    def learned_mask(self, n_features: int) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype=bool), *(part.learned_mask(n_features) for part in self.parts)])

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
        for i, (where, key) in enumerate(zip(self.part_columns(), keys)):
            ranked[where, 0] = i
            ranked[where, 1 : 1 + key.shape[1]] = key
        return ranked

    def part_columns(self) -> list[np.ndarray]:
        """For each part, the columns of its atoms among the M."""
        columns = np.arange(self.n_atoms) if self.order is None else np.argsort(self.order)
        ends = accumulate(part.n_atoms for part in self.parts)
        return [columns[end - part.n_atoms : end] for part, end in zip(self.parts, ends, strict=True)]

    def _arrange(self, pieces: list[np.ndarray]) -> np.ndarray:
        stacked = np.concatenate(pieces)
        return stacked if self.order is None else stacked[self.order]

    def _columns(self, X: np.ndarray) -> np.ndarray:
        if len(self.parts) == 1 and self.order is None:
            return self.parts[0](X)
        if is_device_array(X):
            Phi = namespace(X).concat([X[:, :0], *(part(X) for part in self.parts)], axis=1)
            return Phi if self.order is None else take(Phi, self.order, axis=1)
        Phi = np.empty((len(X), self.n_atoms))
        for part, where in zip(self.parts, self.part_columns()):
            together = self.order is None and len(where) > 0
            Phi[:, slice(where[0], where[-1] + 1) if together else where] = part(X)  # a slice is copied faster
        return Phi

    def _take(self, atoms: np.ndarray) -> Basis:
        wanted = np.full(self.n_atoms, -1)
        wanted[atoms] = np.arange(len(atoms))
        parts, columns = [], []
        for part, where in zip(self.parts, self.part_columns()):
            new = wanted[where]  # the new column of each of the part's atoms, -1 if it is not kept
            kept = np.flatnonzero(new >= 0)
            if kept.size:
                parts.append(part.take(kept))
                columns.append(new[kept])
        order = np.argsort(np.concatenate(columns))
        identity = np.array_equal(order, np.arange(len(order)))
        return Concat(tuple(parts), order=None if identity else freeze(order), n_features=self.n_features)

    def _vjp(self, X: np.ndarray, Phi_bar: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pulled = [part.vjp(X, Phi_bar[:, where]) for part, where in zip(self.parts, self.part_columns())]
        theta_bars, centres_bars = [[pair[i] for pair in pulled] for i in (0, 1)]
        return np.concatenate([np.empty(0), *theta_bars]), self._arrange([np.empty((0, X.shape[1])), *centres_bars])

    @property
    def is_bound(self) -> bool:
        return self.n_features is not None and all(part.is_bound for part in self.parts)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        if not self.is_bound:
            return self.order is None
        order = np.arange(self.n_atoms) if self.order is None else np.sort(self.order)
        return np.array_equal(order, np.arange(self.n_atoms))


_NAMES: dict[str, Basis] = {"bias": Bias(), "linear": Linear(), "quadratic": Polynomial(degree=2)}


def as_basis(spec: Basis | Kernel | str | Callable | Sequence) -> Basis:
    """Make a dictionary from a Basis, a name, a Kernel, a function, or a list of these.

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
    """Return one kernel at several widths on every training row, from which the evidence picks atom by atom.

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


def leaves(basis: Basis) -> list[Basis]:
    """Return the parts of a bound dictionary that have no parts themselves, in order.

    >>> leaves(Concat(["bias", ["linear", "bias"]]).bind([[1.0]]))
    [Bias(bias), Linear(x0), Bias(bias)]
    """
    return [leaf for part in basis.parts for leaf in leaves(part)] if isinstance(basis, Concat) else [basis]


def kernels_of(basis: Basis) -> tuple[Kernel, ...]:
    """Return the different kernels of a dictionary, in its order."""
    return tuple(dict.fromkeys(part.kernel for part in leaves(basis) if isinstance(part, KernelBasis)))


def is_inputs(basis: Basis) -> bool:
    """Whether a dictionary, bound or not, has no atoms but inputs and the constant.

    >>> is_inputs(Concat(["linear", "bias"])), is_inputs(as_basis("quadratic"))
    (True, False)
    """
    return all(
        isinstance(leaf, Bias | EmptyBasis) or (isinstance(leaf, Linear) and leaf.centre is None)
        for leaf in leaves(basis)
    )


def input_columns(basis: Basis) -> np.ndarray:
    """Column of X (M,) that each atom of a bound dictionary of inputs and the constant is; -1 for the constant.

    >>> input_columns(Concat(["linear", "bias"]).bind([[1.0, 2.0]])).tolist()
    [0, 1, -1]
    """
    if isinstance(basis, Concat):
        return basis._arrange([np.empty(0, dtype=np.intp), *map(input_columns, basis.parts)])
    terms = basis.terms if isinstance(basis, Monomials) else ()
    return np.array([term[0] if term else -1 for term in terms], dtype=np.intp)


def centres_of(basis: Basis) -> np.ndarray:
    """Centres (p, d) of the kernels among the atoms of a bound dictionary, in their order.

    >>> centres_of(Concat(["bias", KernelBasis("gaussian", centres=[[2.0], [3.0]])]).bind([[1.0]]).take([2, 0, 1]))
    array([[3.],
           [2.]])
    """
    return _find_centres(basis)[1]


def _find_centres(basis: Basis) -> tuple[np.ndarray, np.ndarray]:
    """Which atoms (M,) of a bound dictionary are kernels, and their centres (p, d): none for thousands of columns."""
    if isinstance(basis, KernelBasis):
        return np.ones(basis.n_atoms, dtype=bool), basis.bound_centres()
    none = np.empty((0, basis.n_features or 0))
    if not isinstance(basis, Concat):
        return np.zeros(basis.n_atoms, dtype=bool), none
    of_parts = [_find_centres(part) for part in basis.parts]
    kernels = np.concatenate([np.zeros(0, dtype=bool), *(found for found, _ in of_parts)])
    centres = np.concatenate([none, *(found for _, found in of_parts)])
    if basis.order is None:
        return kernels, centres
    return kernels[basis.order], centres[(np.cumsum(kernels) - 1)[basis.order][kernels[basis.order]]]


def is_fixed(basis: Basis) -> bool:
    """Whether the atoms are known before any training row: no centres, widths or kernel values come from the rows.

    >>> from relvec.kernels import Gaussian
    >>> is_fixed(Concat(["bias", KernelBasis(Gaussian(1.0), centres=[[0.0]])])), is_fixed(KernelBasis(Gaussian(1.0)))
    (True, False)
    """
    if isinstance(basis, Concat):
        return all(is_fixed(part) for part in basis.parts)
    if isinstance(basis, KernelBasis):
        return basis.centres is not None and has_numeric_widths(basis.kernel)
    return isinstance(basis, Monomials | Functions) or basis.n_features is not None


def numbers_per_entry(basis: Basis) -> int:
    """Doubles of workspace per entry of the design matrix of a bound dictionary.

    A function is assumed to form the differences of all features, and their squares.

    >>> [numbers_per_entry(KernelBasis(kernel).bind([[1.0, 2.0]])) for kernel in ("gaussian", np.dot)]
    [4, 8]
    """

    def of(kernel: Kernel) -> int:
        if isinstance(kernel, Sum | Product):
            return 1 + max(of(part) for part in kernel.parts)
        return 2 * (basis.n_features or 1) + 3 if isinstance(kernel, FromCallable) else 3

    return 1 + max((of(leaf.kernel) for leaf in leaves(basis) if isinstance(leaf, KernelBasis)), default=3)


def content_ranks(basis: Basis, scale: np.ndarray) -> np.ndarray:
    """Rank (M,) of every atom by content and norm (M,), so that the order of the rows cannot decide between equals."""
    keys = basis.order_keys()
    if keys is None or _ascending(keys):
        return np.arange(basis.n_atoms)
    order = np.lexsort(np.column_stack([keys, np.round(np.log(np.maximum(scale, 1e-300)), 9)]).T[::-1])
    ranks = np.empty(len(order), dtype=np.intp)
    ranks[order] = np.arange(len(order))
    return ranks


def _ascending(keys: np.ndarray) -> bool:
    """Whether the rows (M, q) stand in strict lexicographic order."""
    equal = np.ones(max(len(keys) - 1, 0), dtype=bool)
    for key in keys.T:
        if np.any(equal & (key[1:] < key[:-1])):
            return False
        equal &= key[1:] == key[:-1]
        if not equal.any():
            return True
    return not equal.any()


def even_draw(basis: Basis) -> Callable[[int], np.ndarray]:
    """Return a function that gives a number of atoms drawn evenly, by their content where they have one."""

    def draw(size: int) -> np.ndarray:
        keys = basis.order_keys()
        rows = np.arange(basis.n_atoms, dtype=float)[:, None] if keys is None else keys
        return np.argsort(hash_rows(rows), kind="stable")[:size]

    return draw


def atom_keys(basis: Basis) -> list[tuple]:
    """Return the content of each of M atoms, whatever dictionary it stands in; the width of a kernel does not count.

    >>> atom_keys(Linear().bind([[1.0, 2.0]]))
    [('Linear', 'x0'), ('Linear', 'x1')]
    """
    if isinstance(basis, Concat):
        keys = [key for part in basis.parts for key in atom_keys(part)]
        return keys if basis.order is None else [keys[m] for m in basis.order]
    if isinstance(basis, KernelBasis):
        return [(type(basis.kernel).__name__, (z + 0.0).tobytes()) for z in basis.bound_centres()]
    return [(type(basis).__name__, label) for label in basis.labels()]
