"""The parameters of an estimator, checked and resolved once, before a fit begins."""

from __future__ import annotations

import numbers
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from relvec.basis import Basis, Bias, Concat, KernelBasis, Precomputed, as_basis, atom_keys, is_inputs
from relvec.gaussian_process import Scale
from relvec.inference.predictive import Augmented
from relvec.inference.priors import FLAT, GammaPrior
from relvec.inference.process import Process, as_predictive
from relvec.kernels import as_kernel, has_width
from relvec.runtime.arrays import Array, to_host, unique_rows
from relvec.runtime.machine import memory_bytes
from relvec.solvers import Sequential, Solver, Stepwise, as_solver
from relvec.solvers.loop import TOL, TOL_OF_MANY

MAX_LEARNED_WIDTHS = 32  # features: width="auto" learns one width for each up to so many
GRVM_WIDTHS = {"grvm": "learn", "grvm-per-feature": "learn-per-feature"}  # and the width that the kernel starts from
TUNING_TIME_SHARE = 0.7  # of a time limit: learning widths and moving centres leave the rest to the search


@dataclass(frozen=True, eq=False)
class EarlierModel:
    """The model that a warm start begins with."""

    basis: Basis  # the m functions that were kept
    alpha: np.ndarray  # (K, m) their precisions in each output; inf where a function is not in its model
    noise_variance: np.ndarray  # (K,) nan where there is no noise
    theta: np.ndarray | None = None  # (p,) logarithms of the kernels' parameters of the whole dictionary, or None
    processes: list | None = None  # the processes of all outputs, where the kernel was chosen by merit; else None

    def without_functions(self) -> EarlierModel:
        """The parameters of kernels and processes alone."""
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


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Everything that a fit is told besides its data."""

    # the dictionary of candidates, as the estimator was given it
    kernel: Any
    width: Any
    centres: str
    basis: Any
    fit_intercept: bool
    solver: Solver  # the solver object
    predictive: Augmented | Process | None  # the predictive distribution; None for the RVM's own
    noise_variance: float | None  # fixed noise variance, or None to learn it
    prior: GammaPrior  # Gamma hyperprior
    # nats that no single move may gain any more, the second for models of many functions or None
    tol: float
    tol_of_many: float | None
    max_iter: int  # most steps of the solver
    memory_limit: Any  # as given; a valid one
    # as given
    device: str | None
    random_state: Any
    logs_steps: bool  # whether every step goes to the logger
    learns_widths: bool  # whether ``width="auto"`` may learn widths: with counts and classes it does not
    earlier: EarlierModel | None = None  # the model of a warm start
    chooses_kernel: bool = False  # whether the fit chooses a process, where the rows allow for it
    classifies: bool = False  # whether targets are classes
    max_vectors: int | None = None  # most distinct rows that a process keeps, or None
    time_limit: float | None = None  # seconds for the whole fit, or None
    max_functions: int | None = None  # most functions of an RVM, the constant not counted, or None
    groups: np.ndarray | None = None  # (d,) numbers of the groups of columns that have one precision, or None
    share_alpha: bool = False  # whether outputs of a regression share their precisions
    noise: str = "auto"  # or "constant", "student-t", "heteroscedastic", "censored"
    target_scale: Scale | None = None  # on which a process takes the target; None where it may choose
    complexity_price: float | None = 0.0  # nats that a function of a model of classes costs; None by their number

    @property
    def shares_precisions(self) -> bool:
        """Whether weights share precisions, in groups or over outputs."""
        return self.groups is not None or (self.share_alpha and not self.classifies)

    @property
    def asks_class_process(self) -> bool:
        """Whether classes are to have a process, whatever the rows are."""
        return self.classifies and isinstance(self.predictive, Process)

    def price_among(self, n_candidates: int) -> float:
        """Nats that a function costs: as given, or log M, the nats that name one of M columns."""
        return float(np.log(n_candidates)) if self.complexity_price is None else self.complexity_price

    @property
    def precomputed(self) -> bool:
        """Whether X holds kernel values."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def memory(self) -> float:
        """Bytes of the memory limit."""
        return memory_bytes(self.memory_limit)

    @property
    def tuning_deadline(self) -> float:
        """When, in the time of `time.monotonic`, learning widths or moving centres that begins now has to end."""
        limit = self.solver.time_limit
        return np.inf if limit is None else time.monotonic() + TUNING_TIME_SHARE * limit

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
        if not isinstance(self.width, str):
            return "given"
        if self.width != "auto":
            return self.width
        return "learn-per-feature" if self.learns_widths and n_features <= MAX_LEARNED_WIDTHS else "scale"

    def _kernel_width(self, n_features: int) -> Any:
        """The width to give the kernel: numbers, or the word that it resolves by itself."""
        if not isinstance(self.width, str):
            return self.width
        rule = self.width_rule(n_features) or ("scale" if self.width == "auto" else self.width)
        return GRVM_WIDTHS.get(rule, rule)

    def dictionary(self, n_features: int, on_device: Array | None = None) -> Concat:
        """The candidates before they know their rows, but for those on a device: kernel, basis, bias in this order."""
        self._check_dictionary()
        parts: list[Basis] = []
        if self.precomputed:
            parts.append(Precomputed())
        elif self.kernel is not None:
            kernel = as_kernel(self.kernel, self._kernel_width(n_features))
            if on_device is not None:
                centres, first, _ = map(to_host, unique_rows(on_device))
                parts.append(KernelBasis(kernel, centres.astype(np.float64, copy=False), centre_rows=first))
            else:
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
        unsaid = isinstance(self.width, str) and self.width in ("auto", "scale")
        if (self.precomputed or self.kernel is None) and not unsaid:
            raise ValueError(f"width belongs to a kernel given by name; with kernel={self.kernel!r} leave it at 'auto'")
        if self.precomputed and self.basis is not None:
            raise ValueError(
                "with kernel='precomputed' X holds kernel values, on which other basis functions make no sense; "
                "pass the inputs themselves with the kernel as a callable, or append columns to X"
            )


