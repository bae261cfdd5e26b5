"""Small models with error bars: relevance vector machines, Gaussian processes and sparse linear models.

Modules are imported when one of their names is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from relvec._version import __version__

if TYPE_CHECKING:
    from relvec import basis, kernels, plot, solvers
    from relvec.estimators.gp import GPClassifier, GPRegressor
    from relvec.estimators.linear import SparseBayesianClassifier, SparseBayesianRegressor
    from relvec.estimators.path import relevance_path
    from relvec.estimators.rvm import RelevanceVectorClassifier, RelevanceVectorRegressor
    from relvec.estimators.rvm import RelevanceVectorClassifier as RVC
    from relvec.estimators.rvm import RelevanceVectorRegressor as RVR
    from relvec.export.c99 import to_c
    from relvec.export.model_file import load, save
    from relvec.export.onnx import to_onnx
    from relvec.inference.hyperpriors import GammaPrior
    from relvec.runtime.machine import show_versions

_HOMES = {
    "GammaPrior": "relvec.inference.hyperpriors",
    "GPClassifier": "relvec.estimators.gp",
    "GPRegressor": "relvec.estimators.gp",
    "RelevanceVectorClassifier": "relvec.estimators.rvm",
    "RelevanceVectorRegressor": "relvec.estimators.rvm",
    "SparseBayesianClassifier": "relvec.estimators.linear",
    "SparseBayesianRegressor": "relvec.estimators.linear",
    "relevance_path": "relvec.estimators.path",
    "load": "relvec.export.model_file",
    "save": "relvec.export.model_file",
    "show_versions": "relvec.runtime.machine",
    "to_c": "relvec.export.c99",
    "to_onnx": "relvec.export.onnx",
}
_SHORT_NAMES = {"RVC": "RelevanceVectorClassifier", "RVR": "RelevanceVectorRegressor"}
_SUBMODULES = ("basis", "kernels", "plot", "solvers")

__all__ = [
    "RVC", "RVR", "GPClassifier", "GPRegressor", "GammaPrior", "RelevanceVectorClassifier", "RelevanceVectorRegressor",
    "SparseBayesianClassifier", "SparseBayesianRegressor", "__version__", "basis", "kernels", "load", "plot",
    "relevance_path", "save", "show_versions", "solvers", "to_c", "to_onnx",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    full = _SHORT_NAMES.get(name, name)
    if full in _HOMES:
        found = getattr(import_module(_HOMES[full]), full)
    elif name in _SUBMODULES:
        found = import_module(f"relvec.{name}")
    else:
        raise AttributeError(f"module 'relvec' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return list(__all__)
