"""Tables of any kind of columns: read them, fit and predict them, and evaluate the model.

The names below are loaded from their modules on first use.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "table": ("Table", "TableError", "as_table"),
    "files": ("read_table", "write_table"),
    "kinds": ("describe",),
    "columns": ("Column", "TableColumns"),
    "pipelines": ("FittedTable", "Plan", "Prediction", "fit_plan", "fit_table", "plan_table", "predict_table"),
    "target": ("target_of",),
    "evaluation": ("Evaluation", "Score", "evaluate_table"),
    "importance": ("Dependence", "Importance", "column_importance", "partial_dependence"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
