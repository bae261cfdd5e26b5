"""The dictionary of a sparse model: a process learns widths from few rows, functions of several scales follow it.

Widths are used as ratios: Gaussian functions as wide as the process's, half and twice as wide (or all of them wider or
narrower by a factor of two) sit on every row, or on a draw of the rows; beside them its rough part where it has one,
the columns of X and a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis, Bias, Concat, KernelBasis, Linear
from relvec.gaussian_process.fit import noise_floor
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.learn import Floors
from relvec.gaussian_process.rows import (
    Rows,
    Units,
    find_categories,
    neighbour_distance,
    standardise,
    standardise_inputs,
)
from relvec.gaussian_process.selection import BEHIND_NATS, Candidate, compare, default_candidates
from relvec.inference.scale import AS_IT_IS
from relvec.kernels import Gaussian, Kernel, Matern
from relvec.runtime.arrays import hash_rows
from relvec.runtime.clock import Clock

LEARNED_ROWS, LEARNED_ROWS_OF_MANY = 400, 2000  # distinct rows that widths are learned from, of many rows
# Of functions in widths of the process: what is compared, and of it the least number that large tables try
SCALES, SCALES_OF_MANY = ((0.5, 1.0, 2.0), (1.0, 2.0, 4.0), (0.25, 0.5, 1.0)), 2
MAX_CENTRES, MAX_KERNELS = 1000, 3000  # rows that functions sit on, and kernels in a dictionary
_FEW_ROWS = 500  # up to so many, widths of both kinds are tried
_FEWER_CENTRES, _MANY_ROWS = 500, 2000  # of so many rows fewer are centres: each costs a pass over all of them
_ROWS_A_WIDTH = 2  # at least, of a table that learns it
_NO_EFFECT = 1e6  # standard deviations wide in columns that tell nothing new
_LEAST_SPREAD = 1e-150  # standard deviation of an input: slopes and variances of a smaller one have no double
_NU = {Shape.MATERN32: 1.5, Shape.MATERN52: 2.5}


@dataclass(frozen=True, eq=False)
class LearnedWidths:
    """What the process learned: its structure's name, and for each part its shape and lengths (d,) in units of X."""

    name: str
    parts: tuple[tuple[str, np.ndarray], ...]

    def kernels(self, scales: tuple[float, ...]) -> tuple[Kernel, ...]:
        """Return the kernels of a dictionary of Gaussian functions of some scales, and the rough parts."""
        found: dict[Kernel, None] = {}
        for shape, lengths in self.parts:
            for scale in scales:  # a width r is sqrt(2) lengths: exp(-|x - z|^2 / r^2) = exp(-|x - z|^2 / 2 l^2)
                found[Gaussian(width=tuple(np.sqrt(2.0) * scale * lengths))] = None
            if shape in _NU:
                found[Matern(nu=_NU[shape], width=tuple(lengths))] = None
        return tuple(found)

    @property
    def widths(self) -> np.ndarray:
        """The narrowest width of each input (d,), in the convention of `relvec.kernels.Gaussian`."""
        return np.sqrt(2.0) * np.min([lengths for _, lengths in self.parts], axis=0)


def learn_widths(rows: Rows, clock: Clock) -> tuple[tuple[LearnedWidths, ...], int]:
    """Learn the widths of most merit, then those of the best kernels of other kinds.

    There are three kinds: one part with one width for all inputs, one part with one an input, and sums of two. Widths
    see the rows that folds leave out: a kind far behind by merit, or of nearly as many widths as rows, would seem
    better there than it is. The number of evaluations of evidences comes second.
    """
    scaled, units = standardise(rows)
    few = scaled.take(slice(0, LEARNED_ROWS_OF_MANY if len(rows) > _MANY_ROWS else LEARNED_ROWS))
    floors = Floors(noise_floor(rows.y, AS_IT_IS, units.y_scale), 0.5 * neighbour_distance(few.X))
    d = few.X.shape[1]
    if d == 0:
        return (LearnedWidths("constant", ((Shape.GAUSSIAN, np.ones(rows.X.shape[1])),)),), 0
    candidates = [s for s in _candidates(d, find_categories(scaled.X)) if s.n_theta * _ROWS_A_WIDTH <= max(len(few), 9)]
    found = compare(tuple(candidates), few, floors, clock)
    best: dict[tuple[int, bool], Candidate] = {}
    for candidate in found:
        if found[0].merit.value - candidate.merit.value < BEHIND_NATS:
            parts = candidate.structure.parts
            best.setdefault((len(parts), parts[0].per_input), candidate)
    learned = tuple(_widths_of(candidate, units, rows.X) for candidate in best.values())
    return learned, sum(candidate.mode.evaluations for candidate in found)


