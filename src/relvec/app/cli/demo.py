"""`relvec demo`: fit a noisy sinc and scikit-learn's diabetes table."""

from __future__ import annotations

import argparse
import io
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from relvec import RVR, plot
from relvec.app.cli.console import check_output
from relvec.runtime.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sklearn.utils import Bunch


def run_demo(arguments: argparse.Namespace) -> int:
    """Fit both tables, print what was found, draw the fits, and leave the second table for the other commands."""
    folder = pictures = None if arguments.no_plots else arguments.out
    try:
        plot.new_figure()
    except ImportError as error:
        print(f"No pictures: {error}\n", file=sys.stderr)
        pictures = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("diabetes.csv", *(() if pictures is None else ("sinc.png", "diabetes.png"))):
            check_output(folder / name)
    _demo_sinc(pictures)
    data = load_diabetes(scaled=False)
    _demo_diabetes(data, pictures)
    table = "YOUR_TABLE.csv --target COLUMN"
    if folder is not None:
        _write_csv(folder / "diabetes.csv", [*data.feature_names, "progression"], [*data.data.T, data.target])
        table = f"{shlex.quote(str(folder / 'diabetes.csv'))} --target progression"
    print(f"\nnext:  relvec fit {table}")
    return 0


def _write_csv(path: Path, names: list[str], columns: list[np.ndarray]) -> None:
    text = io.StringIO()
    np.savetxt(text, np.column_stack(columns), "%.10g", ",", header=",".join(names), comments="")
    write_atomically(path, text.getvalue().encode())


def _demo_sinc(folder: Path | None) -> None:
    X, X_test = np.linspace(-10, 10, 100)[:, None], np.linspace(-10, 10, 1000)[:, None]
    y = _sinc(X) + np.random.default_rng(0).normal(0.0, 0.1, 100)
    print("Noisy sinc: 100 points of sin(x)/x with Gaussian noise of standard deviation 0.1")
    model = RVR(width=3.0).fit(X, y)
    _print_fit(model, len(X))
    error = np.sqrt(np.mean((model.predict(X_test) - _sinc(X_test)) ** 2))
    print(f"  test error     {error:.3f} from the true function (root mean square, 1000 points)")
    if folder is not None:
        figure = plot.new_figure()
        plot.plot_fit(model, X, y, figure.subplots(), truth=_sinc).set_title("Noisy sinc")
        _save(figure, folder / "sinc.png")


def _demo_diabetes(data: Bunch, folder: Path | None) -> None:
    X, X_test, y, y_test = train_test_split(data.data, data.target, random_state=0)
    print(f"\nDiabetes: progression of the disease in {len(X) + len(X_test)} patients from 10 measurements")
    # A wide kernel: cross-validation on the training rows is flat from 4 to 32.
    pipeline = make_pipeline(StandardScaler(), RVR(width=8.0)).fit(X, y)
    _print_fit(pipeline[-1], len(X))
    mean, std = pipeline.predict(X_test, return_std=True)
    error, held = np.sqrt(np.mean((mean - y_test) ** 2)), np.mean(np.abs(mean - y_test) <= 2 * std)
    print(f"  test error     {error:.1f} on {len(X_test)} held-out patients (root mean square; targets vary by "
          f"{y_test.std():.1f})")  # fmt: skip
    print(f"  error bars     ±2 standard deviations hold {held:.0%} of the held-out targets")
    if folder is not None:
        figure = plot.new_figure(5.4, 5.0)
        plot.plot_predictions(pipeline, X_test, y_test, figure.subplots()).set_title("Diabetes, held-out patients")
        _save(figure, folder / "diabetes.png")


def _sinc(X: np.ndarray) -> np.ndarray:
    return np.sinc(X[:, 0] / np.pi)


def _print_fit(model: RVR, rows: int) -> None:
    constant = ", and a constant" if "bias" in model.atoms_ else ""
    print(f"  rows kept      {len(model.relevance_)} of {rows}{constant}\n"
          f"  noise found    {np.sqrt(model.noise_variance_):.3g} (standard deviation)\n"
          f"  log evidence   {model.log_marginal_likelihood_:.2f}\n  status         {model.status_}")  # fmt: skip


def _save(figure: Figure, path: Path) -> None:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=130)
    write_atomically(path, out.getvalue())
    print(f"  picture        {path}")
