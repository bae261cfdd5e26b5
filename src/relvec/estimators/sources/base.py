"""What a fit needs of its rows, wherever they are: the methods of `Source`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import check_array

from relvec.basis import Basis
from relvec.design import TOLERANCE, DesignRows, LaplaceDesign, Samples
from relvec.estimators.options import FitOptions, MachineOptions
from relvec.gaussian_process.rows import join_labels
from relvec.gaussian_process.streamed import DrawnSamples
from relvec.inference.hyperpriors import GammaPrior
from relvec.runtime.arrays import hash_rows, to_host

LARGEST_RATE = 1e30  # of a hyperprior, in scaled units: its precisions would vanish beside those of the data
Part = np.ndarray | None  # (m,) the atoms of a dictionary that are candidates, None for all


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows in memory that widths are learned from or centres are moved on."""

    basis: Basis  # the dictionary bound to these rows
    X: np.ndarray  # (n, d) rows, equal ones merged where that is possible
    rows: np.ndarray  # (n,) their numbers, as in ``basis.rows``
    targets: np.ndarray  # (n, q) their (mean) targets
    within: np.ndarray  # (n, q) weighted squares of the targets of merged rows about their mean
    weights: np.ndarray  # (n,) their (total) weights
    complete: bool = True  # whether these are all rows of the fit


@dataclass(frozen=True, eq=False)
class ProcessRows:
    """Rows in memory that a process is learned from: all of a fit, or a draw by content where there is a table.

    Attributes
    ----------
    X, targets, weights : (n, d), (n, q), (n,).
    numbers : (n,) among all rows that were given.
    table : all rows, where these are some of them; None where these are all.
    groups : (n,) numbers of those that are held out together, or None.
    """

    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    numbers: np.ndarray
    table: DrawnSamples | None = None
    groups: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """The number of all rows of the fit."""
        return len(self.X) if self.table is None else self.table.draw.seen


class Source(ABC):
    """The rows of a fit with a positive weight, wherever they are."""

    single: bool = True  # whether the targets are one column that was given as (n,)
    # their number, and the columns of X and of the targets
    n_rows: int
    n_features: int
    n_targets: int
    weight: float  # sum of their weights

    @abstractmethod
    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        """Return the candidates' dictionary, bound to the rows, and which entries of its theta (p,) to learn."""

    @abstractmethod
    def sample(self, basis: Basis) -> Sample:
        """Rows in memory that the widths of a bound dictionary are learned from."""

    def for_learning(self) -> Source:
        """Return the same rows, to learn widths on: copies of a row and its weight must be the same to the fit."""
        return self

    @abstractmethod
    def feature_variances(self) -> np.ndarray:
        """Numbers in proportion to the weighted variances of the features (d,)."""

    @abstractmethod
    def take(self, rows: np.ndarray) -> np.ndarray:
        """Rows (k, d) of X by the numbers (k,) that a fitted dictionary has for them."""

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        """Bytes that the memory limit leaves besides so many numbers, and bytes, for each row held in memory."""
        return options.memory

    # Gaussian noise

    @abstractmethod
    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Root mean square (1 for zeros) and relative variance (0 where constant to rounding) of each target (q,)."""

    @abstractmethod
    def in_units(self, units: np.ndarray) -> Source:
        """Return the same rows with targets divided by units (q,)."""

    @abstractmethod
    def rows(
        self,
        dictionary: Basis,
        memory: float,
        keep: np.ndarray | None = None,
        seconds: float = np.inf,
        tolerance: float = TOLERANCE,
    ) -> tuple[Part, DesignRows]:
        """As many atoms of the dictionary as memory and time allow, those to ``keep`` among them, on the rows.

        ``tolerance`` is the largest error of a kernel value where the rows are compressed, relative to k(x, x).
        """

    def dense(self, most_numbers: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None] | None:
        """Return rows (n, d) and targets (n, q) whose squares have a double, weights, and numbers of groups or None.

        None where they are elsewhere, or a sparse matrix of more numbers.
        """
        return None

    @abstractmethod
    def exact(self, dictionary: Basis, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        """Uncompressed columns of some atoms over their scale and a target: the k + 1 rows of a QR factorisation."""

    # Classes and counts

    def merged(self) -> Source:
        """Return the same rows in memory, equal ones as one; a draw of them where they are elsewhere or many."""
        return self

    @abstractmethod
    def columns(self, output: int, K: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the target (n,) or (n, K) of an output of K functions, and weights (n,)."""

    @abstractmethod
    def mean_targets(self) -> np.ndarray:
        """Return the weighted means of the targets (q,)."""

    @abstractmethod
    def scan(self, dictionary: Basis, memory: float, keep: np.ndarray | None = None) -> tuple[Part, LaplaceDesign]:
        """As `rows`, without weights."""

    @property
    def all_samples(self) -> Samples | None:
        """All rows in blocks, where `merged` gives a draw of them."""
        return None


