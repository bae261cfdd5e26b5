"""Fitted models as frozen records, from which estimators copy their attributes and exports read.

There are two: `FittedRVM`, of relevance vector machines and linear models, and `FittedProcess`, of processes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

import numpy as np

from relvec.basis import Basis, centres_of
from relvec.design import Compression
from relvec.estimators.noise import NoiseFit
from relvec.estimators.options import EarlierModel
from relvec.gaussian_process import ProcessPredictor
from relvec.gaussian_process.classes import ClassModel
from relvec.hyperparameters.grvm import Placement
from relvec.inference.conformal import ConformalScores
from relvec.inference.predictive import ClassPredictor, LatentClasses, LatentPredictor, LinearPredictor, Predictor
from relvec.inference.predictive.scaled import ScaledPredictor
from relvec.runtime.record import Brief, Record


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Fitted(Brief, Record, ABC):
    """What the records of both families have.

    Attributes
    ----------
    predictors : (F) what predicts each output of a regression; none for classes.
    classifier : what predicts classes; None for a regression.
    noise_variance : (F,) nan for classes and counts.
    log_evidence : (F,).
    status : (F) how each fit ended.
    kernel, width, width_rule, feature_relevance : see the estimators; None where they have no such attribute.
    single : whether the targets are one column that was given as (n,).
    noise : the noise that was learned, where it is not normal with one variance; else None.
    calibration : scores of rows that took no part in the fit, where the model is calibrated; else None.
    """

    predictors: Sequence[Predictor]
    noise_variance: np.ndarray
    log_evidence: np.ndarray
    status: list[str]
    kernel: Any = None
    width: Any = None
    width_rule: str | None = None
    feature_relevance: np.ndarray | None = None
    single: bool = True
    noise: NoiseFit | None = None
    calibration: ConformalScores | None = None
    classifier: ClassPredictor | None = None

    @property
    @abstractmethod
    def earlier(self) -> Any:
        """The model for a warm start."""

    @property
    @abstractmethod
    def n_kept(self) -> int:
        """How many functions, vectors or columns were kept."""

    @property
    @abstractmethod
    def size(self) -> str:
        """How much was kept, in words."""

    @property
    @abstractmethod
    def kept_rows(self) -> np.ndarray:
        """Training rows that are kept, ascending."""

    @property
    @abstractmethod
    def row_notes(self) -> dict[str, list]:
        """What is known of each of these rows, by a word."""

    @property
    def centres(self) -> np.ndarray:
        """Centres (p, d) of kernels that may be no training rows."""
        return np.zeros((0, 0))

    @property
    def latent_classes(self) -> LatentClasses | None:
        """What predicts the classes of a machine or a linear model; None of others."""
        return None

    @property
    def process_classes(self) -> ClassModel | None:
        """What predicts the classes of a process; None of others."""
        return None

    @property
    def bound_basis(self) -> Basis | None:
        """The basis of the functions that are kept; None where none are."""
        return None

    @property
    def histories(self) -> list[np.ndarray]:
        """The steps of each search; none where there was none."""
        return []

    @property
    def log_scale(self) -> bool:
        """Whether targets are taken on a logarithmic scale."""
        return any(isinstance(own, ScaledPredictor) and own.scale.sign != 0 for own in self.predictors)

    @property
    def compared(self) -> Sequence[Any]:
        """Records of the kernels that were compared, those that predict with a share; none where none were."""
        return ()

    @property
    def chosen_by(self) -> str:
        """What the kernels were compared by, in words."""
        return ""

    @property
    def extrapolation(self) -> str:
        """How predictions go on away from the training rows, in a sentence."""
        return ""

    @property
    def scores(self) -> list[str]:
        """How good the model is on its training rows, in words."""
        return []

    @property
    def noise_columns(self) -> list[np.ndarray] | None:
        """Columns of X that the error bars of each output depend on, None where they do not."""
        if self.noise is not None:
            return [self.noise.columns] if self.noise.columns is not None else None
        found = [predictor.noise_columns for predictor in self.predictors]
        return found if any(len(columns) for columns in found) else None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedRVM(Fitted):
    """A relevance vector machine of F searches with R functions: one of each output, or K of the classes of a softmax.

    Attributes
    ----------
    basis : bound basis of the m functions kept: kernels first, then the further basis, then the constant.
    functions : (F) the posteriors over functions that were found (`relvec.inference.predictive`).
    weights, alpha, gamma : (R, m) posterior mean, precision (inf where a function is not in the model of the output)
        and how well the data determine each weight, in the units of X and y.
    intercept : (R,) weight of the constant.
    coef : (R, d) slopes of a purely linear model, or None.
    certificate, n_iter : (F,).
    history : (F) the steps of each search.
    relevance_vectors : (r, d) the training rows that kernels are centred on; None where X holds kernel values.
    n_candidates, compression, tuning : see the estimators.
    loss_nats : (F,) what is lost of the density of the processes that the functions were distilled from; else None.
    choices : how dictionary and size of each output were chosen by rows held out; None where they were given.
    placement : how well the data place moved centres, or None.
    theta : (p,) logarithms of the parameters of all kernels of the dictionary.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = RVR(width=1.0).fit(X, np.sin(X[:, 0]))
    >>> model.fitted_.size
    '1... functions kept'
    """

    FINITE: ClassVar[bool] = False
    SHAPES: ClassVar[dict[str, str]] = {
        "weights": "Rm",
        "alpha": "Rm",
        "gamma": "Rm",
        "intercept": "R",
        "noise_variance": "F",
        "log_evidence": "F",
        "certificate": "F",
        "n_iter": "F",
    }

    basis: Basis
    functions: list[LinearPredictor] | list[LatentPredictor]
    weights: np.ndarray
    alpha: np.ndarray
    gamma: np.ndarray
    intercept: np.ndarray
    coef: np.ndarray | None
    certificate: np.ndarray
    n_iter: np.ndarray
    history: list[np.ndarray]
    relevance_vectors: np.ndarray | None
    n_candidates: int
    compression: Compression | None = None
    placement: Placement | None = None
    tuning: Any = None
    choices: list[Any] | None = None
    theta: np.ndarray | None = None
    loss_nats: np.ndarray | None = None
    classifier: LatentClasses | None = None

    @property
    def latent_classes(self) -> LatentClasses | None:
        return self.classifier

    @property
    def bound_basis(self) -> Basis:
        return self.basis

    @property
    def histories(self) -> list[np.ndarray]:
        return self.history

    @property
    def relevance(self) -> np.ndarray:
        """Training rows (r,) that kernels are centred on, ascending."""
        return np.unique(self.basis.rows[self.basis.rows >= 0])

    @property
    def centres(self) -> np.ndarray:
        """Centres (p, d) of the kernels, in the order of the basis."""
        return centres_of(self.basis)

    @property
    def earlier(self) -> EarlierModel:
        """The model for a warm start."""
        return EarlierModel(self.basis, self.alpha, self.noise_variance, self.theta, self.tuning, self.choices)

    @property
    def covariances(self) -> list[np.ndarray]:
        """Posterior covariance of the weights of each search: (m, m), or (K m, K m) for K functions."""
        return [function.weight_covariance for function in self.functions]

    @property
    def n_kept(self) -> int:
        """Functions of the model, a constant not counted."""
        return sum(name != "bias" for name in self.basis.labels())

    @property
    def size(self) -> str:
        return f"{self.n_kept:,} function{'' if self.n_kept == 1 else 's'} kept"

    @property
    def kept_rows(self) -> np.ndarray:
        return self.relevance

    @property
    def row_notes(self) -> dict[str, list]:
        """Weights of the functions on each row: their sum where there are several."""
        rows = self.basis.rows
        on = np.flatnonzero(rows >= 0)
        sums = np.zeros((len(self.weights), len(self.kept_rows)))
        np.add.at(sums.T, np.searchsorted(self.kept_rows, rows[on]), self.weights[:, on].T)
        return {"weight" if len(sums) == 1 else f"weight {i + 1}": row.tolist() for i, row in enumerate(sums)}

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        searches = len(self.functions) == len(self.status) == len(self.history) == sizes["F"]
        return self.basis.is_bound and self.basis.n_atoms == sizes["m"] and searches


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class FittedProcess(Fitted):
    """A process for each output, with one choice of kernel for all; or one for classes.

    Attributes
    ----------
    processes : (F) the processes of a regression, to which learned noise may be added in ``predictors``.
    class_process : the process of classes; None for a regression.
    vectors : (m, d) distinct training rows that they keep, by the number of the row.
    rows : (m,) their numbers.
    bounds : (F, 2) on the log evidence at the hyperparameters found; None for classes.
    n_evaluations : (F,) evaluations of evidences.
    selection : (F) what was compared.
    merit : (F,) log p(t | M) of the first kernel; None for classes.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> model.fitted_.size
    '30 vectors kept'
    """

    FINITE: ClassVar[bool] = False
    SHAPES: ClassVar[dict[str, str]] = {
        "vectors": "md",
        "rows": "m",
        "bounds": "F.",
        "noise_variance": "F",
        "log_evidence": "F",
        "n_evaluations": "F",
        "merit": "F",
    }

    processes: list[ProcessPredictor]
    vectors: np.ndarray
    rows: np.ndarray
    bounds: np.ndarray | None
    n_evaluations: np.ndarray
    selection: list
    merit: np.ndarray | None
    class_process: ClassModel | None = None

    @property
    def process_classes(self) -> ClassModel | None:
        return self.class_process

    @property
    def earlier(self) -> list[ProcessPredictor] | ClassModel:
        """The processes for a warm start, or that of classes."""
        return self.processes if self.class_process is None else self.class_process

    @property
    def scores(self) -> list[str]:
        return [self.class_process.score] if self.class_process else [process.score for process in self.processes]

    @property
    def n_kept(self) -> int:
        """Distinct training rows that are kept."""
        return len(self.rows)

    @property
    def size(self) -> str:
        return f"{self.n_kept:,} vector{'' if self.n_kept == 1 else 's'} kept"

    @property
    def kept_rows(self) -> np.ndarray:
        return self.rows

    @property
    def row_notes(self) -> dict[str, list]:
        """Why each row is kept: "relevance" to the target, "coverage" of what the kernel allows, or "all"."""
        if not self.processes:
            return {}
        why = {row.tobytes(): why for p in self.processes for row, why in zip(p.vectors, p.why.tolist(), strict=True)}
        return {"kept for": [why[row.tobytes()] for row in self.vectors]}

    @property
    def log_scale(self) -> bool:
        return any(process.scale.sign != 0 for process in self.processes)

    @property
    def compared(self) -> Sequence[Any]:
        return self.selection[0] if self.class_process is None else self.selection[0].entries

    @property
    def chosen_by(self) -> str:
        return "merit" if self.class_process is None else "the density of rows held out"

    @property
    def extrapolation(self) -> str:
        return "" if self.class_process is None else self.class_process.extrapolation

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return len(self.status) == len(self.selection) == sizes["F"]


MAX_NAMED_INPUTS, MIN_NAMED_SHARE = 5, 0.01  # inputs that are named, and the least share in the relevance of one


def describe_as_html(attributes: dict[str, Any]) -> str:
    """Return a line on the fitted model, below scikit-learn's diagram in a notebook; nothing before the fit."""
    fitted: Fitted | None = attributes.get("fitted_")
    if fitted is None:
        return ""
    d = attributes["n_features_in_"]
    facts = [fitted.size, f"{d} inputs", *fitted.scores]
    if np.isfinite(fitted.noise_variance).all():
        noise = ", ".join(f"{value:.3g}" for value in np.sqrt(fitted.noise_variance))
        facts.append(f"noise {noise} (standard deviation)")
    if fitted.feature_relevance is not None and np.ndim(fitted.width) > 0:
        names = attributes.get("feature_names_in_", [f"x{i + 1}" for i in range(d)])
        order = np.argsort(-fitted.feature_relevance, kind="stable")[:MAX_NAMED_INPUTS]
        first = [str(names[i]) for i in order if fitted.feature_relevance[i] > MIN_NAMED_SHARE]
        facts.append(f"inputs by relevance: {', '.join(first)}")
    return f"<pre>{escape('; '.join([*facts, *dict.fromkeys(fitted.status)]))}</pre>"
