"""Noise that is not normal with one variance: the fit of weighted rows again and again, with the weights learned."""

from relvec.estimators.noise.fit import fit_noise
from relvec.estimators.noise.predictor import HeteroscedasticPredictor
from relvec.estimators.noise.record import NoiseFit

__all__ = ["HeteroscedasticPredictor", "NoiseFit", "fit_noise"]
