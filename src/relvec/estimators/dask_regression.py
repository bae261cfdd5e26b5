"""Fits of rows that Dask holds: the same search, with passes over the rows as reductions on the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec.basis import Basis, Concat, KernelBasis, leaves
from relvec.design import (
    Block,
    DaskSamples,
    DistributedKernelBasis,
    Lookup,
    Rows,
    Summary,
    as_series,
    check_columns,
    compress_rows,
    gathered,
    lazily,
    summarise,
    tall_qr,
    units_of,
)
from relvec.estimators.dictionary import candidates, generator, learned_widths, store_widths
from relvec.estimators.gaussian_fit import (
    GaussianFit,
    ModelRows,
    fit_gaussian,
    gaussian_fits,
    gaussian_in_subsets,
    gaussian_problem,
    gaussian_problems,
    gaussian_target,
    polished_by,
)
from relvec.hyperparameters.widths import Learned
from relvec.inference.process import as_predictive
from relvec.runtime.memory import memory_bytes
from relvec.runtime.progress import stage
from relvec.solvers import Problem, Sequential, Start, as_solver

FEW = 3000  # rows that are brought here and fitted here
_LEARN_ROWS = 20_000  # rows of the sample that widths are learned from


def fit_on_workers(model: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit a regressor to collections of Dask."""
    check_dask(model)
    if as_predictive(model.predictive) is not None:
        raise ValueError("rows of Dask are fitted for predictive='rvm' only: the others keep their training rows")
    model._check_numbers()
    if model._counts:
        from relvec.estimators.dask_classes import fit_counts_on_workers

        fit_counts_on_workers(model, X, y, sample_weight)
        return
    samples = DaskSamples(X, y, sample_weight)
    if samples.n_rows <= FEW:
        model._fit(*gathered(X, y, sample_weight))
        return
    model._forget_parts()
    model._store_features(samples.n_features, samples.names)
    model._of_counts, model._single = False, samples.single

    def learn(basis: Basis, free: np.ndarray, drawn: Any) -> tuple[Learned, list]:
        return _learned(model, samples, basis, free, drawn)

    basis, on_rows, learned, starts = dictionary_of(model, samples, learn)
    if not on_rows:
        summary = samples.reduce(_Summarise(basis), Summary.merged)
        model._begin(summary, samples.single)
        return
    _search(model, DistributedKernelBasis(basis, on_rows[0], samples), learned, starts)


def check_dask(model: Any) -> None:
    """Refuse what no fit to collections of Dask can do."""
    if model.checkpoint is not None:
        raise ValueError("a fit to collections of Dask keeps no checkpoint: leave checkpoint at None")
    if model.device is not None:
        raise ValueError("collections of Dask are fitted where their workers are: leave device at None")
    if model.centres != "data":
        raise ValueError("centres that move need the rows in memory: with Dask leave centres at 'data'")
    if isinstance(model.kernel, str) and model.kernel == "precomputed":
        raise ValueError("a precomputed kernel has as many columns as rows: give Dask the inputs and the kernel's name")


def by_chunk(
    model: Any, method: str, X: Any, names: list[str] | None, dtype: Any = float, parts: int = 0, **options: Any
) -> Any:
    """A method's values for every chunk of a collection of Dask, as such a collection.

    Values are (n,), or (n, q) with these q names. With ``parts`` the method gives as many of them, and so does this.
    """
    outputs = () if names is None else (len(names),)
    values = chunkwise(model, method, X, (*outputs, parts) if parts else outputs, dtype, **options)
    if not parts:
        return as_series(values, X, names)
    return tuple(as_series(values[..., i], X, names) for i in range(parts))


def chunkwise(model: Any, method: str, X: Any, shape: tuple[int, ...], dtype: Any = float, **options: Any) -> Any:
    """A method's values (n, *shape) for every chunk of a collection of Dask, as an array of Dask."""
    check_columns(model, X)
    return lazily(X, _Chunkwise(model, method, shape, dtype, options), shape, dtype)


@dataclass(frozen=True, eq=False)
class _Chunkwise:
    model: Any
    method: str
    shape: tuple[int, ...]
    dtype: Any
    options: dict[str, Any]

    def __call__(self, X: Any) -> np.ndarray:
        if len(X) == 0:
            return np.zeros((0, *self.shape), dtype=self.dtype)
        found = getattr(self.model, self.method)(X, **self.options)
        return np.stack(found, axis=-1) if isinstance(found, tuple) else found


@dataclass(frozen=True, eq=False)
class _Summarise:
    basis: Basis

    def __call__(self, block: Block) -> Summary:
        return summarise(self.basis, block.X, block.targets, block.weights)


