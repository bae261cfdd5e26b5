"""The process of many rows: learned on a draw, its vectors grown there, its posterior from sums over all rows."""

from relvec.gaussian_process.streamed.fit import LEAST_VECTORS, DrawnSamples, fit_in_passes, grow_further, mark_limit

__all__ = ["LEAST_VECTORS", "DrawnSamples", "fit_in_passes", "grow_further", "mark_limit"]
