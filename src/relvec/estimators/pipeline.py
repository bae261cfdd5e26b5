"""The fit: dictionary, widths, search, moved centres, model; the same for every source of rows and every likelihood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from relvec.basis import Basis, kernels_of
from relvec.design import Compression
from relvec.estimators.assemble import assemble, describe_widths, offered, warn_unless_success
from relvec.estimators.noise import fit_noise
from relvec.estimators.options import GRVM_WIDTHS, MachineOptions
from relvec.estimators.records import FittedRVM
from relvec.estimators.sources import Sample, Source, machine_rows
from relvec.hyperparameters import centres, grvm, grvm_widths
from relvec.hyperparameters.interleaving import interleave
from relvec.hyperparameters.widths import TunedBasis, WidthProblem, tune_widths


@dataclass(frozen=True, eq=False)
class Found:
    """Fits of all outputs over one dictionary."""

    fits: list  # one for each output, `GaussianFit` or `LaplaceFit`
    basis: Basis  # the dictionary of candidates that their atoms are numbers of
    compression: Compression | None = None  # how the rows were reduced, or None

    @property
    def models(self) -> list:
        """The model of each output, to start another search from."""
        return [fit.model for fit in self.fits]


class MachineSearch(ABC):
    """The search for the models of all outputs under one likelihood, on the rows of a source."""

    options: MachineOptions
    source: Any
    memory: float

    @property
    @abstractmethod
    def varies(self) -> bool:
        """Whether the targets say anything about widths."""

    @property
    @abstractmethod
    def can_move_centres(self) -> bool:
        """Whether the targets say anything about centres."""

    @abstractmethod
    def targets_on(self, sample: Sample, n_atoms: int) -> list:
        """The targets (`relvec.hyperparameters.targets.TargetEvidence`) on the rows of a sample."""

    @abstractmethod
    def run(self, dictionary: Basis, starts: list | None = None) -> Found:
        """Maximise the evidence of every output over a dictionary, from models of it or from nothing."""

    @abstractmethod
    def renumber(self, model: Any, to: np.ndarray, n_atoms: int, n_new: int) -> Any:
        """A model over n_atoms atoms as one over n_new others: atom m becomes atom ``to[m]``."""

    @abstractmethod
    def atoms(self, model: Any, n_atoms: int) -> np.ndarray:
        """Atoms of a model over n_atoms of them."""

    def without_interpolation(self, found: Found, learned: TunedBasis) -> MachineSearch | None:
        """The search with its noise fixed, where models pass through their targets; None where none does."""
        return None

    @abstractmethod
    def predictor(self, fit: Any, basis: Basis, atoms: np.ndarray) -> Any:
        """The function that a fit found, over the atoms that all outputs keep."""

    @abstractmethod
    def predictive(self, fits: list, functions: Sequence, alpha: np.ndarray, basis: Basis) -> dict[str, Any]:
        """Return the fields of `Fitted` that predict: ``predictors``, or for classes also ``classifier``.

        The functions of the fits have precisions alpha (R, m) over the atoms kept of the dictionary ``basis``.
        """

    def noise_variances(self, functions: Sequence) -> np.ndarray:
        """Noise variances (F,) in the units of y; nan where there is none."""
        return np.full(len(functions), np.nan)

    @abstractmethod
    def label(self, output: int) -> str:
        """The name of an output in front of a warning."""

    def begin(self, dictionary: Basis, starts: list | None, atoms: np.ndarray | None) -> tuple[Basis, list | None]:
        """The part of a dictionary that has the given atoms, None for all, and the models to start from over it."""
        if atoms is None:
            return dictionary, starts
        place = np.full(dictionary.n_atoms, -1)
        place[atoms] = np.arange(len(atoms))
        own = starts and [s and self.renumber(s, place, dictionary.n_atoms, len(atoms)) for s in starts]
        return dictionary.take(atoms), own

    def atoms_of(self, starts: list | None, n_atoms: int) -> np.ndarray:
        """Atoms of the models to start from."""
        return np.concatenate([np.zeros(0, np.intp), *(self.atoms(s, n_atoms) for s in starts or [] if s is not None)])


def fit(
    options: MachineOptions, source: Source, search_for: Callable[[MachineOptions, Any, Basis], MachineSearch]
) -> FittedRVM:
    """Fit a relevance vector machine to the rows of a source.

    Parameters
    ----------
    options : what the estimator was told.
    source : the rows.
    search_for : makes the search under a likelihood, for the options, the source and the bound dictionary.
    """
    if options.noise != "constant":
        return fit_noise(options, source, partial(fit, search_for=search_for))
    source = machine_rows(source, options)
    basis, free = source.bind(options)
    if options.predictive is not None and not kernels_of(basis):
        raise ValueError("predictive='augmented' needs a kernel as a function of the inputs: use predictive='rvm' here")
    source = source.for_learning() if free.any() else source
    search = search_for(options, source, basis)
    search, basis, found, tuning = find_functions(search, basis, free)
    placement = None
    if options.centres != "data" and search.can_move_centres:
        found, placement = move_centres(search, found)
    for output, own in enumerate(found.fits):
        warn_unless_success(own.result.status, search.label(output), offered(own.result, options.tol))
    rule = options.width_rule(source.n_features)
    widths = describe_widths(found.basis, source.feature_variances())
    return assemble(
        options, source, search, found, placement, tuning=tuning, width_rule=rule, theta=basis.theta, **widths
    )


def find_functions(search: MachineSearch, basis: Basis, free: np.ndarray) -> tuple[MachineSearch, Basis, Found, Any]:
    """Return the models over a dictionary whose free parameters (p,) are learned first.

    In front are the search that found them and the dictionary with its parameters; last, how these were learned.
    """
    if not (free.any() and search.varies):
        return search, basis, search.run(basis), None
    learned = tune_dictionary(search, basis, free)
    basis = basis.with_theta(np.where(free, learned.basis.theta, basis.theta))
    found = search.run(basis, learned.models)
    again = search.without_interpolation(found, learned)
    if again is not None:
        search, found = again, again.run(basis)
    return search, basis, found, learned.tuning


def tune_dictionary(search: MachineSearch, basis: Basis, free: np.ndarray) -> TunedBasis:
    """The dictionary with its free parameters (p,) learned by evidence."""
    options, sample = search.options, search.source.sample(basis)
    targets = search.targets_on(sample, sample.basis.n_atoms)
    setting = WidthProblem.of(sample.basis, sample.X, targets, free, options.tuning_clock, sample.rows)
    if options.interleaved is not None:
        return interleave(sample.basis, setting, options.interleaved)
    seed = options.width_seed()
    if isinstance(options.width, str) and options.width in GRVM_WIDTHS:
        choose: dict[str, Callable[[Basis, WidthProblem, int], TunedBasis]] = {
            "grvm": grvm_widths.choose_width,
            "grvm-diagonal": partial(grvm_widths.choose_width, evidence=grvm.diagonal_evidence),
            "grvm-per-feature": grvm_widths.choose_widths,
        }
        chosen = choose[options.width](sample.basis, setting, seed)
        return TunedBasis(chosen.basis, chosen.tuning)
    earlier = None if options.earlier is None else options.earlier.theta
    if earlier is not None and earlier.shape != free.shape:
        earlier = None
    learned = tune_widths(sample.basis, setting, seed, options.logs_steps, earlier)
    return learned if sample.complete else replace(learned, noises=None)


def move_centres(search: MachineSearch, found: Found) -> tuple[Found, grvm.Placement | None]:
    """The models with their centres moved to where the evidence is higher, and how well the data place them."""
    options, sample = search.options, search.source.sample(found.basis)
    targets = search.targets_on(sample, found.basis.n_atoms)
    space = centres.Space.of(found.basis, sample.X, targets, options.tuning_clock)
    placed = centres.start(found.basis, space, found.models)
    placed, moves = centres.move(placed) if options.centres == "move" else grvm.train(placed)
    if not len(placed.Z) or not moves:
        return found, None
    found = search.run(placed.basis, placed.models)
    targets = search.targets_on(sample, found.basis.n_atoms)
    space = centres.Space.of(found.basis, sample.X, targets)
    placement = grvm.placement(centres.start(found.basis, space, found.models, settle=False), moves)
    evidence = sum(fit.log_evidence for fit in found.fits)  # in the units of the targets as given
    return found, replace(placement, log_evidence=evidence + placement.log_share)
