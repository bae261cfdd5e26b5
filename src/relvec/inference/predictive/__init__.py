"""Predictive distributions of a fitted model."""

from relvec.inference.predictive.augmented import Augmented, AugmentedLatentPredictor, AugmentedPredictor
from relvec.inference.predictive.counts import CountPredictor
from relvec.inference.predictive.latent import LatentPredictor
from relvec.inference.predictive.linear import LinearPredictor, WeightPredictor

__all__ = [
    "Augmented", "AugmentedLatentPredictor", "AugmentedPredictor", "CountPredictor", "LatentPredictor",
    "LinearPredictor", "WeightPredictor",
]  # fmt: skip
