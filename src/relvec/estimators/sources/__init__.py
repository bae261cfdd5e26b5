"""Where the rows of a fit are: in memory, on disk, summed up, or with the workers of Dask (`sources.dask`)."""

from relvec.estimators.sources.base import GaussianSource, LaplaceSource, ProcessRows, Sample, Source, Subsample
from relvec.estimators.sources.disk import DiskSource
from relvec.estimators.sources.memory import MemorySource
from relvec.estimators.sources.sparse import SparseSource
from relvec.estimators.sources.summary import SummarySource

__all__ = [
    "DiskSource", "GaussianSource", "LaplaceSource", "MemorySource", "ProcessRows", "Sample", "Source", "SparseSource",
    "Subsample", "SummarySource",
]  # fmt: skip
