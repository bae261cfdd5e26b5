"""C source that is being written: definitions in order, tables of numbers, string literals."""

from __future__ import annotations

from typing import SupportsFloat

import numpy as np
from numpy.typing import ArrayLike

from relvec._version import __version__
from relvec.export.formulas import Arithmetic, Number


def format_double(value: SupportsFloat) -> str:
    """Return a double in decimal digits that give the same double back."""
    return repr(float(value))


class CSource:
    """Definitions in order, whose names have one prefix."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._lines: list[str] = []
        self._count = 0
        self._tables: dict[tuple[str, bytes], str] = {}

    def new_name(self, stem: str) -> str:
        """Return a name that no other definition has."""
        self._count += 1
        return f"{self.name}_{stem}{self._count}"

    def add(self, text: str) -> None:
        """Append lines of C, in which @ stands for the prefix and an underscore."""
        self._lines.append(text.replace("@", f"{self.name}_").rstrip())

    def constant(self, stem: str, value: int) -> None:
        """Append a whole number with a name."""
        self.add(f"enum {{ @{stem} = {int(value)} }};")

    def table(self, values: ArrayLike, stem: str = "t", kind: str = "double") -> str:
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
        """Return the whole source."""
        head = f"/* Written by relvec {__version__}. */\n#include <math.h>\n"
        return head + "\n" + "\n\n".join(self._lines) + "\n"


def quote(label: object) -> str:
    """Write a label as a string literal of C in UTF-8; octal escapes for what C or `CSource.add` would interpret."""
    plain = set(range(32, 127)) - set(b'"\\?@')
    letters = [chr(byte) if byte in plain else f"\\{byte:03o}" for byte in str(label).encode(errors="surrogatepass")]
    return '"' + "".join(letters) + '"'


_OPERATIONS = {
    "add": "{} + {}", "subtract": "{} - {}", "multiply": "{} * {}", "divide": "{} / {}", "negative": "-{}",
    "reciprocal": "1.0 / {}", "maximum": "fmax({}, {})",
}  # fmt: skip


class Statements(Arithmetic):
    """Statements of C in order, each of which defines a number."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, expression: str) -> str:
        """Append a new variable of this value; return its name."""
        self.lines.append(f"    const double v{len(self.lines)} = {expression};")
        return f"v{len(self.lines) - 1}"

    def apply(self, operation: str, *arguments: Number | float) -> Number:
        names = [a.name if isinstance(a, Number) else format_operand(a) for a in arguments]
        pattern = _OPERATIONS.get(operation, operation + "({})")  # the others are functions of math.h
        return Number(self, self.let(pattern.format(*names)))


def format_operand(value: float) -> str:
    """Return a double as an operand."""
    return f"({format_double(value)})" if value < 0 else format_double(value)