def output_target(targets: np.ndarray, output: int, K: int) -> np.ndarray:
    """Return the target (n,), or (n, K), of an output of K functions among the targets (n, q)."""
    own = targets[:, output * K : (output + 1) * K]
    return np.ascontiguousarray(own[:, 0]) if K == 1 else own


def merge_targets(
    row_of: np.ndarray, first: np.ndarray, targets: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean targets (m, q) and total weights (m,) of rows with equal numbers (n,), the first ones of which are given."""
    total, base = np.bincount(row_of, weights), targets[first]  # means of equal targets are exact
    apart = weights[:, None] * (targets - base[row_of])
    return base + np.stack([np.bincount(row_of, column) for column in apart.T], axis=1) / total[:, None], total


def take_rows(values: np.ndarray, used: np.ndarray) -> np.ndarray:
    """Return the rows whose numbers are in ``used``, in order; the array itself where that is all of them."""
    return values if len(used) == len(values) else values[used]


def weighted_moments(t: np.ndarray, weights: np.ndarray, within: float = 0.0) -> tuple[float, float]:
    """Root mean square and standard deviation of t (n,), safe for any magnitude.

    Values that are means of others leave out the weighted squares ``within`` those.
    """
    total = weights.sum()
    largest = float(max(np.abs(t).max(), np.sqrt(within / total)))
    if largest in (0.0, np.inf):
        return largest, largest
    share, u, more = weights / total, t / largest, within / total / largest / largest
    mean = share @ u
    return largest * float(np.sqrt(share @ u**2 + more)), largest * float(np.sqrt(share @ (u - mean) ** 2 + more))


def target_units(y: np.ndarray, weights: np.ndarray, within: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Root mean square (1 for a target of zeros) and relative variance of each output of y (n, q).

    The variance is 0 for a target that is constant to rounding. ``within`` (q,) is as in `weighted_moments`.
    """
    units, variances = np.ones(y.shape[1]), np.zeros(y.shape[1])
    for i, t in enumerate(y.T):
        rms, deviation = weighted_moments(t, weights, 0.0 if within is None else float(within[i]))
        if rms > 0.0:
            units[i] = rms
            variances[i] = (deviation / rms) ** 2 if deviation > 1e-14 * rms else 0.0
    return units, variances


def feature_variances(X: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weighted variances (d,) of the columns of X (n, d), over the square of the largest deviation of all."""
    share = weights / weights.sum()
    deviation = X - share @ X
    size = np.abs(deviation).max(initial=0.0)
    return share @ (deviation / (size or 1.0)) ** 2


def scaled_rates(prior: GammaPrior, scale: np.ndarray, unit: float = 1.0) -> np.ndarray | None:
    """Return the hyperprior's rates b (M,) for columns over scale (M,) and targets over unit; None where it is flat."""
    if prior.b == 0.0:
        return None
    with np.errstate(over="ignore"):
        rates = prior.b * (scale / unit) ** 2
    if not np.all(rates < LARGEST_RATE):
        raise ValueError(
            f"the hyperprior's b = {prior.b:g} is out of all proportion to the weights of this model: for basis "
            f"functions of unit length and a target of unit size it is {np.max(rates):.3g}. Standardise X and y, or "
            "choose b for their units"
        )
    return rates


def scaled_precisions(scale: np.ndarray, atoms: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Those of the atoms (k,) that were in a model, and their precisions for columns divided by scale (M,)."""
    kept = np.isfinite(alpha) & (scale[atoms] > 0.0)
    return atoms[kept], alpha[kept] / scale[atoms[kept]] ** 2


def check_groups(groups: Any, n_rows: int) -> np.ndarray | None:
    """Return the numbers (n,) of the groups of rows, or None where there are none; refuse those that say nothing."""
    if groups is None:
        return None
    found = np.asarray(groups)
    if found.shape != (n_rows,):
        raise ValueError(f"groups must hold a label for each of {n_rows} rows of X, got shape {found.shape}")
    names = [repr(label) for label in found.tolist()] if found.dtype == object else found  # of mixed types
    numbers = np.unique(np.asarray(names), return_inverse=True)[1]
    if not numbers.any():
        raise ValueError("groups has one label for all rows, so that none can be held out: leave it out")
    return numbers


def refuse_groups(groups: Any, where: str) -> None:
    """Refuse groups of rows that are not in memory; ``where`` they are, in words."""
    if groups is not None:
        raise ValueError(f"{where} cannot be held out by groups, which needs rows in memory: leave groups out")


def join_rows(groups: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return numbers (n,) of groups of which those with a row of X (n, d) in common are one."""
    joined = join_labels(hash_rows(X), groups)
    if not joined.any():
        raise ValueError(
            "groups share rows with equal inputs, which are held out together too, and so are one group: leave groups "
            "out, or add what tells them apart to X"
        )
    return joined


def check_used(weights: np.ndarray) -> None:
    """Refuse weights (n,) of which fewer than two are positive."""
    used = np.count_nonzero(weights > 0.0)
    if used < 2:
        raise ValueError(
            f"at least 2 samples need a positive weight, got {used}: check sample_weight, or infinite ends"
        )


@np.errstate(invalid="ignore")  # inf - inf in a sum, before what is infinite is refused
def check_numbers(y: Any) -> Any:
    """Targets y of any number of dimensions as finite numbers; arrays of numbers and None as they are."""
    if y is None or (type(y) is np.ndarray and y.dtype.kind in "biuf" and y.ndim):
        return y
    try:
        return check_array(to_host(y), ensure_2d=False, allow_nd=True, dtype=np.float64, input_name="y")
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"y must hold finite numbers: leave out rows without a target ({reason})") from error


def check_labels(y: Any) -> Any:
    """Labels y as they are, refused where one is missing or no single value."""
    dtype = getattr(y, "dtype", None)
    kind, nullable = getattr(dtype, "kind", "O"), not isinstance(dtype, np.dtype)
    if y is None or (kind in "biufcUS" and not nullable):
        return y
    labels = np.array(y, dtype=object)
    for i, label in enumerate(labels if labels.ndim == 1 else ()):
        if isinstance(label, list | tuple | dict | set | np.ndarray):
            raise ValueError(f"y must have one label for each row, got {label!r} in row {i}")
        if label is None or type(label).__name__ == "NAType" or label != label:
            raise ValueError(
                f"y has no label in row {i}, got {label!r}: leave out such rows, or give them a label of their own"
            )
    if kind in "biu":
        return np.array(labels.tolist())  # nullable integers of pandas are floats to scikit-learn
    return labels if kind == "T" else y  # numpy's strings of any length are unknown to scikit-learn
