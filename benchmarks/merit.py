"""Does merit choose well? Its share of the gain that the best candidate in hindsight has over one Gaussian kernel.

    python benchmarks/merit.py --tables FOLDER --jobs 8

Every candidate of `GPRegressor()` is learned on up to 400 training rows and predicts, with them and as many more as
there are (2,000 at most), the test rows: mean negative log density of standardised targets. "ML" is one Gaussian part
with a width for each input, learned by maximum likelihood; "merit" the candidate of most merit; "average" several of
them by merit, as in small tables; "hindsight" the candidate that is best over all splits of the table. Targets keep
their scale. The last line has the shares (ML - merit) / (ML - hindsight) of the means over all tables.
"""

from __future__ import annotations

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from dataclasses import replace  # noqa: E402 (after the number of threads)

import numpy as np  # noqa: E402
from tables import by_table, one_gaussian, parse, split  # noqa: E402

from relvec.gaussian_process.component import exact_component  # noqa: E402
from relvec.gaussian_process.fit import average_by_merit, prepare  # noqa: E402
from relvec.gaussian_process.held_out import measure_spread, prediction_error  # noqa: E402
from relvec.gaussian_process.selection import default_candidates, learn_candidate  # noqa: E402
from relvec.inference.scale import AS_IT_IS  # noqa: E402
from relvec.runtime.clock import Clock  # noqa: E402

LEARNED_ROWS, MOST_ROWS, MOST_AVERAGED = 400, 2000, 4


def losses(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Mean negative log density of normal distributions."""
    return float(np.mean(0.5 * np.log(2 * np.pi * variance) + 0.5 * (y - mean) ** 2 / variance))


def measure(case) -> tuple[float, float, float, dict[str, float]]:
    """NLL of ML, merit and average, and NLL by candidate."""
    folder, name, fold = case
    X, y, X_test, y_test = split(folder, name, fold)
    X, y = X[:MOST_ROWS], y[:MOST_ROWS]
    predict, _, _ = one_gaussian(X, y)
    prepared = prepare(X, y, None, AS_IT_IS, Clock())
    rows, units = prepared.rows, prepared.units
    few = rows.take(slice(0, LEARNED_ROWS))
    found = [learn_candidate(s, few, prepared.floors, Clock()) for s in default_candidates(rows.X.shape[1])]
    found.sort(key=lambda c: -c.merit.value)
    moments = {}
    for c in found:
        f = measure_spread(c.structure, c.mode.theta, rows) * prediction_error(c.merit, rows.total)
        mean, variance = replace(exact_component(c.structure, c.mode.theta, rows), spread=f).predict(
            units.inputs(X_test)
        )
        moments[c.structure.name] = units.y_mean + units.y_scale * mean, units.y_scale**2 * variance
    by_candidate = {name: losses(y_test, *pair) for name, pair in moments.items()}
    chosen, shares = average_by_merit(found, MOST_AVERAGED)
    means, variances = (np.array([moments[c.structure.name][i] for c in chosen]) for i in (0, 1))
    mean = shares @ means
    average = losses(y_test, mean, shares @ (variances + (means - mean) ** 2))
    best = by_candidate[found[0].structure.name]
    return losses(y_test, *predict(X_test)), best, average, by_candidate


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    found = by_table(measure, options)
    print(f"{'table':<16}{'ML':>9}{'merit':>9}{'average':>9}{'hindsight':>11}  best candidate in hindsight")
    table = []
    for name, results in found.items():
        names = results[0][3]
        by_candidate = {c: np.mean([r[3][c] for r in results]) for c in names}
        best = min(by_candidate, key=lambda c: by_candidate[c])
        table.append([*(np.mean([r[i] for r in results]) for i in range(3)), by_candidate[best]])
        print(f"{name:<16}" + "{:>9.3f}{:>9.3f}{:>9.3f}{:>11.3f}".format(*table[-1]) + f"  {best}")
    ml, merit, average, hindsight = np.mean(table, axis=0)
    print(f"{'mean':<16}{ml:>9.3f}{merit:>9.3f}{average:>9.3f}{hindsight:>11.3f}")
    share, averaged = (ml - merit) / (ml - hindsight), (ml - average) / (ml - hindsight)
    print(f"share of the gain in hindsight: {share:.0%} for the candidate of most merit, {averaged:.0%} averaged")


if __name__ == "__main__":
    main()
