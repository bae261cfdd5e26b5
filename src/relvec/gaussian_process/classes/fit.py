"""A process of classes fitted to rows in their own units, and the record of its choice: `fit_classes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from scipy.special import softmax

from relvec.gaussian_process.classes.candidates import GivenKernel, ProcessCandidate, standard_candidates
from relvec.gaussian_process.classes.choose import NOTHING, Selection, choose
from relvec.gaussian_process.classes.learn import Effort, settle_latent
from relvec.gaussian_process.classes.model import Calibration, ClassProcess
from relvec.gaussian_process.classes.rows import DistinctRows, merge_class_rows, scale, standardise_rows
from relvec.gaussian_process.fit import rows_to_learn
from relvec.gaussian_process.rows import Units
from relvec.inference.predictive import ClassPredictor
from relvec.runtime.clock import Clock
from relvec.runtime.machine import most_vectors
from relvec.runtime.record import Brief, Record

_LEARNING, _PREDICTING = 120_000, 300_000  # numbers in the factors of K > 2 classes: 200 and 316 rows of three
_SECONDS = 3e-10  # of a model of N rows with m vectors, for each of N m^2; of K > 2 classes, for K^2 / 2 of them
_CHOICE_SHARE, _MODEL_SHARE = 0.8, 0.08  # of a time limit, for all fits, and for a model of all rows
_FEWEST_VECTORS = 20  # however little time there is
_PAIR_BYTES = 26.0  # of rows, in the matrix of a kernel while it is computed at once
FAR = 1e100  # standard deviations: inputs beyond are taken to be there, as squares of larger ones overflow


@dataclass(frozen=True, eq=False)
class Member(Record):
    """A model whose log-odds are added, times `share`."""

    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ("share",)

    share: float
    calibration: Calibration
    model: ClassProcess

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        return isinstance(self.model, ClassProcess) and self.share <= 1.0


@dataclass(frozen=True, eq=False, repr=False)
class ClassModel(Brief, ClassPredictor):
    """log p_c = log base rate_c + sum of the members' signals, normalised.

    units : from the user's inputs to standardised ones.
    members : one or more; none where no input varies, or base rates predict rows left out better.
    base_rates : (K,).
    selection : what was compared, and by how much it won.
    status : how the fit ended: "converged", "baseline", "max_vectors", "memory_limit", "time_limit" or "interrupted".
    messages : what was cut short.

    Examples
    --------
    >>> from relvec import GPClassifier
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> process = GPClassifier(kernel="gaussian").fit(X, X[:, 0] > 3.0).process_
    >>> process.predict_proba(X).shape, process.base_rates.tolist()
    ((20, 2), [0.5, 0.5])
    >>> process.returns_to_base_rates
    True
    """

    SHAPES: ClassVar[dict[str, str]] = {"base_rates": "K"}

    units: Units
    members: tuple[Member, ...]
    base_rates: np.ndarray
    selection: Selection
    status: str = "converged"
    messages: tuple[str, ...] = ()

    @property
    def n_vectors(self) -> int:
        """Kernel evaluations a prediction costs."""
        return sum(member.model.n_vectors for member in self.members)

    @property
    def score(self) -> str:
        """How good the model is on training rows that it did not see, in words."""
        return f"log loss {self.selection.log_loss:.3f} by {self.selection.scheme}"

    @property
    def returns_to_base_rates(self) -> bool:
        """Whether probabilities are the base rates where all inputs are far away from the data.

        A linear part goes on, and so does a width for each input along those whose width is long.
        """
        return not any(member.model.kernel.structure.linear for member in self.members)

    @property
    def extrapolation(self) -> str:
        """How probabilities go on away from the training rows, in a sentence."""
        if not self.returns_to_base_rates:
            return (
                "Away from the training rows the log-odds go on along a straight line and level off as they become "
                "uncertain: probabilities there rest on the line alone."
            )
        return (
            "Where all columns are far from the training rows, probabilities return to the shares of the classes; far "
            "along a single column, or along columns that hardly matter, they may not."
        )

    def decision(self, X: np.ndarray) -> np.ndarray:
        """Return log-odds (n,) of the second of two classes; of more log probabilities less their mean (n, K)."""
        scores = self.scores(X)
        two = scores.shape[1] == 2
        return scores[:, 1] - scores[:, 0] if two else scores - scores.mean(axis=1, keepdims=True)

    def scores(self, X: np.ndarray) -> np.ndarray:
        """(n, K) logarithms of the probabilities at X (n, d), but for a constant of each row."""
        with np.errstate(over="ignore"):
            Z = np.clip(self.units.inputs(np.asarray(X, dtype=float)), -FAR, FAR)
        total = np.zeros((len(Z), len(self.base_rates)))
        for member in self.members:
            c = member.calibration
            total += member.share * c.slope * member.model.signals(Z, c.moderation)
        return total + np.log(self.base_rates)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """(n, K) class probabilities at X (n, d) in the user's units."""
        return softmax(self.scores(X), axis=1)

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        members = [(m.model.vectors.shape[1], len(m.model.base_rates)) for m in self.members]
        right = (len(self.units.columns), len(self.base_rates))
        return members == [right] * len(members) and bool((self.base_rates > 0.0).all())


