"""Regression by a sparse process with a composite kernel, chosen by merit."""

from .bound import Bounds
from .fit import compare_structures, fit_process
from .kernel import Part, Shape, Structure
from .merit import Merit
from .predictor import Compared, Component, FittedProcess
from .rows import Units
from .selection import default_candidates
from .target import Scale

__all__ = [
    "Bounds", "Compared", "Component", "FittedProcess", "Merit", "Part", "Scale", "Shape", "Structure", "Units",
    "compare_structures", "default_candidates", "fit_process",
]  # fmt: skip
