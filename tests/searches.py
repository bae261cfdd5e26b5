"""Small seeded searches, and what each is known to reach: `python tests/searches.py` writes the table.

Every search is a fit of `RVR` or `RVC` over the columns of a matrix. `searches.json` has the least evidence (nats) and
the most steps of each among data whose last digits are changed: another machine rounds otherwise. A search that ends
lower, or takes longer, has lost something; one that does better is written anew.

`STAGES` has parts of searches: where each kind of restart leads, most of which a search does not take, and dictionaries
searched in parts. Of each stage it records the least objective and the most work.
"""

import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import oracle
from problems import Columns, columns_kept, problem_of, random_problem
from relvec import RVC, RVR, GammaPrior
from relvec.basis import Functions
from relvec.design import DenseDesign
from relvec.inference.likelihoods import Bernoulli, Categorical, Poisson
from relvec.solvers import EM, MacKay, Sequential, active_set
from relvec.solvers.active_set import solve
from relvec.solvers.gaussian import model as gaussian_model
from relvec.solvers.laplace import search as laplace_search
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.loop import Start

FILE = Path(__file__).with_suffix(".json")
JITTERS = (0.0, 1e-13, 1e-12, 1e-11, 1e-10)
Stages = dict[str, list[float]]  # of each stage by its name the objective and the work until then


@dataclass(frozen=True, eq=False)
class Found:
    """A model, the matrix (N, M) whose columns it chose from, targets, sample weights, and the columns it kept.

    ``shares`` are the targets with the rows of the base rates that the search of classes counts besides.
    """

    model: Any
    Phi: np.ndarray
    target: np.ndarray
    weights: np.ndarray
    active: np.ndarray

    @property
    def shares(self) -> np.ndarray:
        """(N,), or (N, K) of K classes."""
        K, rows = len(getattr(self.model, "classes_", ())), getattr(self.model.solver, "prior_rows", 0.0)
        if not K or not rows:
            return self.target
        return oracle.with_prior_rows(self.target, "bernoulli" if K == 2 else "softmax", self.weights, rows)


def uneven(size: int, seed: int) -> np.ndarray:
    """Return places (size,) in order, none as far from its neighbours as another: gains without ties."""
    return np.sort(np.random.default_rng(seed).uniform(-5.0, 5.0, size))


def search(model, Phi, t, first=None, weights=None) -> Found:
    """Fit a model to rows of Phi, and before that to the ``first`` of them where it starts warm."""
    rows = np.arange(len(t))[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if first is not None:
            model.fit(rows[:first], t[:first])
        model.fit(rows, t, sample_weight=weights)
    if model.fit_intercept:
        Phi = np.column_stack([Phi, np.ones(len(t))])
    kept = columns_kept(model, Phi[:, :-1] if model.fit_intercept else Phi)
    return Found(model, Phi, np.asarray(t), np.ones(len(t)) if weights is None else weights, kept)


def over(Phi, kind=RVR, **options):
    """Return an estimator whose dictionary is the columns of Phi and, unless told, a constant."""
    return kind(kernel=None, basis=Functions(Columns(Phi)), random_state=0, **options)


def regression(solver, jitter, N=40, M=40, width=1.5, noise=0.1, copies=False, seed=3, first=None, **options) -> Found:
    """Search a dictionary of M Gaussians and a constant, for N samples of a sinc."""
    rng, x = np.random.default_rng(seed), uneven(N, 0)
    Phi = np.exp(-((x[:, None] - uneven(M, 0)) ** 2) / width**2)
    if copies:
        Phi = np.hstack([Phi, -2.0 * Phi[:, 3:9], np.zeros((N, 1)), Phi[:, 20:25]])
    t = 2.0 * np.sinc(x / 2.0) + 0.3 + noise * rng.standard_normal(N)
    t += jitter * rng.standard_normal(N)
    return search(over(Phi, solver=solver, tol=1e-3, warm_start=first is not None, **options), Phi, t, first)


def mixed(seed, jitter, solver="sequential", **options) -> Found:
    """Search columns of another kind for every seed."""
    Phi, t = random_problem(seed, N=30, M=25)
    t = t + jitter * np.random.default_rng(seed).standard_normal(len(t))
    return search(over(Phi, solver=solver, tol=1e-3, **options), Phi, t)


def laplace(solver, kind, jitter, n=50, width=1.5, steep=2.0, K=3, first=None, seed=5, **options) -> Found:
    """Search a dictionary of Gaussians and a constant for classes or counts."""
    rng, x = np.random.default_rng(seed), uneven(n, 1)
    Phi = np.exp(-((x[:, None] - x) ** 2) / width**2)
    f = steep * np.sin(x)
    if kind == "poisson":
        t = rng.poisson(np.exp(f)).astype(float)
    elif K == 2:
        t = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    else:
        scores = np.column_stack([steep * np.sin(x + 2.0 * np.pi * c / K) for c in range(K)])
        t = np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)
    weights = np.random.default_rng(7).uniform(0.5, 1.5, n) * (1.0 + jitter * rng.standard_normal(n))
    warm = {"warm_start": True} if first else {}
    options = {"tol": 1e-3} | warm | options
    if kind == "poisson":
        model = over(Phi, solver=solver, likelihood="poisson", **options)
    else:
        model = over(Phi, RVC, solver=solver, **options)
    return search(model, Phi, t, first, weights)


