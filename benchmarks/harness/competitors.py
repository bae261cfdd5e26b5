"""The peers: how each is made for a problem, and how its precisions are read.

The process that starts the fits reads this module too, so packages are imported where they are used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

UNKNOWN = float("nan")


@dataclass(frozen=True)
class Model:
    """A sparse model as a peer exposes it; what is NaN is not exposed and is maximised.

    Attributes
    ----------
    rows : (r,) training rows the kernels are centred on.
    alpha : (r,) precisions of their weights, for kernels as they are (not scaled).
    bias : precision of the weight of the constant; None without one.
    noise : noise variance; 1 for classes, which have none.
    own : the log evidence the peer itself reports, complete with -N/2 log 2 pi; None if it has none.
    """

    rows: Any
    alpha: Any
    bias: float | None
    noise: float
    own: float | None = None


@dataclass(frozen=True)
class Peer:
    """A program and its settings.

    Attributes
    ----------
    name, about : how it is called, and what it is in a line.
    package : what to install for it.
    task : of the problems it fits.
    make : (problem, threads) -> estimator, unfitted.
    vectors : (estimator, n) -> number of training rows it keeps.
    model : (estimator, X, problem) -> Model, or None where the peer has no precisions.
    largest : most training rows it is given unless asked for; None for any.
    """

    name: str
    about: str
    package: str
    task: str
    make: Callable[..., Any]
    vectors: Callable[..., int]
    model: Callable[..., Model | None] | None = None
    largest: int | None = None


def _relvec(problem, threads, **solver):
    from relvec import RVR
    from relvec.solvers import Sequential

    return RVR(width=problem.width, **({"solver": Sequential(**solver)} if solver else {}))


def _relvec_model(est, X, problem):
    r = len(est.relevance_)
    bias = float(est.alpha_[r]) if len(est.alpha_) > r else None
    return Model(est.relevance_, est.alpha_[:r], bias, float(est.noise_variance_), float(est.log_marginal_likelihood_))


def _fastrvm(problem, threads, **options):
    from fastrvm import RVR

    return RVR(gamma=float(problem.width) ** -2, **options)  # an integer gamma raises


def _fastrvm_model(est, X, problem):
    """fastrvm scales each column to unit length and reports alpha / |phi|^2 where its weights have alpha |phi|^2.

    The product with |phi|^4 gives back its own covariance_ and dual_coef_. Of a bias it keeps no precision: inside it
    is a constant 2^-52 that is never re-estimated, which costs evidence, so here it is maximised.
    """
    import numpy as np

    from .evidence import kernel

    squared = (kernel(X, X[est.relevance_], problem.width) ** 2).sum(axis=0)
    constant = 0.5 * len(X) * np.log(2.0 * np.pi)  # scores_ leaves it out
    alpha = est.alpha_.ravel() * squared**2
    return Model(
        est.relevance_, alpha, UNKNOWN if est.fit_intercept else None, 1.0 / est.beta_, est.scores_[-1] - constant
    )


def _sklearn_rvm(problem, threads):
    from sklearn_rvm import EMRVR

    return EMRVR(kernel="rbf", gamma=float(problem.width) ** -2)


def _sklearn_rvm_model(est, X, problem):
    """The kernels are divided by one number, `_scale`; `bias_used` turns false when the constant leaves."""
    alpha, bias = est.alpha_, None
    if est.bias_used:
        bias, alpha = float(alpha[0]), alpha[1:]
    return Model(est.relevance_, alpha * est._scale**2, bias, 1.0 / float(est.beta_))


def _svr(problem, threads):
    from sklearn.svm import SVR

    return SVR(gamma=float(problem.width) ** -2, **problem.settings["svr"])


def _svr_grid(problem, threads):
    from sklearn.model_selection import GridSearchCV

    C, gamma = problem.settings["svr"]["C"], float(problem.width) ** -2
    grid = {"C": [C * 10.0**e for e in (-2, -1, 0, 1, 2)], "gamma": [gamma * 4.0**e for e in (-2, -1, 0, 1, 2)]}
    return GridSearchCV(_svr(problem, threads), grid, cv=5, n_jobs=threads)


def _gpr(problem, threads):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    noise = problem.settings["svr"]["epsilon"] ** 2
    return GaussianProcessRegressor(
        ConstantKernel(1.0, (1e-6, 1e6)) * RBF(problem.width / 2**0.5, (1e-3, 1e3)) + WhiteKernel(noise, (1e-8, 1e4))
    )


# ---------------------------------------------------------------- classes


def _relvec_classes(problem, threads, **solver):
    from relvec import RVC
    from relvec.solvers import Sequential

    return RVC(width=problem.width, **({"solver": Sequential(**solver)} if solver else {}))


def _relvec_classes_model(est, X, problem):
    r = len(est.relevance_)
    bias = float(est.alpha_[r]) if len(est.alpha_) > r else None
    return Model(est.relevance_, est.alpha_[:r], bias, 1.0, float(est.log_marginal_likelihood_))


def _fastrvm_classes(problem, threads, **options):
    from fastrvm import RVC

    return RVC(gamma=float(problem.width) ** -2, **options)


def _fastrvm_classes_model(est, X, problem):
    """As `_fastrvm_model`; its score is the Laplace evidence, less what the constant's precision of 2^-52 costs."""
    from .evidence import kernel

    rows = est.relevance_.ravel().astype(int)
    squared = (kernel(X, X[rows], problem.width) ** 2).sum(axis=0)
    return Model(rows, est.alpha_.ravel() * squared**2, UNKNOWN if est.fit_intercept else None, 1.0, est.scores_[-1])


def _svc(problem, threads):
    from sklearn.svm import SVC

    return SVC(gamma=float(problem.width) ** -2, C=problem.settings["C"])


