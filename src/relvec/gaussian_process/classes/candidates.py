"""The candidates: processes of several structures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relvec.gaussian_process.classes.learn import USUAL, Effort, learn_latent
from relvec.gaussian_process.classes.model import ClassProcess
from relvec.gaussian_process.classes.rows import DistinctRows
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.gaussian_process.rows import find_categories
from relvec.runtime.clock import Clock


@dataclass(frozen=True)
class ProcessCandidate:
    """A process of one structure; its climb begins at theta `start` where that is known, and may hold the widths."""

    structure: Structure
    effort: Effort = USUAL
    start: tuple[float, ...] | None = None
    hold_widths: bool = False

    @property
    def name(self) -> str:
        """The structure in words."""
        return self.structure.name

    @property
    def few(self) -> bool:
        """Whether no part has a width for each input: then fits of folds may begin at the fit of all rows."""
        return not any(part.per_input for part in self.structure.parts)

    def fit(self, rows: DistinctRows, hint: ClassProcess | None = None, clock: Clock | None = None) -> ClassProcess:
        """Return the process of most posterior density.

        `hint` is a model of other rows, to begin at.
        """
        start = None if self.start is None else np.array(self.start)
        if isinstance(hint, ClassProcess):
            start = hint.theta
        return learn_latent(rows, self.structure, self.effort, start, clock, self.hold_widths)


@dataclass(frozen=True, eq=False)
class GivenKernel:
    """A covariance of log-odds that the user asks for.

    shape : one of `Shape`.
    lengths : (d,) in the units of the inputs, which are held; None to learn them.
    per_input : whether one for each input is learned, or one for all; None tries both.
    """

    shape: str
    lengths: np.ndarray | None = None
    per_input: bool | None = None

    def candidates(self, n_inputs: int, effort: Effort) -> list[ProcessCandidate]:
        """Return the processes with this kernel; inputs are in their lengths where these are given."""
        start = None if self.lengths is None else (np.log(4.0), 0.0)
        kinds = (False, True) if self.per_input is None and start is None and n_inputs > 1 else (bool(self.per_input),)
        return [
            ProcessCandidate(Structure((Part(self.shape, each),), False, n_inputs), effort, start, start is not None)
            for each in kinds
        ]


def standard_candidates(X: np.ndarray, effort: Effort = USUAL) -> list[ProcessCandidate]:
    """Linear; one Gaussian width, in ranges of the inputs; a width for each: the smallest first. X (n, d) standardised.

    A width in ranges is one in the units of the inputs where they share unit and range, as the pixels of images do; in
    standard deviations it would blow up pixels that are hardly ever on, and rare levels of categories. Kernels with a
    linear part are sums, which `choose` tries.
    """
    d, span = X.shape[1], np.ptp(X, axis=0)
    log_ratios = np.log(span) + 0.5 * np.log(np.mean(span**-2.0))  # distances are about those in standard deviations
    parts = [(), (Part(Shape.GAUSSIAN, log_ratios=tuple(log_ratios.tolist()) if d > 1 else None),)]
    if d > 1:
        # Not from the one width: where few inputs matter it is so long that the evidence is flat about it.
        parts.append((Part(Shape.GAUSSIAN, True, groups=find_categories(X)),))
    return [ProcessCandidate(Structure(part, not part, d), effort) for part in parts]
