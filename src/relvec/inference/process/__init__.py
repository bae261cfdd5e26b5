"""A proper process on the relevance vectors: sparse, and sure only where there were data.

An RVM with a basis function at every point of the input space is a Gaussian process (RQ05 eq. (10)). Its covariance
function is of the kernel's family; for the Gaussian kernel of width r it is the Gaussian kernel of width sqrt(2) r.
The relevance vectors Z (m, d) become the inducing inputs of that process, beside the functions of the model:

    y = f(x) + h(x)'b + noise,   f ~ GP(0, c),   c = sum_j s_j k_j,   b ~ N(0, B).

h holds the RVM's own functions and the constant. The weights of its kernels have one prior variance in common, not one
each: that is what made the RVM too sure of itself where it had data. The other functions have broad priors.

With c(Z, Z) = L L' and the features psi(x) = L^-1 c(Z, x), the product psi(x)'psi(x') is the part of c that the vectors
can represent: a degenerate covariance function, as the RVM's is (RQ05 eq. (8)). The part of the prior
variance that it lacks is put back on the diagonal,

    c'(x, x') = psi(x)'psi(x') + [x = x'] (c(x, x) - |psi(x)|^2),

so that every point has its whole prior variance (Snelson and Ghahramani, 2006). The parameters maximise the evidence
of the targets under c', that of a linear model over [psi, h] with the noise variances
lambda_n = noise + c(x_n, x_n) - |psi(x_n)|^2 (`inference.gaussian` on rows divided by sqrt(lambda_n)): O(N m^2) a
step. At a new x the mean is that of the linear model, and the variance its variance plus c(x, x) - |psi(x)|^2, which
is the whole prior variance away from the vectors: O(m^2) a point, and nothing of length N is kept.

Two things are assumed, because the data say nothing about places without data: the prior variance is at least that of
the targets, as RQ05 has it for RVM*, and the widths stay within a factor of three of their start.

The m vectors and the p widths were chosen to suit the targets, and the evidence, which takes them as given, is biased
in their favour. Each costs a degree of freedom, twice. The prior standard deviation of the RVM's weights is 0.3 of
their root mean square, and all of it only where that gains more than a nat of evidence a vector. And as in the estimate
of a variance from residuals, all variances of the model, prior, noise and posterior, are multiplied by N / (N - m - p)
in the end, which leaves the mean as it is. The numbers were chosen on data sets of their own (benchmarks/choices.py).
"""

from relvec.inference.process.covariance import Covariance
from relvec.inference.process.fit import ProcessRows, evidence, features, maximise_evidence, pull_back_features
from relvec.inference.process.options import Process, as_predictive, check_kernels, kernels_of
from relvec.inference.process.predictor import LinearExpansion, ProcessPredictor, expand_process, process_predictor

__all__ = [
    "Covariance", "LinearExpansion", "Process", "ProcessPredictor", "ProcessRows", "as_predictive", "check_kernels",
    "evidence", "expand_process", "features", "kernels_of", "maximise_evidence", "process_predictor",
    "pull_back_features",
]  # fmt: skip
