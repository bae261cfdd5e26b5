"""Predictive distributions of machines and linear models; a process has its own (`relvec.gaussian_process.predictor`).

Machines with a kernel that was given predict by `LinearPredictor`, linear models by it or `RescaledPredictor`, `RVR()`
as it comes by `CalibratedPredictor`, and classes by `LatentClasses`.
"""

from relvec.inference.predictive.augmented import Augmented, AugmentedLatentPredictor, AugmentedPredictor
from relvec.inference.predictive.calibrated import CalibratedPredictor
from relvec.inference.predictive.contract import ClassPredictor, Predictor
from relvec.inference.predictive.linear import LatentPredictor, LinearPredictor
from relvec.inference.predictive.rescaled import RescaledPredictor
from relvec.inference.predictive.responses import CountPredictor, LatentClasses, StudentPredictor

__all__ = [
    "Augmented", "AugmentedLatentPredictor", "AugmentedPredictor", "CalibratedPredictor", "ClassPredictor",
    "CountPredictor", "LatentClasses", "LatentPredictor", "LinearPredictor", "Predictor", "RescaledPredictor",
    "StudentPredictor",
]  # fmt: skip
