"""Where an optional package is not installed, the examples of the modules that need it are left out."""

from importlib.util import find_spec

NEEDS = {"src/relvec/plot.py": "matplotlib", "src/relvec/onnx.py": "onnx"}
collect_ignore = [path for path, package in NEEDS.items() if find_spec(package) is None]
