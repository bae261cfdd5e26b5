"""Finished parts of experiments, in memory and, with a folder, on disk: an interrupted run continues."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from relvec._version import __version__


@dataclass(frozen=True)
class Part:
    """What one repetition measured: a JSON value, its CPU seconds, whether a fit warned, and on which day."""

    value: Any
    seconds: float
    warned: bool = False
    day: str = ""


class Store:
    """Parts by experiment and key. `folder` keeps them in one file of JSON lines an experiment.

    A part counts only for the version of relvec that measured it. `fresh` forgets what the folder has of an
    experiment when it is first asked for; `only_kept` says that nothing new is to be measured.
    """

    def __init__(self, folder: Path | None = None, *, fresh: bool = False, only_kept: bool = False) -> None:
        self.folder, self.fresh, self.only_kept = folder, fresh, only_kept
        self._parts: dict[str, dict[str, Part]] = {}

    def find(self, experiment: str, key: str) -> Part | None:
        """Return the part, or None where it was not finished yet."""
        return self._of(experiment).get(key)

    def keep(self, experiment: str, key: str, part: Part) -> Part:
        """Remember a part, as it will be read again."""
        day = date.today().isoformat()
        line = json.dumps({"key": key, "version": __version__, **asdict(part), "day": day}, default=_plain)
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._path(experiment).open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        found = _read(line)
        assert found is not None
        self._of(experiment)[key] = found[1]
        return found[1]

    def _of(self, experiment: str) -> dict[str, Part]:
        if experiment not in self._parts:
            path = self._path(experiment)
            if self.fresh and path is not None:
                path.unlink(missing_ok=True)
            lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.is_file() else []
            self._parts[experiment] = dict(filter(None, map(_read, lines)))
        return self._parts[experiment]

    def _path(self, experiment: str) -> Any:
        return None if self.folder is None else self.folder / f"{experiment}.jsonl"


def _read(line: str) -> tuple[str, Part] | None:
    """Key and part of one line; None for a line cut short or of another version."""
    try:
        record = json.loads(line)
        if record.pop("version") != __version__:
            return None
        return record.pop("key"), Part(**record)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as JSON has them."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a part holds numbers, texts, lists and dictionaries; got {type(value).__name__}")
