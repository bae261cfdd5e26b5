"""Shared settings: one BLAS thread per worker, the data folder, read-only arrays, hypothesis profiles."""

import itertools
import os
from pathlib import Path
from types import SimpleNamespace

# Before NumPy is imported: two workers with two BLAS threads each would fight over two cores.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("MPLBACKEND", "Agg")

ROOT = Path(__file__).parents[1]
if (DATASETS := ROOT.parent / "shared" / "datasets").is_dir():
    os.environ.setdefault("RELVEC_DATA", str(DATASETS))

import hypothesis  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402

# No example has a deadline, and none is too slow to draw: a machine may be busy.
hypothesis.settings.register_profile("common", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
common = hypothesis.settings.get_profile("common")
hypothesis.settings.register_profile("ci", common, derandomize=True, max_examples=25)
# For tools/mutate.py, which asks whether something fails and not where exactly.
quick = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
hypothesis.settings.register_profile("mutants", common, derandomize=True, max_examples=15, phases=quick)
hypothesis.settings.register_profile("thorough", common, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture
def readonly():
    """Return a function that copies arrays into read-only ones: writing to an input then raises."""

    def freeze(*arrays):
        copies = tuple(np.array(array) for array in arrays)
        for copy in copies:
            copy.flags.writeable = False
        return copies if len(copies) > 1 else copies[0]

    return freeze


@pytest.fixture
def slow_clock(monkeypatch):
    """Let every look at the clock of a process take 0.01 s, whatever the machine does meanwhile."""
    ticks = itertools.count()
    monkeypatch.setattr("relvec.runtime.clock.time", SimpleNamespace(monotonic=lambda: 0.01 * next(ticks)))


@pytest.fixture
def data_dir():
    """Return the folder of data sets; the test is skipped without one."""
    if "RELVEC_DATA" not in os.environ:
        pytest.skip("RELVEC_DATA is not set")
    return Path(os.environ["RELVEC_DATA"])
