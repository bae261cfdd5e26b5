"""The best model with k functions for every k: evidence, density at rows that took no part, and the functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.utils import _safe_indexing, check_consistent_length

from relvec.basis import atom_keys
from relvec.estimators.gp import GPRegressor
from relvec.estimators.machine import Machine, MachineClassifier
from relvec.estimators.rvm import RelevanceVectorClassifier, RelevanceVectorRegressor
from relvec.runtime.arrays import RowsLike, TargetsLike, refuse_masked
from relvec.solvers import Sequential, as_solver

MAX_PATH_FUNCTIONS = 50  # of a path whose length is not given: longer ones take minutes, and are hard to read
PROCESS_SIZES = (2, 5, 10, 20, 50, 100, 200)  # vectors of the processes beside a path, up to its length


@dataclass(frozen=True, eq=False)
class RelevancePath:
    """What `relevance_path` found. Printed, it is a table.

    Attributes
    ----------
    sizes : (K,) most functions of each model, the constant not counted: 1 to K.
    log_evidence : (K,) log evidence of the best model with no more functions; it never falls.
    log_density : (K,) mean log predictive density, for classes the log probability, at rows that took no part, in
        folds; nan where there were none.
    models : the K fitted estimators. ``models[k - 1]`` is the best found with up to k functions.
    process_sizes, process_log_density : (P,) vectors of processes beside the path, and their densities at the same
        rows; empty where none were asked for.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianRegressor, relevance_path
    >>> X = np.random.default_rng(0).normal(size=(40, 5))
    >>> path = relevance_path(X, X[:, 3] - X[:, 1], SparseBayesianRegressor(), max_functions=2, n_folds=0)
    >>> len(path.sizes)
    2
    """

    sizes: np.ndarray
    log_evidence: np.ndarray
    log_density: np.ndarray
    models: list
    process_sizes: np.ndarray
    process_log_density: np.ndarray

    @property
    def functions(self) -> list[list[str]]:
        """Names of the functions of each model, the constant left out."""
        return [[name for name in model.atoms_ if name != "bias"] for model in self.models]

    @property
    def best(self) -> Machine:
        """The smallest of the models whose density at rows that took no part is the largest."""
        if np.isnan(self.log_density).all():
            raise ValueError("densities were not computed: give relevance_path n_folds=2 or more")
        return self.models[int(np.nanargmax(self.log_density))]

    def __str__(self) -> str:
        lines = ["functions  log evidence  log density  added"]
        before: set[str] = set()
        for size, evidence, density, names in zip(
            self.sizes, self.log_evidence, self.log_density, self.functions, strict=True
        ):
            added = ", ".join(name for name in names if name not in before)
            lines.append(f"{size:9d}  {evidence:12.2f}  {density:11.3f}  {added}".rstrip())
            before = set(names)
        return "\n".join(lines)


def relevance_path(
    X: RowsLike, y: TargetsLike, estimator: Machine | None = None, *, max_functions: int | None = None,
    n_folds: int = 5, sample_weight: ArrayLike | None = None, beside_process: bool = False,
) -> RelevancePath:  # fmt: skip
    """Return the best model with at most k functions for every k.

    Widths are those of the plain fit, the model of any number of functions; of ``RVR()`` the dictionary it chose. The
    model of size k is the best of searches by additions, deletions and exchanges that start from nothing, from the
    plain fit cut down to k functions, and from the models of sizes k - 1 and k + 1. Its evidence is never below that of
    the plain fit cut down to its k functions of largest gain, largest weight or smallest precision, with the precisions
    estimated again.

    For classes the functions of the plain fit are left out one after the other, always the one whose weights are
    smallest in units of their standard deviations, and the precisions estimated again: a path of subsets, no lower than
    the plain fit cut down in that order. A function counts once, however many classes have it.

    Parameters
    ----------
    X : array-like or scipy.sparse matrix (n_samples, n_features)
    y : array-like (n_samples,)
    estimator : RVR, RVC, SparseBayesianRegressor or SparseBayesianClassifier, optional
        A model of classes or under Gaussian noise; neither fitted nor changed. By default ``RVR()``.
    max_functions : int, optional
        Largest size K; by default that of the plain fit, or 50 if it is smaller.
    n_folds : int, default 5
        Folds for the densities, each with a path of its own, widths included; 0 for none.
    sample_weight : array-like (n_samples,), optional
    beside_process : bool, default False
        Whether `GPRegressor` of 2, 5, 10, ... vectors is fitted in the same folds; of numbers only.

    Returns
    -------
    path : RelevancePath

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import SparseBayesianRegressor, relevance_path
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> y = 3.0 * X[:, 2] + X[:, 5] + 0.1 * np.cos(9.0 * X[:, 0])
    >>> path = relevance_path(X, y, SparseBayesianRegressor(), max_functions=2, n_folds=0)
    >>> path.functions
    [['x2'], ['x2', 'x5']]
    """
    plain = RelevanceVectorRegressor() if estimator is None else clone(estimator)
    given = plain.get_params() if isinstance(plain, Machine) else {"likelihood": None}
    if given.get("likelihood", "gaussian") != "gaussian":
        raise ValueError(f"a relevance path needs a relevance vector machine or a linear model, of classes or under "
                         f"Gaussian noise, got {plain!r}")  # fmt: skip
    classes = isinstance(plain, MachineClassifier)
    if beside_process and (classes or not n_folds):
        raise ValueError("beside_process compares densities of numbers: give no classes, and n_folds=2 or more")
    if np.ndim(y) != 1:
        raise ValueError(f"relevance_path needs one target: y must have the shape (n_samples,), got {np.shape(y)}")
    check_consistent_length(X, y, sample_weight)
    y, ones = np.asarray(refuse_masked(y, sample_weight)), np.ones(len(y))
    weights = ones if sample_weight is None else np.asarray(sample_weight, dtype=float)
    if "predictive" in given:
        plain.set_params(predictive="rvm")
    if not classes:
        plain.set_params(max_functions=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of models that are looked at on the way
        models = (_eliminate if classes else _models)(plain, X, y, weights, max_functions)
        density = _densities(plain, X, y, weights, len(models), n_folds)
        sizes = [m for m in PROCESS_SIZES if m <= len(models)] if beside_process else []
        beside = _densities_of_processes(X, y, weights, sizes, n_folds)
    evidence = np.array([np.sum(model.log_marginal_likelihood_) for model in models])
    return RelevancePath(np.arange(1, len(models) + 1), evidence, density, models, np.array(sizes, dtype=int), beside)


def _models(plain: Machine, X: ArrayLike, y: np.ndarray, weights: np.ndarray, most: int | None) -> list[Machine]:
    """Return fitted models of at most 1, 2, ... functions."""
    plain = clone(plain).fit(X, y, weights)
    size = sum(name != "bias" for name in plain.atoms_)
    most = max(1, min(size, MAX_PATH_FUNCTIONS)) if most is None else most
    settings: dict[str, object] = {"solver": Sequential(support_prior="flat"), "warm_start": True}
    choices = plain.fitted_.choices
    if choices is not None:
        settings |= {"kernel": None, "basis": choices[0].dictionary}
    elif plain.fitted_.width_rule is not None:
        settings |= {"kernel": plain.kernel_, "width": "auto"}

    def fit(k: int, start: Machine) -> Machine:
        """Fit a model of at most k functions, by a search that starts from another model too."""
        model = clone(plain).set_params(**settings, max_functions=k)
        model.fitted_ = start.fitted_
        return model.fit(X, y, weights)

    models = [fit(k, plain) for k in range(1, most + 1)]
    for k in range(2, most + 1):
        models[k - 1] = _better(models[k - 1], fit(k, models[k - 2]), models[k - 2])
    for k in range(most - 1, 0, -1):
        models[k - 1] = _better(models[k - 1], fit(k, models[k]))
    for k in range(2, most + 1):
        models[k - 1] = _better(models[k - 1], models[k - 2])  # a model of fewer functions is one of at most k too
    return models


def _eliminate(plain: Machine, X: ArrayLike, y: np.ndarray, weights: np.ndarray, most: int | None) -> list[Machine]:
    """Return fitted models of classes of at most 1, 2, ... functions of the plain fit."""
    plain = clone(plain).fit(X, y, weights)
    whole, solver = plain.basis_, without_price(as_solver(plain.solver))
    numbers = {key: number for number, key in enumerate(atom_keys(whole))}
    own, others = plain.get_params(), ("kernel", "width", "centres", "basis", "solver")
    same = {name: value for name, value in own.items() if name not in others}
    order = kept = _rank_functions(plain, numbers)
    most = max(1, min(len(order), MAX_PATH_FUNCTIONS)) if most is None else most

    def fit(atoms: list[int]) -> Machine:
        """Fit a model of some functions of the plain fit, and the constant."""
        model = RelevanceVectorClassifier(kernel=None, basis=whole.take(np.sort(atoms)), solver=solver)
        return model.set_params(**same).fit(X, y, weights)

    models = [plain] * most
    for k in range(most, 0, -1):
        models[k - 1] = cut = fit(order[:k])
        if kept[:k] != order[:k]:
            models[k - 1] = _better(cut, fit(kept[:k]))
        kept = _rank_functions(models[k - 1], numbers)
    for k in range(2, most + 1):
        models[k - 1] = _better(models[k - 1], models[k - 2])
    return models


def without_price(solver: object) -> object:
    """Return the solver for a few functions that are all to be kept if they help: no restarts, nothing to pay."""
    return replace(solver, restarts=0, price=0.0, support_prior="auto") if isinstance(solver, Sequential) else solver


def _rank_functions(model: Machine, numbers: dict) -> list[int]:
    """Return the numbers of a model's functions, the largest weights in units of their standard deviations first."""
    fitted = model.fitted_
    variance = np.concatenate([np.diagonal(part) for part in fitted.covariances]).reshape(fitted.weights.shape)
    size = np.sum(fitted.weights**2 / np.where(variance > 0.0, variance, np.inf), axis=0)
    keys, names = atom_keys(fitted.basis), model.atoms_
    return [numbers[keys[i]] for i in np.argsort(-size, kind="stable") if names[i] != "bias"]


