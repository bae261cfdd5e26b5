"""Predictions for collections of Dask, chunk by chunk and when they are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from relvec.design import as_series, check_columns, map_chunks


def predict_lazily(
    method: Callable, X: Any, n_features: int, names_in: Any, names: list[str] | None, dtype: Any = float,
    parts: int = 0, **options: Any,
) -> Any:  # fmt: skip
    """A method's values for every chunk of a collection of Dask, as such a collection.

    Values are (n,), or (n, q) with these q names. With ``parts`` the method gives as many of them, and so does this.
    ``n_features`` and ``names_in`` (or None) are the columns that the method expects.
    """
    outputs = () if names is None else (len(names),)
    shape = (*outputs, parts) if parts else outputs
    values = evaluate_lazily(method, X, n_features, names_in, shape, dtype, **options)
    if not parts:
        return as_series(values, X, names)
    return tuple(as_series(values[..., i], X, names) for i in range(parts))


def evaluate_lazily(
    method: Callable, X: Any, n_features: int, names_in: Any, shape: tuple[int, ...], dtype: Any = float, **options: Any
) -> Any:
    """A method's values (n, *shape) for every chunk of a collection of Dask, as an array of Dask."""
    check_columns(X, n_features, names_in)
    return map_chunks(X, _Chunkwise(method, shape, dtype, options), shape, dtype)


@dataclass(frozen=True, eq=False)
class _Chunkwise:
    method: Callable
    shape: tuple[int, ...]
    dtype: Any
    options: dict[str, Any]

    def __call__(self, X: Any) -> np.ndarray:
        if len(X) == 0:
            return np.zeros((0, *self.shape), dtype=self.dtype)
        found = self.method(X, **self.options)
        return np.stack(found, axis=-1) if isinstance(found, tuple) else found
