"""Classification by a sparse process, chosen by the density of rows that took no part."""

from relvec.gaussian_process.classes.candidates import GivenKernel
from relvec.gaussian_process.classes.choose import Entry, Selection
from relvec.gaussian_process.classes.fit import ClassModel, Member, fit_classes
from relvec.gaussian_process.classes.model import Calibration, ClassProcess, LatentKernel

__all__ = [
    "Calibration", "ClassModel", "ClassProcess", "Entry", "GivenKernel", "LatentKernel", "Member", "Selection",
    "fit_classes",
]  # fmt: skip
