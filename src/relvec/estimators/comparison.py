"""Kernels compared: by merit, by evidence, by the evidence over centres, or by rows that took no part."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import _check_sample_weight, check_X_y

from relvec.basis import row_hash64
from relvec.estimators.base import check_weight_sum
from relvec.estimators.processes.regression import MAX_TARGET_OF_PROCESS, allows_process, targets_vary
from relvec.estimators.regressor import RelevanceVectorRegressor
from relvec.estimators.sources.base import check_labels, check_numbers
from relvec.gaussian_process import compare_merits
from relvec.kernels import has_width
from relvec.runtime.arrays import refuse_masked

__all__ = ["Comparison", "KernelRow", "compare"]

MEASURES = ("merit", "evidence", "centres", "folds")


@dataclass(frozen=True, eq=False)
class KernelRow:
    """One kernel of a comparison.

    Attributes
    ----------
    name : the kernel, with its width in numbers where a model was fitted.
    value : what kernels are compared by, in nats, higher is better.
    vectors : number of kernel functions in the fitted model; 0 where none was fitted to all rows.
    status : how the fit ended; for merits "several modes" where the posterior of the hyperparameters has some.
    model : the fitted estimator, or None.
    """

    name: str
    value: float
    vectors: int = 0
    status: str = ""
    model: Any = None


@dataclass(frozen=True, eq=False)
class Comparison:
    """What `compare` found: ``rows``, the best kernel first, compared ``by`` a measure. Printed, it is a table."""

    rows: tuple[KernelRow, ...]
    by: str

    @property
    def best_estimator_(self) -> Any:
        """The fitted model of the best kernel, where models were fitted to all rows."""
        return self.rows[0].model

    @property
    def probabilities(self) -> np.ndarray:
        """Posterior probability of each row's kernel, if all were equally probable before the data."""
        logs = np.array([row.value for row in self.rows])
        odds = np.exp(logs - logs.max())
        return odds / odds.sum()

    def __str__(self) -> str:
        name = {"merit": "merit", "folds": "log density"}.get(self.by, "log evidence")
        table = [("kernel", name, "behind", "probability", "vectors", "status")]
        best = self.rows[0].value
        for row, p in zip(self.rows, self.probabilities, strict=True):
            cells = (f"{row.value:.2f}", f"{best - row.value:.2f}", f"{p:.3f}", str(row.vectors or ""), row.status)
            table.append((row.name, *cells))
        size = [max(len(line[i]) for line in table) for i in range(6)]
        return "\n".join(
            "  ".join([line[0].ljust(size[0]), *(c.rjust(s) for c, s in zip(line[1:], size[1:], strict=True))]).rstrip()
            for line in table
        )


def compare(
    X: Any, y: Any, kernels: Sequence[Any] | None = None, *, by: str = "merit", estimator: Any = None,
    sample_weight: Any = None, n_folds: int = 5,
) -> Comparison:  # fmt: skip
    """Compare kernels on one data set.

    Values of one target are comparable whatever the kernel and whatever the columns of X: a second comparison without
    a column answers whether that input matters.

    Parameters
    ----------
    X : array-like (n_samples, n_features)
    y : array-like (n_samples,) or (n_samples, n_outputs)
    kernels : list, optional
        By merit: sums of "gaussian", "matern32", "matern52" (one width), the same with "[each]" (a width for each
        input) and "linear", such as "gaussian[each] + linear"; those of ``kernel="auto"`` by default. Otherwise names,
        `relvec.kernels` objects or callables; a name takes its width from the estimator.
    by : {"merit", "evidence", "centres", "folds"}, default "merit"
        "merit": log p(y | kernel) of a process with that kernel, its evidence integrated over widths, amplitudes and
        noise, on at most 1,000 rows. "evidence": `log_marginal_likelihood_` of the estimator. "centres": the evidence
        over weights and centres at the width that maximises it (``width="grvm"``). "folds": the log density (for
        classes the log probability) of held-out rows, summed over folds that are drawn by the content of the rows.
    estimator : RelevanceVectorRegressor or RelevanceVectorClassifier, default RelevanceVectorRegressor()
        It is copied and not changed. Merits need no estimator.
    sample_weight : array-like (n_samples,), optional
    n_folds : int, default 5

    Returns
    -------
    comparison : Comparison
        Its rows, best first.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR, compare
    >>> X = np.linspace(-5, 5, 60)[:, None]
    >>> y = 1.0 / (1.0 + X[:, 0] ** 2)
    >>> found = compare(X, y, ["gaussian", "cauchy"], by="evidence", estimator=RVR(width=1.0, noise_variance=1e-4))
    >>> found.rows[0].name
    'Cauchy(width=1.0)'
    >>> compare(X, 2.0 * X[:, 0], ["gaussian", "gaussian + linear"]).rows[0].name
    'gaussian + linear'
    """
    if by not in MEASURES:
        raise ValueError(f"by must be one of {', '.join(map(repr, MEASURES))}, got {by!r}")
    kernels = [kernels] if isinstance(kernels, str) else kernels
    if kernels is not None and not len(kernels):
        raise ValueError("kernels must name at least one kernel; got none")
    if not isinstance(n_folds, int | np.integer) or n_folds < 2:
        raise ValueError(f"n_folds must be 2 or more, a whole number, got {n_folds!r}")
    model = RelevanceVectorRegressor() if estimator is None else estimator
    if by in ("merit", "folds"):  # a fit checks its own
        X, y, sample_weight = _checked(X, y, sample_weight, by == "merit" or not is_classifier(model))
    if by == "merit":
        return Comparison(_merits(X, y, kernels, sample_weight), by)
    kernels = ["gaussian", "matern32", "matern52", "linear"] if kernels is None else kernels
    measure = _folds if by == "folds" else _evidence
    rows = [measure(clone(model), kernel, X, y, by, sample_weight, n_folds) for kernel in kernels]
    return Comparison(tuple(sorted(rows, key=lambda row: -row.value)), by)


