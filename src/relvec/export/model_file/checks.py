"""Checks of what a file holds: an intact checksum does not mean that the numbers make a model."""

from __future__ import annotations

import numbers
import types
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from relvec.basis import Basis, Concat, KernelBasis, Monomials, Precomputed
from relvec.estimators.base import BaseModel
from relvec.estimators.noise import HeteroscedasticPredictor
from relvec.estimators.records import Fitted, FittedRVM
from relvec.export.model_file.classes import storable_classes
from relvec.export.model_file.layout import ModelFileError
from relvec.gaussian_process import Component, ProcessPredictor, Scale, Structure, Units
from relvec.gaussian_process.classes import Calibration, ClassModel, ClassProcess, Member
from relvec.inference.conformal import ConformalScores
from relvec.inference.heteroscedastic import LogNoise
from relvec.inference.predictive import (
    AugmentedLatentPredictor,
    AugmentedPredictor,
    ClassPredictor,
    LatentClasses,
    LatentPredictor,
    LinearPredictor,
    Predictor,
    StudentPredictor,
)
from relvec.kernels import Kernel

_WITHOUT_NAN = (
    Kernel, Basis, Predictor, ClassPredictor, LatentPredictor, AugmentedLatentPredictor, Component, Units, ClassProcess,
    Calibration, Member, LogNoise, Scale,
)  # fmt: skip
# May be infinite or NaN: what no prediction needs (counts have no noise), and places that stand for a straight line.
_MAY_BE_INFINITE = {ClassProcess: ("log_evidence", "gain"),
                    LinearPredictor: ("noise",), LogNoise: ("places",)}  # fmt: skip
_NOT_NEGATIVE: dict[type, tuple[str, ...]] = {
    LinearPredictor: ("unit", "noise"),
    AugmentedPredictor: ("root", "precision", "alpha"),
    AugmentedLatentPredictor: ("alpha",),
    StudentPredictor: ("noise",),
    Component: ("noise", "spread"),
    ProcessPredictor: ("shares",),
    Calibration: ("moderation",),
    Member: ("share",),
    LogNoise: ("least",),
}
# Dimensions of the arrays of a record: equal letters are equal numbers, "." is any.
_SHAPES: dict[type, dict[str, str]] = {
    KernelBasis: {"centres": "md", "centre_rows": "m"},
    Precomputed: {"columns": "m"},
    Concat: {"order": "m"},
    LinearPredictor: {"scale": "m", "mean": "m", "root": "m."},
    LatentPredictor: {"scale": "m", "outputs": "k", "places": "k", "mean": "k", "root": "k."},
    AugmentedPredictor: {"X": "nd", "root": "n", "remainder": "n", "precision": "m"},
    AugmentedLatentPredictor: {"X": "nd", "residual": "nK", "curvature": "nKK"},
    Component: {"theta": "p", "Z": "md", "weights": "m", "R": "rm"},
    ProcessPredictor: {"shares": "k", "vectors": "mD", "relevant": "m"},
    ClassModel: {"base_rates": "K"},
    ClassProcess: {"theta": "p", "vectors": "md", "weights": "qC", "factors": "Cqq", "base_rates": "K"},
    Units: {"columns": "d", "centre": "d", "scale": "d"},
    LogNoise: {"centre": "p", "scale": "p", "columns": "k", "places": "k", "mean": "k", "covariance": "kk"},
    ConformalScores: {"scores": "qn", "fold": "n"},
}


def check_record(record: Any) -> None:
    """Raise ModelFileError unless the fields of a dataclass have the types, shapes and finite numbers of a model."""
    name = type(record).__name__
    for field, hint in _hints()[type(record)].items():
        value = getattr(record, field)
        if not _matches(value, hint):
            raise ModelFileError(f"{name}.{field} is of the wrong type, {type(value).__name__}")
        counts = isinstance(record, _WITHOUT_NAN) and field not in _MAY_BE_INFINITE.get(type(record), ())
        if counts and isinstance(value, np.ndarray | numbers.Real) and not _is_finite(np.asarray(value)):
            raise ModelFileError(f"{name}.{field} holds NaN or infinite numbers, or no numbers")
        if field in _NOT_NEGATIVE.get(type(record), ()) and value is not None and np.any(value < 0.0):
            raise ModelFileError(f"{name}.{field} holds negative numbers")
    sizes: dict[str, int] = {}
    for field, letters in _SHAPES.get(type(record), {}).items():
        array = getattr(record, field)
        if array is not None and not _fits(array.shape, letters, sizes):
            raise ModelFileError(f"{name}.{field} has the shape {array.shape}, which does not match the other arrays")
    if not _is_consistent(record, sizes):
        raise ModelFileError(f"the parts of {name} do not fit together")


def check_fitted(model: BaseModel, fitted: Any, columns: dict[str, Any], max_numbers: int) -> None:
    """Raise ModelFileError if the record of a fit does not belong to an estimator, or predicts no finite numbers.

    ``columns`` are what columns and classes are called; ``max_numbers`` bounds the row of zeros that is predicted.
    """
    if not isinstance(fitted, Fitted):
        raise ModelFileError(f"fitted_ is of the wrong type, {type(fitted).__name__}")
    d, names, classes = (columns.get(name) for name in ("n_features_in_", "feature_names_in_", "classes_"))
    if type(d) is not int or (isinstance(fitted, FittedRVM) and fitted.basis.n_features != d):
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
    """Whether a predictor gives finite moments, or probabilities, at the origin."""
    with np.errstate(all="ignore"):
        if isinstance(predictor, ClassPredictor):
            return bool(np.isfinite(predictor.predict_proba(np.zeros((1, d)))).all())
        mean, spread = predictor.moments(np.zeros((1, d)), True, True)
    return bool(np.isfinite([mean, spread]).all())


