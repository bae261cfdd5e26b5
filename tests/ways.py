"""The way that small searches go, step by step: `python tests/ways.py` writes it to `ways.json`.

The moves of a search are judged by the evidence after them, so that a mistake in how they are proposed, ordered or
ended costs time and a little evidence, and no test of the result sees it. Here every step is kept: what was done, with
which atom, and the objective after it. Where a change of the search is wanted, the file is written anew. Data whose
last digits are changed must go the same way, or the case is not written: another machine rounds otherwise.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from relvec.design import DenseDesign
from relvec.inference.likelihoods import Bernoulli, Categorical, Likelihood, Poisson
from relvec.inference.priors import GammaPrior
from relvec.solvers import EM, MacKay, Problem, Sequential
from relvec.solvers import active_set as _columns
from relvec.solvers.laplace import scan as _laplace_scan
from relvec.solvers.laplace import search as _laplace_search
from relvec.solvers.laplace.problem import LaplaceProblem
from relvec.solvers.loop import Result, Start

FILE = Path(__file__).with_suffix(".json")
NOISE = {"prior": GammaPrior(c=2.0, d=0.1), "prior_d": 0.1}


def uneven(size: int, seed: int) -> np.ndarray:
    """Return places (size,) in order, none as far from its neighbours as another: gains without ties."""
    return np.sort(np.random.default_rng(seed).uniform(-5.0, 5.0, size))


def regression(solver, jitter: float, N=40, M=40, width=1.5, noise=0.1, copies=False, whole=None, **options) -> Result:
    """Search a dictionary of M Gaussians and a constant, for N samples of a sinc."""
    rng, x = np.random.default_rng(3), uneven(N, 0)
    Phi = np.column_stack([np.exp(-((x[:, None] - uneven(M, 0)) ** 2) / width**2), np.ones(N)])
    if copies:
        Phi = np.hstack([Phi, -2.0 * Phi[:, 3:9], np.zeros((N, 1)), Phi[:, 20:25]])
    t = 2.0 * np.sinc(x / 2.0) + 0.3 + noise * rng.standard_normal(N)
    t = (t + jitter * rng.standard_normal(N)) / np.sqrt(np.mean(t**2))
    design = DenseDesign(Phi)
    if whole is not None:
        design.max_active_set = whole
    problem = Problem(
        design=design, target=t, target_norm2_outside=0.3, n_samples=N + 1.0,
        order=np.arange(design.n_atoms)[::-1].copy(), bias=M,
        **{"noise_variance": None, "noise_start": 0.1, "noise_floor": 1e-8} | options)  # fmt: skip
    return _columns.solve(solver, problem, 300)


def parts(solver, jitter: float, **options) -> Result:
    """Search a dictionary that counts as a long one."""
    small = {"_LONG": 60, "_PART": 24, "_ENTER": 4, "_PARTNERS": 2, "_MORE": 2, "_REFUTED": 2}
    with mock.patch.multiple(_columns, **small):
        return regression(solver, jitter, **{"N": 30, "M": 150, "width": 0.8} | options)


def laplace(solver, likelihood: Likelihood, jitter: float, n=50, width=1.5, steep=2.0, exact=True, **options) -> Result:
    """Search a dictionary of Gaussians and a constant for classes or counts."""
    rng, x = np.random.default_rng(5), uneven(n, 1)
    Phi = np.column_stack([np.exp(-((x[:, None] - x) ** 2) / width**2), np.ones(n)])
    f = steep * np.sin(x)
    if isinstance(likelihood, Bernoulli):
        t = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-f))).astype(float)
    elif isinstance(likelihood, Poisson):
        t = rng.poisson(np.exp(f)).astype(float)
    else:
        K = likelihood.n_outputs
        scores = np.column_stack([steep * np.sin(x + 2.0 * np.pi * c / K) for c in range(K)])
        t = np.eye(K)[np.argmax(scores + rng.gumbel(size=scores.shape), axis=1)]
    weights = np.random.default_rng(7).uniform(0.5, 1.5, n) * (1.0 + jitter * rng.standard_normal(n))
    design = DenseDesign(Phi)
    given = {"bias": n, "order": np.arange(n + 1)[::-1].copy()} | options
    problem = LaplaceProblem(design, t, weights, likelihood, **given)
    with mock.patch.object(_laplace_scan, "_EXACT", 2e9 if exact else 0.0):
        return _laplace_search.solve_laplace(solver, problem, 200)


B, P, C = Bernoulli(), Poisson(), Categorical(3)
START = Start(np.array([4, 17, 30]), np.array([0.1, 0.2, 0.3]), 30.0)
RATES = {"prior": GammaPrior(a=0.1, b=0.2), "prior_b": np.linspace(0.1, 0.3, 41)}
REGRESSION: dict[str, Callable[[float], Result]] = {
    "regression": partial(regression, Sequential()),
    "one atom at a time": partial(regression, Sequential(batch=1, restarts=1)),
    "random restarts": partial(regression, Sequential(restarts=7), noise=0.3),
    "noise now and then": partial(regression, Sequential(noise_every=3, restarts=0)),
    "no exchange": partial(regression, Sequential(exchange=False, restarts=1)),
    "from the bias": partial(regression, Sequential(start="bias", restarts=1)),
    "from a model": partial(regression, Sequential(restarts=1), start=START),
    "TF03 by gain": partial(regression, Sequential(select="gain", restarts=0), M=20),
    "TF03 at random": partial(regression, Sequential(select="random", restarts=0, noise_every=2), M=20),
    "TF03 in order": partial(regression, Sequential(select="order", restarts=0, noise_every=5), M=20),
    "TF03's rule": partial(regression, Sequential(select="gain", stop="tf03"), M=20),
    "fixed noise": partial(regression, Sequential(), noise_variance=0.02),
    "a prior of the noise": partial(regression, Sequential(restarts=2), **NOISE),
    "no noise": partial(regression, Sequential(), noise=0.0, width=3.0, M=12),
    "copies": partial(regression, Sequential(restarts=0), copies=True),
    "long dictionary": partial(parts, Sequential(restarts=1)),
    "long dictionary, no exchange": partial(parts, Sequential(restarts=0, exchange=False), width=0.5),
    "longer dictionary": partial(parts, Sequential(restarts=1), whole=48),
    "MacKay": partial(regression, MacKay(), M=20),
    "MacKay, fixed noise": partial(regression, MacKay(prune_alpha=1e3), M=20, noise_variance=0.02, copies=True),
    "MacKay, prior of the noise": partial(regression, MacKay(prune_alpha=1e4), M=20, **NOISE),
    "MacKay, prior of the weights": partial(regression, MacKay(), M=40, **RATES),
    "EM": partial(regression, EM(prune_alpha=1e3), M=20),
    "EM, prior of the weights": partial(regression, EM(), M=40, **RATES),
}  # fmt: skip
LAPLACE: dict[str, Callable[[float], Result]] = {
    "two classes": partial(laplace, Sequential(restarts=6), B),
    "two classes, one at a time": partial(laplace, Sequential(batch=1, restarts=1), B),
    "two classes from the bias": partial(laplace, Sequential(start="bias", restarts=0), B),
    "two classes from a model": partial(laplace, Sequential(restarts=0), B, start=(START.active, START.alpha)),
    "two classes apart": partial(laplace, Sequential(restarts=2), B, steep=30.0),
    "two classes, TF03's rule": partial(laplace, Sequential(stop="tf03"), B),
    "counts": partial(laplace, Sequential(restarts=6), P, steep=1.5),
    "three classes": partial(laplace, Sequential(restarts=5), C),
    "three classes, one at a time": partial(laplace, Sequential(batch=1, restarts=2, exchange=False), C, steep=5.0),
    "three classes, each for itself": partial(laplace, Sequential(restarts=1), C, exact=False),
    "three classes together": partial(laplace, Sequential(restarts=5), C, share=True),
    "three classes together, wide": partial(laplace, Sequential(restarts=1), C, share=True, width=3.0, steep=5.0),
    "MacKay, two classes": partial(laplace, MacKay(prune_alpha=1e4), B),
    "MacKay, counts, prior": partial(laplace, MacKay(), P, n=40, **RATES),
    "MacKay, three classes together": partial(laplace, MacKay(prune_alpha=1e3), C, share=True, n=25),
    "EM, two classes": partial(laplace, EM(prune_alpha=50.0), B, n=25),
    "EM, three classes together, prior": partial(laplace, EM(), C, share=True, n=40, **RATES),
}  # fmt: skip
CASES = REGRESSION | LAPLACE


def way(case: str, jitter: float = 0.0) -> dict:
    """Return the steps of a case and where they led, in Python whatever was compiled."""
    with mock.patch.dict(os.environ, RELVEC_PURE_PYTHON="1"):
        result = CASES[case](jitter)
    state = result.state
    return {
        "status": result.status.name,
        "n_iter": result.n_iter,
        "actions": [step.action for step in result.history],
        "atoms": [step.atom for step in result.history],
        "sizes": [step.size for step in result.history],
        "objectives": [step.objective for step in result.history],
        "noise": [step.noise_variance for step in result.history],
        "active": state.active.tolist(),
        "alpha": state.posterior.alpha.tolist(),
        "largest_gain": state.largest_gain,
    }


def differs(one: dict, other: dict) -> str:
    """Return what is different about two ways, "" where nothing is but rounding."""
    for name, value in one.items():
        if not isinstance(value, float) and name not in ("objectives", "noise", "alpha"):
            if value != other[name]:
                return f"{name}: {value} and {other[name]}"
        else:
            rtol, atol = {"objectives": (0.0, 2e-6), "largest_gain": (0.0, 1e-5)}.get(name, (1e-4, 0.0))
            if not np.allclose(value, other[name], rtol, atol, equal_nan=True):
                return f"{name}: {value} and {other[name]}"
    return ""


def rounded(found: dict) -> dict:
    """Return a way in as many digits as are compared."""
    return {name: [float(f"{x:.10g}") for x in value] if name in ("objectives", "noise", "alpha") else value
            for name, value in found.items()}  # fmt: skip


def main() -> int:
    """Write all cases, or some."""
    chosen = sys.argv[1:] or list(CASES)
    kept = json.loads(FILE.read_text()) if FILE.exists() else {}
    for case in chosen:
        found = way(case)
        for jitter in (1e-13, 1e-12, 1e-11):
            if what := differs(found, way(case, jitter)):
                print(f"{case}: rounding decides about its {what}")
                break
        else:
            kept[case] = rounded(found)
            print(f"{case}: {found['n_iter']} steps, {found['status']}")
    lines = [f"{json.dumps(case)}: {json.dumps(kept[case])}" for case in CASES if case in kept]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
