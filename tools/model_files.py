"""Write the model files that the tests keep: python tools/model_files.py

They show that files written by an earlier version of the same schema still load. Run it when the schema changes.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import relvec
from relvec import RVC, RVR, GPClassifier, GPRegressor, kernels
from relvec.export.model_file import SCHEMA

FOLDER = Path(__file__).parents[1] / "tests" / "files"
NAME = f"schema{SCHEMA}"


def keep(name, model, rows, *methods):
    relvec.save(model, FOLDER / f"{NAME}-{name}.relvec")
    records = rows.to_records(index=False, column_dtypes={"c": "U1"}) if isinstance(rows, pd.DataFrame) else rows
    predictions = {method: getattr(model, method)(rows) for method in methods}
    np.savez(FOLDER / f"{NAME}-{name}.npz", rows=np.asarray(records), **predictions)


def main():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=40)
    label = np.digitize(y, [-0.4, 0.4])
    kernel = kernels.Gaussian((2.0, 3.0)) + kernels.Polynomial(2) * kernels.Matern(2.5, 4.0)
    keep("regressor", RVR(kernel=kernel, basis=["linear"], width="scale").fit(X, y), X[:5], "predict", "sample_y")
    keep("outputs", RVR(width="scale").fit(X, np.column_stack([y, X[:, 1]])), X[:5], "predict")
    keep("counts", RVR(likelihood="poisson", width="scale").fit(X, rng.poisson(np.exp(y))), X[:5], "predict")
    keep("softmax", RVC(width="scale").fit(X, label), X[:5], "predict_proba")
    keep("binary", RVC(kernel="laplace", width="scale").fit(X, label > 0), X[:5], "predict_proba")
    keep("process", GPRegressor(max_vectors=10).fit(X, y), X[:5], "predict")
    keep("process-classes", GPClassifier(max_vectors=10).fit(X, label), X[:5], "predict_proba")
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": rng.choice(["u", "v"], 40)})
    columns = ColumnTransformer([("n", StandardScaler(), ["a", "b"]), ("c", OneHotEncoder(), ["c"])])
    keep("pipeline", make_pipeline(columns, RVR(width="scale")).fit(frame, y), frame.iloc[:5], "predict")


if __name__ == "__main__":
    main()