NOISE, RATES = GammaPrior(c=2.0, d=0.1), GammaPrior(a=0.1, b=0.2)


def two(solver, jitter, **options) -> Found:
    """Search for two classes."""
    return laplace(solver, "classes", jitter, K=2, **options)


def three(solver, jitter, **options) -> Found:
    """Search for three classes."""
    return laplace(solver, "classes", jitter, K=3, **options)


def counts(solver, jitter, **options) -> Found:
    """Search for counts."""
    return laplace(solver, "poisson", jitter, **{"steep": 1.5} | options)


REGRESSION: dict[str, Callable[[float], Found]] = {
    "regression": partial(regression, Sequential()),
    "more noise": partial(regression, Sequential(), noise=0.4, seed=8),
    "narrow": partial(regression, Sequential(), width=0.7, noise=0.05, seed=9),
    "wide": partial(regression, Sequential(), width=4.0, noise=0.2, seed=10),
    "one atom at a time": partial(regression, Sequential(batch=1, restarts=1)),
    "many atoms at a time": partial(regression, Sequential(batch=12, restarts=1), width=0.5, N=60, M=60, noise=0.02),
    "random restarts": partial(regression, Sequential(restarts=7), noise=0.3),
    "more random restarts": partial(regression, Sequential(restarts=9), noise=0.2, width=0.8, seed=12),
    "noise now and then": partial(regression, Sequential(noise_every=3, restarts=0)),
    "no exchange": partial(regression, Sequential(exchange=False, restarts=1)),
    "no restart": partial(regression, Sequential(restarts=0), seed=14, width=0.8),
    "from the bias": partial(regression, Sequential(start="bias", restarts=1)),
    "from a model": partial(regression, Sequential(restarts=1), first=30),
    "from a model of fewer rows": partial(regression, Sequential(restarts=0), first=25, width=0.8, seed=4),
    "TF03 by gain": partial(regression, Sequential(select="gain", restarts=0), M=20),
    "TF03 at random": partial(regression, Sequential(select="random", restarts=0, noise_every=2), M=20),
    "TF03 in order": partial(regression, Sequential(select="order", restarts=0, noise_every=5), M=12),
    "TF03's rule": partial(regression, Sequential(select="gain", stop="tf03"), M=20),
    "fixed noise": partial(regression, Sequential(), noise_variance=0.02),
    "no noise": partial(regression, Sequential(), noise=0.0, width=3.0, M=12),
    "copies": partial(regression, Sequential(restarts=0), copies=True),
    "300 columns": partial(regression, Sequential(restarts=3), N=60, M=300, width=0.8, noise=0.3),
    "3100 columns": partial(regression, Sequential(restarts=1), N=30, M=3100, width=0.8),
    "3100 columns, no exchange": partial(regression, Sequential(restarts=0, exchange=False), N=30, M=3100, width=0.5),
    "MacKay": partial(regression, MacKay(), M=20),
    "MacKay, fixed noise": partial(regression, MacKay(prune_alpha=1e3), M=20, noise_variance=0.02, copies=True),
    "MacKay, prior of the noise": partial(regression, MacKay(prune_alpha=1e4, hyperprior=NOISE), M=20),
    "MacKay, prior of the weights": partial(regression, MacKay(hyperprior=RATES)),
    "EM": partial(regression, EM(prune_alpha=1e3), M=20),
    "EM, prior of the weights": partial(regression, EM(hyperprior=RATES)),
    **{f"mixed {seed}": partial(mixed, seed) for seed in range(6)},
    **{f"MacKay, mixed {seed}": partial(mixed, seed, solver=MacKay(prune_alpha=1e6)) for seed in range(3)},
    **{f"TF03, mixed {seed}": partial(mixed, seed, solver=Sequential(select="gain")) for seed in (0, 2, 3)},
}  # fmt: skip
LAPLACE: dict[str, Callable[[float], Found]] = {
    "two classes": partial(two, Sequential(restarts=6)),
    "two classes, narrow": partial(two, Sequential(), width=0.7, seed=6),
    "two classes, one at a time": partial(two, Sequential(batch=1, restarts=1)),
    "two classes from the bias": partial(two, Sequential(start="bias", restarts=0)),
    "two classes from a model": partial(two, Sequential(restarts=0), first=40),
    "two classes apart": partial(two, Sequential(restarts=2), steep=30.0),
    "two classes apart, no prior": partial(two, Sequential(restarts=2, prior_rows=0.0), steep=30.0),
    "two classes, TF03's rule": partial(two, Sequential(stop="tf03", prior_rows=0.0)),
    "counts": partial(counts, Sequential(restarts=6)),
    "counts, narrow": partial(counts, Sequential(), width=0.7, seed=6),
    "three classes": partial(three, Sequential(restarts=5)),
    "three classes, no prior": partial(three, Sequential(restarts=5, prior_rows=0.0)),
    "three classes, one at a time": partial(three, Sequential(batch=1, restarts=2, exchange=False), steep=5.0),
    "three classes together": partial(three, Sequential(restarts=5), share_alpha=True),
    "three classes together, wide": partial(three, Sequential(restarts=1), share_alpha=True, width=3.0, steep=5.0),
    "MacKay, two classes": partial(two, MacKay(prune_alpha=1e4)),
    "MacKay, counts, prior": partial(counts, MacKay(hyperprior=RATES), n=40),
    "MacKay, three classes together": partial(three, MacKay(prune_alpha=1e3), share_alpha=True, n=25, tol=0.1),
    "EM, two classes": partial(two, EM(prune_alpha=50.0), n=25, tol=0.1),
    "EM, three classes together, prior": partial(three, EM(hyperprior=RATES), share_alpha=True, n=40),
}  # fmt: skip
CASES = REGRESSION | LAPLACE


