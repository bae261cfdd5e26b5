"""Regression by a sparse process with a composite kernel, chosen by merit."""

from relvec.gaussian_process.bound import Bounds
from relvec.gaussian_process.component import Component
from relvec.gaussian_process.fit import compare_structures, fit_process, rows_to_learn
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.predictor import Compared, ProcessPredictor
from relvec.gaussian_process.rows import Units
from relvec.gaussian_process.selection import Merit, default_candidates
from relvec.inference.scale import Scale

__all__ = [
    "Bounds", "Compared", "Component", "Merit", "Part", "ProcessPredictor", "Scale", "Shape", "Structure", "Units",
    "compare_structures", "default_candidates", "fit_process", "rows_to_learn",
]  # fmt: skip
