"""Regression by a sparse process with a composite kernel, chosen by merit."""

from .fit import fit_process
from .kernel import Part, Shape, Structure
from .predictor import FittedProcess
from .selection import default_candidates

__all__ = ["FittedProcess", "Part", "Shape", "Structure", "default_candidates", "fit_process"]
