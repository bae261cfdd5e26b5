"""The problems: what a training set of n rows is, and what a prediction is judged by.

The process that starts the fits reads this module too and stays free of numpy, so numpy is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Problem:
    """A source of data.

    Attributes
    ----------
    name, about : how it is called, and what it is in a line.
    task : "regression" or "classification"; decides which peers fit it and how it is scored (`measure.SCORES`,
        `measure.EVIDENCE`).
    draw : (n, rng) -> X (n, d), truth (n,), what lies under the noise; for classes a label, 0 or 1.
    observe : (truth, rng) -> y (n,), what a model is trained on.
    width : r of the Gaussian kernel exp(-|x - z|^2 / r^2).
    sizes : training rows where none are asked for.
    settings : what single peers need to know, such as C and epsilon of a support vector machine.
    """

    name: str
    about: str
    task: str
    draw: Callable[..., Any]
    observe: Callable[..., Any]
    width: float
    sizes: tuple[int, ...]
    settings: dict[str, Any]

    def train(self, n: int, seed: int):
        """X (n, d) and y (n,): the same for every peer."""
        import numpy as np

        rng = np.random.default_rng([seed, n])
        X, truth = self.draw(n, rng)
        return X, self.observe(truth, rng)

    def test(self, n: int, seed: int):
        """X (n, d) and the truth (n,) without noise: the same for every peer and every number of training rows."""
        import numpy as np

        return self.draw(n, np.random.default_rng([seed, 0]))


def _gaussian_noise(std: float):
    return lambda truth, rng: truth + std * rng.standard_normal(len(truth))


def _sinc2d(n, rng):
    import numpy as np

    X = rng.uniform(-10.0, 10.0, (n, 2))
    return X, np.sinc(np.hypot(X[:, 0], X[:, 1]) / np.pi)


def _friedman1(n, rng):
    import numpy as np

    U = rng.uniform(size=(n, 10))
    truth = 10 * np.sin(np.pi * U[:, 0] * U[:, 1]) + 20 * (U[:, 2] - 0.5) ** 2 + 10 * U[:, 3] + 5 * U[:, 4]
    return (U - 0.5) * np.sqrt(12.0), truth  # mean 0 and variance 1, exactly


def _clusters256(n, rng):
    import numpy as np
    from scipy.spatial.distance import cdist

    fixed = np.random.default_rng(256)
    centres, height = fixed.standard_normal((40, 256)), fixed.standard_normal(40)
    X = centres[rng.integers(40, size=n)] + 0.2 * rng.standard_normal((n, 256))
    return X, np.exp(-cdist(X, centres, "sqeuclidean") / 16.0**2) @ height


def _four_gaussians(n, rng):
    import numpy as np

    y = np.arange(n) % 2
    centres = np.array([[[-0.7, 0.3], [0.3, 0.3]], [[-0.3, 0.7], [0.4, 0.7]]])
    return centres[y, rng.integers(2, size=n)] + 0.03**0.5 * rng.standard_normal((n, 2)), y


def _three_gaussians(n, rng):
    import numpy as np

    y = np.arange(n) % 2
    centres = np.array([[[0.0, 0.6], [0.0, 0.6]], [[-0.7, 0.0], [0.7, 0.0]]])
    return centres[y, rng.integers(2, size=n)] + 0.3 * rng.standard_normal((n, 2)), y


def _labels(truth, rng):
    return truth


PROBLEMS = {
    p.name: p
    for p in (
        Problem(
            name="sinc2d",
            about="sin|x| / |x|, x uniform in [-10, 10]^2, noise 0.1, width 2.5 (TF03 5.1): the kernel's rank is low",
            task="regression",
            draw=_sinc2d,
            observe=_gaussian_noise(0.1),
            width=2.5,
            sizes=(100, 200, 500, 1000, 2000, 4000, 10000, 20000),
            settings={"svr": {"C": 1.0, "epsilon": 0.1}},
        ),
        Problem(
            name="friedman1",
            about="Friedman #1: 10 features (5 of them idle) of unit variance, noise 1, width sqrt(10)",
            task="regression",
            draw=_friedman1,
            observe=_gaussian_noise(1.0),
            width=10.0**0.5,
            sizes=(100, 200, 500, 1000, 2000, 4000),
            settings={"svr": {"C": 10.0, "epsilon": 1.0}},
        ),
        Problem(
            name="clusters256",
            about="256 features, 40 clusters with isotropic spread 0.2, a bump of random height on each, noise 0.1, "
            "width 16: the kernel has full rank",
            task="regression",
            draw=_clusters256,
            observe=_gaussian_noise(0.1),
            width=16.0,
            sizes=(100, 200, 500, 1000, 2000, 4000),
            settings={"svr": {"C": 1.0, "epsilon": 0.1}},
        ),
        Problem(
            name="ripley",
            about="Ripley's four Gaussians: centres (-.7, .3), (.3, .3) against (-.3, .7), (.4, .7), variance 0.03, "
            "width 0.5 (T01 4.2)",
            task="classification",
            draw=_four_gaussians,
            observe=_labels,
            width=0.5,
            sizes=(100, 200, 500, 1000, 2000, 4000, 10000),
            settings={"C": 1.0},
        ),
        Problem(
            name="three-gaussians",
            about="One Gaussian against a mixture of two (the data of T00 with an assumed spread of 0.3), width 1.0 "
            "(TF03 5.2)",
            task="classification",
            draw=_three_gaussians,
            observe=_labels,
            width=1.0,
            sizes=(100, 200, 500, 1000, 2000, 4000, 10000),
            settings={"C": 1.0},
        ),
    )
}
