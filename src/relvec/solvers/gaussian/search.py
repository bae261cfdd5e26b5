"""The sequential search of a Gaussian problem."""

from __future__ import annotations

from relvec.solvers.gaussian.model import begin, resume
from relvec.solvers.gaussian.textbook import textbook_step
from relvec.solvers.sequential import Search, Sequential


def gaussian_search(settings: Sequential) -> Search:
    """The search with these settings."""
    return Search(settings, begin, resume, textbook_step if settings.select != "batch" else None)
