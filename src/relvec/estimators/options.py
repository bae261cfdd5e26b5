"""The parameters of the estimators, checked and resolved once, before a fit begins."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from sklearn.utils import check_random_state

from relvec.basis import Basis, Bias, Concat, KernelBasis, Precomputed, as_basis, atom_keys, is_inputs
from relvec.hyperparameters.interleaving import Interleaved
from relvec.inference.hyperpriors import FLAT, GammaPrior
from relvec.inference.predictive import Augmented
from relvec.inference.scale import AS_IT_IS, Scale
from relvec.kernels import as_kernel, has_width
from relvec.runtime.clock import Clock
from relvec.runtime.machine import memory_bytes
from relvec.solvers import EM, MacKay, Sequential, Stepwise, as_solver
from relvec.solvers.loop import TOL, TOL_OF_MANY, Solver

MAX_LEARNED_WIDTHS = 32  # features: width="auto" learns one width for each up to so many
# words for widths by the evidence over weights and centres, and the width that the kernel starts from
GRVM_WIDTHS = {"grvm": "learn", "grvm-diagonal": "learn", "grvm-per-feature": "learn-per-feature"}
MAX_WHOLE_ROWS = 10_000  # rows in memory whose process is fitted without passes over blocks
KERNELS_COMPARED_IN = 2  # of the fits that learn the noise of a process: in the first all rows count alike
TUNING_TIME_SHARE = 0.7  # of a time limit: learning widths and moving centres leave the rest to the search
# what a linear model has in place of the parameters of a relevance vector machine
COLUMNS_OF_X = {
    "kernel": None, "width": "auto", "centres": "data", "basis": "linear", "likelihood": "gaussian",
    "predictive": "rvm",
}  # fmt: skip


def _is_positive(value: Any) -> bool:
    return isinstance(value, numbers.Real) and value is not True and 0 < float(value) < np.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and value is not True and int(value) >= 1


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool | np.bool_)


def _none_or(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or fits(value)


# what each parameter must be, in words, and whether a value is that
RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "tol": ("a positive number (nats), or None", _none_or(_is_positive)),
    "max_vectors": ("None or an integer >= 1", _none_or(_is_count)),
    "max_functions": ("None or an integer >= 1", _none_or(_is_count)),
    "time_limit": ("None or a positive number of seconds", _none_or(_is_positive)),
    "verbose": ("None, True, False or a number", _none_or(lambda value: isinstance(value, numbers.Real))),
    "fit_intercept": ("True or False", _is_flag),
    "warm_start": ("True or False", _is_flag),
    "share_alpha": ("True or False", _is_flag),
    "noise_variance": ("None (learned) or a positive number", _none_or(_is_positive)),
    "multi_class": ("'multinomial' or 'ovr'", lambda value: value in ("multinomial", "ovr")),
    "averaging": ("'posterior' or 'mode'", lambda value: value in ("posterior", "mode")),
}


def check_parameters(given: Mapping[str, Any]) -> None:
    """Refuse scalar parameters that make no sense, with errors that say what was expected."""
    memory_bytes(given["memory_limit"])
    for name, (expected, fits) in RULES.items():
        if name in given and not fits(given[name]):
            raise ValueError(f"{name} must be {expected}, got {given[name]!r}")


def check_choices(given: Mapping[str, Any], **choices: tuple[str, ...]) -> None:
    """Refuse parameters that are none of the words they may be."""
    for name, words in choices.items():
        if given[name] not in words:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, words))}, got {given[name]!r}")


@dataclass(frozen=True, eq=False)
class EarlierModel:
    """The model that a warm start of a relevance vector machine begins with."""

    basis: Basis  # the m functions that were kept
    alpha: np.ndarray  # (K, m) their precisions in each output; inf where a function is not in its model
    noise_variance: np.ndarray  # (K,) nan where there is no noise
    theta: np.ndarray | None  # (p,) logarithms of the kernels' parameters of the whole dictionary
    tuning: Any = None  # how its widths were learned
    choices: list[Any] | None = None  # how the dictionary and the size of each output were chosen, or None

    def without_functions(self) -> EarlierModel:
        """The parameters of kernels alone."""
        none = np.zeros(0, dtype=np.intp)
        return replace(self, basis=self.basis.take(none), alpha=self.alpha[:, none])

    def find_in(self, basis: Basis, n_functions: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Atoms of a dictionary that are in this model (k,), and their precisions (n_functions, k)."""
        if len(self.alpha) != n_functions:
            return None
        place = {key: m for m, key in enumerate(atom_keys(basis))}
        kept = sorted((place[key], i) for i, key in enumerate(atom_keys(self.basis)) if key in place)
        atoms, own = np.array(kept, dtype=np.intp).reshape(-1, 2).T
        return atoms, self.alpha[:, own]


