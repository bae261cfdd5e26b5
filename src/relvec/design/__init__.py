"""The only objects that see all samples: reductions of the design matrix Phi (N, M)."""

import numpy as np

from relvec.design.arrays import ArrayDesign
from relvec.design.base import Compression, Design, LaplaceDesign, ModelOnRows, Observed, Piece, Rows
from relvec.design.dask.kernel_basis import DistributedKernelBasis, Lookup
from relvec.design.dask.labels import aligned_labels, count_labels, label_weights, memberships
from relvec.design.dask.laplace import DaskScanDesign, scan_basis, scan_rows
from relvec.design.dask.low_rank import compress_rows
from relvec.design.dask.samples import DaskSamples, as_series, check_columns, gathered, is_dask, lazily
from relvec.design.dense import DenseDesign
from relvec.design.device import DeviceDesign, device_rows, exact_columns
from relvec.design.device_scan import DeviceScanDesign, device_scan_design
from relvec.design.exact_columns import SingleDesign
from relvec.design.factor import MODEL_BYTES_PER_ROW, FactorDesign, max_scan_atoms, scan_design
from relvec.design.gram import WORK, gram_rows, max_gram_atoms
from relvec.design.low_rank import MIN_ROWS_TO_COMPRESS, compress, kernel_on_training_rows, merged_rows
from relvec.design.readers import MAX_MEMORY_SHARE, blocks_to_predict, is_sliced, load
from relvec.design.samples import Block, LocalSamples, Samples
from relvec.design.streamed import WHOLE, LowRankDesign, compress_in_passes, tall_qr
from relvec.design.summary import Summary, summarise, units_of
from relvec.runtime.arrays import Array

__all__ = [
    "MAX_MEMORY_SHARE",
    "MIN_ROWS_TO_COMPRESS",
    "MODEL_BYTES_PER_ROW",
    "WORK",
    "ArrayDesign",
    "Block",
    "Compression",
    "DaskSamples",
    "DaskScanDesign",
    "DenseDesign",
    "Design",
    "DeviceDesign",
    "DeviceScanDesign",
    "DistributedKernelBasis",
    "FactorDesign",
    "LaplaceDesign",
    "LocalSamples",
    "Lookup",
    "LowRankDesign",
    "ModelOnRows",
    "Observed",
    "Piece",
    "Rows",
    "Samples",
    "SingleDesign",
    "Summary",
    "aligned_labels",
    "as_series",
    "blocks_to_predict",
    "check_columns",
    "compress",
    "compress_rows",
    "count_labels",
    "device_rows",
    "device_scan_design",
    "exact_columns",
    "gathered",
    "gram_rows",
    "is_dask",
    "is_sliced",
    "kernel_on_training_rows",
    "label_weights",
    "lazily",
    "load",
    "make_rows",
    "max_gram_atoms",
    "max_scan_atoms",
    "memberships",
    "rows_on_disk",
    "scan_basis",
    "scan_design",
    "scan_rows",
    "summarise",
    "tall_qr",
    "units_of",
]  # fmt: skip

MEMORY = 4e9  # bytes
_SMALL = 4_000_000  # numbers of a design: below, a device has nothing to gain
_WORKSPACE = 3 * 8 * 0.4  # bytes a pair of rows that compression in one piece may take
_DENSE = 2.5 * 8  # bytes an entry of the design matrix takes while it is made and searched


def make_rows(
    basis, X: np.ndarray, targets: np.ndarray, weights: np.ndarray, compression: bool = True, memory: float = MEMORY,
    on_device: Array | None = None,
) -> Rows | None:  # fmt: skip
    """A bound basis on the rows X (N, d) with targets (N, q) and sample weights (N,), compressed where it pays.

    What does not fit into ``memory`` bytes in one piece is computed in passes over blocks of rows; None where the
    dictionary is too long for that too. ``on_device`` holds the same rows on a device, where the design is to be
    computed.
    """
    n, rows = len(X), None
    if on_device is not None and n * basis.n_atoms > _SMALL:
        rows = device_rows(basis, on_device, targets, weights)
        if rows is not None:
            return rows
    if compression and n <= WHOLE and _WORKSPACE * n**2 <= memory:
        rows = compress(basis, X, targets, weights)
    elif compression and (found := merged_rows(basis, X, targets, weights)) is not None:
        part, mean, size, within = found
        samples = LocalSamples(part.centres, mean, size)
        if (rows := compress_in_passes(basis, samples, samples, memory)) is not None:
            rows.target_norm2_outside[:] += within
    if rows is not None:
        return rows
    if _DENSE * n * basis.n_atoms > memory:
        few = basis.n_atoms <= max_gram_atoms(n, memory)
        return gram_rows(basis, LocalSamples(X, targets, weights), memory) if few else None
    root = np.sqrt(weights)[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused below
        Phi = basis(X)
        if np.any(weights != 1.0):
            Phi *= root
    design = DenseDesign(Phi, overwrite=True)
    return Rows(design, targets * root, np.zeros(targets.shape[1]))


def rows_on_disk(basis, samples: Samples, memory: float) -> Rows | None:
    """A bound basis on samples that are read in blocks, reduced to its rank or its atoms; None where it is too long."""
    part = kernel_on_training_rows(basis)
    rows = None
    if part is not None and part.centres is not None and part.n_atoms >= MIN_ROWS_TO_COMPRESS:
        rows = compress_in_passes(basis, samples, LocalSamples(part.centres), memory)
    if rows is None and basis.n_atoms <= max_gram_atoms(samples.n_rows, memory):
        return gram_rows(basis, samples, memory)
    return rows
