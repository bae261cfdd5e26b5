"""The two ways to make a process of the relevance vectors, side by side: the diagonal correction and Titsias' bound.

Both have the same features, functions and start (`relvec.inference.process`). The bound treats what the vectors leave
out of the
prior as lost information, -sum_n (c(x_n, x_n) - |psi(x_n)|^2) / (2 noise), instead of adding it to the noise.

    python benchmarks/constructions.py [--rows 150] [--only "sinc,Friedman 1"]
"""

from __future__ import annotations

import argparse
import warnings
from unittest.mock import patch

import numpy as np
from coverage import SETS
from relvec.inference.process import (
    Covariance,
    Process,
    TrainingRows,
    evidence,
    features,
    maximise_evidence,
    pull_back_features,
)
from threadpoolctl import threadpool_limits

from relvec import RVR
from relvec.inference import process
from relvec.inference.evidence import Posterior, gaussian
from reproduction.rq05 import as_fitted, losses


def bound(
    covariance: Covariance, noise: float, Z: np.ndarray, rows: TrainingRows
) -> tuple[float, Posterior, np.ndarray]:
    """Titsias' lower bound on the evidence, the posterior, and the derivative in (theta, log noise)."""
    L, P = features(covariance, Z, rows.X)
    root, n = np.sqrt(rows.weights), float(rows.weights.sum())
    Phi = np.hstack([P, rows.H]) * root[:, None]
    p = gaussian(Phi, root * rows.target, 0.0, n, np.ones(Phi.shape[1]), 1.0 / noise)
    left = float(rows.weights @ (covariance.diag(rows.X) - np.einsum("ij,ij->i", P, P)))
    by_noise = -0.5 * (n - p.residual / noise - p.gamma.sum()) + 0.5 * left / noise
    P_bar = p.design_gradient()[:, : P.shape[1]] * root[:, None] + P * (rows.weights / noise)[:, None]
    slope = pull_back_features(covariance, Z, rows.X, L, P, P_bar) - covariance.diag_vjp(
        rows.X, rows.weights / (2.0 * noise)
    )
    return p.log_evidence - 0.5 * left / noise, p, np.append(slope, by_noise)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=150)
    parser.add_argument("--width", default="learn-per-feature")
    parser.add_argument("--only", default=",".join(SETS))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'data set':16}{'construction':14}  squared  absolute  -log density  in 90%")
    for name in options.only.split(","):
        rng = np.random.default_rng(0)
        X, y = SETS[name](rng)
        X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
        order = rng.permutation(len(X))
        train, test = order[: options.rows], order[options.rows :]
        with threadpool_limits(1):
            rvm = RVR(width=options.width).fit(X[train], y[train])
            for words, criterion in (("diagonal", evidence), ("bound", bound)):

                def chosen(*args, criterion=criterion):
                    return maximise_evidence(*args, criterion=criterion)

                with patch.object(process, "climb", chosen), patch.object(process, "evidence", criterion):
                    model = as_fitted(rvm, Process(), X[train], y[train])
                row = losses(y[test], *model.predict(X[test], return_std=True))
                print(f"{name:16}{words:14}{row[0]:9.4f}{row[1]:10.4f}{row[2]:14.4f}{100 * row[3]:8.1f}", flush=True)


if __name__ == "__main__":
    main()
