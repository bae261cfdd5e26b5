"""A process imitated by few functions, as the record of a relevance vector machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relvec.basis import Concat
from relvec.estimators.assemble import no_history
from relvec.estimators.process import find_rows
from relvec.estimators.records import FittedProcess, FittedRVM
from relvec.gaussian_process import ProcessPredictor
from relvec.inference.predictive import LinearPredictor
from relvec.sparse.distill import DistilledPredictor, distill


def distill_process(fitted: FittedProcess, X: np.ndarray, max_loss_nats: float) -> FittedRVM:
    """Return few functions that predict as the processes of all outputs do, within so many nats a row."""
    if not all(type(predictor) is ProcessPredictor for predictor in fitted.predictors):
        raise NotImplementedError(
            "distill is for Gaussian noise: fit with likelihood='gaussian' and noise='auto' or 'constant'"
        )
    found = [
        distill(process, X, max_loss_nats, find_rows(fitted.vectors, fitted.rows, process.vectors))
        for process in fitted.processes
    ]
    d = fitted.vectors.shape[1]
    basis = Concat(tuple(small.basis for small in found), n_features=d) if len(found) > 1 else found[0].basis
    ends = np.cumsum([0, *(small.basis.n_atoms for small in found)])
    predictors = [
        replace(small, basis=basis, weights=_among(basis.n_atoms, a, small.weights),
                log_variance=_among(basis.n_atoms, a, small.log_variance))
        for small, a in zip(found, ends[:-1], strict=True)
    ]  # fmt: skip
    return _record(fitted, predictors)


def _among(n: int, first: int, values: np.ndarray) -> np.ndarray:
    """Values (m,) of the functions from the first on among n, zero elsewhere."""
    out = np.zeros(n)
    out[first : first + len(values)] = values
    return out


def _record(fitted: FittedProcess, predictors: list[DistilledPredictor]) -> FittedRVM:
    """Return the record: weights that are known, as they are those of functions without noise."""
    basis, q = predictors[0].basis, len(predictors)
    weights = np.array([predictor.weights for predictor in predictors])
    used = weights != 0.0
    constant = np.array([name == "bias" for name in basis.labels()])
    kept = np.unique(basis.rows[basis.rows >= 0])
    functions = [
        LinearPredictor(
            basis=basis, scale=np.ones(basis.n_atoms), unit=1.0, mean=own, root=np.zeros((basis.n_atoms, 0)),
            noise=predictor.noise,
        )
        for predictor, own in zip(predictors, weights, strict=True)
    ]  # fmt: skip
    return FittedRVM(
        basis=basis, functions=functions, predictors=list(predictors), weights=weights,
        alpha=np.where(used, np.divide(1.0, weights**2, out=np.ones_like(weights), where=used), np.inf),  # T01 eq. (16)
        gamma=used.astype(float), intercept=weights @ constant, coef=None, noise_variance=fitted.noise_variance,
        log_evidence=fitted.log_evidence, certificate=np.full(q, np.inf), n_iter=np.zeros(q, dtype=int),
        status=["distilled"] * q, history=no_history(q),
        relevance_vectors=fitted.vectors[np.searchsorted(fitted.rows, kept)], n_candidates=basis.n_atoms,
        kernel=fitted.kernel, width=fitted.width, width_rule=fitted.width_rule,
        feature_relevance=fitted.feature_relevance, single=fitted.single,
        loss_nats=np.array([predictor.loss for predictor in predictors]),
    )  # fmt: skip
