"""Models of one problem at a price in nats a function: additions down a ladder of prices, deletions up it again.

At a price p a model's score is its log evidence less p for every function but the constant. Single additions from a
few functions end early, single deletions from many keep too much: each model is the better of both ways, after
exchanges.
"""

from __future__ import annotations

import numpy as np

from relvec.inference.evidence import gain_delete
from relvec.solvers.gaussian.model import GaussianModel as Model
from relvec.solvers.gaussian.model import model_of
from relvec.solvers.loop import Problem, Start
from relvec.solvers.stepwise import add_constant, count_functions

# From above what a further one of thousands of functions costs under the prior over sizes to next to nothing
PRICES_NATS = (8.0, 6.0, 4.5, 3.4, 2.5, 1.9, 1.4, 1.0, 0.6, 0.3, 0.02)
_SINGLE_ATOMS = 40  # a model of fewer grows by one function a scan, one of more by an eighth of its size
_MIN_NEWTON_GAIN_NATS = 0.02
_GROWN_STEPS, _DELETED_STEPS, _FINAL_STEPS = 20, 8, 50  # Newton steps on precisions and noise
_MAX_DELETION_LOSS_NATS = 1.0  # above the price: a deletion that loses more before the others settle is not tried
_DELETED_AT_ONCE = 4  # a quarter of the functions that do not pay leave together
_EXCHANGES = ((100, 6), (np.inf, 1))  # at each price, of models of up to so many functions
_OVERSHOOT, _FEW = 2.0, 150  # times a small number of functions allowed, from which the weakest leave again


class Ladder:
    """The models of a problem at each of some prices, in two passes: `descend` price by price, then `ascend`.

    ``most`` functions are allowed, the constant not counted. Where the problem's clock is up nothing is added or
    exchanged any more, and nothing deleted that may stay.
    """

    def __init__(self, problem: Problem, most: int):
        self.problem, self.most = problem, most
        beyond = int(_OVERSHOOT * most) + 10 if most <= _FEW else most
        self._reach = max(min(beyond, int(problem.n_samples) // 3), most)
        self.model = add_constant(_empty(problem).relax(_FINAL_STEPS))
        self._grown = [self.model]

    def descend(self, price: float) -> Model:
        """Return the model after additions that gain more than a price, lower than those before."""
        self.model = _grow(self.model, price, self._reach)
        self._grown.append(self.model)
        return self.model

    def ascend(self, price: float) -> Model:
        """Return the best model found at the last price descended to and not yet returned from."""
        grown = self._grown.pop()
        ways = [self.model] if grown is self.model else [self.model, grown]
        best = max((_prune(way, price, self.most) for way in ways), key=lambda model: score(model, price))
        self.model = _prune(_exchange(best, price), price, self.most)
        return self.model

    @property
    def is_full(self) -> bool:
        """Whether as many functions as may be tried are in the model."""
        return count_functions(self.model) >= self._reach


def score(model: Model, price: float) -> float:
    """Log evidence less a price for every function but the constant."""
    return model.objective - price * count_functions(model)


def continue_from(problem: Problem, start: Start, price: float, most: int) -> Model:
    """Return the model of a problem at a price, from a model of nearly the same problem on."""
    model = _grow(add_constant(model_of(problem, start).relax(_GROWN_STEPS)), price, most)
    return _prune(_exchange(_prune(model, price, most), price), price, most)


def sharpen(model: Model) -> Model:
    """Return the model with its precisions at their last digits."""
    return model.relax(_FINAL_STEPS).sharpen()


def _empty(problem: Problem) -> Model:
    beta = 1.0 / (problem.noise_variance or problem.noise_start)
    return model_of(problem, Start(np.zeros(0, dtype=np.intp), np.zeros(0), beta))


def _grow(model: Model, price: float, most: int) -> Model:
    while count_functions(model) < most and model.problem.clock.left() > 0.0:
        grown = model.core.grow(1 if model.size < _SINGLE_ATOMS else 2, price)
        if grown is None:
            break
        model = Model(model.problem, grown.trim())
    return model.relax(_GROWN_STEPS, min_gain_nats=_MIN_NEWTON_GAIN_NATS)


def _prune(model: Model, price: float, most: int) -> Model:
    """Without the functions that are worth less than a price, and as many more as there are too many."""
    while (k := count_functions(model)) > 0:
        p = model.full_posterior
        loss = -gain_delete(p.alpha, p.gamma, p.mean, p.variance)
        loss[model.active == model.problem.bias] = np.inf
        order = np.argsort(loss, kind="stable")
        excess = k - most
        if excess <= 0 and (loss[order[0]] > price + _MAX_DELETION_LOSS_NATS or model.problem.clock.left() <= 0.0):
            return model
        n = max(int(np.count_nonzero(loss < price)), excess, 1)
        n = max(n // _DELETED_AT_ONCE, 1)
        fewer = None
        while n >= 1:
            keep = np.sort(order[n:])
            tried = model.keep(keep).relax(_DELETED_STEPS, min_gain_nats=_MIN_NEWTON_GAIN_NATS)
            if excess > 0 or score(tried, price) > score(model, price):
                fewer = tried
                break
            n //= _DELETED_AT_ONCE
        if fewer is None:
            return model
        model = fewer
    return model


def _exchange(model: Model, price: float) -> Model:
    for _ in range(next(n for size, n in _EXCHANGES if model.size <= size)):
        late = model.problem.clock.left() <= 0.0
        swapped = model.core.exchange(max(0.1, 0.1 * price)) if model.size and not late else None
        if swapped is None:
            break
        model = Model(model.problem, swapped.trim())
    return model
