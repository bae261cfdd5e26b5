"""The numbers of the papers, measured again: one module a paper, one `Experiment` a table, figure or sentence.

`make reproduce` runs them. A new experiment is an entry of its paper's ``EXPERIMENTS``.
"""

from reproduction import _classes, _digits, _perspectives, _regression, _scales, grvm, rq05, t00, t01, tf03
from reproduction._data import DATASETS, Dataset, MissingData
from reproduction._experiment import Context, Experiment, Outcome, Published, Verdict

__all__ = ["DATASETS", "EXPERIMENTS", "Context", "Dataset", "Experiment", "MissingData", "Outcome", "Published",
           "Verdict", "select"]  # fmt: skip

EXPERIMENTS: tuple[Experiment, ...] = (
    *t00.EXPERIMENTS, *_regression.T00, *_classes.T00, *_digits.T00, *_scales.T00,
    *t01.EXPERIMENTS, *_regression.T01, *_scales.T01, *_classes.T01, *_digits.T01,
    *_perspectives.EXPERIMENTS, *tf03.EXPERIMENTS,
    *rq05.EXPERIMENTS,
    *grvm.EXPERIMENTS,
)  # fmt: skip


def select(names: list[str]) -> list[Experiment]:
    """Return the experiments of these names, or whose names begin with them ("T01", "T01-table-4.4.1"); all for none.

    >>> [e.name for e in select(["T01-figure-1"])]
    ['T01-figure-1']
    """
    for name in names:
        if not any(_matches(e, name) for e in EXPERIMENTS):
            known = ", ".join(e.name for e in EXPERIMENTS)
            raise ValueError(f"unknown experiment {name!r}; choose from {known}, or a beginning such as T01")
    return [e for e in EXPERIMENTS if not names or any(_matches(e, name) for name in names)]


def _matches(experiment: Experiment, name: str) -> bool:
    own, asked = experiment.name.lower(), name.lower()
    return own == asked or own.startswith(asked + "-")
