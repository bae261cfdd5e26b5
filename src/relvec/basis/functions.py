"""Any functions of the inputs as basis functions."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from relvec.basis.base import Basis, ParameterFreeBasis, Seed, abbreviate, set_fields
from relvec.kernels import check_values
from relvec.runtime.arrays import is_device_array, like, to_host


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