def first_maximum(jitter, N=40, M=40, width=1.5, noise=0.1, seed=3, **options):
    """Return a model of a regression before its restarts."""
    rng, x = np.random.default_rng(seed), uneven(N, 0)
    design = DenseDesign(np.exp(-((x[:, None] - uneven(M, 0)) ** 2) / width**2))
    t = 2.0 * np.sinc(x / 2.0) + 0.3 + noise * rng.standard_normal(N) + jitter * rng.standard_normal(N)
    problem = problem_of(design, t, rng=np.random.default_rng(1), tol=1e-3, **options)
    model, grown = gaussian_model.begin_gaussian(problem, False), True
    while grown:
        model = model.settle(1e-3)
        grown = model.grow(None, 1e-3)
        model = grown or model
    return model


def restarts(jitter, **options) -> Stages:
    """Return where each restart of a regression leads, and with how many atoms."""
    model = first_maximum(jitter, **options)
    others = [model.restart(turn, None, True, np.inf) for turn in range(8)]
    others.append(model.exchange_pairs(None, np.inf))  # the last turn
    found = {f"restart {turn}": [other.objective, other.size] for turn, other in enumerate(others) if other}
    return {"first maximum": [model.objective, model.size]} | found


def laplace_restarts(jitter, K=2, share=False, counts=False, n=40, width=1.0, steep=2.0, **options) -> Stages:
    """Return where each restart of classes or counts leads."""
    rng, x = np.random.default_rng(5), uneven(n, 1)
    Phi, f = np.exp(-((x[:, None] - x) ** 2) / width**2), steep * np.sin(x)
    if K > 2:
        scores = np.column_stack([steep * np.sin(x + 2.0 * np.pi * c / K) for c in range(K)])
        t = np.eye(K)[np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)]
    else:
        t = (rng.poisson(np.exp(f)) if counts else rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    likelihood = Categorical(K) if K > 2 else Poisson() if counts else Bernoulli()
    weights = rng.uniform(0.5, 1.5, n) * (1.0 + jitter * rng.standard_normal(n))
    problem = LaplaceProblem(DenseDesign(np.column_stack([Phi, np.ones(n)])), t, weights, likelihood,
                             np.arange(n + 1)[::-1].copy(), share=share, bias=n, rng=rng, **options)  # fmt: skip
    model = laplace_search.begin_laplace(problem, True)
    for move in ("grow", "grow", "settle", "grow", "settle", "shrink", "exchange", "release", "settle"):
        moved = getattr(model, move)(*{"grow": (None, 1e-3), "release": ()}.get(move, (1e-3,)))
        model = moved or model
    found = {"first maximum": [model.objective, problem.budget.spent]}
    for turn in range(7):
        other = model.restart(turn, None, True, np.inf)
        if other is not None:
            found[" ".join([f"restart {turn}", *sorted(other.cut)])] = [other.objective, problem.budget.spent]
    sharp = model.sharpen()
    found["sharpen"] = [sharp.objective, problem.budget.spent]
    found["certificate"] = [-sharp.largest_gain(True), problem.budget.crossings]
    return found


def in_parts(solver, jitter, N=60, M=700, width=0.8, noise=0.1, begin=False, max_iter=1000, **limits) -> Stages:
    """Return how a search of a dictionary that counts as long ended, and what it says is left to gain."""
    rng, x = np.random.default_rng(3), uneven(N, 0)
    design = DenseDesign(np.exp(-((x[:, None] - uneven(M, 2)) ** 2) / width**2))
    for name, value in limits.items():
        setattr(design, name, value)
    t = 2.0 * np.sinc(x / 2.0) + 0.3 + noise * rng.standard_normal(N) + jitter * rng.standard_normal(N)
    start = Start(np.array([100, 350, 600]), np.ones(3), 5.0) if begin else None
    problem = problem_of(design, t, tol=1e-3, start=start, order=rng.permutation(M), essential=np.array([7, 11]),
                         bias=7)  # fmt: skip
    with mock.patch.multiple(active_set, MAX_WHOLE_ATOMS=100, _FIRST_PART_ATOMS=60, _MAX_ADDITIONS=8):
        found = solve(solver, problem, max_iter)
    left = found.state.largest_gain
    return {
        found.status.name: [found.state.objective, found.n_iter],
        "certificate": [-left if left > problem.tol else 0.0, len(found.state.active)],
    }


STAGES: dict[str, Callable[[float], Stages]] = {
    "restarts: a short dictionary": restarts,
    "restarts: more noise": partial(restarts, noise=0.4, seed=8),
    "restarts: a given noise": partial(restarts, noise_variance=0.05),
    "restarts: 200 columns": partial(restarts, N=60, M=200, width=0.8, noise=0.3),
    "restarts: 200 columns of low noise": partial(restarts, N=60, M=200, width=0.5, noise=0.02, noise_start=0.5),
    "restarts: 300 columns below their noise": partial(restarts, N=60, M=300, width=0.8, noise=0.3, noise_start=1e-3),
    "restarts: 300 columns": partial(restarts, N=80, M=300, width=0.3, noise=0.02, noise_start=0.5),
    "restarts: 600 columns": partial(restarts, N=50, M=600, width=0.7, noise=0.1, noise_start=0.5),
    "restarts: two classes": laplace_restarts,
    "restarts: two classes apart": partial(laplace_restarts, steep=20.0),
    "restarts: two classes, many rows": partial(laplace_restarts, n=120, width=0.7),
    "restarts: two priced classes": partial(laplace_restarts, price=1.0),
    "restarts: counts": partial(laplace_restarts, counts=True),
    "restarts: three classes": partial(laplace_restarts, K=3, n=30),
    "restarts: three classes together": partial(laplace_restarts, K=3, n=30, share=True),
    "parts": partial(in_parts, Sequential(restarts=2)),
    "parts of parts": partial(in_parts, Sequential(restarts=1), max_active_set=300),
    "parts of parts, no exchange": partial(in_parts, Sequential(restarts=0, exchange=False), max_active_set=120, N=40),
    "growing parts": partial(in_parts, Sequential(restarts=1), width=0.3, noise=0.02),
    "parts from a model": partial(in_parts, Sequential(restarts=0), begin=True, max_active_set=200),
    "parts from the bias": partial(in_parts, Sequential(restarts=0, start="bias")),
    "parts cut short": partial(in_parts, Sequential(restarts=0), max_iter=12),
    "later parts cut short": partial(in_parts, Sequential(restarts=0), max_iter=40),
    "parts of parts cut short": partial(in_parts, Sequential(restarts=1), max_active_set=300, max_iter=50),
}  # fmt: skip


def record(case: str) -> list | Stages:
    """Return the least evidence and the most steps of a search, or those of each of its stages that all runs have."""
    if case in CASES:
        models = [CASES[case](jitter).model for jitter in JITTERS]
        return lowest([[model.log_marginal_likelihood_, model.n_iter_] for model in models])
    runs = [STAGES[case](jitter) for jitter in JITTERS]
    return {name: lowest([run[name] for run in runs]) for name in runs[0] if all(name in run for run in runs)}


def lowest(runs: list[list[float]]) -> list[float]:
    """Return the least objective and the most work of several runs."""
    objectives, works = zip(*runs, strict=True)
    return [float(f"{min(objectives):.9g}"), int(max(works))]


def main() -> int:
    """Write all searches, or some."""
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for case in sys.argv[1:] or (*CASES, *STAGES):
        kept[case] = record(case)
    lines = [f"{json.dumps(case)}: {json.dumps(kept[case])}" for case in (*CASES, *STAGES) if case in kept]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
