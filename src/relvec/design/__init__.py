"""All that sees the N rows of a fit: samples in blocks wherever they are, sums over them, and the design matrix Phi."""

from relvec.design.base import Compression, Design, DesignRows, LaplaceDesign
from relvec.design.cholesky import ROUGH_TOLERANCE, TOLERANCE
from relvec.design.dask import (
    DaskSamples,
    align_labels,
    class_indicators,
    count_labels,
    evaluate_lazily,
    gather,
    predict_lazily,
    weigh_classes,
)
from relvec.design.dense import DenseDesign, StandardisedDesign, centre_columns
from relvec.design.readers import blocks_to_predict, is_dask, is_sliced, load_rows
from relvec.design.samples import Block, DeviceSamples, Draw, LocalSamples, Samples, Statistics, draw_rows, measure
from relvec.design.sums import (
    MAX_WHOLE_ROWS,
    dense_design,
    draw_atoms,
    exact_triangle,
    max_columns,
    reduce_rows,
    tall_qr,
)

__all__ = [
    "MAX_WHOLE_ROWS", "ROUGH_TOLERANCE", "TOLERANCE", "Block", "Compression", "DaskSamples", "DenseDesign", "Design",
    "DesignRows", "DeviceSamples", "Draw", "LaplaceDesign", "LocalSamples", "Samples", "StandardisedDesign",
    "Statistics", "align_labels", "blocks_to_predict", "centre_columns", "class_indicators", "count_labels",
    "dense_design", "draw_atoms", "draw_rows", "evaluate_lazily", "exact_triangle", "gather", "is_dask", "is_sliced",
    "load_rows", "max_columns", "measure", "predict_lazily", "reduce_rows", "tall_qr", "weigh_classes",
]  # fmt: skip
