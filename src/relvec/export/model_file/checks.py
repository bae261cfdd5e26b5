"""Checks of the values of a model file: records, the record of a fit with its estimator, and steps of a pipeline.

The bytes themselves are checked in `layout.py`, the names of classes in `names.py`.
"""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder

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


def check_fitted(model: BaseModel, fitted: object, columns: dict[str, object], max_numbers: int) -> None:
    """Raise ModelFileError if the record of a fit does not belong to an estimator, or predicts no finite numbers.

    ``columns`` are what columns and classes are called; ``max_numbers`` bounds the row of zeros that is predicted.
    """
    if not isinstance(fitted, Fitted):
        raise ModelFileError(f"fitted_ is of the wrong type, {type(fitted).__name__}")
    classes = columns.get("classes_")
    d = _check_columns(fitted, columns.get("n_features_in_"), columns.get("feature_names_in_"))
    if is_classifier(model) != isinstance(classes, np.ndarray):
        raise ModelFileError("a classifier has classes, and a regressor has none")
    if not (isinstance(fitted.predictors, list) and _has_all_outputs(fitted, classes)):
        raise ModelFileError("the predictive distributions do not match the outputs or classes")
    records = [fitted, *_calibration_folds(fitted, classes)]
    predictors = [p for own in records for p in (*own.predictors, own.classifier) if p is not None]
    is_tried = 0 < d <= max(max_numbers, 1000)
    for predictor in predictors:
        if not isinstance(predictor, Predictor | ClassPredictor) or (is_tried and not _predicts(predictor, d)):
            raise ModelFileError(f"{type(predictor).__name__} does not predict finite numbers")


def _check_columns(fitted: Fitted, d: object, names: object) -> int:
    """Return the number of columns of X; raise ModelFileError where the basis, or their names, are of others."""
    if type(d) is not int or (fitted.bound_basis is not None and fitted.bound_basis.n_features != d):
        raise ModelFileError(f"n_features_in_ is {d!r} and does not match the basis")
    if names is not None and not (isinstance(names, np.ndarray) and names.shape == (d,)):
        raise ModelFileError("feature_names_in_ are not the names of as many columns")
    return d


def _calibration_folds(fitted: Fitted, classes: object) -> list[Fitted]:
    """Return the models of a calibration's folds; raise ModelFileError where it is that of another model."""
    calibration = fitted.calibration
    if calibration is None:
        return []
    outputs = 1 if classes is not None else len(fitted.predictors)
    if len(calibration.scores) != outputs or not all(isinstance(m, Fitted) for m in calibration.folds):
        raise ModelFileError("the calibration does not match the outputs of the model")
    return list(calibration.folds)


def _has_all_outputs(fitted: Fitted, classes: object) -> bool:
    if not isinstance(classes, np.ndarray):
        own = fitted.predictors
        return all(isinstance(p, Predictor) for p in own) and len(own) > 0 and not (fitted.single and len(own) != 1)
    return classes.ndim == 1 and len(classes) > 1 and _tells_classes(fitted.classifier, len(classes))


def _tells_classes(classifier: object, K: int) -> bool:
    """Tell whether a predictor of classes is one of K of them."""
    if isinstance(classifier, ClassModel):
        return len(classifier.base_rates) == K
    if not isinstance(classifier, LatentClasses):
        return False
    functions = [int(latent.n_outputs) for latent in classifier.latents]
    return functions in ([1], [K], [1] * K) and (functions == [1]) == (K == 2)


def _predicts(predictor: Predictor | ClassPredictor, d: int) -> bool:
    """Tell whether a predictor gives finite moments, or probabilities, at the origin."""
    with np.errstate(all="ignore"):
        if isinstance(predictor, ClassPredictor):
            return bool(np.isfinite(predictor.predict_proba(np.zeros((1, d)))).all())
        mean, spread = predictor.moments(np.zeros((1, d)), True, True)
    return bool(np.isfinite([mean, spread]).all())


_TRANSFORMERS = ("transformers", "transformers_")  # of a ColumnTransformer, as given and as fitted


def check_step(step: BaseEstimator) -> None:
    """Raise ModelFileError unless the attributes of a step are such as its class writes."""
    if isinstance(step, Pipeline) and not _is_pipeline(step):
        raise ModelFileError("the steps of a pipeline are not names with estimators")
    if isinstance(step, ColumnTransformer) and not all(map(_are_transformers, map(vars(step).get, _TRANSFORMERS))):
        raise ModelFileError("the transformers of columns are not names with steps and columns")
    jobs = vars(step).get("n_jobs")
    if isinstance(jobs, bool) or not isinstance(jobs, int | None) or jobs == 0:
        raise ModelFileError(f"n_jobs is {jobs!r}")
    if isinstance(step, OneHotEncoder) and "categories_" in vars(step) and not _is_encoder(step):
        raise ModelFileError("the categories of an encoder do not match the columns that it makes")


def _are_transformers(parts: list | None) -> bool:
    """Tell whether parts are triples of a name, a step and columns; None stands for parts that there are not."""
    whole = isinstance(parts, list) and all(isinstance(part, tuple | list) and len(part) == 3 for part in parts)
    return parts is None or (
        whole and all(isinstance(name, str) and isinstance(step, str | BaseEstimator) for name, step, _ in parts)
    )


def _is_pipeline(pipeline: Pipeline) -> bool:
    steps = pipeline.steps
    pairs = isinstance(steps, list) and all(isinstance(step, tuple | list) and len(step) == 2 for step in steps)
    return bool(pairs and steps) and all(
        isinstance(name, str) and (step is None or step == "passthrough" or isinstance(step, BaseEstimator))
        for name, step in steps
    )


def _is_encoder(encoder: OneHotEncoder) -> bool:
    """Tell whether every code of a category is the number of a column: scipy writes wherever the codes point to."""
    if not all(map(_is_sorted, encoder.categories_)):
        return False
    counts = _count_codes(encoder)
    dropped = encoder._drop_idx_after_grouping
    pairs = list(zip([None] * len(counts) if dropped is None else dropped, counts, strict=True))
    if not all(drop is None or 0 <= drop < n for drop, n in pairs):
        return False
    expected = [n - (drop is not None) for drop, n in pairs]
    return encoder.n_features_in_ == len(counts) and list(encoder._n_features_outs) == expected


def _count_codes(encoder: OneHotEncoder) -> list[int]:
    """Count the categories of each column, rare ones joined to groups."""
    counts = [len(categories) for categories in encoder.categories_]
    if not encoder._infrequent_enabled:
        return counts
    groups = zip(encoder._default_to_infrequent_mappings, encoder._infrequent_indices, counts, strict=True)
    return [n if codes is None else _count_groups(codes, rare, n) for codes, rare, n in groups]


def _is_sorted(categories: np.ndarray) -> bool:
    """Tell whether categories that are looked up by bisection are ascending; those of objects are looked up by name."""
    if not (isinstance(categories, np.ndarray) and categories.ndim == 1 and len(categories)):
        return False
    if categories.dtype.kind == "O":
        return True
    known = categories[categories == categories]  # a NaN is the last
    return bool((known[1:] > known[:-1]).all()) and bool((categories == categories)[: len(known)].all())


def _count_groups(codes: np.ndarray, rare: np.ndarray, count: int) -> int:
    """Count the groups that rare categories are joined to; 0, which no encoder makes, for wrong numbers."""
    known = all(part.dtype.kind in "iu" and part.size and 0 <= part.min() <= part.max() < count
                for part in (codes, rare))  # fmt: skip
    return int(codes.max()) + 1 if known else 0