def dictionary_of(
    model: Any, samples: DaskSamples, learn: Callable[[Basis, np.ndarray, Any], tuple[Learned, list]]
) -> tuple[Concat, list[int], Learned | None, list]:
    """The dictionary, bound as far as it does not hold rows, and which of its parts are kernels on every row.

    Also how its widths were learned, and the models that learning them ended with, as starts: see ``learn``, which is
    given the dictionary on the rows of a draw, the parameters that are to be learned, and the draw.
    """
    statistics, d = samples.statistics, samples.n_features
    unbound = candidates(model, d)
    parts, free = leaves(unbound), unbound.learned_mask(d)
    # two rows that have the means and variances of all, and two that have their bounds
    deviation = statistics.spread[:d] / np.sqrt(statistics.weight)
    alike, bounds = (
        np.array([statistics.mean[:d] - deviation, statistics.mean[:d] + deviation]),
        np.array([statistics.low, statistics.high]),
    )
    on_rows = [i for i, part in enumerate(parts) if isinstance(part, KernelBasis) and _needs_rows(part)]
    rng = generator(model)
    bound: list[Basis] = []
    for part in parts:
        if isinstance(part, KernelBasis):
            part = replace(part, kernel=part.kernel.resolve(alike))
        bound.append(part.bind(bounds, None, rng))
    basis = Concat(tuple(bound), n_features=d)
    if len(on_rows) > 1:
        raise ValueError(
            "with Dask one kernel may stand on every row: give the others centres, as in "
            "relvec.basis.KernelBasis(kernel, centres=Z)"
        )
    if not free.any() or not np.any(
        units_of(statistics.mean, statistics.spread, statistics.weight, samples.n_targets)[1]
    ):
        return basis, on_rows, None, [None] * samples.n_targets
    drawn = samples.draw(_LEARN_ROWS)
    learned, starts = learn(Concat(tuple(parts)).bind(drawn.X, drawn.weights, rng), free, drawn)
    theta = np.where(free, learned.basis.theta, basis.theta)
    return basis.with_theta(theta), on_rows, learned, starts  # type: ignore[return-value]


def _learned(model: Any, samples: DaskSamples, basis: Basis, free: np.ndarray, drawn: Any) -> tuple[Learned, list]:
    """A dictionary with its widths learned on a draw, and the models that this ended with."""
    statistics, weight = samples.statistics, float(drawn.weights.sum())
    units, variances = units_of(statistics.mean, statistics.spread, statistics.weight, samples.n_targets)
    targets = [
        gaussian_target(gaussian_problem(model, unit, variance, weight, 0), t / unit, drawn.weights)
        for unit, variance, t in zip(units, variances, drawn.targets.T, strict=True)
    ]
    learned = learned_widths(model, basis, free, drawn.X, targets)
    starts = [m if m is None else _lifted(learned.basis, m, drawn, samples.n_rows) for m in learned.models]
    return learned, starts


def _needs_rows(part: KernelBasis) -> bool:
    return part.centres is None and part.n_random is None


@dataclass(frozen=True, eq=False)
class _Sampled:
    """A model of a sample: its atoms in the whole dictionary, its precisions for columns of norm ``scale``."""

    active: np.ndarray
    alpha: np.ndarray
    beta: float
    scale: np.ndarray


def _lifted(basis: Basis, start: Start, drawn: Any, n_rows: int) -> _Sampled:
    """A model of a sample of rows as one of all."""
    atoms = lifted_atoms(basis, start.active, drawn.rows, n_rows)
    columns = basis.take(start.active)(drawn.X) * np.sqrt(drawn.weights)[:, None]
    scale = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    order = np.argsort(atoms)
    return _Sampled(atoms[order], start.alpha[order], start.beta, scale[order])


def lifted_atoms(basis: Basis, atoms: np.ndarray, drawn: np.ndarray, n_rows: int) -> np.ndarray:
    """Atoms (k,) of a dictionary on a draw of rows, with these numbers, as atoms of the one on all rows."""
    rows, others = basis.rows[atoms], np.cumsum(basis.rows < 0) - 1
    return np.where(rows >= 0, drawn[np.maximum(rows, 0)], n_rows + others[atoms])


