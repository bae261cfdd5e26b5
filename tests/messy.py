"""A messy table as people keep them: made, so that what is in it is known."""

import csv
import io

import numpy as np


def houses(n=220, seed=0):
    """Return the bytes of a CSV file: a byte-order mark, odd headers, quotes, commas, dates, gaps, a constant."""
    rng = np.random.default_rng(seed)
    area, town = rng.uniform(30, 200, n), rng.choice(["Ulm", "Köln, Süd", 'the "Old" Town'], n, p=[0.5, 0.35, 0.15])
    day = np.datetime64("2019-01-01") + rng.integers(0, 1500, n)
    garden = rng.choice(["yes", "no", "Yes"], n)
    price = 1000 * area * (1 + 0.3 * (town == "Ulm")) + 20000 * (garden != "no") + rng.normal(0, 8000, n)
    text = io.StringIO()
    out = csv.writer(text)
    out.writerow(["House ID", " Area (m²)", "Town ", "", "sold on", "Garden?", "currency", "rooms", "rooms", "Price"])
    for i in range(n):
        out.writerow([
            f"H{i:04d}", rng.choice(["", "NA", "?"]) if rng.random() < 0.08 else f"{area[i]:.1f}",
            "" if rng.random() < 0.04 else town[i], rng.integers(1, 6), f"{day[i].astype(object):%d.%m.%Y}", garden[i],
            "EUR", rng.integers(1, 8), rng.integers(1, 8), "" if i % 50 == 7 else f"{price[i]:,.0f}",
        ])  # fmt: skip
    return b"\xef\xbb\xbf" + text.getvalue().encode()


def patients(n=160, seed=1):
    """Return the bytes of a CSV file with a class to predict, words for missing cells and a column of free text."""
    rng = np.random.default_rng(seed)
    age, dose = rng.integers(20, 80, n), rng.choice(["low", "high", "none at all"], n)
    well = rng.random(n) < 1 / (1 + np.exp(-(age - 50) / 8 - 1.5 * (dose == "high")))
    rows = ["patient;age;dose;note;recovered"]
    for i in range(n):
        note = f"seen on visit {i}; said that all was as it had been before, more or less"
        rows.append(f'p{i};{age[i] if i % 20 else ""};{dose[i]};"{note}";{"Yes" if well[i] else "no"}')
    return "\n".join(rows).encode()


def calls(n=150, seed=2):
    """Return the bytes of JSON lines with counts to predict."""
    import json

    rng = np.random.default_rng(seed)
    hour = rng.uniform(0, 24, n)
    count = rng.poisson(np.exp(1 + np.sin(hour / 24 * 2 * np.pi)))
    return "\n".join(json.dumps({"hour": h, "holiday": bool(i % 7 == 0), "calls": int(c)})
                     for i, (h, c) in enumerate(zip(hour, count, strict=True))).encode()  # fmt: skip
