"""Small problems for the tests of searches, a fit over the columns of a matrix, and the dense gain of every move."""

import warnings
from dataclasses import replace

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

import oracle
from relvec import RVR
from relvec.basis import Functions
from relvec.design import DenseDesign
from relvec.estimators.options import COLUMNS_OF_X, machine_options
from relvec.inference.likelihoods import Categorical
from relvec.solvers import Sequential, as_solver
from relvec.solvers.gaussian import model as gaussian_model
from relvec.solvers.laplace.problem import LaplaceModel, LaplaceProblem
from relvec.solvers.laplace.scan import ScanSettings, scan
from relvec.solvers.loop import Problem, Start

BETA = 20.0

SEARCH = Sequential(
    start="projection",
    select="batch",
    batch=None,
    exchange=True,
    noise_every=1,
    restarts=3,
    stop="certificate",
)


class Columns:
    """A given matrix as a basis function of the row number."""

    def __init__(self, Phi):
        self.Phi = Phi

    def __call__(self, X):
        return self.Phi[X[:, 0].astype(int)]


def fit(Phi, t, solver=SEARCH, max_iter=None, hyperprior=None, **options):
    """Fit a regression over the columns of Phi (N, M); return it, and which of the columns it kept."""
    own = {name: value for name, value in (("max_iter", max_iter), ("hyperprior", hyperprior)) if value is not None}
    options = {"solver": replace(as_solver(solver), **own), "random_state": 0, "fit_intercept": False, **options}
    model = RVR(kernel=None, basis=Functions(Columns(Phi)), **options)
    model.fit(np.arange(len(t))[:, None], t)
    return model, columns_kept(model, Phi)


def options_of(model):
    """Return what a relevance vector machine tells its fit."""
    return machine_options(COLUMNS_OF_X | model.get_params(), classes=is_classifier(model), earlier=None)


def columns_kept(model, Phi):
    """Return the columns of [Phi, 1] that a model over them kept, in the order of its weights."""
    if not model.atoms_:
        return np.zeros(0, int)
    kept = model.basis_(np.arange(len(Phi))[:, None])
    both = np.column_stack([Phi, np.ones(len(Phi))])
    return np.argmax(np.all(kept[:, :, None] == both[:, None, :], axis=0), axis=1)


def quiet_fit(Phi, t, **options):
    """Fit where a warning may or may not come."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return fit(Phi, t, **options)


def sinc_problem(N=40, width=3.0, noise=0.1, seed=0):
    """Return N Gaussians and a constant as columns, and noisy samples of a sinc."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-10, 10, N)
    Phi = np.column_stack([np.exp(-((x[:, None] - x) ** 2) / width**2), np.ones(N)])
    return Phi, np.sinc(x / np.pi) + noise * rng.standard_normal(N)


def random_problem(seed, N=None, M=None):
    """Return columns of several kinds, and a sparse combination of them with more or less noise."""
    rng = np.random.default_rng(seed)
    N, M = N or rng.integers(5, 20), M or rng.integers(2, 12)
    kind = seed % 3
    if kind == 0:
        Phi = rng.standard_normal((N, M))
    elif kind == 1:
        Phi = np.exp(-((rng.uniform(-3, 3, (N, 1)) - rng.uniform(-3, 3, M)) ** 2))
    else:
        Phi = rng.integers(-2, 3, (N, M)).astype(float)
        Phi[:, -1] = -Phi[:, 0]
    w = rng.standard_normal(M) * (rng.uniform(size=M) < 0.5)
    return Phi, Phi @ w + rng.choice([0.05, 0.3, 1.0]) * rng.standard_normal(N)


