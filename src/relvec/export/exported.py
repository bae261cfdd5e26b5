"""The parts of a fitted model that exports write down, and the way to them through pipelines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.base import BaseEstimator, is_classifier
from sklearn.utils.validation import check_is_fitted

from relvec.basis import Basis, Concat, KernelBasis
from relvec.estimators.assemble import caller_level
from relvec.estimators.base import BaseModel
from relvec.gaussian_process.classes import ClassModel
from relvec.inference.conformal import ConformalScores
from relvec.inference.predictive import (
    CalibratedPredictor,
    CountPredictor,
    LatentClasses,
    LatentPredictor,
    LinearPredictor,
    Predictor,
    StudentPredictor,
)
from relvec.inference.predictive.linear import LinearExpansion
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.kernels import Gaussian
from relvec.sparse.distill import DistilledPredictor

_REACHING = (CalibratedPredictor, DistilledPredictor)  # whose error bars know where no function reaches


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A fitted model as exports see it."""

    basis: Basis | None  # bound basis of the m functions kept; None of a process
    predictors: Sequence[Predictor]  # one for each output of a regression
    n_features: int  # number of columns of X
    single: bool  # whether predictions of a regression are (n,) rather than (n, q)
    classes: np.ndarray | None  # (K,) labels, or None for a regression
    latents: Sequence[LatentPredictor]  # of the classes of a machine: one for each dichotomy, or one for a softmax
    process: ClassModel | None  # the classes of a process
    averaged: bool  # whether probabilities are averaged over the posterior
    slope: float  # of the log-odds of a machine
    thresholds: np.ndarray | None = None  # (q,) bounds on the scores of new rows, of a calibrated model


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
    classifier = fitted.classifier if isinstance(fitted.classifier, LatentClasses) else None
    latents = [] if classifier is None else [latent for latent in classifier.latents if type(latent) is LatentPredictor]
    if classifier is not None and len(latents) < len(classifier.latents):
        raise _refuse(classifier.latents[0])
    return ExportedModel(
        basis=None if fitted.bound_basis is None else _with_reach(fitted.bound_basis, fitted.predictors),
        predictors=fitted.predictors,
        n_features=model.n_features_in_,
        single=not classifies and fitted.single,
        classes=model.classes_ if classifies else None,
        latents=latents,
        process=fitted.classifier if isinstance(fitted.classifier, ClassModel) else None,
        averaged=classifier is not None and classifier.averaged,
        slope=1.0 if classifier is None else classifier.slope,
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


def expand_machine(model: ExportedModel, predictor: Predictor) -> LinearExpansion:
    """Return the target, or the latent function of counts, as a weighted sum of the basis functions of the model."""
    if type(predictor) is StudentPredictor:  # its noise replaces that of the normal model
        return replace(expand_machine(model, predictor.function), noise=predictor.noise)
    if type(predictor) is CalibratedPredictor:
        return _expand_calibrated(model, predictor)
    if type(predictor) is DistilledPredictor:
        return _expand_distilled(model, predictor)
    linear = predictor.latent if type(predictor) is CountPredictor else predictor
    if type(linear) is not LinearPredictor:
        raise _refuse(predictor)
    assert model.basis is not None
    with np.errstate(over="ignore"):  # refused where the numbers are written
        unit = linear.unit / linear.scale
        noise = 0.0 if type(predictor) is CountPredictor else float(linear.noise * linear.unit**2)
        root, none = linear.root * unit[:, None], np.zeros((len(unit), 0))
        more = model.basis.n_atoms - len(unit)  # functions of the reach of error bars, which have no weight
        weights, root, none = (np.pad(a, [(0, more), (0, 0)][: a.ndim]) for a in (linear.mean * unit, root, none))
        return LinearExpansion(model.basis, weights, root, none, 0.0, noise)


def _expand_calibrated(model: ExportedModel, predictor: CalibratedPredictor) -> LinearExpansion:
    """Return the same with variances times the factor of error bars, and a share of the prior's away from the data."""
    assert model.basis is not None
    found, bars = expand_machine(model, predictor.function), predictor.bars
    factor = 1.0 if bars.varying is not None else bars.factor
    return replace(
        found, root=np.sqrt(factor) * found.root, noise=factor * found.noise, represented=_reached(model, predictor),
        prior=predictor.reach.variance, varying=bars.varying,
    )  # fmt: skip


def _expand_distilled(model: ExportedModel, predictor: DistilledPredictor) -> LinearExpansion:
    """Return the mean on the scale of the target, and the logarithm of the variance there, as weighted sums."""
    assert model.basis is not None
    more = model.basis.n_atoms - len(predictor.weights)
    low, high = predictor.log_limits.tolist()
    return LinearExpansion(
        model.basis, np.pad(predictor.weights, (0, more)), np.zeros((model.basis.n_atoms, 0)),
        _reached(model, predictor), predictor.reach.variance, 0.0, predictor.varying,
        np.pad(predictor.log_variance, (0, more)), (low, high),
    )  # fmt: skip


def scale_of(predictor: Predictor) -> Scale:
    """Return the scale of the target that the moments of an expanded predictor are on."""
    return predictor.scale if isinstance(predictor, DistilledPredictor) else AS_IT_IS


def _reached(model: ExportedModel, predictor: CalibratedPredictor | DistilledPredictor) -> np.ndarray:
    """Return what functions (m, p) of the reach explain of the variance: its share is |represented'phi|^2."""
    assert model.basis is not None
    own = next(i for i, other in enumerate(model.predictors) if other is predictor)
    sizes = [len(other.reach.centres) for other in model.predictors if isinstance(other, _REACHING)]
    first, reach = model.basis.n_atoms - sum(sizes[own:]), predictor.reach
    represented = np.zeros((model.basis.n_atoms, len(reach.centres)))
    inverse = solve_triangular(reach.root, np.eye(len(reach.centres)), lower=True)
    represented[first : first + len(reach.centres)] = inverse.T / np.sqrt(reach.least)
    return represented


def _refuse(predictor: object) -> NotImplementedError:
    return NotImplementedError(f"exports cannot translate the predictive distribution {type(predictor).__name__}")


def _with_reach(basis: Basis, predictors: Sequence[Predictor]) -> Basis:
    """Return the functions of a model, and after them those that tell how far each output's error bars reach."""
    reaches = [predictor.reach for predictor in predictors if isinstance(predictor, _REACHING)]
    parts = [KernelBasis(Gaussian(tuple(reach.widths.tolist())), reach.centres) for reach in reaches]
    return Concat((basis, *parts), n_features=basis.n_features) if parts else basis


def dense_weights(predictor: LatentPredictor) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the weights (m,) of each latent function and the root (m, k) of their covariance, in units of the basis."""
    m = len(predictor.scale)
    for output in range(predictor.n_outputs):
        own = np.flatnonzero(predictor.outputs == output)
        atoms = predictor.places[own]
        mean, root = np.zeros(m), np.zeros((m, predictor.root.shape[1]))
        mean[atoms] = predictor.mean[own] / predictor.scale[atoms]
        root[atoms] = predictor.root[own] / predictor.scale[atoms, None]
        yield mean, root


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
