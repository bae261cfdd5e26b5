"""relvec: sparse Bayesian learning and the relevance vector machine."""

from relvec import basis, kernels, solvers
from relvec._version import __version__
from relvec.estimators.classifier import RelevanceVectorClassifier
from relvec.estimators.regressor import RelevanceVectorRegressor
from relvec.estimators.selection import select_kernel
from relvec.export.c99 import to_c
from relvec.export.model_file import load, save
from relvec.export.onnx import to_onnx
from relvec.inference.priors import GammaPrior

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