def _checked(X: Any, y: Any, sample_weight: Any, numeric: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows X (n, d), targets y (n,) or (n, q) and weights (n,) as a fit takes them."""
    refuse_masked(X, y, sample_weight)
    y = check_numbers(y) if numeric else check_labels(y)
    X, y = check_X_y(X, y, dtype=np.float64, multi_output=True, y_numeric=numeric, ensure_min_samples=2)
    weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    check_weight_sum(weights)
    return X, y, weights


def _merits(X: np.ndarray, y: np.ndarray, kernels: Sequence[str] | None, weights: np.ndarray) -> tuple[KernelRow, ...]:
    targets = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
    if not (allows_process(X[weights > 0.0]) and targets_vary(targets[weights > 0.0])):
        raise ValueError(
            f"merits need inputs that vary, and targets that vary by more than {1.0 / MAX_TARGET_OF_PROCESS:g} and are "
            f"below {MAX_TARGET_OF_PROCESS:g}: rescale them (StandardScaler)"
        )
    found = compare_merits(X, targets, weights, kernels)
    return tuple(KernelRow(name, value, status="several modes" if several else "") for name, value, several in found)


def _set_kernel(model: Any, kernel: Any, by: str) -> Any:
    """The estimator with a kernel, whose width it learns or has."""
    named = isinstance(kernel, str)
    if by == "centres" and not named:
        raise ValueError(f"by='centres' chooses the width of kernels given by name, got {kernel!r}")
    width = "grvm" if by == "centres" else model.width if named and has_width(kernel) else "auto"
    return model.set_params(kernel=kernel, width=width)


def _evidence(model: Any, kernel: Any, X: Any, y: Any, by: str, sample_weight: Any, n_folds: int) -> KernelRow:
    _set_kernel(model, kernel, by).fit(X, y, sample_weight=sample_weight)
    if by == "centres" and hasattr(model, "tuning_"):  # a constant target chooses no width
        value = max(trial.log_evidence for trial in model.tuning_.trials)
    else:
        value = float(np.sum(model.log_marginal_likelihood_))
    status = model.status_ if isinstance(model.status_, str) else ", ".join(sorted(set(model.status_)))
    name = re.sub(
        r"\d+\.\d+", lambda number: str(float(f"{float(number[0]):.4g}")), repr(getattr(model, "kernel_", kernel))
    )
    return KernelRow(name, value, len(model.centres_), status, model)


def _folds(model: Any, kernel: Any, X: Any, y: Any, by: str, sample_weight: Any, n_folds: int) -> KernelRow:
    """The density of rows that took no part; equal rows are in one fold."""
    fold, total = row_hash64(np.ascontiguousarray(X)) % np.uint64(n_folds), 0.0
    for held in (fold == i for i in range(n_folds)):
        if held.any() and not held.all():
            fitted = _set_kernel(clone(model), kernel, by)
            fitted.fit(X[~held], y[~held], sample_weight=sample_weight[~held])
            total += float(sample_weight[held] @ _log_density(fitted, X[held], y[held]))
    return KernelRow(kernel if isinstance(kernel, str) else repr(kernel), total)


def _log_density(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log density of targets, or log probability of labels (n,)."""
    if is_classifier(model):
        place = {label: i for i, label in enumerate(model.classes_.tolist())}
        at = np.array([place.get(label, -1) for label in y.tolist()])
        return np.where(at >= 0, model.predict_log_proba(X)[np.arange(len(y)), at], np.log(1e-12))
    return model.log_predictive_density(X, y).reshape(len(y), -1).sum(axis=1)
