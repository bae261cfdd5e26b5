"""The HTML report on a fitted pipeline and a table."""

from relvec.report.advice import CURES, plain_warnings
from relvec.report.page import report

__all__ = ["CURES", "plain_warnings", "report"]
