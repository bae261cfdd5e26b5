"""Intervals and sets of classes with a guarantee, from rows that took no part in the fit."""

from relvec.estimators.conformal.classes import ConformalSets
from relvec.estimators.conformal.regression import ConformalIntervals

__all__ = ["ConformalIntervals", "ConformalSets"]
