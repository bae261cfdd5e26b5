# ruff: noqa: F401 - names of modules that are imported on first use
"""All that sees the N rows of a fit: samples in blocks wherever they are, sums over them, and the design matrix Phi.

Modules for files, devices and Dask are imported when one of their names is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relvec.design.base import Compression, Design, LaplaceDesign, Rows
from relvec.design.dense import DenseDesign, StandardisedDesign, centre_columns
from relvec.design.draw import Draw, draw_rows
from relvec.design.readers import is_dask, is_sliced
from relvec.design.samples import Block, LocalSamples, Samples
from relvec.design.statistics import Statistics, measure
from relvec.design.sums import MAX_WHOLE_ROWS, dense_design, draw_atoms, exact_triangle, reduce_rows, tall_qr

if TYPE_CHECKING:
    from relvec.design.dask.collections import evaluate_lazily, gather, predict_lazily
    from relvec.design.dask.labels import align_labels, class_indicators, count_labels, weigh_classes
    from relvec.design.dask.reductions import DaskSamples
    from relvec.design.device import DeviceSamples
    from relvec.design.readers import blocks_to_predict, load

_HOMES = {
    "dask.collections": ("evaluate_lazily", "gather", "predict_lazily"),
    "dask.labels": ("align_labels", "count_labels", "weigh_classes", "class_indicators"),
    "dask.reductions": ("DaskSamples",),
    "device": ("DeviceSamples",),
    "readers": ("blocks_to_predict", "load"),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "MAX_WHOLE_ROWS", "Block", "Compression", "DenseDesign", "Design", "Draw", "LaplaceDesign", "LocalSamples",
    "Rows", "Samples", "StandardisedDesign", "Statistics", "centre_columns",
    "dense_design", "draw_atoms", "draw_rows", "exact_triangle", "is_dask", "is_sliced", "measure", "reduce_rows",
    "tall_qr", *_MODULE_OF,
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
