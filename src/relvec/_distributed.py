"""Fits of rows that Dask holds: the same search, with passes over the rows as reductions on the workers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relvec._base import GaussianFit, fit_gaussian, gaussian_problem, gaussian_target, memory_bytes
from relvec.basis import Basis, Concat, KernelBasis
from relvec.design import (
    Block,
    DaskSamples,
    Lookup,
    RowKernel,
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
from relvec.process import as_predictive
from relvec.progress import stage
from relvec.solvers import Problem, Sequential, Start, as_solver
from relvec.tune import Learned

_FEW = 3000  # rows that are brought here and fitted here
_LEARN_ROWS = 20_000  # rows of the sample that widths are learned from


def fit_on_workers(model: Any, X: Any, y: Any, sample_weight: Any) -> None:
    """Fit a regressor to collections of Dask."""
    if model._counts or as_predictive(model.predictive) is not None:
        raise ValueError("rows of Dask are fitted for likelihood='gaussian' with predictive='rvm' only")
    if isinstance(model.kernel, str) and model.kernel == "precomputed":
        raise ValueError("a precomputed kernel has as many columns as rows: give Dask the inputs and the kernel's name")
    model._check_numbers()
    samples = DaskSamples(X, y, sample_weight)
    if samples.n_rows <= _FEW:
        model._fit(*gathered(X, y, sample_weight))
        return
    model._forget_parts()
    model._of_counts, model._single = False, samples.single
    model.n_features_in_ = samples.n_features
    model.__dict__.pop("feature_names_in_", None)
    if samples.names is not None:
        model.feature_names_in_ = np.array(samples.names, dtype=object)
    basis, on_rows, learned, starts = _dictionary(model, samples)
    if not on_rows:
        summary = samples.reduce(_Summarise(basis), Summary.merged)
        model._begin(summary, samples.single)
        return
    _search(model, RowKernel(basis, on_rows[0], samples), learned, starts)


def by_chunk(
    model: Any, method: str, X: Any, names: list[str] | None, dtype: Any = float, parts: int = 0, **options: Any
) -> Any:
    """A method's values for every chunk of a collection of Dask, as such a collection.

    Values are (n,), or (n, q) with these q names. With ``parts`` the method gives as many of them, and so does this.
    """
    check_columns(model, X)
    outputs = () if names is None else (len(names),)
    shape = (*outputs, parts) if parts else outputs
    values = lazily(X, _Chunkwise(model, method, shape, dtype, options), shape, dtype)
    if not parts:
        return as_series(values, X, names)
    return tuple(as_series(values[..., i], X, names) for i in range(parts))


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


def _dictionary(model: Any, samples: DaskSamples) -> tuple[Concat, list[int], Learned | None, list]:
    """The dictionary, bound as far as it does not hold rows, and which of its parts are kernels on every row.

    Also how its widths were learned, and the models that learning them ended with, as starts.
    """
    facts, d = samples.facts, samples.n_features
    unbound = model._unbound(d)
    parts, free = _leaves(unbound), unbound.learned(d)
    # two rows that have the means and variances of all, and two that have their bounds
    deviation = facts.spread[:d] / np.sqrt(facts.weight)
    alike, bounds = (
        np.array([facts.mean[:d] - deviation, facts.mean[:d] + deviation]),
        np.array([facts.low, facts.high]),
    )
    on_rows = [i for i, part in enumerate(parts) if isinstance(part, KernelBasis) and _needs_rows(part)]
    rng = model._generator()
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
    if not free.any() or not np.any(units_of(facts.mean, facts.spread, facts.weight, samples.n_targets)[1]):
        return basis, on_rows, None, [None] * samples.n_targets
    drawn = samples.draw(_LEARN_ROWS)
    weight = float(drawn.weights.sum())
    units, variances = units_of(facts.mean, facts.spread, facts.weight, samples.n_targets)
    few = Concat(tuple(parts)).bind(drawn.X, drawn.weights, rng)
    targets = [
        gaussian_target(gaussian_problem(model, unit, variance, weight, 0), t / unit, drawn.weights)
        for unit, variance, t in zip(units, variances, drawn.targets.T, strict=True)
    ]
    learned = model._learned(few, free, drawn.X, targets)
    theta = np.where(free, learned.basis.theta, basis.theta)
    starts = [_lifted(learned.basis, start, drawn, samples.n_rows) for start in learned.models]
    return basis.with_theta(theta), on_rows, learned, starts  # type: ignore[return-value]


def _leaves(basis: Basis) -> list[Basis]:
    return [leaf for part in basis.parts for leaf in _leaves(part)] if isinstance(basis, Concat) else [basis]


def _needs_rows(part: KernelBasis) -> bool:
    return part.centres is None and part.n_random is None


@dataclass(frozen=True, eq=False)
class _Sampled:
    """A model of a sample: its atoms in the whole dictionary, its precisions for columns of norm ``scale``."""

    active: np.ndarray
    alpha: np.ndarray
    beta: float
    scale: np.ndarray


def _lifted(basis: Basis, start: Start, drawn: Any, n_rows: int) -> _Sampled | None:
    """A model of a sample of rows as one of all."""
    rows = basis.rows[start.active]
    others = np.cumsum(basis.rows < 0) - 1
    atoms = np.where(rows >= 0, drawn.rows[np.maximum(rows, 0)], n_rows + others[start.active])
    columns = basis.take(start.active)(drawn.X) * np.sqrt(drawn.weights)[:, None]
    scale = np.sqrt(np.einsum("ij,ij->j", columns, columns))
    order = np.argsort(atoms)
    return _Sampled(atoms[order], start.alpha[order], start.beta, scale[order])


def _search(model: Any, dictionary: RowKernel, learned: Learned | None, starts: list[_Sampled | None]) -> None:
    """Search a dictionary with a kernel on every row, and store the models."""
    solver = as_solver(model.solver)
    if not (isinstance(solver, Sequential) and solver.select == "batch"):
        raise ValueError(
            "with Dask and a kernel on every row the solver must be 'sequential' with select='batch'; over given "
            "centres (relvec.basis.KernelBasis(kernel, centres=Z)) any will do"
        )
    samples, facts = dictionary.samples, dictionary.samples.facts
    units, variances = units_of(facts.mean, facts.spread, facts.weight, samples.n_targets)
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
    for i, problem in enumerate(model._problems(units, variances, facts.weight)):
        problem, start = replace(problem, draw=dictionary.draw), _started(starts[i], rows, problem)

        def exact(active: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
            order = np.argsort(active)
            own = active[order]
            R = tall_qr(scaled, _Exact(dictionary.take(own), design.scale[own], output))
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
    d, facts = samples.n_features, samples.facts
    kernel = next((part for part in basis.parts if isinstance(part, KernelBasis) and np.all(part.rows >= 0)), None)
    centres = dict(zip(kernel.rows.tolist(), kernel.order_keys(), strict=True)) if kernel else {}  # type: ignore[arg-type]
    X = Lookup(facts.n_rows, lambda rows: np.array([centres[row] for row in rows.tolist()]).reshape(-1, d))
    model._finish(basis, X, rows, fits, samples.single)
    model.n_candidates_ = seen
    model._store_widths(basis, facts.spread[:d] ** 2 / facts.weight, learned)


def _search_subsets(
    model: Any, dictionary: RowKernel, samples: DaskSamples, memory: float, learned: Learned | None
) -> None:
    """Search a dictionary without low rank in subsets, and store the models."""
    units, variances = units_of(samples.facts.mean, samples.facts.spread, samples.facts.weight, samples.n_targets)
    problems = model._problems(units, variances, samples.facts.weight)

    def fitted(part: Basis, rows: Rows, starts: list | None, first: bool) -> list[GaussianFit]:
        def exact(active: np.ndarray, output: int) -> tuple[np.ndarray, np.ndarray]:
            R = tall_qr(samples, _Exact(part.take(active), rows.design.scale[active], output))
            return R[:, :-1], R[:, -1]

        return model._fits(part, rows, problems, units, variances, starts, exact, first)

    fits, basis, rows = model._in_subsets(dictionary, samples, None, memory, fitted)
    assert isinstance(basis, Concat)
    _store(model, basis, rows, fits, samples, model.n_candidates_, learned)


@dataclass(frozen=True, eq=False)
class _Exact:
    """The columns of a model and its target on some rows."""

    basis: Basis
    scale: np.ndarray
    output: int

    def __call__(self, block: Block) -> np.ndarray:
        return np.column_stack([self.basis(block.X) / self.scale, block.targets[:, self.output]]) * block.root


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
    history = [
        replace(step, atom=int(np.searchsorted(visited, step.atom)) if step.atom >= 0 else -1)
        for step in result.history
    ]
    state = replace(result.state, active=np.searchsorted(visited, result.state.active))
    return replace(fit, result=replace(result, state=state, history=history), scale=fit.scale[visited])
