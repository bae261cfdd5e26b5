"""Records that print a few lines, not thousands of numbers."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

MAX_CHARACTERS = 60  # of a value that is printed as it is
MAX_NUMBERS = 6  # of an array, likewise


class Brief:
    """A dataclass that prints one line a field; large arrays by their shape, records in it by their name.

    >>> from dataclasses import dataclass
    >>> @dataclass(repr=False)
    ... class Fit(Brief):
    ...     status: str
    ...     weights: np.ndarray
    >>> Fit("converged", np.zeros((200, 3)))
    Fit
      status: 'converged'
      weights: array (200, 3)
    """

    def __repr__(self) -> str:
        lines = [f"  {field.name}: {describe(getattr(self, field.name))}" for field in fields(self)]  # type: ignore[arg-type]
        return "\n".join([type(self).__name__, *lines])


def describe(value: object) -> str:
    """Describe a value in at most `MAX_CHARACTERS`.

    >>> describe([np.zeros(3), np.zeros(900)])
    '[array([0., 0., 0.]), array (900,)]'
    """
    if isinstance(value, np.ndarray):
        if value.size > MAX_NUMBERS or value.dtype.names:
            return f"array {value.shape}"
        return f"array({np.array2string(value, precision=6, separator=', ')})"
    if isinstance(value, Brief):
        return type(value).__name__
    if isinstance(value, list | tuple):
        shown = ", ".join(describe(item) for item in value)
        return f"[{shown}]" if len(shown) <= MAX_CHARACTERS else f"{len(value)} x {type(value[0]).__name__}"
    text = repr(value)
    return text if len(text) <= MAX_CHARACTERS else type(value).__name__
