"""Messy tables as people keep them: made, so that what is in them is known."""

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


def cars(n=120, seed=0):
    """Return the bytes of a CSV file with semicolons, decimal commas, units, mixed dates, gaps and a stray word."""
    rng = np.random.default_rng(seed)
    lines = ["Nr;Erstzulassung;Leistung;Kilometer;Kraftstoff;Preis"]
    for i in range(n):
        year, power, km = rng.integers(2008, 2024), rng.choice([75, 90, 110, 150]), rng.integers(5, 200) * 1000
        price = 30000 * np.exp(-0.09 * (2024 - year)) * (power / 110) ** 0.7 * np.exp(0.05 * rng.normal())
        day = f"{year}-03-1{i % 9}" if i % 6 == 0 else f"1{i % 9}.04.{year}"
        cell = "unbekannt" if i in (5, 50) else f"{power} PS"
        row = [f"A{i}", day, cell, "" if i % 15 == 2 else str(km), rng.choice(["Benzin", "Diesel"]), f"{price:.2f}"]
        lines.append(";".join([*row[:-1], row[-1].replace(".", ",")]))
    return ("\n".join(lines) + "\n").encode("latin-1")


def plain(data, target, n, rng):
    """Return the bytes of a CSV file with rows of a data set of scikit-learn."""
    chosen = rng.permutation(len(data.data))[:n]
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    lines = [",".join([*names, target])]
    lines += [",".join([*(f"{v:.6g}" for v in data.data[i]), str(data.target[i])]) for i in chosen]
    return ("\n".join(lines) + "\n").encode()
