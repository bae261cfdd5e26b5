"""Sparse models that predict: widths from a process, functions by evidence, their number by other rows."""

from relvec.sparse.fit import SparseFit, fit_sparse

__all__ = ["SparseFit", "fit_sparse"]