def resolve_options(
    parameters: Mapping[str, Any], learns_widths: bool, earlier: EarlierModel | None,
    has_default_tol: bool = False,
) -> FitOptions:  # fmt: skip
    """The options of an estimator with these parameters; a ValueError where one of them makes no sense.

    Parameters
    ----------
    parameters : those of the constructor by name.
    learns_widths : see `FitOptions`.
    earlier : the model of the last fit; it counts where ``warm_start`` is set.
    has_default_tol : whether tol may be None, for a tolerance that depends on the size of the model.
    """
    check_numbers(parameters, has_default_tol)
    tol, limit = parameters["tol"], parameters.get("time_limit")
    solver: Any = as_solver(parameters["solver"])
    if limit is not None and solver.time_limit is None:
        solver = replace(solver, time_limit=limit)
    solver = as_stepwise(parameters, solver)
    same = ("width", "centres", "basis", "memory_limit", "device", "random_state")
    kernel, predictive = resolve_kernel(parameters)
    return FitOptions(
        **{key: parameters[key] for key in same},
        kernel=kernel,
        chooses_kernel=chooses_kernel(parameters),
        classifies="multi_class" in parameters,
        max_vectors=parameters.get("max_vectors"),
        time_limit=limit,
        max_functions=parameters.get("max_functions"),
        groups=resolve_groups(parameters),
        share_alpha=bool(parameters.get("share_alpha", False)),
        noise=resolve_noise(parameters),
        complexity_price=resolve_price(parameters, solver),
        fit_intercept=bool(parameters["fit_intercept"]),
        solver=solver,
        predictive=as_predictive(predictive) if predictive != "rvm" else None,
        noise_variance=parameters.get("noise_variance"),
        prior=resolve_prior(parameters["hyperprior"]),
        tol=TOL if tol is None else float(tol),
        tol_of_many=TOL_OF_MANY if tol is None else None,
        max_iter=int(parameters["max_iter"]),
        logs_steps=bool(parameters["verbose"]) and not isinstance(parameters["verbose"], str),
        learns_widths=learns_widths,
        earlier=earlier if parameters["warm_start"] else None,
    )


