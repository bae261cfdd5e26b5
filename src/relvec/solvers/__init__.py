"""How the evidence is maximised: sequentially (TF03, the default), or by MacKay's or EM's fixed point (T01)."""

from relvec.solvers.active_set import solve
from relvec.solvers.fixed_point import EM, MacKay
from relvec.solvers.loop import Problem, Result, Solver, Start, Status, Step, iterate
from relvec.solvers.sequential import Sequential

__all__ = [
    "EM",
    "MacKay",
    "Problem",
    "Result",
    "Sequential",
    "Solver",
    "Start",
    "Status",
    "Step",
    "as_solver",
    "iterate",
    "solve",
]

_NAMES: dict[str, type] = {"sequential": Sequential, "mackay": MacKay, "em": EM}


def as_solver(spec: str | Solver) -> Solver:
    """A solver from its name ("sequential", "mackay", "em") or the object itself.

    >>> as_solver("mackay")
    MacKay(prune_gamma=2.220446049250313e-16, prune_alpha=1000000000000.0, time_limit=None)
    """
    if isinstance(spec, str) and spec in _NAMES:
        return _NAMES[spec]()
    if isinstance(spec, (Sequential, MacKay, EM)):
        return spec
    raise ValueError(
        f"solver must be one of {', '.join(map(repr, _NAMES))} or a solver object such as "
        f"relvec.solvers.Sequential(restarts=5), got {spec!r}"
    )
