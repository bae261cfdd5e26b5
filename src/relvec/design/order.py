"""An ordering of atoms by content: ranks, draws and keys that do not depend on the order of the training rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis


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


def row_hash64(keys: np.ndarray) -> np.ndarray:
    """A number of 64 bits for each row of keys (n, q), as good as random but decided by the row's content alone.

    The rows with the lowest ones are an even draw that no order of the rows can change.

    >>> one, two, other = row_hash64(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]])).tolist()
    >>> one == two, one == other
    (True, False)
    """
    hashed = np.zeros(len(keys), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in (keys + 0.0).T:  # -0.0 becomes 0.0
            hashed = hashed ^ np.ascontiguousarray(column).view(np.uint64)
            hashed += np.uint64(0x9E3779B97F4A7C15)
            for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
                hashed = (hashed ^ (hashed >> np.uint64(shift))) * np.uint64(factor)
    return hashed


def even_draw(basis: Basis) -> Callable[[int], np.ndarray]:
    """A function that gives a number of atoms drawn evenly, by their content where they have one."""

    def draw(size: int) -> np.ndarray:
        keys = basis.order_keys()
        rows = np.arange(basis.n_atoms, dtype=float)[:, None] if keys is None else keys
        return np.argsort(row_hash64(rows), kind="stable")[:size]

    return draw


def atom_keys(basis: Basis) -> list[tuple]:
    """The content of each of the M atoms, whatever dictionary it stands in; the width of a kernel does not count.

    >>> from relvec.basis import Linear
    >>> atom_keys(Linear().bind([[1.0, 2.0]]))
    [('Linear', 'x0'), ('Linear', 'x1')]
    """
    if isinstance(basis, Concat):
        keys = [key for part in basis.parts for key in atom_keys(part)]
        return keys if basis.order is None else [keys[m] for m in basis.order]
    if isinstance(basis, KernelBasis):
        return [(type(basis.kernel).__name__, (z + 0.0).tobytes()) for z in basis.bound_centres()]
    return [(type(basis).__name__, label) for label in basis.labels()]
