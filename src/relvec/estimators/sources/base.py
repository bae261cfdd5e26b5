"""The few questions that a fit asks of its rows, wherever they are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from sklearn.utils import check_array

from relvec import design
from relvec.basis import Basis, content_ranks, even_draw, row_hash64
from relvec.design import Block, LaplaceDesign, Rows, Samples, tall_qr
from relvec.estimators.options import FitOptions, MachineOptions, ProcessOptions
from relvec.gaussian_process.rows import join_labels
from relvec.gaussian_process.streamed import DrawnSamples
from relvec.inference.priors import GammaPrior
from relvec.runtime.arrays import Array, to_host

DRAWN_ROWS = 20_000  # rows that the process of a larger table is learned from, and its vectors are chosen among
MIN_DRAWN_ROWS = 1000  # however little memory there is
BYTES_PER_DRAWN_ROW, BYTES_PER_DRAWN_NUMBER = 8192, 40  # while vectors are chosen in blocks of 64; copies of the rows
LARGEST_RATE = 1e30  # of a hyperprior, in scaled units: its precisions would vanish beside those of the data


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
class Subsample:
    """A draw of rows by content with the atoms of a dictionary that belong to it.

    Attributes
    ----------
    atoms : (m,) their numbers in the dictionary; basis : these atoms.
    X, targets, weights : (k, d), (k, q), (k,) the rows, equal ones merged.
    """

    atoms: np.ndarray
    basis: Basis
    X: np.ndarray
    targets: np.ndarray
    weights: np.ndarray


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


def draw_process_rows(
    samples: Samples, memory: float, place: Array | None = None, groups: np.ndarray | None = None
) -> ProcessRows:
    """Return a draw of the rows of samples, with the numbers that they have there, and all of them as a table."""
    a_row = BYTES_PER_DRAWN_ROW + BYTES_PER_DRAWN_NUMBER * samples.n_features
    size = min(DRAWN_ROWS, max(int(memory / a_row), MIN_DRAWN_ROWS))
    drawn = design.draw_rows(samples, size)
    if groups is not None and len(drawn.rows) == size:
        raise ValueError(
            f"groups can be held out of a process of less than {size:,} distinct rows, from which it is learned as a "
            "whole: leave rows out, raise memory_limit, or fit RelevanceVectorRegressor"
        )
    own = None if groups is None else groups[drawn.rows]
    table = DrawnSamples(samples, drawn, memory, place, own)
    return ProcessRows(drawn.X, drawn.targets, drawn.weights, drawn.rows, table)


class Source(ABC):
    """The rows of a fit with a positive weight, wherever they are."""

    single: bool = True  # whether the targets are one column that was given as (n,)
    # their number, and the columns of X and of the targets
    n_rows: int
    n_features: int
    n_targets: int
    weight: float  # sum of their weights

    def process_rows(self, options: ProcessOptions) -> ProcessRows:
        """The rows as a process needs them; refused where no process can be fitted to such rows."""
        raise ValueError("a process needs dense rows: give X as an array, or fit a linear model to the sparse columns")

    @abstractmethod
    def bind(self, options: MachineOptions) -> tuple[Basis, np.ndarray]:
        """The dictionary of candidates, bound to the rows, and which entries of its theta (p,) are to be learned."""

    @abstractmethod
    def sample(self, basis: Basis) -> Sample:
        """Rows in memory that the widths of a bound dictionary are learned from."""

    def for_learning(self) -> Source:
        """The same rows, where widths are to be learned: copies of a row and its weight must be the same to the fit."""
        return self

    def dictionary(self, basis: Basis) -> Any:
        """The dictionary that is searched, for one that `bind` gave, with its widths learned."""
        return basis

    @abstractmethod
    def feature_variances(self) -> np.ndarray:
        """Numbers in proportion to the weighted variances of the features (d,)."""

    @abstractmethod
    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        """Rows (k, d) of X by the numbers (k,) that a fitted dictionary has for them."""

    def ordering(self, dictionary: Any, scale: Any) -> tuple[Any, Callable[[int], np.ndarray], np.ndarray]:
        """Ranks (M,) of the atoms by content, an even draw of them, and the atoms that stand on no row."""
        return content_ranks(dictionary, scale), even_draw(dictionary), np.flatnonzero(dictionary.rows < 0)

    def compact(self, dictionary: Any, fits: list, keep_last: bool) -> tuple[Basis, list]:
        """A dictionary that can be kept, and the fits over it."""
        return dictionary, fits

    def has_all_candidates(self, basis: Basis) -> bool:
        """Whether every row could be a centre of a dictionary."""
        return True

    def check_solver(self, dictionary: Any, options: MachineOptions) -> None:  # noqa: B027
        """Refuse a solver that cannot search a dictionary on these rows."""

    def memory_left(self, options: FitOptions, basis: Basis, numbers_a_row: float, bytes_a_row: float = 0.0) -> float:
        """Bytes that the memory limit leaves besides so many numbers, and bytes, for each row held in memory."""
        return options.memory


class GaussianSource(Source):
    """Rows with targets under Gaussian noise."""

    @abstractmethod
    def target_units(self) -> tuple[np.ndarray, np.ndarray]:
        """Root mean square (1 for zeros) and relative variance (0 where constant to rounding) of each target (q,)."""

    @abstractmethod
    def in_units(self, units: np.ndarray) -> GaussianSource:
        """The same rows with targets divided by units (q,)."""

    @abstractmethod
    def rows(self, dictionary: Any, memory: float) -> Rows | None:
        """The dictionary on the rows, compressed where it pays; None where it is too long for the memory."""

    @abstractmethod
    def gram(self, basis: Basis, memory: float) -> Rows:
        """A short dictionary on the rows, reduced to its atoms."""

    @abstractmethod
    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        """Uncompressed columns of some atoms over their scale and a target: the k + 1 rows of a QR factorisation."""


class SourceOfColumns(GaussianSource):
    """Rows of a dictionary that stands on none of them: no row is kept, no width learned, and nothing compressed."""

    def sample(self, basis: Basis) -> Sample:
        nothing = np.zeros((0, self.n_targets))
        return Sample(basis, np.zeros((0, self.n_features)), np.zeros(0, dtype=np.intp), nothing, nothing, np.zeros(0))

    def take(self, basis: Basis, rows: np.ndarray) -> np.ndarray:
        return np.zeros((0, self.n_features))

    @abstractmethod
    def rows(self, dictionary: Any, memory: float) -> Rows:
        """The dictionary on the rows, or on as many coordinates."""

    def gram(self, basis: Basis, memory: float) -> Rows:
        return self.rows(basis, memory)

    def exact(self, dictionary: Any, scale: np.ndarray, active: np.ndarray, output: int) -> tuple:
        rows = self.rows(dictionary, 0.0)
        return rows.design.columns(active), rows.targets[:, output]


class LaplaceSource(Source):
    """Rows with classes or counts."""

    def merged(self) -> LaplaceSource:
        """The same rows, equal ones as one where that is possible."""
        return self

    @abstractmethod
    def columns(self, output: int, K: int) -> tuple[Any, Any]:
        """The target (n,) or (n, K) of an output of K functions, and weights (n,).

        Where the rows are elsewhere, the columns of the target there and a factor for all weights.
        """

    @abstractmethod
    def scan(self, dictionary: Any, memory: float) -> tuple[Any, LaplaceDesign | None]:
        """The design of a dictionary, None where it is too long; and the dictionary, which may have become shorter."""

    @abstractmethod
    def scan_part(self, basis: Basis, memory: float) -> LaplaceDesign:
        """The design of a part of a dictionary."""

    @abstractmethod
    def subset_atoms(self, memory: float) -> int:
        """Atoms of the parts that a long dictionary is searched in."""

    def restarts_in_subsets(self, memory: float) -> bool:
        """Whether the models of a restart fit in memory where a dictionary is searched in parts."""
        return True

    def move_to_device(self, values: np.ndarray) -> Array:
        """Values where the designs are."""
        return values

    def subsample(self, dictionary: Any, size: int, whole: bool) -> Subsample | None:
        """So many rows, drawn by content, with their atoms; None where a search on few rows does not help.

        ``whole`` tells whether the dictionary is that of the fit, or a part of it.
        """
        return None


def output_target(targets: np.ndarray, output: int, K: int) -> np.ndarray:
    """The target (n,), or (n, K), of an output of K functions among the targets (n, q)."""
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
    """The rows whose numbers are in ``used``, in order; the array itself where that is all of them."""
    return values if len(used) == len(values) else values[used]


def model_columns(basis: Basis, scale: np.ndarray, output: int, block: Block) -> np.ndarray:
    """The columns of a model over their scale (k,), and its target, on some rows."""
    return np.column_stack([basis(block.X) / scale, block.targets[:, output]]) * block.root


def exact_triangle(samples: Samples, basis: Basis, scale: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
    """The QR triangle of the columns of a basis over their scale (k,), and of a target, in a pass over the samples."""
    R = tall_qr(samples, partial(model_columns, basis, scale, output))
    return R[:, :-1], R[:, -1]


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
    """The hyperprior's rates b (M,) for columns divided by scale (M,) and targets by unit; None where it is flat."""
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
    joined = join_labels(row_hash64(X), groups)
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
