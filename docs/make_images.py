"""Draw the pictures of the README: python docs/make_images.py."""

from pathlib import Path

import numpy as np

from relvec import RVR
from relvec.plot import new_figure, plot_fit

IMAGES = Path(__file__).parent / "images"


def sinc(X):
    return np.sinc(X[:, 0] / np.pi)


def draw_sinc(path):
    X = np.linspace(-10, 10, 100)[:, None]
    y = sinc(X) + np.random.default_rng(0).normal(0, 0.1, 100)
    figure = new_figure(7.2, 3.6)
    plot_fit(RVR().fit(X, y), X, y, figure.subplots(), truth=sinc)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_sinc(IMAGES / "sinc.png")
