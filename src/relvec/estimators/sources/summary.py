"""Rows that are summed up, where the basis functions are known before any row."""

from __future__ import annotations

from typing import Any

import numpy as np

from relvec.basis import Basis, as_basis, is_fixed
from relvec.design import Rows, Summary
from relvec.estimators.options import MachineOptions
from relvec.estimators.sources.base import SourceOfColumns


class SummarySource(SourceOfColumns):
    """Rows that are summed up (`relvec.design.Summary`): their number does not matter, and none of them is left."""

    def __init__(self, summary: Summary, single: bool, units: np.ndarray | None = None) -> None:
        self.summary, self.single, self._units = summary, single, units
        self.n_rows, self.n_targets, self.weight = summary.n_rows, summary.n_outputs, summary.weight
        self.n_features = len(summary.mean) - summary.n_outputs

    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        return self.summary.basis, np.zeros(len(self.summary.basis.theta), dtype=bool)

    def feature_variances(self) -> np.ndarray:
        return self.summary.feature_variances

    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        return self.summary.units

    def in_units(self, units: np.ndarray) -> SummarySource:
        return SummarySource(self.summary, self.single, units)

    def rows(self, dictionary: Any, memory: float) -> Rows:
        assert self._units is not None
        return self.summary.rows(self._units)


def can_be_summed(options: MachineOptions) -> bool:
    """Whether sums over the rows are all that a fit under Gaussian noise needs of them."""
    known = options.kernel is None and (options.basis is None or is_fixed(as_basis(options.basis)))
    plain = options.noise == "constant" and options.predictive is None and options.centres == "data"
    return known and plain
