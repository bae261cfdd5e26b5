"""The best model under a prior over sets of functions, or with at most k of them: additions, deletions, exchanges.

The evidence of a model with a precision for each function does not tell how many sets of functions there were to choose
from. With more candidates than rows some set passes through any target, and its evidence has no bound. A prior over
sets (`Stepwise.cost`), or a bound on their size, makes the search for a few functions among thousands a well-posed
question.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from relvec.inference.evidence import best, gain_add, gain_delete, gain_reestimate, optimal_alpha
from relvec.solvers.gaussian.model import GaussianModel as Model
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.loop import Problem, Start, State, Status, at_noise_floor


@dataclass(frozen=True)
class StepwiseSettings:
    """How a model settles after a move, and how far the search looks beyond a local maximum.

    Chosen on the grid of benchmarks/linear.py, where further looks change no set of columns.
    """

    # of a function under the prior over sizes: about what the log evidence loses when a precision is integrated out
    # instead of fitted; a useless function gains as much in one of 25 cases
    min_cost_nats: float = 1.0
    relax_steps: int = 30  # Newton steps on precisions and noise after a move
    min_gain_share: float = 0.1  # of the tolerance: smaller gains of a Newton step are left
    max_deletion_loss_nats: float = 1.0  # a deletion that loses more before the others settle is not tried
    min_ahead: int = 2  # functions that enter in a row, whatever they gain, before the weakest leave again
    ahead_share: float = 0.25  # of the model, likewise
    max_ahead: int = 8
    max_exchanges: int = 4  # tried, the most promising first
    max_exchange_loss_nats: float = 1.0  # an exchange that loses more before the others settle is not tried
    max_rows_share: float = 0.5  # of the rows: a model of more functions explains the noise too
    few_samples: int = 20  # of so many a constant enters at the start alone: beside columns it explains their noise


SETTINGS = StepwiseSettings()


@dataclass(frozen=True)
class Stepwise:
    """A climb in log evidence plus log prior of the set of functions, one function at a time.

    Parameters
    ----------
    support_prior : {"flat", "size"}
        "flat": all sets of functions are alike. "size": all numbers of functions are alike, and so are all sets of one
        size among M candidates, p(S) ~ 1 / C(M, |S|), but that a further function never costs less than 1 nat: sets
        become fewer again where they hold more than half of the candidates.
    max_functions : int, optional
        Most functions of the model, the constant not counted.
    price : float
        Nats that every function costs under the flat prior.
    max_iter : int
        Most moves.

    Examples
    --------
    >>> round(Stepwise("size").cost(0, 1000), 3)
    6.908
    """

    support_prior: str = "size"
    max_functions: int | None = None
    price: float = 0.0
    max_iter: int = 10000

    def __post_init__(self) -> None:
        if self.support_prior not in ("flat", "size"):
            raise ValueError(f"support_prior must be 'flat' or 'size', got {self.support_prior!r}")

    def cost(self, size: int, n_candidates: int) -> float:
        """Nats that the next function costs a model of so many: the price, or log (M - k) / (k + 1) and at least 1."""
        return self.price if self.support_prior == "flat" else _cost(size, n_candidates)

    def init(self, problem: Problem) -> State:
        """Return the empty model; or the one to start from, cut down to the size allowed, if it is better."""
        start = problem.start
        beta = 1.0 / (problem.noise_variance or problem.noise_start) if start is None else start.beta
        empty = model_of(problem, Start(np.zeros(0, dtype=np.intp), np.zeros(0), beta))
        model = add_constant(empty.relax(SETTINGS.relax_steps))
        if start is not None:
            cut = add_constant(settle(model.at(start.active, start.alpha, start.beta)))
            size = self.max_size(problem)
            model = max(
                self._grown(cut), self._grown(model), *eliminate(cut, size), *truncate(cut, size), key=self.score
            )
        return _state(model, "start")

    def _grown(self, model: Model) -> Model:
        """Return the model after additions alone."""
        while (more := self._add(model, model.problem.tol)) is not None and self.score(more) > self.score(model):
            model = more
        return model

    def step(self, problem: Problem, state: State) -> State:
        """One deletion, addition or exchange, or a look ahead, that raises evidence plus prior; else the end."""
        model: Model = state.notes
        tol = problem.tolerance(len(model.active))
        moves = {"constant": _admit_constant, "delete": self._delete, "add": self._add, "exchange": exchange_functions,
                 "restart": self._look_ahead}  # fmt: skip
        for action, move in moves.items():
            moved = move(model, tol)
            if moved is not None and self.score(moved) > self.score(model) + SETTINGS.min_gain_share * tol:
                return _state(moved, "add" if action == "constant" else action)
        sharp = model.sharpen()
        return _state(sharp, "reestimate").stepped(done=True, largest_gain=self.largest_gain(sharp))

    def score(self, model: Model) -> float:
        """Log evidence plus log prior of the set, but for a constant; -inf for models that are too large."""
        k, M = count_functions(model), n_candidates(model.problem)
        if k > self.max_size(model.problem):
            return -math.inf
        return model.objective - (k * self.price if self.support_prior == "flat" else _total_cost(k, M))

    def max_size(self, problem: Problem) -> int:
        """Most functions, the constant not counted."""
        rows = max(1, int(SETTINGS.max_rows_share * problem.n_samples))
        return rows if self.max_functions is None else self.max_functions

    def _delete(self, model: Model, tol: float) -> Model | None:
        k = count_functions(model)
        if not k:
            return None
        i, loss = weakest(model)
        refund = self.cost(k - 1, n_candidates(model.problem))
        return without(model, i) if loss < refund + SETTINGS.max_deletion_loss_nats else None

    def _add(self, model: Model, tol: float) -> Model | None:
        k = count_functions(model)
        if k >= self.max_size(model.problem):
            return None
        return extend(model, max(tol, self.cost(k, n_candidates(model.problem))))

    def _look_ahead(self, model: Model, tol: float) -> Model | None:
        """More functions than pay enter, then the weakest leave again: another set of the same size may be left."""
        k, s = count_functions(model), SETTINGS
        ahead = int(np.clip(s.ahead_share * k, s.min_ahead, s.max_ahead))
        large = model
        for _ in range(min(ahead, int(model.problem.n_samples) - 2 - k)):
            more = extend(large, tol)
            if more is None:
                break
            large = more
        return max(eliminate(large, k), key=self.score) if large is not model else None

    def largest_gain(self, model: Model) -> float:
        """Return the certificate: the most that a single move still gains in evidence plus prior."""
        p, k, M = model.full_posterior, count_functions(model), n_candidates(model.problem)
        left = [0.0, _late_gain(model)]
        if k < self.max_size(model.problem):
            left.append(float(addition_gains(model)[0].max()) - self.cost(k, M))
        if len(model.active):
            s, q = p.sparsity_quality()
            left += [float(gain_reestimate(p.alpha, s, q).max()), float(function_exchanges(model)[0].max())]
        if k:
            left.append(self.cost(k - 1, M) - weakest(model)[1])
        return max(left)

    def status(self, problem: Problem, state: State) -> Status:
        """How the search ended."""
        if at_noise_floor(problem, state.posterior.beta):
            return Status.NOISE_FLOOR
        return Status.CONVERGED if state.largest_gain <= problem.tolerance(len(state.active)) else Status.STALLED

    def finishing(self, state: State) -> bool:
        """Never: a certificate may still lead to a move."""
        return False


@lru_cache(maxsize=4096)
def _cost(size: int, n_candidates: int) -> float:
    return max(SETTINGS.min_cost_nats, math.log(max(n_candidates - size, 1)) - math.log(size + 1.0))


@lru_cache(maxsize=4096)
def _total_cost(size: int, n_candidates: int) -> float:
    return math.fsum(_cost(k, n_candidates) for k in range(size))


def _state(model: Model, action: str) -> State:
    return State(model.active, model.full_posterior, model.objective, action, model.atom, notes=model)


def count_functions(model: Model) -> int:
    """Return the number of functions, the constant not counted."""
    return int(np.count_nonzero(model.active != model.problem.bias))


def n_candidates(problem: Problem) -> int:
    """Return the number of functions to choose from: those that do not vanish, the constant not counted."""
    return int(np.count_nonzero(problem.design.scale > 0.0)) - (problem.bias >= 0)


def settle(model: Model) -> Model:
    """Return the model with its precisions and noise at their maximum; functions whose precision is infinite leave."""
    least = SETTINGS.min_gain_share * model.problem.tol
    return Model(model.problem, model.core.relax(SETTINGS.relax_steps, min_gain_nats=least).trim())


def addition_gains(model: Model) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gains of adding each function but the constant, 0 for those of the model; with S and Q of TF03 eq. (22) (M,)."""
    S, Q, gains = model.core.scan()
    if model.problem.bias >= 0:
        gains[model.problem.bias] = 0.0
    return gains, S, Q


