from collections.abc import Callable

import numpy as np

class Rows:
    def __init__(
        self, t: np.ndarray, weights: np.ndarray, counts: bool, constant: float, largest: float,
        run: Callable[[Callable[[int], None], int], None], max_steps: int, max_idle: int, roughly: float,
        exactly: float, still: float, max_diagonal: float, min_pivot: float,
    ) -> None: ...  # fmt: skip
    def fit(self, Phi: np.ndarray, alpha: np.ndarray, start: np.ndarray | None = None) -> Mode | None: ...

class Mode:
    rows: Rows
    Phi: np.ndarray
    alpha: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    variance: np.ndarray
    gamma: np.ndarray
    state: np.ndarray
    log_evidence: float
    beta: float
    trust: float
    any_infinite: bool
    def slopes(self, root: np.ndarray | None = None) -> np.ndarray: ...
    def system(self) -> NewtonSystem: ...

class NewtonSystem:
    gradient: np.ndarray
    minus_hessian: np.ndarray
    def __init__(self, gradient: np.ndarray, minus_hessian: np.ndarray, em: np.ndarray) -> None: ...
    def step(self, damping: float, towards: np.ndarray | None = None) -> np.ndarray | None: ...

def evidence_system(
    alpha: np.ndarray, mean: np.ndarray, root: np.ndarray, variance: np.ndarray, back: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]: ...
def moved_mode(
    alpha: np.ndarray, mean: np.ndarray, root: np.ndarray, step: np.ndarray, predict: bool
) -> tuple[np.ndarray, np.ndarray]: ...
def scan_gains(
    projected: np.ndarray, squares: np.ndarray, outside: np.ndarray, k: int, error: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]: ...
