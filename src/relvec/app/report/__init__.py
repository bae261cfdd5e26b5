"""The HTML report on a fitted pipeline and a table."""

from relvec.app.report.facts import CURES, plain_warnings
from relvec.app.report.page import write_report

__all__ = ["CURES", "plain_warnings", "write_report"]
