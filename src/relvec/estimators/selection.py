"""The choice of a kernel by evidence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from relvec.estimators.regressor import RelevanceVectorRegressor
from relvec.kernels import has_width

__all__ = ["KernelRow", "KernelSelection", "select_kernel"]


@dataclass(frozen=True, eq=False)
class KernelRow:
    """One kernel of a selection.

    Attributes
    ----------
    name : the kernel with its width in numbers, to four digits.
    log_evidence : what kernels are compared by, in nats.
    vectors : number of kernel functions in the model.
    status : how the fit ended.
    model : the fitted estimator.
    """

    name: str
    log_evidence: float
    vectors: int
    status: str
    model: Any


@dataclass(frozen=True, eq=False)
class KernelSelection:
    """The result of `select_kernel`: ``rows``, the most probable kernel first. Printed, it is a table."""

    rows: tuple[KernelRow, ...]

    @property
    def best_estimator_(self) -> Any:
        """The fitted model of the most probable kernel."""
        return self.rows[0].model

    @property
    def probabilities(self) -> np.ndarray:
        """Posterior probability of each row's kernel, if all were equally probable before the data."""
        logs = np.array([row.log_evidence for row in self.rows])
        odds = np.exp(logs - logs.max())
        return odds / odds.sum()

    def __str__(self) -> str:
        table = [("kernel", "log evidence", "behind", "probability", "vectors", "status")]
        best = self.rows[0].log_evidence
        for row, p in zip(self.rows, self.probabilities, strict=True):
            table.append((row.name, f"{row.log_evidence:.2f}", f"{best - row.log_evidence:.2f}", f"{p:.3f}",
                          str(row.vectors), row.status))  # fmt: skip
        size = [max(len(line[i]) for line in table) for i in range(6)]
        return "\n".join(
            "  ".join([line[0].ljust(size[0]), *(c.rjust(s) for c, s in zip(line[1:], size[1:], strict=True))])
            for line in table
        )


def select_kernel(
    kernels: Sequence[Any], X: Any, y: Any, *, estimator: Any = None, evidence: str = "weights",
    sample_weight: Any = None,
) -> KernelSelection:  # fmt: skip
    """Fit one model for each kernel and compare their evidences.

    Evidences of one data set are comparable whatever the kernel. How much of a difference to believe depends on how
    well the widths were found: the same estimator, with its search, is used for all.

    Parameters
    ----------
    kernels : names, `relvec.kernels` objects or callables, at least one
        A name takes its width from the estimator; an object has its own.
    X : array-like (n_samples, n_features)
    y : array-like (n_samples,) or (n_samples, n_outputs)
    estimator : RelevanceVectorRegressor or RelevanceVectorClassifier, default RelevanceVectorRegressor()
        Not fitted, nor changed.
    evidence : {"weights", "centres"}, default "weights"
        "weights" is `log_marginal_likelihood_` (their sum, for several outputs). "centres" is the evidence over
        weights and centres at the width that maximises it (``width="grvm"``), for kernels given by name.
    sample_weight : array-like (n_samples,), optional

    Returns
    -------
    selection : KernelSelection
        Its rows, best first; ``selection.best_estimator_`` is the fitted model of the best.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR, select_kernel
    >>> X = np.linspace(-5, 5, 60)[:, None]
    >>> y = 1.0 / (1.0 + X[:, 0] ** 2)
    >>> found = select_kernel(["gaussian", "cauchy"], X, y, estimator=RVR(width=1.0, noise_variance=1e-4))
    >>> found.rows[0].name
    'Cauchy(width=1.0)'
    """
    kernels = [kernels] if isinstance(kernels, str) else list(kernels)
    if not kernels:
        raise ValueError("kernels must name at least one kernel; got none")
    if evidence not in ("weights", "centres"):
        raise ValueError(f"evidence must be 'weights' or 'centres', got {evidence!r}")
    estimator = RelevanceVectorRegressor() if estimator is None else estimator
    rows = [_row(clone(estimator), kernel, X, y, evidence, sample_weight) for kernel in kernels]
    return KernelSelection(tuple(sorted(rows, key=lambda row: -row.log_evidence)))


def _row(model: Any, kernel: Any, X: Any, y: Any, evidence: str, sample_weight: Any) -> KernelRow:
    named = isinstance(kernel, str)
    if evidence == "centres" and not named:
        raise ValueError(f"evidence='centres' chooses the width of kernels given by name, got {kernel!r}")
    width = "grvm" if evidence == "centres" else model.width if named and has_width(kernel) else "auto"
    model.set_params(kernel=kernel, width=width).fit(X, y, sample_weight=sample_weight)
    if evidence == "centres":
        value = max(trial.log_evidence for trial in model.tuning_.trials)
    else:
        value = float(np.sum(model.log_marginal_likelihood_))
    status = model.status_ if isinstance(model.status_, str) else ", ".join(sorted(set(model.status_)))
    name = re.sub(
        r"\d+\.\d+", lambda number: str(float(f"{float(number[0]):.4g}")), repr(getattr(model, "kernel_", kernel))
    )
    return KernelRow(name, value, len(model.centres_), status, model)
