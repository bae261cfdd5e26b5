"""The only objects that see all samples: reductions of the design matrix Phi (N, M)."""

import numpy as np

from relvec.design._base import Compression, Design, Rows, ScanDesign
from relvec.design._blocks import DenseDesign
from relvec.design._exact import SingleDesign
from relvec.design._factor import FactorDesign, scan_design
from relvec.design._lowrank import compress
from relvec.design._summary import Summary, summarise

__all__ = [
    "Compression", "DenseDesign", "Design", "FactorDesign", "Rows", "ScanDesign", "SingleDesign", "Summary",
    "compress", "make_rows", "scan_design", "summarise",
]  # fmt: skip


def make_rows(basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, compression: bool = True) -> Rows:
    """A bound basis on the rows X (N, d) with targets (N, q) and sample weights (N,), compressed where it pays."""
    if compression and (rows := compress(basis, X, targets, weights)) is not None:
        return rows
    root = np.sqrt(weights)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
        Phi = basis(X)
        if np.any(weights != 1.0):
            Phi *= root
    design = DenseDesign(Phi, overwrite=True)
    return Rows(design, targets * root, np.zeros(targets.shape[1]))