def effort_for(
    rows: DistinctRows, max_vectors: int | None = None, room: float = np.inf, seconds: float = np.inf
) -> Effort:
    """Return the cost that learning may have: fewer steps and inducing rows with many classes, vectors as asked for.

    room : bytes that the matrices of a fit may have; seconds : of which a share makes a model of all rows.
    """
    K, usual = rows.n_classes, Effort()
    if K > 2:  # factors cost K m^2 a row
        most, final = int(np.sqrt(_LEARNING / K)), int(np.sqrt(_PREDICTING / K))
        regression = int(usual.regression * (K - 1) ** (-1 / 3))  # factors of K - 1 targets cost what one does
        usual = Effort(60, most, 5 * most, final, rows=800, regression=regression, steps=40 if K <= 4 else 20)
    if max_vectors is not None:
        most = max(max_vectors, usual.inducing)
        most, utmost = min(usual.most, most), min(usual.utmost, most)
        usual = replace(usual, most=most, utmost=utmost, final=max_vectors, grown=max_vectors)
    if seconds < np.inf:
        work = _SECONDS * len(rows) * (1.0 if K == 2 else 0.5 * K**2)
        final = max(int(np.sqrt(_MODEL_SHARE * max(seconds, 0.0) / work)), _FEWEST_VECTORS)
        usual = replace(usual, final=min(usual.final, final), grown=min(usual.grown, final))
    if room == np.inf:
        return usual
    learning = max(int(room / ((80.0 + 14.0 * K) * min(usual.rows, len(rows)))), 1)
    final = max(most_vectors(room, vector_row_bytes(K) * len(rows), 24 + 16 * K), 1)
    return replace(
        usual, inducing=min(usual.inducing, learning), most=min(usual.most, learning),
        utmost=min(usual.utmost, learning), final=min(usual.final, final),
        grown=min(usual.grown, final), regression=min(usual.regression, rows_to_learn(room)),
        whole=min(usual.whole, int(np.sqrt(room / _PAIR_BYTES))),
    )  # fmt: skip


def vector_row_bytes(n_classes: int) -> float:
    """Bytes that a vector of the final model takes for each row while that is made."""
    return 40.0 + 6.0 * n_classes


def follow_structure(earlier: ClassModel, n_inputs: int, effort: Effort) -> list[ProcessCandidate]:
    """Return the structures of an earlier model, to begin at its hyperparameters; none where its inputs are others."""
    found = [member.model for member in earlier.members]
    if any(process.kernel.structure.n_inputs != n_inputs for process in found):
        return []
    return [ProcessCandidate(p.kernel.structure, effort, tuple(p.theta.tolist())) for p in found]


