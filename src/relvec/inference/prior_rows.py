"""Rows of the base rates, spread over all rows: a proper prior over classes, which keeps log-odds finite.

Every row counts as if a share of a further row, spread over the classes by their base rates, lay on it. Laplace's
evidence alone has maxima where classes do not meet, at which log-odds are 1e10, the curvature vanishes and the data
determine no weight; T01's own figure 10 is such a problem.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PRIOR_ROWS = 1.0  # that are spread over all rows
_ADDED_ROWS = 0.5  # to each class, so that no base rate is zero


@dataclass(frozen=True, eq=False)
class PriorRows:
    """Rows with targets ``rates``, a number or (K,), spread over rows of a total ``weight``.

    >>> prior = PriorRows.of(np.array(0.25), 4.0)
    >>> float(prior.rates), prior.shrink(np.array([0.0, 1.0])).round(3).tolist()
    (0.3, [0.06, 0.86])
    """

    rates: np.ndarray
    weight: float
    n_rows: float = PRIOR_ROWS

    @classmethod
    def of(cls, means: np.ndarray, weight: float, n_rows: float = PRIOR_ROWS) -> PriorRows:
        """Return so many rows of the base rates of rows with a total weight, whose targets have means () or (K,)."""
        classes = max(means.size, 2)
        return cls((weight * means + _ADDED_ROWS) / (weight + _ADDED_ROWS * classes), weight, n_rows)

    def shrink(self, targets: np.ndarray) -> np.ndarray:
        """Return targets (n,) or (n, K) with the part of these rows that lies on each."""
        share = self.n_rows / self.weight
        return (targets + share * self.rates) / (1.0 + share) if share else targets


NO_PRIOR_ROWS = PriorRows(np.zeros(()), 1.0, 0.0)