def extend(model: Model, least: float) -> Model | None:
    """Add the function of largest gain, and settle; None where that gains no more than ``least`` nats."""
    gains, S, Q = addition_gains(model)
    j = best(gains, model.problem.order)
    return _with(model, j, S[j], Q[j]) if gains[j] > least else None


def constant_gain(model: Model) -> tuple[float, float, float]:
    """Gain of the constant, 0 where there is none to add; with its S and Q of TF03 eq. (22)."""
    b = model.problem.bias
    if b < 0 or b in model.active:
        return 0.0, 0.0, 0.0
    S, Q, _ = model.core.scan()
    return float(gain_add(S[b], Q[b])), float(S[b]), float(Q[b])


def add_constant(model: Model) -> Model:
    """Return the model with the constant, where there is one and it gains."""
    gain, S, Q = constant_gain(model)
    return _with(model, model.problem.bias, S, Q) if gain > model.problem.tol else model


def _late_gain(model: Model) -> float:
    """Gain of the constant beside the functions found; none where samples are few."""
    return constant_gain(model)[0] if model.problem.n_samples > SETTINGS.few_samples else 0.0


def _admit_constant(model: Model, tol: float) -> Model | None:
    """Add the constant, which costs nothing: with less noise than a smaller model it may gain where it did not."""
    return add_constant(model) if _late_gain(model) > tol else None


