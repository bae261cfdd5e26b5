"""Squared distances between rows, where they live: by differences where few, by a matrix product where many."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from relvec.runtime.arrays import is_device_array, namespace, squares

_FEW_PAIRS = 2048  # up to which a matrix product does not pay


def squared_distances(U: np.ndarray, V: np.ndarray, rough: bool = True) -> np.ndarray:
    """|u_i - v_j|^2, shape (n, m), finite even where the square overflows: a profile may meet inf * 0 otherwise.

    Where the kernel is not ``rough`` an array library without `cdist` may take the product of many features.
    """
    if is_device_array(U):
        return _distances_on_device(U, V, rough)
    few = U.shape[1] <= 8 or len(U) * len(V) <= _FEW_PAIRS
    D2 = cdist(U, V, "sqeuclidean") if few else _distances_by_product(U, V)
    return np.minimum(D2, 1e300, out=D2)


def _distances_by_product(U: np.ndarray, V: np.ndarray) -> np.ndarray:
    """|u|^2 - 2 u'v + |v|^2, one matrix product, with the few entries it would spoil by cancellation redone."""
    centre = V.mean(axis=0)
    A, B = U - centre, V - centre
    largest = max(np.abs(A).max(), np.abs(B).max())
    if largest > 1e140:  # the squares would overflow
        return cdist(U, V, "sqeuclidean")
    a2, b2 = (A**2).sum(axis=1), (B**2).sum(axis=1)
    D2 = A @ B.T
    D2 *= -2.0
    D2 += a2[:, None]
    D2 += b2
    # The error is about eps (|a|^2 + |b|^2); above this threshold it is at most 1e-8 of the entry itself. Entries
    # below are redone, so that the distance of a point to itself is 0 and not 1e-15, whose root is 3e-8.
    near = np.flatnonzero(D2 <= 1e-7 * (a2.max() + b2.max()))
    if near.size > 4 * max(D2.shape):
        return cdist(U, V, "sqeuclidean")
    i, j = np.unravel_index(near, D2.shape)
    D2[i, j] = ((A[i] - B[j]) ** 2).sum(axis=1)
    return D2


def _distances_on_device(U: np.ndarray, V: np.ndarray, rough: bool) -> np.ndarray:
    xp = namespace(U)
    if U.shape[1] <= 8 or rough:
        D2 = (U[:, 0][:, None] - V[:, 0][None, :]) ** 2
        for k in range(1, U.shape[1]):
            D2 += (U[:, k][:, None] - V[:, k][None, :]) ** 2
    else:
        centre = xp.mean(V, axis=0)
        A, B = U - centre, V - centre
        D2 = squares(A, 1)[:, None] + squares(B, 1)[None, :]
        D2 -= 2.0 * (A @ B.T)
    return xp.clip(D2, 0.0, 1e300 if D2.dtype == xp.float64 else 1e37)
