"""The command `relvec`: models of tables, and a demonstration.

Exit codes: 0 done, 1 something failed or nothing could be run, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from relvec import RVR, __version__, plot
from relvec.cli.commands import add_commands

EXAMPLES = """examples:
  relvec fit houses.csv --target price     a model of a table, in model.relvec
  relvec predict model.relvec new.csv      predictions with error bars for other rows
  relvec report model.relvec held_out.csv  how good it is and what it rests on, in report.html
  relvec demo                              fit a noisy sinc and a small table, pictures in relvec-demo/
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (those of the process for None) and return its exit code."""
    arguments = _parser().parse_args(argv)
    try:
        code = arguments.function(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, MemoryError, NotImplementedError) as error:
        message = str(error) or type(error).__name__
        text = json.dumps({"error": message}) if getattr(arguments, "json", False) else f"relvec: {message}"
        print(text, file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    options: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(
        prog="relvec", description="Sparse Bayesian learning: the relevance vector machine.", epilog=EXAMPLES, **options
    )
    parser.add_argument("--version", action="version", version=f"relvec {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_commands(commands, options)

    demo = commands.add_parser("demo", help="fit a noisy sinc and a small real table", description=_demo.__doc__)
    demo.add_argument("--out", type=Path, default=Path("relvec-demo"), metavar="DIR", help="folder for the pictures")
    demo.add_argument("--no-plots", action="store_true", help="print the summary only")
    demo.set_defaults(function=_demo)
    return parser


def _plots(arguments: argparse.Namespace) -> bool:
    """Whether pictures are drawn; says why not where they were asked for."""
    if arguments.no_plots:
        return False
    try:
        plot.new_figure()
    except ImportError as error:
        print(f"No pictures: {error}\n", file=sys.stderr)
        return False
    return True


# relvec demo -----------------------------------------------------------------------------------------------------


def _demo(arguments: argparse.Namespace) -> int:
    """Fit a noisy sinc and scikit-learn's diabetes table, print what was found and draw the fits."""
    folder = arguments.out if _plots(arguments) else None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    _demo_sinc(folder)
    print()
    _demo_diabetes(folder)
    return 0


def _demo_sinc(folder: Path | None) -> None:
    rng = np.random.default_rng(0)
    X, X_test = np.linspace(-10, 10, 100)[:, None], np.linspace(-10, 10, 1000)[:, None]
    y = _sinc(X) + rng.normal(0.0, 0.1, 100)
    model, seconds = _timed(RVR(width=3.0), X, y)
    error = np.sqrt(np.mean((model.predict(X_test) - _sinc(X_test)) ** 2))
    print("Noisy sinc: 100 points of sin(x)/x with Gaussian noise of standard deviation 0.1")
    _print_summary(model, len(X), seconds, f"{error:.3f} from the true function (root mean square, 1000 points)")
    if folder is not None:
        figure = plot.new_figure()
        plot.plot_fit(model, X, y, figure.subplots(), truth=_sinc).set_title("Noisy sinc")
        _save(figure, folder / "sinc.png")


def _demo_diabetes(folder: Path | None) -> None:
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    # A wide kernel: cross-validation on the training rows is flat from 4 to 32.
    pipeline, seconds = _timed(make_pipeline(StandardScaler(), RVR(width=8.0)), X, y)
    mean, std = pipeline.predict(X_test, return_std=True)
    error, held = np.sqrt(np.mean((mean - y_test) ** 2)), np.mean(np.abs(mean - y_test) <= 2 * std)
    print(f"Diabetes: progression of the disease in {len(X) + len(X_test)} patients from 10 measurements")
    result = f"{error:.1f} on {len(X_test)} held-out patients (root mean square; targets vary by {y_test.std():.1f})"
    _print_summary(pipeline[-1], len(X), seconds, result)
    print(f"  error bars     ±2 standard deviations hold {held:.0%} of the held-out targets")
    if folder is not None:
        figure = plot.new_figure(5.4, 5.0)
        plot.plot_predictions(pipeline, X_test, y_test, figure.subplots()).set_title("Diabetes, held-out patients")
        _save(figure, folder / "diabetes.png")


def _sinc(X: np.ndarray) -> np.ndarray:
    return np.sinc(X[:, 0] / np.pi)


def _timed(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[Any, float]:
    start = time.perf_counter()
    return model.fit(X, y), time.perf_counter() - start


def _print_summary(model: RVR, n: int, seconds: float, error: str) -> None:
    constant = ", and a constant" if "bias" in model.atoms_ else ""
    print(f"  vectors kept   {len(model.relevance_)} of {n}{constant}")
    print(f"  noise found    {np.sqrt(model.noise_variance_):.3g} (standard deviation)")
    print(f"  log evidence   {model.log_marginal_likelihood_:.2f}")
    print(f"  test error     {error}")
    print(f"  seconds        {seconds:.2f}")
    print(f"  status         {model.status_}")


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=130)
    print(f"  picture        {path}")


if __name__ == "__main__":
    sys.exit(main())
