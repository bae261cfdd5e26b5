"""Pictures of fitted models. They need matplotlib (``pip install 'relvec[plot]'``), imported when a picture is drawn.

The classes follow scikit-learn's displays: ``from_estimator`` computes and draws, ``plot`` draws once more, and ``ax_``
and ``figure_`` are where. Every function draws into the axes it is given, or into new ones, and returns them. No screen
is needed: `new_figure` makes a figure that is only ever saved.
"""

from relvec.plot._axes import LINE, POINT, TRUTH, VECTOR, new_figure
from relvec.plot._fit import FitDisplay, SurfaceDisplay, plot_fit, plot_predictions
from relvec.plot._quality import CalibrationDisplay, FeatureRelevanceDisplay, HistoryDisplay, ResidualsDisplay

__all__ = [
    "LINE",
    "POINT",
    "TRUTH",
    "VECTOR",
    "CalibrationDisplay",
    "FeatureRelevanceDisplay",
    "FitDisplay",
    "HistoryDisplay",
    "ResidualsDisplay",
    "SurfaceDisplay",
    "new_figure",
    "plot_fit",
    "plot_predictions",
]