def single_move_gains(Phi, t, active, alpha, beta):
    """Return the largest dense gains of an addition, a re-estimate, a deletion and an exchange."""

    def best_addition(atoms, inverse):
        S, Q = np.einsum("ij,ij->j", Phi[:, atoms], inverse @ Phi[:, atoms]), Phi[:, atoms].T @ inverse @ t
        ratio = np.divide(Q**2, S, out=np.ones(len(atoms)), where=Q**2 > S)
        return float(np.max(0.5 * (ratio - 1.0 - np.log(ratio)), initial=0.0))  # TF03 A.2

    outside = np.setdiff1d(np.arange(Phi.shape[1]), active)
    whole = oracle.log_evidence(Phi[:, active], t, alpha, beta)
    inverse = np.linalg.inv(oracle.covariance(Phi[:, active], alpha, beta))
    gains = {"add": best_addition(outside, inverse), "reestimate": 0.0, "delete": -np.inf, "exchange": -np.inf}
    for i in active:
        rest, alpha_rest = oracle.delete(active, alpha, i)
        without = oracle.log_evidence(Phi[:, rest], t, alpha_rest, beta) - whole
        inverse = np.linalg.inv(oracle.covariance(Phi[:, rest], alpha_rest, beta))
        gains["delete"] = max(gains["delete"], without)
        gains["reestimate"] = max(gains["reestimate"], without + best_addition([i], inverse))
        gains["exchange"] = max(gains["exchange"], without + best_addition(outside, inverse))
    return gains


def assert_never_falls(history):
    """The objective of a history never falls, rounding apart."""
    objective = history["objective"]
    slack = 1e-10 * np.maximum(1.0, np.abs(objective[1:]))
    assert np.all(np.diff(objective) >= -slack), np.diff(objective).min()


# --- models at given places, for tests of formulas -----------------------------------------------------------------


def dictionary(N=30, M=40, seed=0, width=2.0**0.5):
    """Columns of unit norm that overlap, and a target."""
    rng = np.random.default_rng(seed)
    x, z = np.linspace(-4.0, 4.0, N), np.sort(rng.uniform(-4.0, 4.0, M))
    Phi = np.exp(-((x[:, None] - z) ** 2) / width**2) * rng.choice([-1.0, 1.0], M)
    t = np.sin(2.0 * x) + 0.2 * rng.standard_normal(N)
    return DenseDesign(Phi), t


def problem_of(design, t, **options):
    """Return a problem of regression, all in scaled units."""
    given = {
        "target_norm2_outside": 0.0,
        "n_samples": float(len(t)),
        "noise_variance": None,
        "noise_start": 0.1,
        "noise_floor": 1e-8,
        "order": np.arange(design.n_atoms)[::-1].copy(),
    }
    return Problem(design=design, target=t, **given | options)


def model_of(active=(3, 12, 25), alpha=(0.3, 1.0, 2.0), **options):
    """Return a problem and a model of a few of its atoms, over a dictionary of nothing else."""
    design, t = dictionary()
    problem = problem_of(design, t, **options)
    active, local = np.array(active), np.arange(len(active))
    own = problem_of(DenseDesign(design.columns(active)), t, **options)
    return problem, active, gaussian_model.model_of(own, Start(local, np.array(alpha, float), BETA))


def classes_of(share=False, exact=True, likelihood=None, monkeypatch=None, M=12, **options):
    """A model of several units of three classes (or of one output), its scan, and the same dense."""
    likelihood = likelihood or Categorical(3)
    rng = np.random.default_rng(2)
    n = 40
    x = np.linspace(-3.0, 3.0, n)
    Phi = np.exp(-((x[:, None] - np.sort(rng.uniform(-3.0, 3.0, M))) ** 2) / 2.0)
    K = likelihood.n_outputs
    if K > 1:
        t = np.eye(K)[rng.integers(0, K, n)]
    else:
        t = rng.integers(0, 2, n).astype(float)
    weights = rng.uniform(0.5, 2.0, n)
    problem = LaplaceProblem(
        DenseDesign(Phi), t, weights, likelihood, np.arange(M)[::-1].copy(), share=share, **options
    )
    units = np.array([2, 7]) if share or K == 1 else np.array([2, 7, M + 4, 2 * M + 9])
    alpha = np.array([0.3, 1.5, 0.2, 0.7])[: len(units)]
    model = LaplaceModel(problem, units, problem.posterior(units, alpha))
    if monkeypatch is not None and not exact:
        monkeypatch.setattr("relvec.solvers.laplace.scan.SCANS", ScanSettings(max_exact_products=0.0))
    return model, scan(model)