def _svc_sigmoid(problem, threads):
    from sklearn.calibration import CalibratedClassifierCV

    return CalibratedClassifierCV(_svc(problem, threads), method="sigmoid", ensemble=False, n_jobs=threads)


def _svc_grid(problem, threads):
    from sklearn.model_selection import GridSearchCV

    C, gamma = problem.settings["C"], float(problem.width) ** -2
    grid = {"C": [C * 10.0**e for e in (-2, -1, 0, 1, 2)], "gamma": [gamma * 4.0**e for e in (-2, -1, 0, 1, 2)]}
    return GridSearchCV(_svc(problem, threads), grid, cv=5, n_jobs=threads)


def _gpc(problem, threads):
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    return GaussianProcessClassifier(ConstantKernel(1.0, (1e-6, 1e6)) * RBF(problem.width / 2**0.5, (1e-3, 1e3)))


class Dlib:
    """dlib's rvm_trainer with the two methods of an estimator; it has no probabilities and no precisions."""

    def __init__(self, gamma):
        self.gamma = gamma

    def fit(self, X, y):
        import dlib

        trainer = dlib.rvm_trainer_radial_basis()
        trainer.gamma = self.gamma
        vectors = dlib.vectors()
        for row in X:
            vectors.append(dlib.vector(row.tolist()))
        self.found = trainer.train(vectors, dlib.array([2.0 * label - 1.0 for label in y]))
        return self

    def predict(self, X):
        import dlib
        import numpy as np

        return np.array([int(self.found(dlib.vector(row.tolist())) > 0.0) for row in X])


def _dlib(problem, threads):
    return Dlib(float(problem.width) ** -2)


def _all_rows(est, n):
    return n


def _relevant(est, n):
    return len(est.relevance_)


PEERS = {
    p.name: p
    for p in (
        Peer("relvec", "defaults", "relvec", "regression", _relvec, _relevant, _relvec_model),
        Peer(
            "relvec-r0",
            "relvec with solver=Sequential(restarts=0)",
            "relvec",
            "regression",
            lambda problem, threads: _relvec(problem, threads, restarts=0),
            _relevant,
            _relvec_model,
        ),
        Peer("fastrvm", "defaults (no constant)", "fastrvm", "regression", _fastrvm, _relevant, _fastrvm_model),
        Peer(
            "fastrvm-bias",
            "fastrvm with fit_intercept=True",
            "fastrvm",
            "regression",
            lambda problem, threads: _fastrvm(problem, threads, fit_intercept=True),
            _relevant,
            _fastrvm_model,
        ),
        Peer(
            "sklearn-rvm", "EMRVR, defaults", "sklearn-rvm", "regression", _sklearn_rvm, _relevant, _sklearn_rvm_model
        ),
        Peer(
            "SVR",
            "one fit: epsilon is the noise, C as in problems.py",
            "scikit-learn",
            "regression",
            _svr,
            lambda est, n: len(est.support_),
        ),
        Peer(
            "SVR-grid",
            "5 x 5 grid of C and gamma, 5 folds, one fit per thread at a time",
            "scikit-learn",
            "regression",
            _svr_grid,
            lambda est, n: len(est.best_estimator_.support_),
            largest=1000,
        ),
        Peer(
            "GPR",
            "GaussianProcessRegressor: amplitude, width and noise learned from one start",
            "scikit-learn",
            "regression",
            _gpr,
            _all_rows,
            largest=2000,
        ),
        Peer(
            "relvec-classes",
            "RVC, defaults",
            "relvec",
            "classification",
            _relvec_classes,
            _relevant,
            _relvec_classes_model,
        ),
        Peer(
            "relvec-classes-r0",
            "RVC with solver=Sequential(restarts=0)",
            "relvec",
            "classification",
            lambda problem, threads: _relvec_classes(problem, threads, restarts=0),
            _relevant,
            _relvec_classes_model,
        ),
        Peer(
            "fastrvm-classes",
            "RVC, defaults (no constant)",
            "fastrvm",
            "classification",
            _fastrvm_classes,
            lambda est, n: est.relevance_.size,
            _fastrvm_classes_model,
        ),
        Peer(
            "fastrvm-classes-bias",
            "fastrvm's RVC with fit_intercept=True",
            "fastrvm",
            "classification",
            lambda problem, threads: _fastrvm_classes(problem, threads, fit_intercept=True),
            lambda est, n: est.relevance_.size,
            _fastrvm_classes_model,
        ),
        Peer(
            "dlib",
            "rvm_trainer_radial_basis, defaults",
            "dlib",
            "classification",
            _dlib,
            lambda est, n: len(est.found.basis_vectors),
        ),
        Peer(
            "SVC",
            "one fit, C as in problems.py, no probabilities",
            "scikit-learn",
            "classification",
            _svc,
            lambda est, n: len(est.support_),
        ),
        Peer(
            "SVC-sigmoid",
            "SVC with CalibratedClassifierCV(method='sigmoid', ensemble=False), 5 folds",
            "scikit-learn",
            "classification",
            _svc_sigmoid,
            lambda est, n: len(est.calibrated_classifiers_[0].estimator.support_),
        ),
        Peer(
            "SVC-grid",
            "5 x 5 grid of C and gamma, 5 folds, no probabilities",
            "scikit-learn",
            "classification",
            _svc_grid,
            lambda est, n: len(est.best_estimator_.support_),
            largest=4000,
        ),
        Peer(
            "GPC",
            "GaussianProcessClassifier: amplitude and width learned from one start",
            "scikit-learn",
            "classification",
            _gpc,
            _all_rows,
            largest=1000,
        ),
    )
}
