"""The parts of a fitted model that exports write down, and the way to them through pipelines."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from relvec.basis import Basis
from relvec.estimators.assemble import caller_level
from relvec.estimators.base import BaseModel
from relvec.gaussian_process.classes import ClassModel
from relvec.inference.conformal import ConformalScores
from relvec.inference.predictive import LatentClasses, Predictor
from relvec.inference.predictive.expansion import Expansion


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A fitted model as exports see it."""

    basis: Basis | None  # bound basis of the m functions kept; None of a process
    predictors: Sequence[Predictor]  # one for each output of a regression
    n_features: int  # number of columns of X
    single: bool  # whether predictions of a regression are (n,) rather than (n, q)
    classes: np.ndarray | None  # (K,) labels, or None for a regression
    machine: LatentClasses | None  # the classes of a machine or a linear model
    process: ClassModel | None  # the classes of a process
    thresholds: np.ndarray | None = None  # (q,) bounds on the scores of new rows, of a calibrated model

    @cached_property
    def outputs(self) -> list[Expansion]:
        """What is predicted of each output of a regression, as sums of basis functions."""
        return [predictor.expand(self.n_features, self.basis) for predictor in self.predictors]


def is_exportable(model: object) -> bool:
    """Tell whether a model is one of relvec's estimators.

    >>> from relvec import RVR
    >>> is_exportable(RVR()), is_exportable("RVR")
    (True, False)
    """
    return isinstance(model, BaseModel)


def read_model(model: BaseModel, coverage: float | None = None) -> ExportedModel:
    """Return the parts of a fitted estimator that exports need; of a calibrated one the bounds for a coverage."""
    check_is_fitted(model)
    fitted, classifies = model.fitted_, is_classifier(model)
    return ExportedModel(
        basis=fitted.bound_basis,
        predictors=fitted.predictors,
        n_features=model.n_features_in_,
        single=not classifies and fitted.single,
        classes=model.classes_ if classifies else None,
        machine=fitted.latent_classes,
        process=fitted.process_classes,
        thresholds=None if coverage is None else find_thresholds(fitted.calibration, coverage),
    )


def find_thresholds(calibration: ConformalScores | None, coverage: float) -> np.ndarray | None:
    """Return bounds (q,) on the scores of new rows; None, with a warning, for calibrations that are not exported."""
    if not 0.0 < coverage < 1.0:
        raise ValueError(f"coverage must lie strictly between 0 and 1, got {coverage!r}")
    if calibration is None:
        return None
    if calibration.folds or calibration.randomised:
        kind = "cross-conformal intervals" if calibration.folds else "randomised sets"
        warnings.warn(
            f"{kind} cannot be exported, only means and probabilities: calibrate on separate rows, without "
            "randomisation, to export intervals or sets",
            UserWarning,
            stacklevel=caller_level(),
        )
        return None
    found = calibration.thresholds(coverage)
    if np.isinf(found).any():
        raise ValueError(
            f"intervals or sets of coverage {coverage:g} would be infinite or hold all classes, because "
            f"{calibration.n_groups} {calibration.unit} are too few, or their targets too far out: ask for less "
            "coverage"
        )
    return found


def split_pipeline(model: BaseEstimator, function: str, hint: str = "") -> tuple[list[BaseEstimator], BaseModel]:
    """Return the steps of a (nested) pipeline before its last, and the estimator of relvec at its end.

    For the message, ``function`` is the export that asks and ``hint`` an alternative.
    """
    steps: list[BaseEstimator] = []
    while sklearn_name(model) == "Pipeline":
        steps += [step for _, step in model.steps[:-1] if step is not None and step != "passthrough"]
        model = model.steps[-1][1]
    if not is_exportable(model):
        raise NotImplementedError(
            f"{function} takes an estimator of relvec or a pipeline that ends in one, got {type(model).__name__}{hint}"
        )
    return steps, model


def sklearn_name(step: object) -> str:
    """Name of a class of scikit-learn, which need not be imported for it; empty for others."""
    return type(step).__name__ if type(step).__module__.split(".")[0] == "sklearn" else ""