def as_stepwise(parameters: Mapping[str, Any], solver: Solver) -> Solver:
    """The solver for the sets of functions that ``support_prior`` and ``max_functions`` allow.

    "auto" is a prior over sizes for columns of X as candidates, a Gaussian likelihood and the default solver.
    """
    prior, most = parameters.get("support_prior", "flat"), parameters.get("max_functions")
    plain = isinstance(solver, Sequential) and solver == replace(Sequential(), time_limit=solver.time_limit)
    # fits under student-t noise and of censored targets are those of weighted rows under normal noise
    gaussian = parameters.get("likelihood", "gaussian") != "poisson" and parameters["hyperprior"] is None
    if _is_auto(prior):
        prior = "size" if plain and gaussian and takes_columns(parameters["kernel"], parameters["basis"]) else "flat"
    if prior not in ("flat", "size"):
        raise ValueError(f"support_prior must be 'auto', 'flat' or 'size', got {parameters['support_prior']!r}")
    if prior == "flat" and most is None:
        return solver
    if not plain or not gaussian:
        raise ValueError(
            "support_prior='size' and max_functions use a separate search, which likelihood='poisson' does not have: "
            "leave solver at 'sequential' and hyperprior at None"
        )
    return Stepwise(prior, None if most is None else int(most), solver.time_limit)


def resolve_price(parameters: Mapping[str, Any], solver: Solver) -> float | None:
    """Nats that a function of a model of classes costs; None where the number of columns decides."""
    price = parameters.get("complexity_price", 0.0)
    if not _is_auto(price):
        return float(price)
    columns = takes_columns(parameters["kernel"], parameters["basis"])
    return None if columns and isinstance(solver, Sequential) else 0.0


def resolve_groups(parameters: Mapping[str, Any]) -> np.ndarray | None:
    """Numbers of the groups of columns (d,); None where every weight has a precision of its own."""
    groups, shares = parameters.get("groups"), parameters.get("share_alpha", False) and "multi_class" not in parameters
    if groups is None and not shares:
        return None
    gaussian = parameters.get("likelihood", "gaussian") == "gaussian" and parameters["hyperprior"] is None
    if not gaussian or parameters.get("noise") == "heteroscedastic" or parameters["solver"] != "sequential":
        raise ValueError(
            "groups and share_alpha use a separate search, which needs likelihood='gaussian' and noise='constant': "
            "leave solver at 'sequential' and hyperprior at None"
        )
    if groups is None:
        return None
    if not takes_columns(parameters["kernel"], parameters["basis"]):
        raise ValueError("groups are groups of columns of X: they need kernel=None and basis='linear'")
    labels = np.asarray(groups)
    if labels.ndim != 1:
        raise ValueError(f"groups must hold a label for each column of X (n_features,), got shape {labels.shape}")
    return np.unique(labels, return_inverse=True)[1].ravel()


def takes_columns(kernel: Any, basis: Any) -> bool:
    """Whether the candidates are columns of X and the constant alone."""
    if kernel is not None or basis is None:
        return False
    try:
        return is_inputs(as_basis(basis))
    except ValueError:  # said in words where the dictionary is made
        return False


