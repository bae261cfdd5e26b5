"""
A model in one file, and in a microcontroller
=============================================

``relvec.save`` writes a file that can be loaded without running any code. A sparse model is small enough to become a
few kilobytes of C that need nothing but ``math.h``.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import relvec
from relvec import plot

rng = np.random.default_rng(0)
X = rng.uniform(0, 60, (200, 2))  # temperature, humidity
y = 0.1 * X[:, 0] + np.sin(X[:, 1] / 10) + rng.normal(0, 0.1, 200)
model = make_pipeline(StandardScaler(), relvec.RVR(width=2.0)).fit(X, y)
plot.SurfaceDisplay.from_estimator(model, X, y)

# %%
# The file:

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "sensor.relvec"
    relvec.save(model, path)
    again = relvec.load(path)
    same = np.array_equal(again.predict(X), model.predict(X))
    print(f"{path.stat().st_size / 1024:.1f} kB on disk, same predictions: {same}")

# %%
# The same model as C99. One row goes in, the mean and the standard deviation come out.

source = relvec.to_c(model, name="sensor")
print(f"{len(source) / 1024:.1f} kB of source for {len(model[-1].relevance_)} vectors; it begins")
print("\n".join(source.splitlines()[:12]))
