"""Data sets of the experiments: files ``<name>.npz`` of a folder, else OpenML where it has the same table.

The folder is `--data-dir` or the environment variable RELVEC_DATA.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np


class MissingData(Exception):
    """A data set could not be found; the message says how to get it."""


@dataclass(frozen=True)
class Dataset:
    """What an experiment may ask for: the arrays of one table."""

    name: str
    what: str
    arrays: dict[str, tuple[int, ...]]  # shape of each array of the file
    source: str  # where the table was first published
    openml: int | None = None  # OpenML's number, where X and y alone are what the experiments need

    def load(self, data_dir: str | Path | None = None) -> dict[str, np.ndarray]:
        """Return the arrays, from `data_dir`, RELVEC_DATA or OpenML; MissingData tells what to do."""
        folder = data_dir or os.environ.get("RELVEC_DATA") or None
        path = None if folder is None else Path(folder) / f"{self.name}.npz"
        if path is not None and path.is_file():
            with np.load(path) as file:
                arrays = {name: file[name] for name in file.files}
        elif self.openml is not None:
            arrays = self._from_openml(path)
        else:
            raise MissingData(self.instruction(path))
        wrong = [f"{n} {s}" for n, s in self.arrays.items() if n not in arrays or arrays[n].shape != s]
        if wrong:
            raise MissingData(
                f"{path or self.name} is another table: it lacks {', '.join(wrong)}. {self.instruction()}"
            )
        return arrays

    def instruction(self, path: Path | None = None) -> str:
        """One paragraph: what is missing and how to get it."""
        where = "neither --data-dir nor RELVEC_DATA names a folder" if path is None else f"{path} does not exist"
        arrays = ", ".join(f"{name} {shape}" for name, shape in self.arrays.items())
        text = (
            f"{self.name} ({self.what}): {where}. Save the table ({self.source}) as {self.name}.npz with the arrays "
            f'{arrays} by numpy.savez, and give its folder: make reproduce ARGS="--data-dir FOLDER", or '
            "RELVEC_DATA=FOLDER."
        )
        if self.openml is not None:
            text += f" With network access and pip install 'relvec[tables]', OpenML's table {self.openml} is used."
        return text

    def _from_openml(self, path: Path | None) -> dict[str, np.ndarray]:
        from sklearn.datasets import fetch_openml

        try:  # pandas keeps the values of numbers that OpenML declares as categories
            table = fetch_openml(data_id=self.openml, as_frame=True, n_retries=1)
        except (ImportError, OSError) as error:  # no pandas, no network
            raise MissingData(f"{self.instruction(path)} (tried: {error})") from error
        return {"X": table.data.astype(float).to_numpy(), "y": table.target.astype(float).to_numpy()}


DATASETS = {
    d.name: d
    for d in (
        Dataset(
            "boston", "Boston housing", {"X": (506, 13), "y": (506,)}, "table Boston of R's package MASS", openml=531
        ),
        Dataset(
            "kin40k",
            "forward kinematics of a robot arm",
            {"X_train": (10000, 8), "y_train": (10000,), "X_test": (30000, 8), "y_test": (30000,)},
            "KIN40K of the DELVE archive, the customary split",
        ),
        Dataset(
            "ripley",
            "Ripley's two-class mixture",
            {"X_train": (250, 2), "y_train": (250,), "X_test": (1000, 2), "y_test": (1000,)},
            "tables synth.tr and synth.te of R's package MASS",
        ),
        Dataset(
            "pima_ripley",
            "Pima Indians diabetes, Ripley's split",
            {"X_train": (200, 7), "y_train": (200,), "X_test": (332, 7), "y_test": (332,)},
            "tables Pima.tr and Pima.te of R's package MASS",
        ),
        Dataset(
            "usps",
            "U.S.P.S. digits",
            {"X_train": (7291, 256), "y_train": (7291,), "X_test": (2007, 256), "y_test": (2007,)},
            "zip.train and zip.test of Hastie, Tibshirani and Friedman, pixels moved to [0, 1]",
        ),
        *(
            Dataset(
                name,
                f"{name} with the first 10 splits of Ratsch et al.",
                {"X": (n, d), "y": (n,), "train_splits": (10, train), "test_splits": (10, n - train)},
                "the IDA benchmark repository of Ratsch et al. 2001",
            )
            for name, n, d, train in (
                ("banana", 5300, 2, 400),
                ("breast-cancer", 277, 9, 200),
                ("titanic", 2201, 3, 150),
                ("waveform", 5000, 21, 400),
                ("german", 1000, 20, 700),
                ("image", 2310, 18, 1300),
            )
        ),
        *(
            Dataset(name, what, {"X": (n, d), "y": (n,)}, source)
            for name, what, n, d, source in (
                ("australian", "Australian credit approval", 690, 14, "Statlog's australian.dat, classes 0 and 1"),
                ("bupa", "BUPA liver disorders", 345, 6, "UCI's bupa.data, y = selector - 1"),
                (
                    "credit_approval",
                    "credit approval",
                    690,
                    15,
                    "UCI's crx.data, categories as numbers in alphabetical order, nan for ?, y = 1 for +",
                ),
                ("hepatitis", "hepatitis", 155, 19, "UCI's hepatitis.data, nan for ?, y = 1 for those who live"),
                ("pima", "Pima Indians diabetes, all cases", 768, 8, "UCI's pima-indians-diabetes.data"),
            )
        ),
    )
}


def load(name: str, data_dir: str | Path | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of the data set `name`; MissingData says how to get it where it is not there."""
    return DATASETS[name].load(data_dir)