def chooses_kernel(parameters: Mapping[str, Any]) -> bool:
    """Whether nothing but the data is to decide on the kernel: see the estimators."""
    if not (_is_auto(parameters["kernel"]) and _is_auto(parameters["predictive"])):
        return False
    given: dict[str, Any] = {
        "width": "auto", "centres": "data", "basis": None, "likelihood": "gaussian", "noise_variance": None,
        "hyperprior": None, "fit_intercept": True, "solver": "sequential", "tol": None,
        "support_prior": "auto", "max_functions": None, "groups": None, "share_alpha": False,
    }  # fmt: skip
    if "multi_class" in parameters:
        given = {name: value for name, value in given.items() if name in parameters}
        given |= {
            "device": None,
            "tol": 1e-3,
            "multi_class": "multinomial",
            "share_alpha": False,
            "averaging": "posterior",
            "complexity_price": 0.0,
        }
    if parameters.get("likelihood") in ("student-t", "censored"):
        del given["likelihood"]
    parameters = parameters | {"device": None} if _is_auto(parameters["device"]) else parameters  # type: ignore[operator]
    return all(isinstance(parameters[key], type(value)) and parameters[key] == value for key, value in given.items())


def resolve_noise(parameters: Mapping[str, Any]) -> str:
    """The noise of a regression in one word: "auto", "constant", "student-t", "heteroscedastic" or "censored"."""
    likelihood, noise = parameters.get("likelihood", "gaussian"), parameters.get("noise", "auto")
    if noise not in ("auto", "constant", "heteroscedastic"):
        raise ValueError(f"noise must be 'auto', 'constant' or 'heteroscedastic', got {noise!r}")
    if noise == "heteroscedastic" and likelihood != "gaussian":
        raise ValueError(f"noise='heteroscedastic' is for likelihood='gaussian', got {likelihood!r}")
    return likelihood if likelihood in ("student-t", "censored") else noise


def _is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def resolve_kernel(parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    """The kernel and the predictive distribution of an RVM, "auto" replaced by its meaning there."""
    kernel, predictive = parameters["kernel"], parameters["predictive"]
    return "gaussian" if _is_auto(kernel) else kernel, "rvm" if _is_auto(predictive) else predictive


def check_numbers(parameters: Mapping[str, Any], has_default_tol: bool) -> None:
    """Refuse scalar parameters that make no sense, with errors that say what was expected."""

    def positive(value: Any) -> bool:
        return isinstance(value, numbers.Real) and 0 < float(value) < np.inf

    def zero(value: Any) -> bool:
        return isinstance(value, numbers.Real) and value == 0

    def counts(value: Any) -> bool:
        return isinstance(value, numbers.Integral) and int(value) >= 1

    memory_bytes(parameters["memory_limit"])
    rules: dict[str, tuple[str, Callable[[Any], bool]]] = {
        "tol": ("a positive number (nats)", lambda v: positive(v) or (v is None and has_default_tol)),
        "max_iter": ("an integer >= 1", counts),
        "max_vectors": ("None or an integer >= 1", lambda v: v is None or counts(v)),
        "max_functions": ("None or an integer >= 1", lambda v: v is None or counts(v)),
        "time_limit": ("None or a positive number of seconds", lambda v: v is None or positive(v)),
        "complexity_price": ("a number of nats, 0 or more, or 'auto'", lambda v: _is_auto(v) or positive(v) or zero(v)),
        "verbose": ("None, 'progress', True, False or a number", lambda v: not isinstance(v, str) or v == "progress"),
        "fit_intercept": ("True or False", lambda v: isinstance(v, bool | np.bool_)),
        "noise_variance": ("None (learned) or a positive number", lambda v: v is None or positive(v)),
    }
    for name, (expected, fits) in rules.items():
        if name in parameters and not fits(parameters[name]):
            raise ValueError(f"{name} must be {expected}, got {parameters[name]!r}")


def resolve_prior(hyperprior: Any) -> GammaPrior:
    """The hyperprior as an object."""
    if hyperprior is None:
        return FLAT
    if isinstance(hyperprior, GammaPrior):
        return hyperprior
    if isinstance(hyperprior, dict) and set(hyperprior) <= set("abcd"):
        return GammaPrior(**hyperprior)
    raise ValueError(
        f"hyperprior must be None, a relvec.GammaPrior or a dict with keys among a, b, c, d, got {hyperprior!r}"
    )
