"""A line on a fitted model for notebooks."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from relvec.estimators.records import Fitted

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