@dataclass(frozen=True, eq=False, kw_only=True)
class FitOptions:
    """What a fit of any family is told besides its data."""

    memory_limit: Any  # as given; a valid one
    clock: Clock  # of the whole fit
    logs_steps: bool  # whether every step goes to the logger
    noise: str  # "auto", "constant", "student-t", "heteroscedastic" or "censored"
    earlier: Any = None  # the model of a warm start

    @property
    def memory(self) -> float:
        """Bytes of the memory limit."""
        return memory_bytes(self.memory_limit)

    @property
    def precomputed(self) -> bool:
        """Whether X holds kernel values."""
        return False

    @property
    def noise_asked(self) -> str:
        """The parameter that asks for the noise, for messages."""
        return f"{'noise' if self.noise == 'heteroscedastic' else 'likelihood'}={self.noise!r}"

    @property
    def most_rows(self) -> int | None:
        """Most rows that noise can be learned from by rows; None for any number."""
        return None

    def check_elsewhere(self, where: str) -> None:
        """Refuse what rows that are not in memory do not allow; ``where`` they are, in words."""
        if self.noise not in ("auto", "constant"):
            raise ValueError(f"{where} are fitted with normal noise alone: {self.noise_asked} needs rows in memory")

    def within(self, share: float) -> Self:
        """The options of a fit that may take a share of the time that is left."""
        return replace(self, clock=self.clock.part(share))

    def beginning(self, on_own_scale: bool) -> Self:
        """The options of the first of several fits that learn the noise, with constant noise."""
        return replace(self, noise="constant")

    def following(self, model: Any) -> Self:
        """The options of the fits after a model."""
        return self

    def start_from(self, model: Any, turn: int, afresh: bool) -> Any:
        """The start of the fit number ``turn`` after a model; ``afresh`` without its functions."""
        return model.earlier.without_functions() if afresh else model.earlier


@dataclass(frozen=True, eq=False, kw_only=True)
class ProcessOptions(FitOptions):
    """Everything that a fit of a process is told besides its data."""

    kernel: Any = "auto"  # of classes, as given
    width: Any = "auto"
    max_vectors: int | None = None  # most distinct rows that the process keeps, or None
    target_scale: Scale | None = None  # on which the target is taken; None where the process may choose
    noise_variance: float | None = None  # a fixed one, in fits of weighted rows; None to learn it

    @property
    def most_rows(self) -> int | None:
        return MAX_WHOLE_ROWS

    def beginning(self, on_own_scale: bool) -> Self:
        return replace(self, noise="constant", target_scale=AS_IT_IS if on_own_scale else None)

    def following(self, model: Any) -> Self:
        return replace(self, target_scale=model.processes[0].scale)

    def start_from(self, model: Any, turn: int, afresh: bool) -> Any:
        return None if turn < KERNELS_COMPARED_IN else model.earlier