def _search(
    model: Any, dictionary: DistributedKernelBasis, learned: Learned | None, starts: list[_Sampled | None]
) -> None:
    """Search a dictionary with a kernel on every row, and store the models."""
    solver = as_solver(model.solver)
    if not (isinstance(solver, Sequential) and solver.select == "batch"):
        raise ValueError(
            "with Dask and a kernel on every row the solver must be 'sequential' with select='batch'; over given "
            "centres (relvec.basis.KernelBasis(kernel, centres=Z)) any will do"
        )
    samples, statistics = dictionary.samples, dictionary.samples.statistics
    units, variances = units_of(statistics.mean, statistics.spread, statistics.weight, samples.n_targets)
    scaled, memory = samples.in_units(units), memory_bytes(model.memory_limit)
    with stage("kernel"):
        rows = compress_rows(replace(dictionary, samples=scaled), memory)
    if rows is None:
        _search_subsets(model, dictionary, scaled, memory, learned)
        return
    design, n = rows.design, samples.n_rows
    order: Any = Lookup(dictionary.n_atoms, dictionary.order)
    essential = n + np.arange(dictionary.n_others)
    bias = dictionary.n_atoms - 1 if model.fit_intercept else -1
    fits = []
    for i, problem in enumerate(gaussian_problems(model, units, variances, statistics.weight)):
        problem, start = replace(problem, draw=dictionary.draw), _started(starts[i], rows, problem)

        def exact(active: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
            order = np.argsort(active)
            own = active[order]
            R = tall_qr(scaled, ModelRows(dictionary.take(own), design.scale[own], output))
            return R[:, np.argsort(order)], R[:, -1]

        fits.append(
            fit_gaussian(model, problem, rows, i, exact, order, essential, bias, units[i], variances[i], start)
        )  # fmt: skip
    always = [bias] if bias >= 0 else []
    visited = np.unique(np.concatenate([*(_visited(fit) for fit in fits), always])).astype(np.intp)
    small = dictionary.take(visited)
    _store(model, small, rows, [_renumbered(fit, visited) for fit in fits], samples, dictionary.n_atoms, learned)


def _store(
    model: Any, basis: Concat, rows: Rows, fits: list[GaussianFit], samples: DaskSamples, seen: int,
    learned: Learned | None,
) -> None:  # fmt: skip
    """Keep the models over a small dictionary, of the ``seen`` candidates that were looked at."""
    d, statistics = samples.n_features, samples.statistics
    model._finish(basis, kept_rows(basis, samples), rows, fits, samples.single)
    model.n_candidates_ = seen
    store_widths(model, basis, statistics.spread[:d] ** 2 / statistics.weight, learned)


def kept_rows(basis: Basis, samples: DaskSamples) -> Lookup:
    """The rows of X that kernels of a small dictionary stand on."""
    kernels = [part for part in leaves(basis) if isinstance(part, KernelBasis) and np.all(part.rows >= 0)]
    centres = {row: z for kernel in kernels for row, z in zip(kernel.rows.tolist(), kernel.order_keys(), strict=True)}  # type: ignore[arg-type]

    def find(rows: np.ndarray) -> np.ndarray:
        return np.array([centres[row] for row in rows.tolist()]).reshape(-1, samples.n_features)

    return Lookup(samples.statistics.n_rows, find)


def _search_subsets(
    model: Any, dictionary: DistributedKernelBasis, samples: DaskSamples, memory: float, learned: Learned | None
) -> None:
    """Search a dictionary without low rank in subsets, and store the models."""
    units, variances = units_of(
        samples.statistics.mean, samples.statistics.spread, samples.statistics.weight, samples.n_targets
    )
    problems = gaussian_problems(model, units, variances, samples.statistics.weight)

    def fitted(part: Basis, rows: Rows, starts: list | None, first: bool) -> list[GaussianFit]:
        exact = polished_by(samples, part, rows)
        return gaussian_fits(model, part, rows, problems, units, variances, starts, exact, first)

    fits, basis, rows = gaussian_in_subsets(model, dictionary, samples, None, memory, fitted)
    assert isinstance(basis, Concat)
    _store(model, basis, rows, fits, samples, model.n_candidates_, learned)


def _started(start: _Sampled | None, rows: Rows, problem: Problem) -> Start | None:
    if start is None or not start.active.size:
        return None
    scale = rows.design.scale[start.active]
    kept = scale > 0.0
    alpha = start.alpha[kept] * (start.scale[kept] / scale[kept]) ** 2
    return Start(
        start.active[kept], alpha, 1.0 / (problem.noise_variance or max(1.0 / start.beta, problem.noise_floor))
    )


def _visited(fit: GaussianFit) -> np.ndarray:
    atoms = [step.atom for step in fit.result.history if step.atom >= 0]
    return np.union1d(fit.result.state.active, np.array(atoms, dtype=np.intp))


def _renumbered(fit: GaussianFit, visited: np.ndarray) -> GaussianFit:
    """The fit with the atoms ``visited`` (k,) as its dictionary."""
    result = fit.result
    history = renumbered_history(result.history, lambda atoms: np.searchsorted(visited, atoms))
    state = replace(result.state, active=np.searchsorted(visited, result.state.active))
    return replace(fit, result=replace(result, state=state, history=history), scale=fit.scale[visited])


def renumbered_history(history: list, renumber: Callable[[np.ndarray], np.ndarray]) -> list:
    """The steps of a fit with other numbers of their atoms."""
    return [replace(step, atom=int(renumber(np.array(step.atom))) if step.atom >= 0 else -1) for step in history]
