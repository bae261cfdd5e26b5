"""Fitted models as C99 source, in double precision and with nothing but math.h, for small devices."""

from __future__ import annotations

import re

from sklearn.base import BaseEstimator

from relvec.export.c99.models import write_classification, write_regression
from relvec.export.c99.source import CSource
from relvec.export.c99.steps import check_translatable, write_steps
from relvec.export.exported import read_model, split_pipeline

__all__ = ["to_c"]

PROCESS_REFUSED = (
    "C is for relevance vector machines and linear models, and this model is a Gaussian process, which would make "
    "megabytes of source: take the few functions that predict alike (model.distill(X), or relvec export --distill), "
    "fit a relevance vector machine (RVR, RVC, or relvec fit --model rvm), or export the process as ONNX (to_onnx, or "
    "relvec export --onnx)"
)


def to_c(model: BaseEstimator, name: str = "relvec", std: bool = True, coverage: float = 0.9) -> str:
    """Return a fitted relevance vector machine or linear model as C99 source that needs nothing but math.h.

    Parameters
    ----------
    model : RelevanceVectorRegressor, RelevanceVectorClassifier, or a scikit-learn Pipeline that ends in one
        Before the model a pipeline may have scalers, imputers and encoders, also in a ColumnTransformer. A column of
        words enters as the index of its word among the encoder's categories, and -1 for any other.
    name : str, default "relvec"
        Prefix of the names in the source.
    std : bool, default True
        Whether a regression has error bars. They need a table of m^2 numbers for m basis functions.
    coverage : float, default 0.9
        Coverage of the intervals, or sets of classes, of a calibrated model (`calibrate`). Others have none.

    Returns
    -------
    source : str
        For regression ``void NAME_predict(const double *x, double *mean, double *std)``; for classification
        ``int NAME_predict(const double *x)``, the index of the class in ``NAME_labels``, and
        ``void NAME_predict_proba(const double *x, double *p)``. A calibrated model has also
        ``void NAME_predict_interval(const double *x, double *lower, double *upper)``, or for classes
        ``void NAME_predict_set(const double *x, int *members)``. One row x at a time.

    Raises
    ------
    NotImplementedError
        For Gaussian processes, which are exported as ONNX, and for kernels, basis functions and steps of a pipeline
        that have no translation to C.

    Examples
    --------
    >>> import relvec
    >>> model = relvec.RVR(kernel=None, basis="linear").fit([[0.0], [1.0], [2.0], [3.0]], [0.1, 0.9, 2.1, 2.9])
    >>> "void line_predict(const double *x, double *mean, double *std)" in relvec.to_c(model, name="line")
    True
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be a name in C, got {name!r}")
    steps, last = split_pipeline(model, "to_c")
    check_translatable(steps)
    fitted = read_model(last, coverage)
    if fitted.basis is None:
        raise NotImplementedError(PROCESS_REFUSED)
    source = CSource(name)
    source.constant("FEATURES", steps[0].n_features_in_ if steps else fitted.n_features)
    if steps:
        body = write_steps(steps, fitted.n_features)
        source.add(f"static void @prepare(const double *r, double *x)\n{{\n{body}\n}}")
    source.constant("INPUTS", fitted.n_features)
    if fitted.classes is None:
        write_regression(source, fitted, bool(steps), std)
    else:
        write_classification(source, fitted, bool(steps))
    return source.text()
