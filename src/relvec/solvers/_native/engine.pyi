from collections.abc import Callable
from typing import Any

import numpy as np

def search(
    problem: Any,
    start: tuple[np.ndarray, np.ndarray, float],
    restarts: int,
    exchange: bool,
    thorough: bool,
    max_steps: int,
    seconds: float,
    prior: str,
    price: float,
    least_price: float,
    max_functions: int,
    large_model: int,
    watch: Callable[[int, float, float], bool] | None = None,
    batch: int = 0,
    noise_every: int = 1,
) -> tuple[str, np.ndarray, np.ndarray, float, float, float, bool, list[tuple[str, int, int, float, float]]]: ...