def fit_classes(
    X: np.ndarray,
    labels: np.ndarray,
    n_classes: int,
    weights: np.ndarray | None = None,
    groups: np.ndarray | None = None,
    earlier: ClassModel | None = None,
    max_vectors: int | None = None,
    clock: Clock | None = None,
    kernel: GivenKernel | None = None,
    room: float = np.inf,
) -> ClassModel:
    """Return the classifier of most held-out density.

    X (N, d) finite; labels (N,) from 0 to n_classes - 1; weights (N,) frequencies; groups (N,) numbers of rows that are
    in one fold; earlier : a model whose structures are taken, not compared, and whose hyperparameters are begun at;
    max_vectors : most rows that the model keeps; clock : a time limit and reports of progress; kernel : the only one,
    in place of those compared; room : bytes for the matrices of a fit.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(120, 2))
    >>> model = fit_classes(X, (X[:, 0] > 0).astype(int), 2)
    >>> bool(model.predict_proba(np.array([[2.0, 0.0]]))[0, 1] > 0.9)
    True
    """
    if n_classes < 2:
        raise ValueError(f"expected at least two classes, got {n_classes}: there is nothing to tell apart")
    rows, units = _put_in_units(merge_class_rows(X, labels, n_classes, weights, groups), kernel)
    if not len(units.columns):  # no input varies
        return ClassModel(units, (), rows.base_rates, NOTHING)
    clock = clock or Clock()
    effort = effort_for(rows, max_vectors, room, clock.left())
    choosing = clock.part(_CHOICE_SHARE)
    parts, selection = choose(rows, _find_candidates(rows, effort, earlier, kernel), choosing)
    clock.take_over(choosing)
    if not clock.cut:
        choosing.up("the last fit")
        clock.take_over(choosing)
    members = tuple(Member(*part) for part in parts)
    limit, slow = "max_vectors" if max_vectors else "", effort_for(rows, max_vectors, room)
    if slow.final < effort_for(rows, max_vectors).final:
        limit = "memory_limit"
    kept = share_vectors(rows, members, effort.final) if limit and len(members) > 1 else members
    reached = kept is not members or any(member.model.n_vectors >= effort.final for member in members)
    if reached and effort.final < min(slow.final, len(rows)):
        clock.cut.append(f"vectors beyond {effort.final}")
    status, messages = _describe_end(clock, limit if reached and effort.final < len(rows) else "", effort.final)
    if not members and status == "converged":
        status, messages = "baseline", ("the shares of the classes predict rows left out better than any process",)
    return ClassModel(units, kept, rows.base_rates, selection, status, messages)


def _put_in_units(rows: DistinctRows, kernel: GivenKernel | None) -> tuple[DistinctRows, Units]:
    """Return rows in units of the lengths of a kernel that has them, else standardised, and the units."""
    return standardise_rows(rows) if kernel is None or kernel.lengths is None else scale(rows, kernel.lengths)


def _find_candidates(
    rows: DistinctRows, effort: Effort, earlier: ClassModel | None, kernel: GivenKernel | None
) -> list[ProcessCandidate]:
    """Return what is compared: kernels given, or the structures of an earlier model, or the usual candidates."""
    if kernel is not None:
        return kernel.candidates(rows.X.shape[1], effort)
    made = [] if earlier is None else follow_structure(earlier, rows.X.shape[1], effort)
    return made or standard_candidates(rows.X, effort)


def _describe_end(clock: Clock, limit: str, most: int) -> tuple[str, tuple[str, ...]]:
    """Return how a fit ended, and what it was cut short by; `limit` is that of vectors where it was reached."""
    if clock.stopped or clock.cut or not limit:
        status = "interrupted" if clock.stopped else "time_limit" if clock.cut else "converged"
        return status, tuple(f"cut short by the time limit: {name}" for name in clock.cut)
    return limit, (f"more than {most} vectors would still gain: the limit is {limit}",)


def share_vectors(rows: DistinctRows, members: tuple[Member, ...], most: int) -> tuple[Member, ...]:
    """Return the members with so few vectors each that together they keep at most so many rows."""
    kept = {row.tobytes() for member in members for row in member.model.vectors}
    if len(kept) <= most:
        return members
    final = Effort(final=max(most // sum(member.model.n_vectors > 0 for member in members), 1))
    return tuple(
        replace(m, model=settle_latent(rows, p.kernel, p.theta, final, p.evaluations))
        if (p := m.model).n_vectors
        else m
        for m in members
    )
