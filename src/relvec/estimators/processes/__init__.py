"""Fits of estimators with their defaults: processes whose kernels the data choose."""

from relvec.estimators.processes.classes import fit_class_process
from relvec.estimators.processes.regression import fit_processes

__all__ = ["fit_class_process", "fit_processes"]
