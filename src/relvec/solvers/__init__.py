"""How the evidence is maximised: sequentially (TF03, the default), or by MacKay's or EM's fixed point (T01)."""

from relvec.solvers.active_set import as_solver
from relvec.solvers.fixed_point import EM, MacKay
from relvec.solvers.loop import Status
from relvec.solvers.sequential import Sequential
from relvec.solvers.stepwise import Stepwise

__all__ = ["EM", "MacKay", "Sequential", "Status", "Stepwise", "as_solver"]
