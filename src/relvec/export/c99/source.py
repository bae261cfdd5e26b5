"""C source that is being written: definitions in order, tables of numbers, string literals."""

from __future__ import annotations

from typing import Any

import numpy as np

from relvec._version import __version__


def format_double(value: Any) -> str:
    """A double in decimal digits that give the same double back."""
    return repr(float(value))


class Source:
    """Definitions in order, whose names have one prefix."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._count = 0
        self._tables: dict[tuple[str, bytes], str] = {}

    def new_name(self, stem: str) -> str:
        """A name that no other definition has."""
        self._count += 1
        return f"{self.name}_{stem}{self._count}"

    def add(self, text: str) -> None:
        """Append lines of C, in which @ stands for the prefix and an underscore."""
        self._lines.append(text.replace("@", f"{self.name}_").rstrip())

    def constant(self, stem: str, value: int) -> None:
        """Append a whole number with a name."""
        self.add(f"enum {{ @{stem} = {int(value)} }};")

    def table(self, values: Any, stem: str = "t", kind: str = "double") -> str:
        """Append a constant array, flat, unless there is an equal one; return its name."""
        array = np.ravel(values)
        key = kind, array.tobytes()
        if key in self._tables:
            return self._tables[key]
        name = self._tables[key] = self.new_name(stem)
        if kind == "double" and not np.isfinite(array).all():
            raise ValueError("the model's numbers overflow in the units of X and y: rescale them, e.g. StandardScaler")
        items = [format_double(value) if kind == "double" else str(int(value)) for value in array]
        lines = [", ".join(items[i : i + 6]) for i in range(0, len(items), 6)]
        self.add(f"static const {kind} {name}[{len(items)}] = {{\n    " + ",\n    ".join(lines) + "\n};")
        return name

    def text(self) -> str:
        """The whole source."""
        head = f"/* Written by relvec {__version__}. */\n#include <math.h>\n"
        return head + "\n" + "\n\n".join(self._lines) + "\n"


def quote(label: Any) -> str:
    """A label as a string literal of C in UTF-8; octal escapes stand for all that C or `Source.add` would interpret."""
    plain = set(range(32, 127)) - set(b'"\\?@')
    letters = [chr(byte) if byte in plain else f"\\{byte:03o}" for byte in str(label).encode(errors="surrogatepass")]
    return '"' + "".join(letters) + '"'


def open_body(prepared: bool, locals_: str) -> str:
    """The first lines of a function of the raw inputs: they compute phi."""
    if prepared:
        return f"    double u[@INPUTS], phi[@ATOMS];\n{locals_}\n    @prepare(x, u);\n    @columns(u, phi);\n"
    return f"    double phi[@ATOMS];\n{locals_}\n    @columns(x, phi);\n"


def write_dot(source: Source, weights: np.ndarray) -> str:
    """An expression for phi'weights."""
    return f"@dot(phi, {source.table(weights if weights.size else [0.0], 'm')})"


def add_dot(source: Source) -> None:
    """NAME_dot(phi, w): phi'w."""
    source.add("""static double @dot(const double *phi, const double *w)
{
    double s = 0.0;
    int i;
    for (i = 0; i < @ATOMS; i++) s += phi[i] * w[i];
    return s;
}""")


def write_squares(source: Source, root: np.ndarray) -> str:
    """A statement that sets v to |phi' root|^2."""
    if not root.size:
        return "    v = 0.0;"
    return f"    v = @squares(phi, {source.table(root, 's')}, {root.shape[1]});"


def add_squares(source: Source) -> None:
    """NAME_squares(phi, root, k): |phi'root|^2 for root (m, k)."""
    source.add("""static double @squares(const double *phi, const double *root, int k)
{
    double v = 0.0;
    int i, j;
    for (j = 0; j < k; j++) {
        double s = 0.0;
        for (i = 0; i < @ATOMS; i++) s += phi[i] * root[i * k + j];
        v += s * s;
    }
    return v;
}""")
