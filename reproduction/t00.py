"""T00: M. E. Tipping, The Relevance Vector Machine, NIPS 12, 2000."""

from functools import partial

from reproduction import _sinc
from reproduction._experiment import Experiment, Published

EXPERIMENTS = (
    Experiment(
        name="T00-figure-1-left",
        title="Sinc without noise, linear splines, noise fixed at 0.01",
        source="T00 section 3.1, figure 1 (left)",
        published={
            "vectors": Published("9", "section 3.1"),
            "largest error": Published("0.0087", "section 3.1"),
            "vectors, SVM": Published("39", "section 3.1"),
            "largest error, SVM": Published("0.01", "section 3.1"),
        },
        run=_sinc.noise_free,
        assumptions=(_sinc.FROM_STARTS, _sinc.CONSTANT, _sinc.SAMPLES, _sinc.SPLINE_SVM),
    ),
    Experiment(
        name="T00-figure-1-right",
        title="Sinc with Gaussian noise of standard deviation 0.2, linear splines",
        source="T00 section 3.1, figure 1 (right)",
        published={
            "vectors": Published("6", "section 3.1"),
            "noise": Published("0.189", "section 3.1", best=0.2),
        },
        run=partial(_sinc.noisy, _sinc.gaussian(0.2), False),
        quick=100,
        full=100,
        seconds=0.05,
        assumptions=(
            _sinc.BY_UPDATE,
            _sinc.CONSTANT,
            "the published numbers are one draw; ours are independent draws of the noise",
        ),
    ),
)