@dataclass(frozen=True, eq=False, kw_only=True)
class MachineOptions(FitOptions):
    """Everything that a fit of a relevance vector machine is told besides its data."""

    # the dictionary of candidates, as the estimator was given it
    kernel: Any
    width: Any
    centres: str
    basis: Any
    fit_intercept: bool
    solver: Solver  # the solver object
    predictive: Augmented | None  # the predictive distribution; None for the machine's own
    noise_variance: float | None  # fixed noise variance, or None to learn it
    # nats that no single move may gain any more, the second for models of many functions or None
    tol: float
    tol_of_many: float | None
    random_state: Any
    learns_widths: bool  # whether ``width="auto"`` may learn widths: with counts and classes it does not
    max_functions: int | None = None  # most functions, the constant not counted, or None
    groups: np.ndarray | None = None  # (d,) numbers of the groups of columns that have one precision, or None
    share_alpha: bool = False  # whether outputs of a regression share their precisions
    learns_dictionary: bool = False  # whether a process learns the dictionary, and held-out rows choose the size
    honest: bool = False  # whether held-out rows set the error bars, where they can
    floored: bool = False  # whether a constant or a ridge takes the place of a linear model that predicts worse
    price: float | None = 0.0  # nats that a function of a model of classes or counts costs; None by their number

    @property
    def shares_precisions(self) -> bool:
        """Whether weights share precisions, in groups or over outputs."""
        return self.groups is not None or self.share_alpha

    @property
    def prior(self) -> GammaPrior:
        """The hyperprior, which the fixed points of T01 may have."""
        return self.solver.hyperprior if isinstance(self.solver, MacKay | EM) else FLAT

    @property
    def max_iter(self) -> int:
        """Most steps of the solver."""
        solver: Any = self.solver
        return int(solver.max_iter)

    def check_elsewhere(self, where: str) -> None:
        super().check_elsewhere(where)
        if self.predictive is not None:
            raise ValueError(f"{where} are fitted with predictive='rvm' alone: 'augmented' keeps the training rows")
        if self.centres != "data":
            raise ValueError(f"centres that move need the rows in memory: with {where} leave centres at 'data'")
        if self.precomputed:
            raise ValueError(f"a precomputed kernel has as many columns as rows: give {where} with the kernel's name")

    def price_among(self, n_candidates: int) -> float:
        """Nats that a function costs: as given, or log M, the nats that name one of M columns."""
        return float(np.log(n_candidates)) if self.price is None else self.price

    @property
    def precomputed(self) -> bool:
        """Whether X holds kernel values."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def interleaved(self) -> Interleaved | None:
        """How widths and precisions are learned in turn, T01 Appendix C; None where they are not."""
        if is_word(self.width, "interleaved"):
            return Interleaved()
        return self.width if isinstance(self.width, Interleaved) else None

    @property
    def tuning_clock(self) -> Clock:
        """The clock of learning widths or moving centres that begins now."""
        return self.clock.part(TUNING_TIME_SHARE)

    def generator(self) -> np.random.Generator:
        """A generator for random centres, by ``random_state``."""
        return np.random.default_rng(check_random_state(self.random_state).randint(2**31))

    def seeds(self, size: int) -> np.ndarray:
        """Seeds of the searches of so many outputs."""
        return check_random_state(self.random_state).randint(2**31, size=size)

    def width_seed(self) -> int:
        """The seed of the draws that widths are learned on."""
        return 0 if self.random_state is None else check_random_state(self.random_state).randint(2**31)

    def width_rule(self, n_features: int) -> str | None:
        """The rule that ``width`` stands for, a word; "given" for numbers, None without a kernel given by name."""
        if not (isinstance(self.kernel, str) and has_width(self.kernel)):
            return None
        if self.interleaved is not None:
            return "interleaved"
        if not isinstance(self.width, str):
            return "given"
        if self.width != "auto":
            return self.width
        return "learn-per-feature" if self.learns_widths and n_features <= MAX_LEARNED_WIDTHS else "scale"

    def _kernel_width(self, n_features: int) -> Any:
        """The width to give the kernel: numbers, or the word that it resolves by itself."""
        if self.interleaved is not None:
            return "learn-per-feature"
        if not isinstance(self.width, str):
            return self.width
        rule = self.width_rule(n_features) or ("scale" if self.width == "auto" else self.width)
        return GRVM_WIDTHS.get(rule, rule)

    def dictionary(self, n_features: int) -> Concat:
        """The candidates before they know their rows: kernel, basis, bias in this order."""
        self._check_dictionary()
        parts: list[Basis] = []
        if self.precomputed:
            parts.append(Precomputed())
        elif self.kernel is not None:
            kernel = as_kernel(self.kernel, self._kernel_width(n_features))
            parts.append(KernelBasis(kernel))
        if self.basis is not None:
            parts.append(as_basis(self.basis))
        if self.fit_intercept:
            parts.append(Bias())
        if not parts:
            raise ValueError("the model is empty: give a kernel, a basis, or fit_intercept=True")
        return Concat(tuple(parts))

    def _check_dictionary(self) -> None:
        if self.centres not in ("data", "move", "grvm"):
            raise ValueError(f"centres must be 'data', 'move' or 'grvm', got {self.centres!r}")
        if self.centres != "data" and self.precomputed:
            raise ValueError("centres that move need the kernel as a function of them, not kernel='precomputed'")
        if self.interleaved is not None and (not self.learns_widths or not isinstance(self.solver, MacKay)):
            raise ValueError(
                "widths and precisions in turn (T01 Appendix C) are for Gaussian noise and end in the fixed point of "
                "T01 eq. (16): with width='interleaved' give solver='mackay', and neither classes nor counts"
            )
        unsaid = isinstance(self.width, str) and self.width in ("auto", "scale")
        if (self.precomputed or self.kernel is None) and not unsaid:
            raise ValueError(f"width belongs to a kernel given by name; with kernel={self.kernel!r} leave it at 'auto'")
        if self.precomputed and self.basis is not None:
            raise ValueError(
                "with kernel='precomputed' X holds kernel values, on which other basis functions make no sense; "
                "pass the inputs themselves with the kernel as a callable, or append columns to X"
            )


def machine_options(given: Mapping[str, Any], *, classes: bool, earlier: EarlierModel | None) -> MachineOptions:
    """Resolve the parameters of a relevance vector machine or a linear model; ValueError where one makes no sense.

    Parameters
    ----------
    given : the parameters of the constructor by name.
    classes : whether the targets are classes.
    earlier : the model that a warm start begins with, or None.
    """
    check_parameters(given)
    likelihood, tol = given["likelihood"], given["tol"]
    counts = likelihood == "poisson"
    asked: Any = as_solver(given["solver"])
    columns = takes_columns(given["kernel"], given["basis"])
    most, labels = given.get("max_functions"), given.get("column_groups")
    shares = bool(given.get("share_alpha", False)) and not classes
    check_size(asked, most)
    solver = asked if classes or counts else as_stepwise(asked, most, columns)
    if shares or labels is not None:
        check_joint(given)
    same = ("width", "centres", "basis", "memory_limit", "random_state")
    return MachineOptions(
        **{name: given[name] for name in same},
        kernel="gaussian" if is_word(given["kernel"], "auto") else given["kernel"],
        clock=Clock(given["time_limit"]),
        max_functions=most,
        groups=None if labels is None else number_groups(labels),
        share_alpha=shares,
        noise="student-t" if likelihood == "student-t" else "constant",
        price=resolve_price(asked, classes, counts, columns),
        fit_intercept=bool(given["fit_intercept"]),
        solver=solver,
        predictive=as_augmented(given["predictive"], classes),
        learns_dictionary=learns_dictionary(given, classes),
        honest=is_word(given["predictive"], "auto"),
        floored=columns and leaves_all_to_search(given, solver, shares or labels is not None),
        noise_variance=given.get("noise_variance"),
        tol=TOL if tol is None else float(tol),
        tol_of_many=TOL_OF_MANY if tol is None else None,
        logs_steps=logs_steps(given["verbose"]),
        learns_widths=not (classes or counts),
        earlier=earlier if given["warm_start"] else None,
    )


def leaves_all_to_search(given: Mapping[str, Any], solver: Solver, shares_precisions: bool) -> bool:
    """Tell whether a linear model is left to the search that is its own: no noise, price or fixed point was given."""
    own = solver in (Sequential(), Stepwise("size", given.get("max_functions")))
    asked = given.get("noise_variance") is not None or given["likelihood"] == "student-t" or shares_precisions
    return own and bool(given["fit_intercept"]) and not asked


def process_options(given: Mapping[str, Any], *, noise: str, earlier: list | None) -> ProcessOptions:
    """Resolve the parameters of a process; ``earlier`` are the processes that a warm start begins with."""
    check_parameters(given)
    return ProcessOptions(
        memory_limit=given["memory_limit"],
        clock=Clock(given["time_limit"]),
        logs_steps=logs_steps(given["verbose"]),
        noise=noise,
        kernel=given.get("kernel", "auto"),
        width=given.get("width", "auto"),
        max_vectors=given["max_vectors"],
        earlier=earlier if given["warm_start"] else None,
    )


def check_size(solver: Solver, most: int | None) -> None:
    """Refuse a limit on functions for a solver whose search has none; ValueError."""
    limited = isinstance(solver, Sequential) and solver.select == "batch"
    if most is not None and not limited:
        raise ValueError(f"max_functions needs the sequential solver, got solver={solver!r}")


def as_stepwise(solver: Solver, most: int | None, columns: bool) -> Solver:
    """The solver for Gaussian noise and the prior over sets of functions that `Sequential` has.

    "auto" is the prior over sizes for columns of X as candidates. A prior that is not flat has a search of its own.
    """
    if not isinstance(solver, Sequential):
        return solver
    others = _options_of_moves(solver)
    prior = _support_prior(solver, columns and not others)
    if prior == "flat" and not solver.price and most is None:
        return solver
    if others:
        raise ValueError(
            f"support_prior='size', price and max_functions have a search of their own, which has no {others[0]}: "
            f"leave {others[0]} of Sequential out"
        )
    most = None if most is None else int(most)
    return Stepwise(prior, most, float(solver.price or 0.0), solver.max_iter)


def _support_prior(solver: Sequential, columns: bool) -> str:
    """Return the prior over sets of functions: "auto" is that over sizes for ``columns`` without a price."""
    if solver.support_prior != "auto":
        return solver.support_prior
    return "size" if columns and solver.price is None else "flat"


def _options_of_moves(solver: Sequential) -> list[str]:
    """Return the options that were given of a search by single moves, and that the prior's own search has not."""
    shared = ("support_prior", "price", "max_iter")
    return [f.name for f in fields(solver) if f.name not in shared and getattr(solver, f.name) != f.default]