@cache
def _hints() -> dict[type, dict[str, Any]]:
    """The annotations of all records, evaluated once: a load compiles nothing."""
    found: dict[type, dict[str, Any]] = {}
    for cls in filter(is_dataclass, storable_classes().values()):
        hints = typing.get_type_hints(cls)
        found[cls] = {field.name: hints[field.name] for field in fields(cls)}
    return found


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value is of the type that an annotation names; annotations of other kinds name no type."""
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_matches(value, argument) for argument in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return len(each) == len(value) and all(map(_matches, value, each))
    if hint in (float, int):  # a numpy integer in place of a number would overflow without a word
        return isinstance(value, float | int | np.floating if hint is float else numbers.Integral)
    return isinstance(value, origin or hint) if isinstance(origin or hint, type) else True


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "biuf" and bool(np.isfinite(array).all())


def _fits(shape: tuple[int, ...], letters: str, sizes: dict[str, int]) -> bool:
    if len(shape) != len(letters):
        return False
    return all(n == sizes.setdefault(letter, n) for n, letter in zip(shape, letters) if letter != ".")


def _is_consistent(record: Any, sizes: dict[str, int]) -> bool:
    """Whether parts of a record that are no dimensions of its arrays agree with those."""
    if isinstance(record, Concat):
        order = np.arange(record.n_atoms) if record.order is None else np.sort(record.order)
        return np.array_equal(order, np.arange(record.n_atoms)) if _is_bound(record) else record.order is None
    if isinstance(record, Monomials):
        return all(0 <= k < (record.n_features or 0) for term in record.terms for k in term)
    if isinstance(record, Precomputed):
        return record.columns is None or _is_index(record.columns, record.n_features or 0)
    if isinstance(record, LinearPredictor):
        return _is_bound(record.basis) and record.basis.n_atoms == sizes["m"] and bool((record.scale != 0.0).all())
    if isinstance(record, LatentPredictor):
        indices = _is_index(record.places, sizes["m"]) and _is_index(record.outputs, record.n_outputs)
        return _is_bound(record.basis) and record.basis.n_atoms == sizes["m"] and indices
    if isinstance(record, Structure):
        grouped = [part.groups for part in record.parts if part.groups]
        return all(len(g) == record.n_inputs and set(g) == set(range(len(set(g)))) for g in grouped)
    if isinstance(record, Component):
        varying = record.varying
        fits = varying is None or (isinstance(varying, LogNoise) and len(varying.centre) == sizes["d"] + 1)
        return fits and record.structure.n_theta == sizes["p"] and record.structure.n_inputs == sizes["d"]
    if isinstance(record, ProcessPredictor):
        inputs, Z = len(record.units.columns), [c.Z.shape for c in record.components]
        return bool(
            len(Z) == sizes["k"]
            and np.isclose(record.shares.sum(), 1.0)
            and Z == [(sizes["m"], inputs)] * len(Z)
            and _is_index(record.units.columns, sizes["D"])
        )
    if isinstance(record, ClassProcess):
        return _is_class_process(record, sizes)
    if isinstance(record, Member):
        return isinstance(record.model, ClassProcess) and record.share <= 1.0
    if isinstance(record, ClassModel):
        inputs, rates = len(record.units.columns), record.base_rates
        members = [(m.model.vectors.shape[1], len(m.model.base_rates)) for m in record.members]
        return members == [(inputs, len(rates))] * len(members) and bool((rates > 0.0).all())
    if isinstance(record, StudentPredictor):
        return isinstance(record.function, LinearPredictor | ProcessPredictor) and 2.0 < record.degrees < np.inf
    if isinstance(record, HeteroscedasticPredictor):
        return isinstance(record.function, ProcessPredictor)
    if isinstance(record, LatentClasses):
        sizes_of = [latent.n_outputs for latent in record.latents]
        return bool(sizes_of) and (len(sizes_of) == 1 or set(sizes_of) == {1})
    if isinstance(record, LogNoise):
        numbers_only = not np.isnan(record.places).any()
        return numbers_only and _is_index(record.columns, sizes["p"]) and bool((record.scale > 0.0).all())
    if isinstance(record, ConformalScores):
        return _are_scores(record)
    return True


def _are_scores(record: ConformalScores) -> bool:
    scores, fold = record.scores, record.fold
    if scores.dtype.kind != "f" or np.isnan(scores).any() or (fold is None) != (not record.folds):
        return False
    return bool((np.diff(scores) >= 0.0).all()) if fold is None else _is_index(fold, len(record.folds))


def _is_class_process(process: ClassProcess, sizes: dict[str, int]) -> bool:
    structure, K = process.kernel.structure, sizes["K"]
    linear = sizes["d"] + 1 if structure.linear else 0
    if process.directions is not None:
        linear = sizes["q"] if structure.linear and process.directions.shape == (sizes["d"], sizes["q"] - 1) else -1
    return (
        process.kernel.n_theta == sizes["p"]
        and structure.n_inputs == sizes["d"] > 0
        and sizes["q"] == sizes["m"] + linear
        and bool(structure.parts) == (sizes["m"] > 0)
        and sizes["C"] == (1 if K == 2 else K)
    )


def _is_bound(basis: Basis) -> bool:
    return basis.n_features is not None and all(map(_is_bound, getattr(basis, "parts", ())))


def _is_index(values: np.ndarray, size: int) -> bool:
    return values.dtype.kind in "iu" and bool(np.all((values >= 0) & (values < size)))
