"""A sparse Gaussian process on the relevance vectors, whose variance returns to the prior's away from the data.

An RVM with a basis function at every point is a Gaussian process (RQ05 eq. (10)) with a covariance function of the
kernel's family: for the Gaussian kernel of width r, that of width sqrt(2) r. Here y = f(x) + h(x)'b + noise, where
f ~ GP(0, c), c = sum_j s_j k_j, has the vectors Z (m, d) as inducing inputs, and h holds the RVM's functions and a
constant; the weights of its kernels share one prior variance, since one for each made the RVM too sure of itself.

With c(Z, Z) = L L' and psi(x) = L^-1 c(Z, x), psi(x)'psi(x') is the part of c that the vectors represent, a degenerate
covariance function as the RVM's is (RQ05 eq. (8)). The rest of the prior variance is put back on the diagonal:

    c'(x, x') = psi(x)'psi(x') + [x = x'] (c(x, x) - |psi(x)|^2)        (Snelson and Ghahramani, 2006)

The evidence under c', which the parameters maximise in O(N m^2) a step, is that of a linear model over [psi, h] with
noise variances noise + c(x_n, x_n) - |psi(x_n)|^2. Predictions cost O(m^2) a point and keep nothing of length N.

Assumed, because the data cannot tell what happens far from them: a prior variance of at least that of the targets (RQ05
has it for RVM*), and widths within a factor of three of their start. The m vectors and p widths were chosen to suit the
targets, which biases the evidence in their favour: the prior deviation of the RVM's weights is 0.3 of their root mean
square unless all of it gains more than a nat a vector, and all variances are multiplied by N / (N - m - p) in the end,
as in the estimate of a variance from residuals. benchmarks/choices.py chose the numbers on data sets of its own.
"""

from relvec.inference.process.fit import (
    Covariance,
    TrainingRows,
    evidence,
    features,
    maximise_evidence,
    pull_back_features,
)
from relvec.inference.process.options import Process, as_predictive, check_kernels, kernels_of
from relvec.inference.process.predictor import LinearExpansion, ProcessPredictor, expand_process, process_predictor

__all__ = [
    "Covariance", "LinearExpansion", "Process", "ProcessPredictor", "TrainingRows", "as_predictive", "check_kernels",
    "evidence", "expand_process", "features", "kernels_of", "maximise_evidence", "process_predictor",
    "pull_back_features",
]  # fmt: skip
