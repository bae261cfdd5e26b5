"""A model that the sequential search moves: its contract with each kind of likelihood."""

from __future__ import annotations

from typing import Any, Protocol, Self

import numpy as np

from relvec.solvers.loop import Status


class SearchModel(Protocol):
    """A support with its posterior; it never changes, and its moves give other models.

    A move returns None where it gains no more than tol. A move that is made never lowers the objective.
    """

    @property
    def active(self) -> np.ndarray:
        """Atoms, or units of several classes (k,)."""

    @property
    def posterior(self) -> Any:
        """alpha, beta and log_evidence of the model, all that a search needs."""

    @property
    def full_posterior(self) -> Any:
        """The posterior that predictions rest on."""

    @property
    def objective(self) -> float:
        """T01 eq. (36)."""

    @property
    def atom(self) -> int:
        """The atom last moved, -1 for none."""

    def grow(self, batch: int | None, tol: float, hold_noise: bool) -> Self | None:
        """With the most useful atoms added, ``batch`` or a few more at once; None: as many as suit the model."""

    def settle(self, tol: float) -> Self:
        """With precisions at their optimum, as far as that gains more than tol."""

    def shrink(self, tol: float) -> Self | None:
        """Without an atom whose deletion gains."""

    def exchange(self, tol: float) -> Self | None:
        """With one atom in place of another."""

    def release(self) -> Self | None:
        """Without a restriction that held during the first search; None where there is none."""

    def may_restart(self, turn: int, failed: int, restarts: int) -> bool:
        """Whether to try the kind of restart numbered ``turn``, after ``failed`` in a row that gained little."""

    def repeats(self, turn: int) -> bool:
        """Whether a restart of that kind is tried again after it has gained, and counts as failed where it has not."""

    def restart(self, turn: int, batch: int | None, exchanging: bool, deadline: float) -> Self | None:
        """Another local maximum, settled; None where there is nothing to try."""

    def exchange_pairs(self, batch: int | None, deadline: float) -> Self | None:
        """Another local maximum, with others in place of two atoms; None where there is nothing to try."""

    def admits(self, other: Self) -> bool:
        """Whether a restart may lead to the other model."""

    def sharpen(self) -> Self:
        """With precisions at their optimum to the last digits."""

    def largest_gain(self, exchanging: bool) -> float:
        """Return the certificate: the largest gain (nats) that any single move still offers."""

    def ended(self) -> Status | None:
        """How a search of this model ends whatever its certificate says; None where the certificate decides."""
