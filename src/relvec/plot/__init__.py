"""Pictures of fitted models. They need matplotlib (``pip install 'relvec[plot]'``), imported when a picture is drawn.

The classes follow scikit-learn's displays: ``from_estimator`` computes and draws, ``plot`` draws once more, and ``ax_``
and ``figure_`` are where. Every function draws into the axes it is given, or into new ones, and returns them. No screen
is needed: `new_figure` makes a figure that is only ever saved.
"""

from relvec.plot.axes import LINE, POINT, TRUTH, VECTOR, new_figure
from relvec.plot.calibration import CalibrationDisplay, ResidualsDisplay
from relvec.plot.fit import FitDisplay, SurfaceDisplay, plot_fit, plot_predictions
from relvec.plot.search import FeatureRelevanceDisplay, HistoryDisplay, RelevancePathDisplay

__all__ = [
    "LINE", "POINT", "TRUTH", "VECTOR", "CalibrationDisplay", "FeatureRelevanceDisplay", "FitDisplay",
    "HistoryDisplay", "RelevancePathDisplay", "ResidualsDisplay", "SurfaceDisplay", "new_figure", "plot_fit",
    "plot_predictions",
]  # fmt: skip
