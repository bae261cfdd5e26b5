"""The process on vectors from sums over all rows."""

from __future__ import annotations

import numpy as np

from relvec.gaussian_process.predictor import Component, component_from_sums
from relvec.gaussian_process.streamed.algebra import factor_lower, invert, solve_lower
from relvec.gaussian_process.streamed.sums import Sums, Vectors
from relvec.runtime.arrays import add_diagonal, to_host

_MAX_EIGEN_VECTORS = 1024  # more have a root of full rank from Cholesky factors, a tenth of the work
_ROUNDING = 1e-11  # added to I - (I + G/s)^-1 so that it can be factored: a share of k(x, x)


def component_of(vectors: Vectors, sums: Sums) -> Component:
    """The posterior process, in arrays of the host.

    For many vectors R is C' L^-1 with C C' = I - (I + G/s)^-1; fewer have the eigenvectors of `component_from_sums`,
    which leave out directions that the rows say nothing about.
    """
    structure, theta, m = vectors.structure, vectors.theta, vectors.Z.shape[0]
    if m <= _MAX_EIGEN_VECTORS:
        Z, L, G, b = map(to_host, (vectors.Z, vectors.L, sums.gram, sums.cross))
        return component_from_sums(structure, theta, Z, L, G, b)
    s, G = structure.noise(theta), sums.gram
    inverse = invert(factor_lower(add_diagonal(G / s, 1.0)))
    weights = solve_lower(vectors.L, inverse @ (sums.cross / s), trans=True)
    C = factor_lower(add_diagonal(-inverse, 1.0 + _ROUNDING))
    R = solve_lower(vectors.L, C, trans=True).T
    Z, weights, R = map(to_host, (vectors.Z, weights, R))
    return Component(structure, theta, Z, weights, np.ascontiguousarray(R), s)
