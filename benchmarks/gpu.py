"""Fits and predictions on one GPU, with the floor that operations and bytes set beside every time.

    PYTHONPATH=src python benchmarks/gpu.py                         # on a machine with a GPU
    PYTHONPATH=src python benchmarks/gpu.py --device cpu --scale 0.002   # a rehearsal on the host

Needs PyTorch (and CuPy for one part) besides scikit-learn; data are made on the device. Parts:

sinc6, sinc7    TF03's two-dimensional sinc, 10^6 and 10^7 points, all of them candidates (width 2.5, noise 0.1)
same            the support against the one of the CPU at moderate N, for PyTorch and CuPy
digits          ten classes, 7291 x 256, one against the rest and softmax; U.S.P.S. itself where RELVEC_DATA has it
mixture         Ripley's mixture, 10^5 points of two classes

Results go to gpu.json in the folder $OUT, where that is set.
"""

from __future__ import annotations

import argparse
import cProfile
import io
import json
import os
import pstats
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch

from relvec import RVC, RVR


class Machine:
    """The device, its ceilings as measured, and what to time with."""

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.cuda = self.device.type == "cuda"
        n = 8192 if self.cuda else 512
        A = torch.rand((n, n), dtype=torch.float64, device=self.device)
        self.flops = 2.0 * n**3 / self.best(lambda: A @ A)
        B = torch.rand(n * n, dtype=torch.float64, device=self.device)
        C = torch.empty_like(B)
        self.bandwidth = 16.0 * n * n / self.best(lambda: C.copy_(B))

    def wait(self) -> None:
        """Until the device is done."""
        if self.cuda:
            torch.cuda.synchronize()

    def best(self, run, times: int = 5) -> float:
        """Seconds of the fastest of some runs."""
        found = []
        for _ in range(times):
            self.wait()
            began = time.perf_counter()
            run()
            self.wait()
            found.append(time.perf_counter() - began)
        return min(found)

    def timed(self, run, profile: str = ""):
        """What run() returns, its seconds and the peak of device memory (GB)."""
        self.wait()
        if self.cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        profiler = cProfile.Profile() if profile else None
        began = time.perf_counter()
        if profiler:
            profiler.enable()
        result = run()
        self.wait()
        if profiler:
            profiler.disable()
        seconds = time.perf_counter() - began
        if profiler:
            text = io.StringIO()
            pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(25)
            print(f"--- profile of {profile}\n{text.getvalue()}", flush=True)
        peak = torch.cuda.max_memory_allocated() / 1e9 if self.cuda else float("nan")
        return result, seconds, peak

    def floor(self, operations: float, size: float) -> float:
        """The least seconds for so many operations and bytes."""
        return max(operations / self.flops, size / self.bandwidth)