def _widths_of(found: Candidate, units: Units, X: np.ndarray) -> LearnedWidths:
    structure, theta = found.structure, found.mode.theta
    lengths = [np.broadcast_to(np.exp(p.log_lengths(theta[at])), structure.n_inputs)
               for p, at in zip(structure.parts, structure.widths)]  # fmt: skip
    shapes = [part.shape for part in structure.parts]
    return LearnedWidths(structure.name, tuple((s, in_units(own, units, X)) for s, own in zip(shapes, lengths)))


def _candidates(n_inputs: int, groups: tuple[int, ...]) -> tuple[Structure, ...]:
    """Single parts, smooth or rough, of one width or one an input, with and without a linear part; sums of two.

    Sums have a part with a width for each input, and the linear part that dictionaries have too.
    """
    parts = [Part(shape) for shape in (Shape.GAUSSIAN, Shape.MATERN32)]
    if n_inputs > 1:
        parts += [Part(shape, True, groups=groups) for shape in (Shape.GAUSSIAN, Shape.MATERN32)]
    singles = [Structure((part,), linear, n_inputs) for part in parts for linear in (False, True)]
    sums = (s for s in default_candidates(n_inputs, groups) if len(s.parts) > 1 and s.linear)
    return (*singles, *(s for s in sums if n_inputs == 1 or s.parts[0].per_input))


def in_units(lengths: np.ndarray, units: Units, X: np.ndarray) -> np.ndarray:
    """Lengths (d,) of all columns of X, from those of the standardised columns that vary."""
    size = np.abs(X).max(axis=0, initial=0.0)
    found = _NO_EFFECT * np.where(size > 0.0, size, 1.0)
    found[units.columns] = lengths * units.scale
    return found


def dictionaries(
    learned: tuple[LearnedWidths, ...], rows: Rows, X: np.ndarray, most_kernels: int = MAX_KERNELS
) -> Iterator[Basis]:
    """Yield the dictionaries to compare: the columns of X alone, then functions of learned widths, the best first.

    These have so many kernels at most.
    """
    yield columns_alone(rows, X)
    for widths in learned if len(rows) <= _FEW_ROWS else learned[:1]:
        for scales in SCALES[:SCALES_OF_MANY] if len(rows) > _MANY_ROWS else SCALES:
            kernels = widths.kernels(scales)
            yield build(kernels, rows, X, most_kernels // len(kernels))


def count_kernels(learned: tuple[LearnedWidths, ...], n_rows: int, most_kernels: int = MAX_KERNELS) -> int:
    """Return how many kernels the first dictionary of learned widths has on so many rows."""
    kernels = len(learned[0].kernels(SCALES[0]))
    return kernels * min(n_rows, _most_centres(n_rows, kernels, most_kernels // kernels))


def _most_centres(n_rows: int, n_kernels: int, most: int) -> int:
    most = min(most, _FEWER_CENTRES if n_rows > _MANY_ROWS else MAX_CENTRES)
    return max(min(most, MAX_KERNELS // max(n_kernels, 1)), 1)


def columns_alone(rows: Rows, X: np.ndarray) -> Basis:
    """Return the dictionary of the columns of X (n, d), less the means of rows, and a constant."""
    return Concat((_columns(rows), Bias())).bind(X)


def _columns(rows: Rows) -> Linear:
    """The inputs that tell something, about their means: their origin does not matter to what a slope costs."""
    units = standardise_inputs(rows.X, rows.weight)[1]
    sound = units.columns[units.scale > _LEAST_SPREAD]
    return Linear(features=tuple(sound.tolist()), centre=tuple(rows.weight @ rows.X / rows.total))


def build(kernels: tuple[Kernel, ...], rows: Rows, X: np.ndarray, most: int = MAX_CENTRES) -> Basis:
    """Return the dictionary of kernels on distinct rows, or a draw of them, the columns of X (n, d) and a constant.

    The rows are in the order of a hash of their inputs, so that the first of them, at most so many, are a draw.
    """
    centres = rows.X[: _most_centres(len(rows), len(kernels), most)]
    own = hash_rows(X + 0.0)
    order = np.argsort(own, kind="stable")
    first = order[np.searchsorted(own[order], hash_rows(centres))]  # the first of the rows with these inputs
    parts = [KernelBasis(kernel, centres, centre_rows=first) for kernel in kernels]
    return Concat((*parts, _columns(rows), Bias())).bind(X)
