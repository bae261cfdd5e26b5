"""Memory that a repeated calculation uses again: `Scratch`."""

from __future__ import annotations

import numpy as np

from relvec.runtime.arrays import Array


class Scratch:
    """The large arrays of a calculation that is repeated: in the next round they are the same again.

    Memory fresh from the system costs more than what is computed in it. An array may be used until the next round
    begins. Other libraries than NumPy keep their memory themselves: their arrays are always new.

    >>> scratch = Scratch()
    >>> first = scratch.copy(np.ones(3))
    >>> scratch.begin()
    >>> scratch.copy(np.zeros(3)) is first
    True
    """

    def __init__(self) -> None:
        self._held: list[np.ndarray] = []
        self._used = 0

    def begin(self) -> None:
        """Begin the next round."""
        self._used = 0

    def empty(self, *shape: int) -> np.ndarray:
        """Return an array of that shape whose numbers are still to be written."""
        at, self._used = self._used, self._used + 1
        if at == len(self._held):
            self._held.append(np.empty(shape))
        elif self._held[at].shape != shape:
            self._held[at] = np.empty(shape)
        return self._held[at]

    def copy(self, x: Array) -> Array:
        """Return a copy of x that may be overwritten."""
        if not isinstance(x, np.ndarray):
            return x + 0.0
        out = self.empty(*x.shape)
        np.copyto(out, x)
        return out