def learns_dictionary(given: Mapping[str, Any], classes: bool) -> bool:
    """Whether nothing but the data is to decide on the dictionary of a model and on its size."""
    usual: dict[str, Any] = {
        "kernel": "auto", "width": "auto", "centres": "data", "basis": None, "fit_intercept": True,
        "solver": "sequential", "likelihood": "gaussian", "tol": 1e-3 if classes else None, "share_alpha": False,
    }  # fmt: skip
    usual |= {"multi_class": "multinomial"} if classes else {}
    plain = is_word(given["predictive"], "auto") or is_word(given["predictive"], "rvm")
    return plain and all(type(given[name]) is type(value) and given[name] == value for name, value in usual.items())


def resolve_price(solver: Solver, classes: bool, counts: bool, columns: bool) -> float | None:
    """Nats that a function of a model of classes or counts costs; None where the number of columns decides."""
    if not isinstance(solver, Sequential) or not (classes or counts):
        return 0.0
    if solver.support_prior == "size":
        raise ValueError("support_prior='size' is for Gaussian noise: for classes and counts give a price in nats")
    if solver.price is None:
        plain = solver.support_prior == "auto" and solver.select == "batch" and solver.stop == "certificate"
        return None if classes and columns and plain else 0.0
    return float(solver.price)


