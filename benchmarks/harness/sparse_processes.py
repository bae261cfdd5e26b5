"""Sparse Gaussian processes of the literature in plain PyTorch, for tables of ten thousand rows and more.

One Gaussian kernel with a width for each input, a mean of zero (targets are standardised), inducing inputs that start
at rows and move: `sgpr` maximises Titsias' collapsed bound on all rows, `svgp` Hensman's bound on mini-batches with a
whitened variational distribution. Both use Adam for a given number of seconds.
"""

from __future__ import annotations

import math
import time

import numpy as np
import torch

JITTER = 1e-6


class _Parameters:
    """Logarithms of widths, amplitude and noise, and the inducing inputs."""

    def __init__(self, X: torch.Tensor, m: int):
        d = X.shape[1]
        options = {"dtype": X.dtype, "device": X.device, "requires_grad": True}
        chosen = torch.as_tensor(np.random.default_rng(0).permutation(len(X))[:m], device=X.device)
        self.Z = X[chosen].clone().requires_grad_(True)
        self.log_width = torch.full((d,), 0.5 * math.log(d), **options)
        self.log_amplitude = torch.zeros((), **options)
        self.log_noise = torch.full((), math.log(0.1), **options)

    def all(self) -> list[torch.Tensor]:
        return [self.Z, self.log_width, self.log_amplitude, self.log_noise]

    def kernel(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        A, B = A / self.log_width.exp(), B / self.log_width.exp()
        D = (A * A).sum(1)[:, None] + (B * B).sum(1)[None, :] - 2.0 * A @ B.T
        return self.log_amplitude.exp() * torch.exp(-0.5 * D.clamp(min=0.0))

    def root(self) -> torch.Tensor:
        K = self.kernel(self.Z, self.Z)
        return torch.linalg.cholesky(
            K + JITTER * self.log_amplitude.exp() * torch.eye(len(K), dtype=K.dtype, device=K.device)
        )


def _climb(parameters: list[torch.Tensor], loss, seconds: float, rate: float) -> int:
    optimiser, began, steps = torch.optim.Adam(parameters, lr=rate), time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        for group in optimiser.param_groups:
            left = 1.0 - (time.perf_counter() - began) / seconds
            group["lr"] = rate * max(min(1.0, 3.0 * left), 0.02)  # falls in the last third
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()
        steps += 1
    return steps


def sgpr(X, y, m: int, seconds: float, device: str):
    """Titsias 2009: predict(X_new) -> (mean, variance), and the steps taken."""
    X, y = (torch.as_tensor(v, dtype=torch.float64, device=device) for v in (X, y))
    p, n = _Parameters(X, m), len(X)

    def parts():
        s, L = p.log_noise.exp(), p.root()
        A = torch.linalg.solve_triangular(L, p.kernel(p.Z, X), upper=False)
        LB = torch.linalg.cholesky(torch.eye(m, dtype=X.dtype, device=X.device) + A @ A.T / s)
        c = torch.linalg.solve_triangular(LB, (A @ y)[:, None], upper=False)[:, 0] / s
        return s, L, A, LB, c

    def loss():
        s, _, A, LB, c = parts()
        left = n * p.log_amplitude.exp() - (A * A).sum()
        log_det = n * torch.log(2.0 * math.pi * s) + 2.0 * LB.diagonal().log().sum()
        return 0.5 * (y @ y / s - c @ c + log_det + left / s) / n

    steps = _climb(p.all(), loss, seconds, 0.03)
    with torch.no_grad():
        s, L, _, LB, c = parts()

    def predict(new):
        with torch.no_grad():
            a = torch.linalg.solve_triangular(L, p.kernel(p.Z, torch.as_tensor(new, device=device)), upper=False)
            b = torch.linalg.solve_triangular(LB, a, upper=False)
            variance = p.log_amplitude.exp() - (a * a).sum(0) + (b * b).sum(0) + s
            return (b.T @ c).cpu().numpy(), variance.cpu().numpy()

    return predict, steps


def svgp(X, y, m: int, seconds: float, device: str, batch: int = 1024):
    """Hensman et al. 2013, whitened: predict(X_new) -> (mean, variance), and the steps taken."""
    X, y = (torch.as_tensor(v, dtype=torch.float64, device=device) for v in (X, y))
    p, n = _Parameters(X, m), len(X)
    mean = torch.zeros(m, dtype=X.dtype, device=device, requires_grad=True)
    raw = torch.eye(m, dtype=X.dtype, device=device).requires_grad_(True)
    draw = np.random.default_rng(0)

    def latent(rows):
        a = torch.linalg.solve_triangular(p.root(), p.kernel(p.Z, rows), upper=False)
        b = raw.tril().T @ a
        return a.T @ mean, (p.log_amplitude.exp() - (a * a).sum(0) + (b * b).sum(0)).clamp(min=1e-10)

    def loss():
        some = torch.as_tensor(draw.integers(0, n, batch), device=device)
        f, v = latent(X[some])
        s, R = p.log_noise.exp(), raw.tril()
        fit = 0.5 * (torch.log(2.0 * math.pi * s) + ((y[some] - f) ** 2 + v) / s).mean()
        divergence = 0.5 * ((R * R).sum() + mean @ mean - m) - R.diagonal().abs().clamp(min=1e-12).log().sum()
        return fit + divergence / n

    steps = _climb([*p.all(), mean, raw], loss, seconds, 0.01)

    def predict(new):
        with torch.no_grad():
            f, v = latent(torch.as_tensor(new, device=device))
            return f.cpu().numpy(), (v + p.log_noise.exp()).cpu().numpy()

    return predict, steps
