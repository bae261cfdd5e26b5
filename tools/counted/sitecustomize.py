"""Lets every process of `make coverage` import the compiled modules that count their branches."""

import sys
from pathlib import Path

from native_mutants import Finder

sys.meta_path.insert(0, Finder(Path(__file__).parents[2] / "build" / "checked-counted"))
