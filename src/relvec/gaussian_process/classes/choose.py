"""Which kernel, for classes: candidates compared by the log density of rows that took no part in their fit.

Every candidate is fitted anew without each fold and scored on it, after slope and moderation (`calibrate`) were learned
from the scores' own signals. Ties go to the smaller candidate. Candidates may be added, with shares near equal ones,
where that gains: log-odds that are a sum of processes are one additive model. Where only few rows differ, new ones will
be copies of them and none can be held out: there candidates have the shares that their evidence gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from relvec.gaussian_process.classes.candidates import ClassRecord, ProcessCandidate, calibration_curve, log_densities
from relvec.gaussian_process.classes.learn import log_merit
from relvec.gaussian_process.classes.model import Calibration, ClassProcess, calibrate_signals
from relvec.gaussian_process.classes.rows import DistinctRows, deal_fold, few_differ
from relvec.gaussian_process.held_out import leads
from relvec.inference.error_bars import FOLDS
from relvec.runtime.clock import Clock

TIE = 0.005  # nats a row: candidates that differ by less, or by half a standard error, are equally good
_SUM_GAINS = 1.0  # nats that a sum must gain over the candidate that is taken without it
_LEAST_SHARE = 0.1  # of a member of a sum
_LEAST_PROBABILITY = 0.02  # of a kernel in the average by evidence
_HELD = 3.0  # precision of the shares about equal ones: a prior standard deviation of 0.6
_LARGE = 60_000  # numbers in the factors of a model whose fits take long
_BEHIND = (0.02, 2.0)  # after two folds: nats a row, and standard errors, behind the best that end a candidate's race


@dataclass(frozen=True)
class Entry:
    """A candidate's result where it took no part.

    share : the factor of its log-odds in the model, 0 where it is not in it.
    log_loss : a row; behind, standard_error : how far behind the best, and of that.
    slope, moderation : of its calibration.
    folds : those it was fitted in.
    """

    name: str
    share: float
    log_loss: float
    behind: float
    standard_error: float
    slope: float
    moderation: float
    folds: int


@dataclass(frozen=True, eq=False)
class Selection:
    """What was compared, by how much the choice won, and how reliable its probabilities were.

    entries : every candidate, the best first.
    chosen, shares : names of the one or more added, and the factors of their log-odds.
    log_loss : of the choice, a row, where it took no part; without held-out rows -(log evidence) a row.
    margin : nats a row between the choice and the best candidate that is not in it.
    scheme : in words, how rows were held out.
    calibration_curve : (bins, 3) mean probability, share, weight of the held-out predictions.
    evaluations : of the evidence, that all fits took together.

    Examples
    --------
    >>> from relvec import GPClassifier
    >>> X = np.linspace(0.0, 6.0, 20)[:, None]
    >>> selection = GPClassifier().fit(X, X[:, 0] > 3.0).selection_
    >>> sorted(entry.name for entry in selection.entries)
    ['gaussian', 'linear']
    >>> print(selection)
    chosen: ...
    """

    entries: tuple[Entry, ...]
    chosen: tuple[str, ...]
    shares: tuple[float, ...]
    log_loss: float
    margin: float
    scheme: str
    calibration_curve: np.ndarray
    evaluations: int = 0

    def __str__(self) -> str:
        lines = [f"chosen: {' and '.join(self.chosen)}, log loss {self.log_loss:.3f} by {self.scheme}"]
        lines += [f"  {e.name}: {e.log_loss:.3f} ({e.behind:+.3f}, s.e. {e.standard_error:.3f})" for e in self.entries]
        return "\n".join(lines)


NOTHING = Selection((), ("base rates",), (), np.nan, np.nan, "no comparison", np.zeros((0, 3)))


class _Race:
    """The fits of all candidates, to all rows and without each fold.

    Those of all rows come first, for candidates whose fits of folds may begin there. Where the clock's time is up, no
    further candidate and no further fold begins.
    """

    def __init__(self, rows: DistinctRows, candidates: Sequence[ProcessCandidate], clock: Clock):
        self.rows, self.clock = rows, clock
        self.n_folds = min(FOLDS, int(rows.labels.max()) + 1)
        self.whole: dict[str, ClassProcess] = {}
        self.evaluations = 0  # of the evidence, in folds
        self._done, self._total = 0, sum(c.few for c in candidates) + self.n_folds * len(candidates)
        for candidate in candidates:
            if candidate.few and not (self.whole and clock.up(candidate.name)):
                self.whole[candidate.name] = candidate.fit(rows, None, clock)
                self._count()
        self.planned = count_folds(rows, self.n_folds, self.whole.values())
        self.records = [ClassRecord(c) for c in candidates if c.name in self.whole or not c.few]
        self.counts = np.zeros((0, rows.n_classes))  # (m, K) of the classes at the rows of all folds that were run
        self.groups = np.zeros(0, dtype=np.intp)  # (m,) numbers of the groups of these rows
        self.n_run = 0

    @property
    def scheme(self) -> str:
        """How rows were held out, in words."""
        if self.n_run == 1:
            return "a hold-out"
        return f"{self.n_run} of {self.n_folds} folds" if self.n_run < self.n_folds else f"{self.n_folds} folds"

    def run(self) -> None:
        """Fit and score the candidates, fold by fold, and close the records of those that took part."""
        racing = self.records
        while self.n_run < self.planned:
            if self.n_run and self.clock.up(f"folds after the first {self.n_run}"):
                break
            self._run_fold(racing)
            if self.n_run == 2 < self.planned:
                racing = _keep_racing([record for record in self.records if record.models], self.counts)
        self.records = [record for record in self.records if record.models]
        for record in self.records:
            record.close(self.counts)

    def _run_fold(self, racing: list[ClassRecord]) -> None:
        train, test = deal_fold(self.rows, self.n_folds, self.n_run)
        more = np.arange(len(test)) if test.group is None else test.labels
        self.groups = np.concatenate([self.groups, self.groups.max(initial=-1) + 1 + more])
        self.n_run, self.counts = self.n_run + 1, np.concatenate([self.counts, test.counts])
        for i, record in enumerate(racing):
            candidate = record.candidate
            if i and self.clock.up(f"{candidate.name} in fold {self.n_run}"):
                break
            model = candidate.fit(train, self.whole[candidate.name] if candidate.few else None, self.clock)
            record.add(model, test)
            self.evaluations += model.evaluations
            self._count()

    def _count(self) -> None:
        self._done += 1
        self.clock.report("candidates", self._done / (self._total + 1))

    @property
    def spent(self) -> int:
        """Evaluations of the evidence, of all fits."""
        return self.evaluations + sum(model.evaluations for model in self.whole.values())

    def finish(self, record: ClassRecord) -> ClassProcess:
        """Return the process of all rows of a candidate."""
        name = record.candidate.name
        if name not in self.whole:
            self.whole[name] = record.candidate.fit(self.rows, record.model, self.clock)
        return record.finish(self.whole[name], self.rows)


def choose(
    rows: DistinctRows, candidates: Sequence[ProcessCandidate], clock: Clock | None = None
) -> tuple[list[tuple[float, Calibration, ClassProcess]], Selection]:
    """Choose the candidate, or sum, of most held-out density, fitted to all rows: (share, calibration, model) each.

    candidates : the smallest first, which a time limit is spent on.
    """
    clock = clock or Clock()
    if few_differ(rows):
        return weigh_by_evidence(rows, candidates, clock)
    race = _Race(rows, candidates, clock)
    race.run()
    records, held_out = race.records, deal_fold(rows, race.n_folds, 0) if race.planned == 1 else None
    if held_out:
        records = [record.halve_widths(held_out, clock) for record in records]
    chosen, shares = _decide(records)
    if held_out:
        grown = {record: record.double_vectors(held_out, clock) for record in chosen}
        records = [grown.get(record, record) for record in records]
        chosen, shares = _decide(list(grown.values()))
    found = _describe_choice(records, chosen, shares, race.scheme)
    finished = len(chosen[0].density) == len(race.groups)
    several = np.count_nonzero(rows.counts, axis=0).min() > 1  # else the folds without a row lack its class
    if finished and several and _shares_lead(chosen, shares, race.groups):
        entries = tuple(replace(entry, share=0.0) for entry in found.entries)
        return [], replace(found, entries=entries, chosen=NOTHING.chosen, shares=(), evaluations=race.spent)
    parts = [(share, record.calibration, race.finish(record)) for record, share in zip(chosen, shares)]
    return parts, replace(found, evaluations=race.spent)


def _shares_lead(chosen: list[ClassRecord], shares: list[float], groups: np.ndarray) -> bool:
    """Tell whether the base rates of the other folds take the place of the choice, for the groups (m,) of rows."""
    counts, rates = chosen[0].counts, chosen[0].rates
    weight = counts.sum(axis=1)
    own = log_densities(_add(chosen, shares), rates, counts, 1.0)
    return leads((np.sum(counts * rates, axis=1) - own) / weight, weight, groups)


def weigh_by_evidence(
    rows: DistinctRows, candidates: Sequence[ProcessCandidate], clock: Clock
) -> tuple[list[tuple[float, Calibration, ClassProcess]], Selection]:
    """All processes, their log-odds averaged by the probabilities of their kernels; see `choose`."""
    fitted: dict[str, ClassProcess] = {}
    for candidate in candidates:
        if not (fitted and clock.up(candidate.name)):
            fitted[candidate.name] = candidate.fit(rows, None, clock)
    merits = np.array([log_merit(process) for process in fitted.values()])
    shares = softmax(merits)
    shares = np.where(shares < _LEAST_PROBABILITY, 0.0, shares)
    shares /= shares.sum()
    parts = [(float(s), Calibration(), process) for s, process in zip(shares, fitted.values()) if s > 0.0]
    selection = _describe_weights(list(fitted), shares, merits, rows)
    return parts, replace(selection, evaluations=sum(process.evaluations for process in fitted.values()))


def _describe_weights(names: list[str], shares: np.ndarray, merits: np.ndarray, rows: DistinctRows) -> Selection:
    total = rows.counts.sum()
    behind = (merits.max() - merits) / total
    entries = [
        Entry(name, float(share), float(-merit / total), float(gap), 0.0, 1.0, 1.0, 0)
        for name, share, merit, gap in zip(names, shares, merits, behind)
    ]
    entries.sort(key=lambda entry: entry.log_loss)
    kept = [entry for entry in entries if entry.share > 0.0]
    return Selection(
        tuple(entries), tuple(e.name for e in kept), tuple(e.share for e in kept), entries[0].log_loss,
        entries[1].behind if len(entries) > 1 else np.inf, f"evidence, as only {len(rows)} rows differ",
        np.zeros((0, 3)),
    )  # fmt: skip


def count_folds(rows: DistinctRows, n_folds: int, fitted: Iterable[ClassProcess]) -> int:
    """All folds of small tables, and of larger ones where models are small; else three, then one: a hold-out."""
    size, numbers = len(rows) * rows.n_classes, max((model.factors.size for model in fitted), default=0)
    return n_folds if size <= (1000 if numbers > _LARGE else 2000) else min(3, n_folds) if size <= 6000 else 1


def _keep_racing(records: list[ClassRecord], counts: np.ndarray) -> list[ClassRecord]:
    """Return the candidates that two folds do not leave clearly behind."""
    for record in records:
        record.close(counts)
    best = max(records, key=lambda record: record.density.sum())
    nats, errors = _BEHIND
    kept = []
    for record in records:
        behind, error = _difference(best, record)
        if behind <= nats or behind <= errors * error:
            kept.append(record)
    return kept


def _select_finished(records: list[ClassRecord]) -> list[ClassRecord]:
    """Those that took part in every fold."""
    most = max(len(record.density) for record in records)
    return [record for record in records if len(record.density) == most]


def _difference(best: ClassRecord, other: ClassRecord) -> tuple[float, float]:
    """How far `other` is behind, in nats a row on the folds both have, and the standard error of that."""
    n = min(len(best.density), len(other.density))
    gap = best.density[:n] - other.density[:n]
    total = best.counts[:n].sum()
    return float(gap.sum() / total), float(np.sqrt(n) * gap.std() / total)


def _decide(records: list[ClassRecord]) -> tuple[list[ClassRecord], list[float]]:
    """Return the sum of candidates if it gains enough; else the smallest candidate as good as the best."""
    finished = _select_finished(records)
    best = max(finished, key=lambda record: record.density.sum())
    gaps = {record: _difference(best, record) for record in finished}
    ties = [record for record, (behind, error) in gaps.items() if behind <= max(TIE, 0.5 * error)]
    smallest = min(ties, key=lambda record: record.model.size)
    if len(finished) > 1:
        kept, shares = _share_out(finished)
        counts, rates = kept[0].counts, kept[0].rates
        gain = log_densities(_add(kept, shares), rates, counts, 1.0).sum() - smallest.density.sum()
        if gain > _SUM_GAINS:
            return kept, shares
    return [smallest], [1.0]


def _add(records: list[ClassRecord], shares: Sequence[float]) -> np.ndarray:
    """Return the sum of the signals (n, K)."""
    return sum((share * record.signal for share, record in zip(shares, records)), np.zeros(1))


def _share_out(records: list[ClassRecord]) -> tuple[list[ClassRecord], list[float]]:
    """Shares, none below _LEAST_SHARE, of most held-out density where signals are added, and who has them."""
    shares = _find_shares(records)
    while len(records) > 1 and shares.min() < _LEAST_SHARE:
        records = [record for i, record in enumerate(records) if i != shares.argmin()]
        shares = _find_shares(records)
    return records, shares.tolist()


def _find_shares(records: list[ClassRecord]) -> np.ndarray:
    """Shares (k,), none negative, of most held-out density under a prior about equal ones."""
    counts, rates, equal = records[0].counts, records[0].rates, np.full(len(records), 1.0 / len(records))
    weight = counts.sum(1, keepdims=True)
    signals = np.stack([record.signal for record in records])

    def loss(shares: np.ndarray) -> tuple[float, np.ndarray]:
        log_p = log_softmax(rates + np.tensordot(shares, signals, 1), axis=1)
        slope = np.tensordot(signals, weight * np.exp(log_p) - counts, 2) + _HELD * (shares - equal)
        return 0.5 * _HELD * float(np.sum((shares - equal) ** 2)) - float(np.vdot(counts, log_p)), slope

    found = minimize(loss, equal, jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * len(equal))
    return np.asarray(found.x)


def _describe_choice(
    records: list[ClassRecord], chosen: list[ClassRecord], shares: list[float], scheme: str
) -> Selection:
    signal = _add(chosen, shares)
    counts, rates = chosen[0].counts, chosen[0].rates
    total = counts.sum()
    log_loss = -float(log_densities(signal, rates, counts, 1.0).sum() / total)
    best = max(_select_finished(records), key=lambda r: r.density.sum())
    entries = []
    for r in records:
        behind, error = _difference(best, r)
        loss = -float(r.density.sum() / r.counts.sum())
        share = shares[chosen.index(r)] if r in chosen else 0.0
        c, folds = r.calibration, len(r.log_rates)
        entries.append(Entry(r.candidate.name, share, loss, behind, error, c.slope, c.moderation, folds))
    entries.sort(key=lambda entry: entry.log_loss)
    others = [entry.log_loss for entry in entries if not entry.share]
    curve = calibration_curve(calibrate_rows(signal, rates), counts)
    names = tuple(r.candidate.name for r in chosen)
    margin = min(others) - log_loss if others else np.inf
    return Selection(tuple(entries), names, tuple(shares), log_loss, margin, scheme, curve)


def calibrate_rows(signals: np.ndarray, log_rates: np.ndarray) -> np.ndarray:
    """Probabilities (n, K) where every row has base rates of its own."""
    return calibrate_signals(signals + log_rates, np.ones(signals.shape[1]))