def check_joint(given: Mapping[str, Any]) -> None:
    """Refuse parameters beside which weights cannot share precisions."""
    if given["likelihood"] != "gaussian" or given["solver"] != "sequential":
        raise ValueError(
            "column_groups and share_alpha have a search of their own: leave solver at 'sequential' and likelihood at "
            "'gaussian'"
        )


def number_groups(labels: Any) -> np.ndarray:
    """Numbers of the groups of columns (d,) with these labels."""
    found = np.asarray(labels)
    if found.ndim != 1:
        raise ValueError(f"column_groups must hold a label for each column of X (n_features,), got shape {found.shape}")
    return np.unique(found, return_inverse=True)[1].ravel()


def takes_columns(kernel: Any, basis: Any) -> bool:
    """Whether the candidates are columns of X and the constant alone."""
    if kernel is not None or basis is None:
        return False
    try:
        return is_inputs(as_basis(basis))
    except ValueError:  # said in words where the dictionary is made
        return False


def is_word(value: Any, word: str) -> bool:
    """Whether a parameter is a word: arrays are compared with none."""
    return isinstance(value, str) and value == word


def as_augmented(spec: Any, classes: bool) -> Augmented | None:
    """RVM*, where the parameter ``predictive`` asks for it; None is the machine's own distribution.

    >>> as_augmented("augmented", False)
    Augmented(alpha=None, targets='all')
    """
    if is_word(spec, "rvm") or (is_word(spec, "auto") and not classes):
        return None
    found = Augmented() if is_word(spec, "augmented") else spec
    if not isinstance(found, Augmented):
        words = "'rvm'" if classes else "'auto', 'rvm'"
        raise ValueError(f"predictive must be {words}, 'augmented' or an Augmented(), got {spec!r}")
    if classes and isinstance(found.alpha, str):
        raise ValueError("with classes the alpha of Augmented must be None or a positive number, got 'evidence'")
    if classes and found.targets != "all":
        raise ValueError(f"with classes the targets of Augmented must be 'all', got {found.targets!r}")
    return found


def logs_steps(verbose: Any) -> bool:
    """Whether every step goes to the logger."""
    return verbose is not None and verbose >= 2
