"""Probabilities of classes from the latent functions of relevance vector machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relvec.inference.likelihoods import Bernoulli, Categorical, logistic_log_odds, softmax_normal
from relvec.inference.predictive.augmented import AugmentedLatentPredictor
from relvec.inference.predictive.contract import ClassPredictor
from relvec.inference.predictive.latent import LatentPredictor
from relvec.runtime.arrays import Array, namespace

Latent = LatentPredictor | AugmentedLatentPredictor


@dataclass(frozen=True, eq=False)
class LatentClasses(ClassPredictor):
    """Two classes by one latent function, K by a softmax of K functions, or by K dichotomies, one function each."""

    on_device: ClassVar[bool] = True

    latents: tuple[Latent, ...]
    averaged: bool  # whether probabilities are averaged over the posterior of the weights, or taken at its mode

    @property
    def is_softmax(self) -> bool:
        """Whether one model has the functions of all classes."""
        return self.latents[0].n_outputs > 1

    def decision(self, X: Array) -> Array:
        """Return log-odds: of the second of two classes (n,), or of each against the rest; logs of a softmax (n, K)."""
        xp = namespace(X)
        if self.is_softmax:
            logs = xp.log(xp.clip(self._softmax(X), float(np.finfo(float).tiny), None))
            return logs - xp.mean(logs, axis=1, keepdims=True)
        odds = self._odds(X)
        return odds[:, 0] if len(self.latents) == 1 else odds

    def predict_proba(self, X: Array) -> Array:
        """Return the probabilities (n, K); those of dichotomies are normalised."""
        if self.is_softmax:
            return self._softmax(X)
        xp, odds = namespace(X), self._odds(X)
        if len(self.latents) == 1:
            return xp.concat([Bernoulli().mean(-odds), Bernoulli().mean(odds)], axis=1)
        p = Bernoulli().mean(odds)
        total = xp.sum(p, axis=1, keepdims=True)
        some = total > 0.0
        shares = p / xp.where(some, total, xp.ones_like(total))
        return xp.where(some, shares, xp.full_like(p, 1.0 / p.shape[1]))

    def _odds(self, X: Array) -> Array:
        return namespace(X).stack([self._averaged_odds(latent, X) for latent in self.latents], axis=1)

    def _averaged_odds(self, latent: Latent, X: Array) -> Array:
        mean, covariance = latent.moments(X, self.averaged)
        odds = mean[:, 0] if covariance is None else logistic_log_odds(mean[:, 0], covariance[:, 0, 0])
        xp = namespace(X)
        return xp.where(xp.isfinite(odds), odds, xp.full_like(odds, xp.nan))  # infinite ones overflowed: no certainty

    def _softmax(self, X: Array) -> Array:
        mean, covariance = self.latents[0].moments(X, self.averaged)
        return Categorical(mean.shape[1]).mean(mean) if covariance is None else softmax_normal(mean, covariance)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        found = [latent.n_outputs for latent in self.latents]
        return bool(found) and (len(found) == 1 or set(found) == {1})
