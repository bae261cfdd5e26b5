"""
From a table to a report
========================

scikit-learn's diabetes data as a table with names, the way it would come from a file: ten measurements of 442 patients,
one column a category, and the progression of the disease a year later. The commands ``relvec fit``, ``relvec evaluate``
and ``relvec report`` do the same from a shell.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes

from relvec import RVR, plot
from relvec.app.report import plain_warnings, write_report
from relvec.app.report.summary import summary, vectors_of
from relvec.app.tables import as_table, evaluate_table, fit_table, predict_table

data = load_diabetes(scaled=False)
columns = dict(zip(data.feature_names, data.data.T, strict=True))
columns["sex"] = ["a" if value == 1 else "b" for value in columns["sex"]]  # coded 1 and 2 in the data
table = as_table({**columns, "progression": data.target})

train, test = table.take(range(0, 300)), table.take(range(300, 442))
fitted = fit_table(train, "progression", model=RVR())
for column in fitted.pipeline["columns"].columns:
    print(f"{column.name:4s} {column.kind:9s} {column.note}")

# %%
# What was found, and the first rows that were kept, as rows of the table.

for name, value in summary(fitted.pipeline):
    print(f"{name:13s} {value}")
header, rows = vectors_of(fitted.pipeline)
for row in [header, *rows[:3]]:
    print("  ".join(f"{cell:.9g}" if isinstance(cell, float) else f"{cell}" for cell in row))

# %%
# How good it is on the patients that were kept out, each score with its standard error.

evaluation = evaluate_table(fitted.pipeline, test)
for score in evaluation.scores:
    print(f"{score.name:15s} {score.value:8.3f} ± {score.error:.3f}   {score.meaning}")
print(*plain_warnings(fitted.pipeline, evaluation), sep="\n")

# %%
# A prediction with its interval, and the report, one HTML file.

found = predict_table(fitted.pipeline, test.take([0]), coverage=0.9)
print(f"{found.mean[0]:.0f}, 90% interval {found.interval[0, 0]:.0f} to {found.interval[0, 1]:.0f}")
page = write_report(fitted.pipeline, evaluation)
print(f"{len(page) / 1024:.0f} kB of HTML")

# %%
# Two of its pictures:

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
p, y = evaluation.prediction, evaluation.observed
plot.ResidualsDisplay.from_predictions(y, p.mean, p.std, ax=left)
plot.CalibrationDisplay.from_quantiles(y, p.quantiles, ax=right)
