"""The only objects that see all samples: reductions of the design matrix Phi (N, M)."""

from relvec.design._base import Design
from relvec.design._blocks import DenseDesign

__all__ = ["DenseDesign", "Design", "make_design"]


def make_design(basis, X, row_scale=None) -> Design:
    """The design matrix of a bound basis on the rows X (N, d), each row multiplied by row_scale (N,)."""
    return DenseDesign.from_basis(basis, X, row_scale)
