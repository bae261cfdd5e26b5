"""The parameter ``predictive`` of the estimators: the RVM's own distribution, RVM* or a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from relvec.basis import Basis, KernelBasis, leaves
from relvec.inference.predictive.augmented import Augmented
from relvec.kernels import Kernel


@dataclass(frozen=True)
class Process:
    """A Gaussian process with the relevance vectors as inducing inputs; see `relvec.inference.process`.

    Parameters
    ----------
    retune : bool, default True
        Whether the widths, which start at sqrt(2) times the RVM's (RQ05 eq. (10)), are learned again by evidence, like
        amplitude and noise; False keeps them there.

    Examples
    --------
    >>> import numpy as np
    >>> from relvec import RVR
    >>> X = np.linspace(-3, 3, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).standard_normal(40)
    >>> model = RVR(width=1.5, predictive="process").fit(X, y)
    >>> _, std = model.predict([[0.0], [20.0]], return_std=True)
    >>> std.round(1)
    array([0.1, 1. ])
    """

    retune: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.retune, bool | np.bool_):
            raise ValueError(f"retune must be True or False, got {self.retune!r}")


def as_predictive(spec: object) -> Augmented | Process | None:
    """The predictive distribution that a name or an object means; None is the RVM's own.

    >>> as_predictive("process")
    Process(retune=True)
    """
    names: dict[str, Callable[[], Augmented | Process | None]] = {
        "rvm": lambda: None, "augmented": Augmented, "process": Process,
    }  # fmt: skip
    if isinstance(spec, str) and spec in names:
        return names[spec]()
    if isinstance(spec, Augmented | Process):
        return spec
    raise ValueError(f"predictive must be 'rvm', 'augmented', 'process', an Augmented() or a Process(), got {spec!r}")


def kernels_of(basis: Basis) -> tuple[Kernel, ...]:
    """The different kernels of a dictionary, in its order."""
    return tuple(dict.fromkeys(part.kernel for part in leaves(basis) if isinstance(part, KernelBasis)))


def check_kernels(kernels: tuple[Kernel, ...], spec: Augmented | Process) -> None:
    """Refuse kernels that a predictive distribution cannot use."""
    name = type(spec).__name__.lower()
    if not kernels:
        raise ValueError(f"predictive={name!r} needs a kernel as a function of the inputs: use predictive='rvm' here")
    unfit = [kernel for kernel in kernels if not kernel.positive_definite]
    if isinstance(spec, Process) and unfit:
        raise ValueError(
            f"predictive='process' needs a positive definite kernel, to be the covariance function of the process, and "
            f"{unfit[0]!r} is not known to be one: use predictive='augmented', or another kernel"
        )
