"""The candidates: processes of several structures, and models from elsewhere such as the relevance vector machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from relvec.gaussian_process.classes.learn import USUAL, Effort, learn
from relvec.gaussian_process.classes.model import ClassProcess
from relvec.gaussian_process.classes.rows import ClassRows
from relvec.gaussian_process.kernel import Part, Shape, Structure
from relvec.runtime.clock import Clock


class Fitted(Protocol):
    """A model of standardised rows: its base rates (K,), its vectors, and signals about the base rates."""

    @property
    def base_rates(self) -> np.ndarray:
        """(K,)."""
        ...

    @property
    def n_vectors(self) -> int:
        """Kernel evaluations a prediction costs."""
        ...

    @property
    def size(self) -> int:
        """What ties are decided by: vectors and hyperparameters."""
        ...

    def signals(self, X: np.ndarray, moderation: float = 1.0) -> np.ndarray:
        """(n, K) what the data add to the logarithms of the base rates at X (n, d)."""
        ...


class Candidate(Protocol):
    """A way to fit; `few` says whether its hyperparameters are so few that a fold may begin at those of all rows."""

    @property
    def name(self) -> str:
        """In words."""
        ...

    @property
    def few(self) -> bool:
        """Whether fits of folds may begin at the fit of all rows."""
        ...

    def fit(self, rows: ClassRows, hint: Fitted | None, clock: Clock | None, label: str) -> Fitted:
        """The model of these rows.

        `hint` is a model of its own of other rows, to begin at; `label` names the rows, for what the clock remembers.
        """
        ...


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
        """Whether no part has a width for each input."""
        return not any(part.per_input for part in self.structure.parts)

    def fit(
        self, rows: ClassRows, hint: Fitted | None = None, clock: Clock | None = None, label: str = ""
    ) -> ClassProcess:
        """The process of most posterior density."""
        start = None if self.start is None else np.array(self.start)
        if isinstance(hint, ClassProcess):
            start = hint.theta
        return learn(rows, self.structure, self.effort, start, clock, label, self.hold_widths)


@dataclass(frozen=True)
class OtherCandidate:
    """Any model: `make` takes standardised X (n, d), counts (n, K), and returns a function to probabilities, a size."""

    name: str
    make: Callable[[np.ndarray, np.ndarray], tuple[Callable[[np.ndarray], np.ndarray], int]]
    few: bool = False

    def fit(
        self, rows: ClassRows, hint: Fitted | None = None, clock: Clock | None = None, label: str = ""
    ) -> OtherModel:
        """The model of these rows."""
        return OtherModel(*self.make(rows.X, rows.counts), rows.base_rates)


@dataclass(frozen=True, eq=False)
class OtherModel:
    """Probabilities seen as signals: log p less log base rate."""

    predict: Callable[[np.ndarray], np.ndarray]
    n_vectors: int
    base_rates: np.ndarray

    @property
    def size(self) -> int:
        """Its vectors."""
        return self.n_vectors

    def signals(self, X: np.ndarray, moderation: float = 1.0) -> np.ndarray:
        """(n, K); probabilities are already integrated over what is uncertain, so moderation does nothing."""
        return np.log(np.clip(self.predict(X), 1e-9, 1.0)) - np.log(self.base_rates)


def list_labels(X: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, labels (n,) and weights (n,) of merged X (n, d) and counts (n, K), for models that want these.

    >>> list_labels(np.array([[5.0], [6.0]]), np.array([[2.0, 1.0], [0.0, 3.0]]))[1:]
    (array([0, 1, 1]), array([2., 1., 3.]))
    """
    row, label = np.nonzero(counts)
    return X[row], label, counts[row, label]


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
        """The processes with this kernel; inputs are in their lengths where these are given."""
        start = None if self.lengths is None else (np.log(4.0), 0.0)
        kinds = (False, True) if self.per_input is None and start is None and n_inputs > 1 else (bool(self.per_input),)
        return [
            ProcessCandidate(Structure((Part(self.shape, each),), False, n_inputs), effort, start, start is not None)
            for each in kinds
        ]


def standard_candidates(n_inputs: int, effort: Effort = USUAL) -> list[ProcessCandidate]:
    """Linear; one Gaussian width; a width for each input: the smallest first.

    Those with a linear part are sums of two of them, which `choose` tries.
    """

    def structure(linear: bool, *parts: Part) -> Structure:
        return Structure(parts, linear, n_inputs)

    one, each = Part(Shape.GAUSSIAN), Part(Shape.GAUSSIAN, True)
    made = [ProcessCandidate(structure(True), effort), ProcessCandidate(structure(False, one), effort)]
    if n_inputs > 1:
        # Not from the one width: where few inputs matter it is so long that the evidence is flat about it.
        made.append(ProcessCandidate(structure(False, each), effort))
    return made
