"""relvec: sparse Bayesian learning and the relevance vector machine."""

from relvec import basis, kernels, solvers
from relvec._classifier import RelevanceVectorClassifier
from relvec._regressor import RelevanceVectorRegressor
from relvec._version import __version__
from relvec.c99 import to_c
from relvec.onnx import to_onnx
from relvec.persistence import load, save
from relvec.priors import GammaPrior
from relvec.selection import select_kernel

RVC = RelevanceVectorClassifier
RVR = RelevanceVectorRegressor

__all__ = [
    "RVC",
    "RVR",
    "GammaPrior",
    "RelevanceVectorClassifier",
    "RelevanceVectorRegressor",
    "__version__",
    "basis",
    "kernels",
    "load",
    "save",
    "select_kernel",
    "solvers",
    "to_c",
    "to_onnx",
]
