"""The scale of the target: as it is, or the logarithm of its distance from one end.

A model has the same noise and the same smoothness everywhere. Targets with a long tail have neither, and may have
both on the scale

    u = sign log(sign (y - end) / scale + c)                                    (Snelson et al. 2004, one fixed warp)

with `end` the least or greatest target, `scale` their standard deviation. Predictions are the mean and variance of y,
those of a log-normal variable.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from relvec.inference.tails import MAX_LOG_VARIANCE
from relvec.runtime.record import Record


@dataclass(frozen=True)
class Scale(Record):
    """u = sign log(sign (y - end) / scale + offset); sign 0 is u = y.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import GPRegressor
    >>> X = np.linspace(0.0, 6.0, 30)[:, None]
    >>> model = GPRegressor().fit(X, np.sin(3.0 * X[:, 0]) + 0.1 * np.cos(40.0 * X[:, 0]))
    >>> model.process_.scale.name
    'as it is'
    """

    sign: int = 0
    end: float = 0.0
    scale: float = 1.0
    offset: float = 0.0

    @property
    def pole(self) -> float:
        """Where the logarithm has its pole: a little beyond the end."""
        return self.end - self.sign * self.offset * self.scale

    def in_units(self, exponent: int) -> Scale:
        """Return the scale of targets in units of 2^exponent."""
        return replace(self, end=float(np.ldexp(self.end, -exponent)), scale=float(np.ldexp(self.scale, -exponent)))

    @property
    def name(self) -> str:
        """The scale as a formula.

        >>> Scale(1, 2.0, 1.0, 1.0).name, Scale(1, -3.0, 1.0, 1.0).name, Scale(-1, 2.0, 1.0, 1.0).name
        ('log(y - 1)', 'log(y + 4)', '-log(3 - y)')
        """
        if self.sign == 0:
            return "as it is"
        shifted = f"y {'+' if self.pole < 0 else '-'} {abs(self.pole):.4g}"
        return f"log({shifted})" if self.sign > 0 else f"-log({self.pole:.4g} - y)"

    def forward(self, y: np.ndarray) -> np.ndarray:
        """U (n,) of the targets y (n,); those beyond the end by more than the offset are put at it.

        >>> scale = Scale(1, 2.0, 1.0, 1.0)
        >>> scale.moments(scale.forward(np.array([2.0, 5.0])), np.zeros(2))[0].tolist()
        [2.0, 5.0]
        """
        return y if self.sign == 0 else self.sign * np.log(self._inside(y))

    def log_slope(self, y: np.ndarray) -> np.ndarray:
        """Log du/dy (n,)."""
        return np.zeros(len(y)) if self.sign == 0 else -np.log(self._inside(y)) - np.log(self.scale)

    def moments(
        self, mean: np.ndarray, variance: np.ndarray, noise: np.ndarray | float = 0.0, with_noise: bool = True
    ) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of y where the function is normal with these on the scale, and the noise is added to it.

        The variance of E[y | function] instead where the noise does not count.
        """
        if self.sign == 0:
            return mean, variance + (noise if with_noise else 0.0)
        level = self._level(mean, variance + noise)
        v = np.minimum(variance + noise if with_noise else variance, MAX_LOG_VARIANCE)
        return self.end + self.sign * self.scale * (level - self.offset), self.scale**2 * level**2 * np.expm1(v)

    def joint_moments(
        self, mean: np.ndarray, C: np.ndarray, noise: np.ndarray | float, with_noise: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Means (n,) and covariances (n, n) of y where the function has these on the scale."""
        if with_noise:
            C = C + noise * np.eye(len(C))
        if self.sign == 0:
            return mean, C
        level = self._level(mean, C.diagonal() + (0.0 if with_noise else noise))
        moved = self.end + self.sign * self.scale * (level - self.offset)
        return moved, self.scale**2 * np.outer(level, level) * np.expm1(np.minimum(C, MAX_LOG_VARIANCE))

    def inverse(self, u: np.ndarray, noise: np.ndarray | float = 0.0) -> np.ndarray:
        """Y at values u of the scale; with a noise variance the mean of y for noise about u."""
        return u if self.sign == 0 else self.end + self.sign * self.scale * (self._level(u, noise) - self.offset)

    def _level(self, mean: np.ndarray, variance: np.ndarray | float) -> np.ndarray:
        """E[exp(sign u)] (n,)."""
        return np.exp(self.sign * mean + 0.5 * np.minimum(variance, MAX_LOG_VARIANCE))

    def _inside(self, y: np.ndarray) -> np.ndarray:
        return np.maximum(self.sign * (y - self.end) / self.scale + self.offset, 0.01 * self.offset)


AS_IT_IS = Scale()
