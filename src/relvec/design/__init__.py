# ruff: noqa: F401 - names of modules that are imported on first use
"""The only objects that see all samples: reductions of the design matrix Phi (N, M).

The contracts (`Design`, `LaplaceDesign`, `Samples`), the designs in memory and the choice between the ways of holding
one are here; modules for files, devices and Dask are imported when one of their names is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relvec.design.base import Compression, Design, LaplaceDesign, ModelOnRows, Observed, Piece, Rows
from relvec.design.cholesky import MIN_ROWS_TO_COMPRESS, kernel_on_training_rows
from relvec.design.dense import DenseDesign, StandardisedDesign, centre_columns
from relvec.design.dispatch import is_dask, is_sliced, make_rows, rows_on_disk
from relvec.design.samples import Block, LocalSamples, Samples

if TYPE_CHECKING:
    from relvec.design.approximate import MODEL_BYTES_PER_ROW, max_scan_atoms, scan_bytes, scan_design
    from relvec.design.dask.collections import evaluate_lazily, gather, predict_lazily
    from relvec.design.dask.kernel_basis import DistributedKernelBasis, Lookup
    from relvec.design.dask.labels import align_labels, class_indicators, count_labels, weigh_classes
    from relvec.design.dask.laplace import scan_basis, scan_rows
    from relvec.design.dask.low_rank import compress_rows
    from relvec.design.dask.reductions import DaskSamples
    from relvec.design.device import DeviceSamples, device_scan_design, exact_columns
    from relvec.design.draw import Draw, draw_rows
    from relvec.design.low_rank import MAX_PASS_MULTIPLICATIONS, compress, gram_rows, max_gram_atoms
    from relvec.design.readers import MAX_MEMORY_SHARE, blocks_to_predict, load
    from relvec.design.streamed import tall_qr
    from relvec.design.summary import Summary, summarise, units_of

_HOMES = {
    "approximate": ("MODEL_BYTES_PER_ROW", "max_scan_atoms", "scan_bytes", "scan_design"),
    "dask.kernel_basis": ("DistributedKernelBasis", "Lookup"),
    "dask.labels": ("align_labels", "count_labels", "weigh_classes", "class_indicators"),
    "dask.laplace": ("scan_basis", "scan_rows"),
    "dask.low_rank": ("compress_rows",),
    "dask.collections": ("evaluate_lazily", "gather", "predict_lazily"),
    "dask.reductions": ("DaskSamples",),
    "device": ("DeviceSamples", "device_scan_design", "exact_columns"),
    "draw": ("Draw", "draw_rows"),
    "low_rank": ("MAX_PASS_MULTIPLICATIONS", "compress", "gram_rows", "max_gram_atoms"),
    "readers": ("MAX_MEMORY_SHARE", "blocks_to_predict", "load"),
    "streamed": ("tall_qr",),
    "summary": ("Summary", "summarise", "units_of"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "MIN_ROWS_TO_COMPRESS", "Block", "Compression", "DenseDesign", "Design", "LaplaceDesign", "LocalSamples",
    "ModelOnRows", "Observed", "Piece", "Rows", "Samples", "StandardisedDesign", "centre_columns", "is_dask",
    "is_sliced", "kernel_on_training_rows", "make_rows", "rows_on_disk", *_MODULE_OF,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
