"""Devices: PyTorch on the CPU and, where there is one, on a CUDA device, and those of array-api-strict."""

import pytest

from relvec.runtime.arrays import device_of


def find_place(name):
    """Return the device of a name such as "torch:cpu"; the test is skipped without its library."""
    library, _, where = name.partition(":")
    module = pytest.importorskip(library)
    if where == "cuda" and not module.cuda.is_available():
        pytest.skip("there is no CUDA device")
    device = module.Device(where or "CPU_DEVICE") if library == "array_api_strict" else where
    return device_of(module.zeros(1, device=device))
