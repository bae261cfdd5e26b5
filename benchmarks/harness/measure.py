"""One fit in a process of its own: time, memory, and what came out. Started by `runner`, never imported by it."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import statistics
import sys
import time
import warnings

WARM_ROWS = 40


def _rmse(est, X, truth):
    return float(((est.predict(X) - truth) ** 2).mean() ** 0.5)


def _gaussian_evidence(model, X, y, problem):
    from .evidence import log_evidence

    return log_evidence(model, X, y, problem.width)


def _wrong(est, X, truth):
    return 100.0 * float((est.predict(X) != truth).mean())


def _log_loss(est, X, truth):
    """Mean of -log p of the true class; None where a peer has no probabilities."""
    from sklearn.metrics import log_loss

    return float(log_loss(truth, est.predict_proba(X))) if hasattr(est, "predict_proba") else None


def _laplace_evidence(model, X, y, problem):
    from .evidence import laplace_evidence

    return laplace_evidence(model, X, y, problem.width)


# What a task is judged by: scores are (estimator, X_test, truth) -> float, the evidence (Model, X, y, problem).
SCORES = {"regression": {"RMSE": _rmse}, "classification": {"error %": _wrong, "log loss": _log_loss}}
EVIDENCE = {"regression": _gaussian_evidence, "classification": _laplace_evidence}


def child(job: dict, path: str) -> None:
    """Do the job and leave its result (JSON) in the file: once after the fit, once more when all is known."""
    if job["memory_limit"]:
        resource.setrlimit(resource.RLIMIT_DATA, (int(job["memory_limit"] * 2**30),) * 2)
    result: dict = {"status": "ok", "note": ""}
    try:
        _run(job, result, lambda: _write(result, path))
    except MemoryError:
        _fail(result, "out of memory", "")
    except ImportError as error:
        _fail(result, "not installed" if isinstance(error, ModuleNotFoundError) else "failed", repr(error))
    except Exception as error:
        out = any(word in f"{error!r} {error.__cause__!r}" for word in ("bad_alloc", "allocate"))
        _fail(result, "out of memory" if out else "failed", repr(error))
    _write(result, path)


def _run(job, result, fitted) -> None:
    from .competitors import PEERS
    from .problems import PROBLEMS

    peer, problem = PEERS[job["peer"]], PROBLEMS[job["problem"]]
    X_warm, y_warm = problem.train(WARM_ROWS, job["seed"])
    X, y = problem.train(job["n"], job["seed"])
    with warnings.catch_warnings(record=True) as raised, _threading(job["threads"]):
        warnings.simplefilter("always")
        est = peer.make(problem, job["threads"])
        with contextlib.suppress(Exception):  # what a peer cannot fit here it may fit there
            warm = peer.make(problem, job["threads"])
            warm.fit(X_warm, y_warm)
            warm.predict(X_warm)
        raised.clear()
        gc.collect()
        result["base_mb"] = _peak_mb()
        _fit(est, X, y, job["time_limit"], result)
        result["peak_mb"] = _peak_mb()
        result["threads"] = _threads()
        result["vectors"] = int(peer.vectors(est, job["n"]))
        result["note"] = "; ".join(dict.fromkeys(w.category.__name__ for w in raised))
        fitted()
        _judge(est, peer, problem, X, y, job, result)


def _fit(est, X, y, limit, result) -> None:
    """The fit alone, on the clock. The alarm ends the process: no handler could interrupt compiled code."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, limit)
    cpu, wall = time.process_time(), time.perf_counter()
    est.fit(X, y)
    result["fit_s"], result["cpu_s"] = time.perf_counter() - wall, time.process_time() - cpu
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _judge(est, peer, problem, X, y, job, result) -> None:
    """Prediction, scores and evidence. What fails here leaves a note and the fit counts all the same."""
    notes = [result["note"]] if result["note"] else []
    try:
        X_test, truth = problem.test(job["test_rows"], job["seed"])
        result["predict_s"] = statistics.median(_clock(est.predict, X_test) for _ in range(3))
        result["scores"] = {name: score(est, X_test, truth) for name, score in SCORES[problem.task].items()}
    except Exception as error:
        notes.append(f"prediction failed: {error!r}"[:160])
    try:
        model = peer.model(est, X, problem) if peer.model else None
        if model is not None:
            result["evidence"], result["maximised"] = EVIDENCE[problem.task](model, X, y, problem)
            result["own_evidence"] = None if model.own is None else float(model.own)
    except Exception as error:
        notes.append(f"evidence failed: {error!r}"[:160])
    result["note"] = "; ".join(notes)


def _threading(threads: int):
    """Parallel searches in threads: their memory is this process's. LIBSVM lets go of the interpreter's lock."""
    import joblib

    return joblib.parallel_config(backend="threading", n_jobs=threads)


def _clock(call, *arguments) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def _threads() -> int:
    """The most threads that any BLAS or OpenMP library loaded here uses."""
    from threadpoolctl import threadpool_info

    return max((pool["num_threads"] for pool in threadpool_info()), default=1)


def _fail(result: dict, status: str, note: str) -> None:
    if "peak_mb" not in result:  # otherwise the fit itself went well
        result["status"], result["note"] = status, note[:200]


def _write(result: dict, path: str) -> None:
    with open(path + ".part", "w") as file:
        json.dump(result, file)
    os.replace(path + ".part", path)
