"""Checks of what a file holds: an intact checksum does not mean that the numbers make a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from relvec.estimators.base import BaseModel
from relvec.estimators.records import Fitted
from relvec.export.model_file.layout import ModelFileError
from relvec.gaussian_process.classes import ClassModel
from relvec.inference.predictive import ClassPredictor, LatentClasses, Predictor
from relvec.runtime.record import Record, check_types


def check_record(record: object) -> None:
    """Raise ModelFileError unless the fields of a dataclass are those of a model."""
    try:
        check_types(record)
        if isinstance(record, Record):
            record.check()
    except ValueError as error:
        raise ModelFileError(str(error)) from error


def check_fitted(model: BaseModel, fitted: object, columns: dict[str, Any], max_numbers: int) -> None:
    """Raise ModelFileError if the record of a fit does not belong to an estimator, or predicts no finite numbers.

    ``columns`` are what columns and classes are called; ``max_numbers`` bounds the row of zeros that is predicted.
    """
    if not isinstance(fitted, Fitted):
        raise ModelFileError(f"fitted_ is of the wrong type, {type(fitted).__name__}")
    d, names, classes = (columns.get(name) for name in ("n_features_in_", "feature_names_in_", "classes_"))
    if type(d) is not int or (fitted.bound_basis is not None and fitted.bound_basis.n_features != d):
        raise ModelFileError(f"n_features_in_ is {d!r} and does not match the basis")
    if names is not None and not (isinstance(names, np.ndarray) and names.shape == (d,)):
        raise ModelFileError("feature_names_in_ are not the names of as many columns")
    if is_classifier(model) != isinstance(classes, np.ndarray):
        raise ModelFileError("a classifier has classes, and a regressor has none")
    if not (isinstance(fitted.predictors, list) and _has_all_outputs(fitted, classes)):
        raise ModelFileError("the predictive distributions do not match the outputs or classes")
    calibration, records = fitted.calibration, [fitted]
    if calibration is not None:
        outputs = 1 if classes is not None else len(fitted.predictors)
        if len(calibration.scores) != outputs or not all(isinstance(m, Fitted) for m in calibration.folds):
            raise ModelFileError("the calibration does not match the outputs of the model")
        records += calibration.folds
    for predictor in [p for own in records for p in (*own.predictors, own.classifier) if p is not None]:
        small = 0 < d <= max(max_numbers, 1000)
        if not isinstance(predictor, Predictor | ClassPredictor) or (small and not _predicts(predictor, d)):
            raise ModelFileError(f"{type(predictor).__name__} does not predict finite numbers")


def _has_all_outputs(fitted: Fitted, classes: np.ndarray | None) -> bool:
    if classes is None:
        own = fitted.predictors
        return all(isinstance(p, Predictor) for p in own) and len(own) > 0 and not (fitted.single and len(own) != 1)
    K = len(classes) if classes.ndim == 1 else 0
    if isinstance(first := fitted.classifier, ClassModel):
        return K > 1 and len(first.base_rates) == K
    if not isinstance(first, LatentClasses):
        return False
    functions = [int(latent.n_outputs) for latent in first.latents]
    return K > 1 and functions in ([1], [K], [1] * K) and (functions == [1]) == (K == 2)


def _predicts(predictor: Predictor | ClassPredictor, d: int) -> bool:
    """Tell whether a predictor gives finite moments, or probabilities, at the origin."""
    with np.errstate(all="ignore"):
        if isinstance(predictor, ClassPredictor):
            return bool(np.isfinite(predictor.predict_proba(np.zeros((1, d)))).all())
        mean, spread = predictor.moments(np.zeros((1, d)), True, True)
    return bool(np.isfinite([mean, spread]).all())