def _log_densities(model: Machine | GPRegressor, X: ArrayLike, y: np.ndarray) -> np.ndarray:
    """Log density of targets, or log probability of classes, (n,)."""
    if not isinstance(model, MachineClassifier):
        return model.log_predictive_density(X, y)
    return model.predict_log_proba(X)[np.arange(len(y)), np.searchsorted(model.classes_, y)]


def _better(*models: Machine) -> Machine:
    return max(models, key=lambda model: np.sum(model.log_marginal_likelihood_))


Makers = Callable[[RowsLike, np.ndarray, np.ndarray], list]  # of models of some rows, targets and weights


def _densities(plain: Machine, X: ArrayLike, y: np.ndarray, weights: np.ndarray, most: int, n_folds: int) -> np.ndarray:
    """Return the mean log density (K,) of rows in folds that took no part, under the models of each size."""
    classes = isinstance(plain, MachineClassifier)
    find = _eliminate if classes else _models
    make: Makers = lambda X, y, weights: find(plain, X, y, weights, most)  # noqa: E731
    return _in_folds(make, X, y, weights, most, n_folds, StratifiedKFold if classes else KFold)


def _densities_of_processes(
    X: ArrayLike, y: np.ndarray, weights: np.ndarray, sizes: list[int], n_folds: int
) -> np.ndarray:
    """Return the same (P,) under processes with as many vectors."""
    make: Makers = lambda X, y, weights: [GPRegressor(max_vectors=m).fit(X, y, weights) for m in sizes]  # noqa: E731
    return _in_folds(make, X, y, weights, len(sizes), n_folds, KFold)


def _in_folds(
    make: Makers, X: ArrayLike, y: np.ndarray, weights: np.ndarray, n_models: int, n_folds: int, kind: type
) -> np.ndarray:
    if not n_folds or not n_models:
        return np.full(n_models, np.nan)
    total = np.zeros(n_models)
    for train, test in kind(n_folds, shuffle=True, random_state=0).split(y, y):
        models = make(_safe_indexing(X, train), y[train], weights[train])
        total += [weights[test] @ _log_densities(model, _safe_indexing(X, test), y[test]) for model in models]
    return total / weights.sum()
