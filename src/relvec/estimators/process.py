"""What the processes for regression and classes share: attributes from their record."""

from __future__ import annotations

from relvec.estimators.base import BaseModel
from relvec.estimators.records import FittedProcess


class Process(BaseModel):
    """A process whose kernel the data choose."""

    record_type = FittedProcess
    fitted_: FittedProcess

    def _copy_process(self, fitted: FittedProcess) -> None:
        """Set the attributes that regressor and classifier have in common; drop those that this fit has not."""
        self._copy_common(fitted)
        self.vectors_, self.vector_rows_ = fitted.vectors, fitted.rows
