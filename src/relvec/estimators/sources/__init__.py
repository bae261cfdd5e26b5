"""Where the rows of a fit are: in memory, in the columns of a sparse matrix, or in blocks anywhere."""

from relvec.estimators.sources.base import ProcessRows, Sample, Source
from relvec.estimators.sources.large import LargeSource, draw_size, machine_rows, process_rows
from relvec.estimators.sources.memory import MemorySource, SparseSource

__all__ = [
    "LargeSource", "MemorySource", "ProcessRows", "Sample", "Source", "SparseSource", "draw_size", "machine_rows",
    "process_rows",
]  # fmt: skip
