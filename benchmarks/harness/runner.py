"""Starts the fits, each in a fresh process with the same number of threads, and decides which to leave out.

Only the standard library here: on Linux a child's peak memory starts from that of the process that made it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from .competitors import PEERS
from .problems import PROBLEMS

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
AFTERWARDS = 600  # seconds for imports, prediction and evidence, on top of the fit's limit

# After these a larger fit of the same peer would only end the same way.
FINAL = ("not installed", "over the time limit", "out of memory")


def run_one(script: Path, job: dict) -> dict:
    """One fit in a process of its own: {"status": "ok", "fit_s": ...}, or a status that says what went wrong."""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(job["threads"]))
    environment.pop("OMP_WAIT_POLICY", None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        try:
            done = subprocess.run(
                [sys.executable, str(script), "--child", json.dumps(job), str(path)],
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=job["time_limit"] + AFTERWARDS,
            )
            code, errors = done.returncode, done.stderr.strip()
        except subprocess.TimeoutExpired:
            code, errors = -signal.SIGALRM, "prediction or evidence took too long"
        if path.exists():
            result = json.loads(path.read_text())
            if code:
                result["note"] = (result["note"] + f"; ended with code {code} after the fit").lstrip("; ")
            return result
    if code == -signal.SIGALRM:
        return {"status": "over the time limit", "note": errors[-200:]}
    if code == -signal.SIGKILL:
        return {"status": "out of memory", "note": "killed"}
    return {"status": "failed", "note": f"code {code}: {errors[-200:]}"}


def run_all(script: Path, options, progress):
    """All fits, problem by problem and size by size: yields the list of finished fits after each size.

    The repeats go round the peers, so that a disturbance of the machine meets all of them.
    """
    fits: list[dict] = []
    for name in options.problems:
        problem = PROBLEMS[name]
        peers = [PEERS[p] for p in options.peers if PEERS[p].task == problem.task]
        ended: dict[str, tuple[str, int]] = {}
        for n in sorted(options.sizes or problem.sizes):
            waiting = []
            for peer in peers:
                why = _left_out(peer, n, ended.get(peer.name), options)
                if why:
                    fits.append({"problem": name, "n": n, "peer": peer.name, "repeat": 0, "status": why, "note": ""})
                else:
                    waiting.append(peer)
            for repeat in range(options.repeats):
                for peer in list(waiting):
                    fit = _one(script, options, name, n, peer.name, repeat)
                    fits.append(fit)
                    progress(fit)
                    if fit["status"] in FINAL:
                        ended[peer.name] = (fit["status"], n)
                    if fit["status"] != "ok" or fit["fit_s"] > options.repeat_below:
                        waiting.remove(peer)
            yield fits


def _one(script, options, problem, n, peer, repeat) -> dict:
    job = {
        "problem": problem,
        "n": n,
        "peer": peer,
        "seed": options.seed,
        "threads": options.threads,
        "time_limit": options.time_limit,
        "memory_limit": options.memory_limit,
        "test_rows": options.test_rows,
    }
    source = fingerprint() if PEERS[peer].package == "relvec" else ""
    return {"problem": problem, "n": n, "peer": peer, "repeat": repeat, "source": source, **run_one(script, job)}


def fingerprint() -> str:
    """Eight digits that change with relvec's source: a run that meets two versions compares nothing."""
    found = importlib.util.find_spec("relvec")
    if found is None or not found.submodule_search_locations:
        return ""
    digest = hashlib.sha256()
    for path in sorted(Path(found.submodule_search_locations[0]).rglob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def _left_out(peer, n, ended, options) -> str:
    if ended:
        status, at = ended
        return status if status == "not installed" else f"skipped: {status} at N = {at}"
    if peer.largest and n > peer.largest and not options.no_caps:
        return f"skipped: only run up to N = {peer.largest}"
    return ""