def sinc(n: int, device: torch.device, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rows, targets and the function itself, made on the device."""
    generator = torch.Generator(device=device).manual_seed(seed)
    X = 20.0 * torch.rand((n, 2), generator=generator, dtype=torch.float64, device=device) - 10.0
    f = torch.sinc(torch.linalg.norm(X, dim=1) / torch.pi)
    return X, f + 0.1 * torch.randn(n, generator=generator, dtype=torch.float64, device=device), f


def regression(machine: Machine, n: int, profile: bool) -> dict:
    """One fit of n points and a prediction of a million rows with standard deviations."""
    X, y, _ = sinc(n, machine.device)
    fit = RVR(width=2.5).fit
    model, seconds, peak = machine.timed(lambda: fit(X, y), f"fit of {n}" if profile else "")
    m = min(n, 1_000_000)
    Z, _, f = sinc(m, machine.device, seed=1)
    (mean, std), predicted, _ = machine.timed(lambda: model.predict(Z, return_std=True))
    v = len(model.weights_)
    k = model.fitted_.compression.rank if model.fitted_.compression else v
    # kernel values at the pivots, the factor and its Gram matrix; blocks are read and written a few times
    operations, passes = 4.0 * n * k**2, 6
    return {
        "n": n,
        "seconds": seconds,
        "floor": machine.floor(operations, 8.0 * n * k * passes),
        "operations": operations,
        "bytes": 8.0 * n * k * passes,
        "rank": k,
        "vectors": len(model.relevance_),
        "rmse": float(torch.sqrt(torch.mean((mean - f) ** 2))),
        "noise": float(model.noise_variance_),
        "status": model.status_,
        "peak_gb": peak,
        "predicted_rows": m,
        "predict_seconds": predicted,
        "predict_floor": machine.floor(2.0 * m * v**2 + 2.0 * m * v, 8.0 * m * (2 + 2)),
        "mean_std": float(torch.mean(std)),
    }


def same_support(machine: Machine, n: int) -> dict:
    """The fit of the CPU against those of the device, through PyTorch and through CuPy."""
    X, y, _ = sinc(n, machine.device)
    Xh, yh = X.cpu().numpy(), y.cpu().numpy()
    began = time.perf_counter()
    host = RVR(width=2.5).fit(Xh, yh)
    row = {"n": n, "host_seconds": time.perf_counter() - began, "vectors": len(host.relevance_)}
    for name in [str(machine.device), "cupy"] if machine.cuda else [str(machine.device)]:
        try:
            Xd, yd = (X, y) if name != "cupy" else as_cupy(Xh, yh)
            model, seconds, _ = machine.timed(lambda Xd=Xd, yd=yd: RVR(width=2.5).fit(Xd, yd))
            row[name] = {
                "seconds": seconds,
                "same_support": bool(np.array_equal(model.relevance_, host.relevance_)),
                "evidence_difference": float(model.log_marginal_likelihood_ - host.log_marginal_likelihood_),
                "mean_difference": float(np.abs(model.predict(Xh[:1000]) - host.predict(Xh[:1000])).max()),
            }
        except Exception as error:  # the other library is still worth a run
            row[name] = {"error": repr(error)}
            traceback.print_exc()
    return row


def as_cupy(*arrays: np.ndarray) -> list:
    """Arrays on the device by CuPy."""
    import cupy

    return [cupy.asarray(array) for array in arrays]


def images(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Ten classes of 16 x 16 images with values in [-1, 1]: three blurred strokes each, shifted, bent and noisy."""
    rng = np.random.default_rng(seed)
    paths = np.random.default_rng(12).uniform(2, 13, (10, 3, 4, 2))  # four points of each stroke
    label = rng.integers(0, 10, n)
    points = paths[label] + rng.normal(0.0, 0.7, (n, 1, 1, 2)) + rng.normal(0.0, 0.5, (n, 3, 4, 2))
    along = np.linspace(0.0, 1.0, 12)
    weights = np.stack([(1 - along) ** 3, 3 * along * (1 - along) ** 2, 3 * along**2 * (1 - along), along**3])
    strokes = np.einsum("nspd,pa->nsad", points, weights).reshape(n, -1, 2)
    grid = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    X = np.empty((n, 256))
    for start in range(0, n, 500):
        part = strokes[start : start + 500]
        distance = ((part[:, :, None, :] - grid) ** 2).sum(axis=-1).min(axis=1)
        X[start : start + 500] = 2.0 * np.exp(-distance / 1.5) - 1.0
    return np.clip(X + rng.normal(0.0, 0.1, X.shape), -1.0, 1.0), label


def digits(machine: Machine, n: int, profile: bool) -> list[dict]:
    """Ten classes, one against the rest and softmax."""
    X, y = images(n + 2007)
    tables = {"synthetic": (X[:n], y[:n], X[n:], y[n:])}
    file = Path(os.environ.get("RELVEC_DATA", "")) / "usps.npz"
    if file.is_file():
        data = np.load(file)
        tables["usps"] = tuple(data[key].astype(float) for key in ("X_train", "y_train", "X_test", "y_test"))
    rows = []
    for name, arrays in tables.items():
        X, y, X_test, y_test = (torch.as_tensor(array, device=machine.device) for array in arrays)
        for multi_class in ("ovr", "multinomial"):
            fit = RVC(multi_class=multi_class).fit
            title = f"{name}, {multi_class}" if profile else ""
            model, seconds, peak = machine.timed(lambda fit=fit, X=X, y=y: fit(X, y), title)  # type: ignore[misc]
            wrong, predicted, _ = machine.timed(lambda m=model, Z=X_test, t=y_test: 1.0 - m.score(Z, t))  # type: ignore[misc]
            k = sum(map(len, model.relevance_per_class_))
            steps = int(np.sum(model.n_iter_))
            scanned = 2.0 * len(X) ** 2 * k  # every column of the dictionary against the model's, once a step
            row = {
                "table": name, "multi_class": multi_class, "n": len(X), "seconds": seconds, "error": wrong,
                "vectors": len(model.relevance_), "vectors_per_class": k, "steps": steps, "peak_gb": peak,
                "predict_seconds": predicted,
                "floor": machine.floor(0.5 * steps * scanned / (10 if multi_class == "ovr" else 1),
                                       0.5 * steps * 8.0 * len(X) ** 2),
            }  # fmt: skip
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def mixture(machine: Machine, n: int, profile: bool) -> dict:
    """Ripley's mixture of four normal distributions, two a class."""
    generator = torch.Generator(device=machine.device).manual_seed(0)
    centres = torch.tensor([[-0.7, 0.3], [0.3, 0.3], [-0.3, 0.7], [0.4, 0.7]], dtype=torch.float64)
    rows = 2 * n
    component = torch.randint(0, 4, (rows,), generator=generator, device=machine.device)
    noise = torch.randn((rows, 2), generator=generator, dtype=torch.float64, device=machine.device)
    X, y = centres.to(machine.device)[component] + 0.03**0.5 * noise, component // 2
    fit = RVC(width=0.5).fit
    model, seconds, peak = machine.timed(lambda: fit(X[:n], y[:n]), f"mixture of {n}" if profile else "")
    wrong, predicted, _ = machine.timed(lambda: float((model.predict(X[n:]) != y[n:]).double().mean()))
    return {"n": n, "seconds": seconds, "error": wrong, "vectors": len(model.relevance_), "peak_gb": peak,
            "steps": int(model.n_iter_), "predict_seconds": predicted}  # fmt: skip


def table(found: dict) -> str:
    """The results as Markdown."""
    lines = ["| what | N | s | floor s | vectors | test error | peak GB |", "|---|---|---|---|---|---|---|"]
    for part in ("sinc6", "sinc7"):
        row = found.get(part, {})
        if "seconds" in row:
            lines += [
                f"| sinc, fit | {row['n']} | {row['seconds']:.2f} | {row['floor']:.3f} | {row['vectors']} "
                f"| {row['rmse']:.5f} | {row['peak_gb']:.1f} |",
                f"| sinc, mean and std | {row['predicted_rows']} | {row['predict_seconds']:.4f} "
                f"| {row['predict_floor']:.5f} | | | |",
            ]
    rows = found.get("digits", [])
    for row in rows if isinstance(rows, list) else []:
        lines.append(
            f"| {row['table']}, {row['multi_class']} | {row['n']} | {row['seconds']:.2f} | {row['floor']:.3f} "
            f"| {row['vectors_per_class']} | {100 * row['error']:.2f}% | {row['peak_gb']:.1f} |"
        )
    row = found.get("mixture", {})
    if "seconds" in row:
        lines.append(
            f"| Ripley's mixture | {row['n']} | {row['seconds']:.2f} | | {row['vectors']} "
            f"| {100 * row['error']:.2f}% | {row['peak_gb']:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="same,sinc6,sinc7,digits,mixture")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies every N, for rehearsals")
    parser.add_argument("--budget", type=float, default=420.0, help="seconds after which no further part begins")
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    machine = Machine(args.device)
    name = torch.cuda.get_device_name() if machine.cuda else "host"
    found: dict = {"device": name, "torch": torch.__version__, "python": sys.version.split()[0],
                   "flops": machine.flops, "bandwidth": machine.bandwidth}  # fmt: skip
    print(json.dumps(found), flush=True)
    X, y, _ = sinc(4000, machine.device, seed=7)
    found["first_fit_seconds"] = machine.timed(lambda: RVR(width=2.5).fit(X, y))[1]  # libraries load
    parts = {
        "same": lambda: same_support(machine, max(4000, int(20_000 * args.scale))),
        "sinc6": lambda: regression(machine, int(1_000_000 * args.scale), args.profile),
        "sinc7": lambda: regression(machine, int(10_000_000 * args.scale), args.profile),
        "digits": lambda: digits(machine, int(7291 * min(1.0, args.scale * 100)), args.profile),
        "mixture": lambda: mixture(machine, int(100_000 * args.scale), args.profile),
    }
    for part in args.parts.split(","):
        if time.perf_counter() - began > args.budget:
            print(f"{part}: left out, {args.budget:g} s are spent", flush=True)
            continue
        try:
            found[part] = parts[part]()
            print(part, json.dumps(found[part]), flush=True)
        except Exception:
            found[part] = {"error": traceback.format_exc()}
            print(part, found[part]["error"], flush=True)
        if machine.cuda:
            torch.cuda.empty_cache()
        if os.environ.get("OUT"):
            Path(os.environ["OUT"], "gpu.json").write_text(json.dumps(found, indent=1))
    print(f"\n{table(found)}\n\n{time.perf_counter() - began:.0f} s in all", flush=True)


if __name__ == "__main__":
    main()