def _with(model: Model, j: int, S: float, Q: float) -> Model:
    alpha = np.append(model.posterior.alpha, optimal_alpha(S, Q))  # TF03 eq. (20)
    return settle(model.at(np.append(model.active, j), alpha, model.posterior.beta, j))


def weakest(model: Model) -> tuple[int, float]:
    """Place of the function, not the constant, whose deletion loses least, and the nats it loses."""
    p = model.full_posterior
    loss = -gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    loss[model.active == model.problem.bias] = np.inf
    i = int(np.argmin(loss))
    return i, float(loss[i])


def without(model: Model, i: int) -> Model:
    """Return the model without its i-th function, settled."""
    keep, p = np.arange(len(model.active)) != i, model.posterior
    return settle(model.at(model.active[keep], p.alpha[keep], p.beta, int(model.active[i])))


def function_exchanges(model: Model) -> tuple[np.ndarray, Callable[[int], Model]]:
    """Gain of the best exchange of every function (k,), and what makes one.

    There is none of the constant, for which a function would be one more.
    """
    gains, make = model.core.exchanges()
    gains = np.where(model.active == model.problem.bias, -np.inf, gains)
    return gains, lambda i: Model(model.problem, make(i))


def exchange_functions(model: Model, tol: float) -> Model | None:
    """Exchange a function for another outside, and settle (TF03 6.2); None where none gains more than tol."""
    if not len(model.active):
        return None
    gains, make = function_exchanges(model)
    for i in np.argsort(-np.round(gains, 9), kind="stable")[: SETTINGS.max_exchanges]:
        if gains[i] < -SETTINGS.max_exchange_loss_nats:
            break
        swapped = settle(make(int(i)))
        if swapped.objective > model.objective + tol:
            return swapped
    return None


def eliminate(model: Model, size: int) -> Iterator[Model]:
    """Return the model, then smaller and smaller ones without their weakest function, down to a size."""
    yield model
    while count_functions(model) > size:
        model = without(model, weakest(model)[0])
        yield model


def truncate(model: Model, size: int) -> Iterator[Model]:
    """Models of the functions of largest gain, weight and precision, as many as ``size``, each settled."""
    if count_functions(model) <= size:
        return
    p, constant = model.full_posterior, model.active == model.problem.bias
    loss = -gain_delete(p.alpha, p.gamma, p.mean, p.variance)
    for rank in (loss, np.abs(p.mean), 1.0 / p.alpha, p.gamma):
        order = np.argsort(-np.where(constant, np.inf, rank), kind="stable")
        keep = np.sort(order[: size + int(constant.any())])
        yield settle(model.at(model.active[keep], p.alpha[keep], p.beta))
