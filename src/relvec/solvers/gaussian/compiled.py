"""The moves in C, where the extension was built: models that live there, with the interface of `Model`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from relvec.runtime.machine import all_threads
from relvec.solvers.gaussian.frame import Frame
from relvec.solvers.gaussian.moves import Model
from relvec.solvers.loop import Problem

try:
    from relvec.solvers._native import _engine
except ImportError:  # no compiler when the package was installed, or a SciPy whose BLAS it does not know
    _engine = None  # type: ignore[assignment]


def engine_in_use() -> bool:
    """Whether searches run in C: it was built, and the environment variable RELVEC_PURE_PYTHON is not set."""
    return _engine is not None and os.environ.get("RELVEC_PURE_PYTHON", "") in ("", "0")


@dataclass(frozen=True, eq=False)
class Precisions:
    """The part of a posterior that a search needs: alpha (k,), beta, and the objective in place of the evidence."""

    alpha: np.ndarray
    beta: float
    log_evidence: float


@dataclass(frozen=True, eq=False)
class CompiledModel:
    """A model of a search that runs in C; `exact` gives the `Model` that certificates and predictions rest on."""

    problem: Problem
    search: Any
    core: Any

    @cached_property
    def active(self) -> np.ndarray:
        """Atoms (k,)."""
        return np.frombuffer(self.core.active, np.int64).astype(np.intp)

    @cached_property
    def posterior(self) -> Precisions:
        """Precisions of the model."""
        return Precisions(np.frombuffer(self.core.alpha), self.core.beta, self.core.objective)

    @property
    def objective(self) -> float:
        """T01 eq. (36)."""
        return self.core.objective

    @property
    def atom(self) -> int:
        """The atom last moved."""
        return self.core.atom

    def at(self, active: np.ndarray, alpha: np.ndarray, beta: float, atom: int = -1) -> CompiledModel:
        """The model with other atoms and precisions."""
        active = np.ascontiguousarray(active, dtype=np.int64)
        return self._with(self.search.at(active, np.ascontiguousarray(alpha, dtype=float), beta, atom))

    def grow(
        self, batch: int, tol: float, hold_noise: bool, ceiling: float = np.inf, apart: float = 0.0
    ) -> CompiledModel | None:
        """`moves.grow`."""
        with all_threads(self._scan):
            core = self.core.grown(batch, tol, hold_noise, ceiling, apart)
        return None if core is None else self._with(core)

    def exchange(self, tol: float) -> CompiledModel | None:
        """`moves.exchange`."""
        with all_threads(self._scan):
            core = self.core.exchanged(tol)
        return None if core is None else self._with(core)

    def relax(
        self, steps: int, hold_noise: bool = False, min_gain_nats: float = 0.0, ceiling: float = np.inf
    ) -> CompiledModel:
        """`Model.relax`."""
        with all_threads(self._update):
            return self._with(self.core.relaxed(steps, hold_noise, min_gain_nats, ceiling))

    def prune_from_full(self, steps: int, far: float) -> CompiledModel:
        """Every atom of the dictionary, thinned out by MacKay's updates (T01)."""
        problem = self.problem
        beta = 1.0 / (problem.noise_variance or problem.noise_start)
        return self._with(self.search.thinned(beta, steps, far, 1e-2 * problem.tol))

    def merge_copies(self) -> CompiledModel:
        """`Model.merge_copies`."""
        return self._with(self.core.merged() or self.core)

    def trim(self) -> CompiledModel:
        """`Model.trim`."""
        with all_threads(self._scan):
            return self._with(self.core.trimmed() or self.core)

    def sharpen(self, steps: int) -> Model:
        """`Model.sharpen`, of which all but the last Newton steps are made here."""
        return self.relax(steps).exact().sharpen(2)

    def exact(self) -> Model:
        """The same model in Python, in the frame of the search."""
        problem, active = self.problem, self.active
        alpha, beta = self.posterior.alpha, self.posterior.beta
        self.search.at(active.astype(np.int64), alpha, beta)  # the frame may have been made anew for another model
        frame = Frame.adopted(problem.design, problem.target, problem.target_norm2_outside, self.search.frame())
        return Model(problem, frame, active, frame.posterior(active, alpha, beta, problem.n_samples), self.atom)

    @property
    def _update(self) -> float:
        """Multiplications of an update of all precisions."""
        return float(len(self.active)) ** 3

    @property
    def _scan(self) -> float:
        """Multiplications of a scan of the dictionary."""
        return float(len(self.active)) ** 2 * self.problem.design.n_atoms

    def _with(self, core: Any) -> CompiledModel:
        return self if core is self.core else CompiledModel(self.problem, self.search, core)


AnyModel = Model | CompiledModel


def compiled(problem: Problem, beta: float) -> CompiledModel | None:
    """The model a problem starts with, or an empty one at a noise precision; None where Python has to do."""
    Phi = problem.design.matrix if engine_in_use() else None
    if Phi is None or not (Phi.flags.c_contiguous or Phi.flags.f_contiguous) or Phi.dtype != float or not Phi.size:
        return None
    search = _engine.Search(
        Phi,
        np.ascontiguousarray(problem.target),
        (problem.design.scale > 0.0).astype(float),
        np.ascontiguousarray(problem.order, dtype=np.int64),
        problem.target_norm2_outside,
        problem.n_samples,
        problem.noise_floor,
        problem.fixed_noise,
        problem.prior.c,
        problem.prior_d,
    )
    empty = CompiledModel(problem, search, search.at(np.zeros(0, np.int64), np.zeros(0), beta))
    given = problem.start
    return empty if given is None else empty.at(given.active, given.alpha, given.beta)
