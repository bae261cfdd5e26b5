"""Frozen records: they check their own invariants, as a file need not hold a model, and print a few lines."""

from __future__ import annotations

import numbers
import types
import typing
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np


class Record:
    """A dataclass whose fields have the types that are annotated, the shapes and the signs that it names.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Line(Record):
    ...     SHAPES = {"at": "n", "value": "n"}
    ...     at: np.ndarray
    ...     value: np.ndarray
    >>> Line(np.zeros(3), np.zeros(2)).check()
    Traceback (most recent call last):
    ValueError: Line.value has the shape (2,), which does not match the other arrays
    """

    SHAPES: ClassVar[dict[str, str]] = {}  # dimensions of arrays: equal letters are equal numbers, "." is any
    NOT_NEGATIVE: ClassVar[tuple[str, ...]] = ()  # fields that are zero or more
    FINITE: ClassVar[bool] = True  # whether numbers are to be finite, but for
    MAY_BE_INFINITE: ClassVar[tuple[str, ...]] = ()  # what no prediction needs, or stands for something else

    def is_consistent(self, sizes: dict[str, int]) -> bool:
        """Tell whether parts that are no dimensions of arrays agree with those, whose letters have these sizes."""
        return True

    def check(self) -> None:
        """Raise ValueError unless the fields are those of a model."""
        name, sizes = type(self).__name__, dict[str, int]()
        for field in annotations_of(type(self)):  # type: ignore[arg-type]
            value = getattr(self, field)
            numeric = isinstance(value, np.ndarray | numbers.Real)
            if self.FINITE and field not in self.MAY_BE_INFINITE and numeric and not _is_finite(np.asarray(value)):
                raise ValueError(f"{name}.{field} holds NaN or infinite numbers, or no numbers")
            if field in self.NOT_NEGATIVE and value is not None and np.any(value < 0.0):
                raise ValueError(f"{name}.{field} holds negative numbers")
        for field, letters in self.SHAPES.items():
            array = getattr(self, field)
            if array is not None and not _fits(array.shape, letters, sizes):
                raise ValueError(f"{name}.{field} has the shape {array.shape}, which does not match the other arrays")
        if not self.is_consistent(sizes):
            raise ValueError(f"the parts of {name} do not fit together")


def check_types(record: object) -> None:
    """Raise ValueError unless the fields of a dataclass have the types that are annotated."""
    for field, hint in annotations_of(type(record)).items():  # type: ignore[arg-type]
        value = getattr(record, field)
        if not _matches(value, hint):
            raise ValueError(f"{type(record).__name__}.{field} is of the wrong type, {type(value).__name__}")


def is_index(values: np.ndarray, size: int) -> bool:
    """Tell whether values are numbers of so many things."""
    return values.dtype.kind in "iu" and bool(np.all((values >= 0) & (values < size)))


@cache
def annotations_of(cls: type) -> dict[str, object]:
    """Return the annotations of a record by field, evaluated once."""
    if not is_dataclass(cls):
        return {}
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _matches(value: object, hint: Any) -> bool:
    """Tell whether a value is of the type that an annotation names; annotations of other kinds name no type."""
    if hint is Any:
        return True
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return any(_matches(value, argument) for argument in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        each = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
        return len(each) == len(value) and all(map(_matches, value, each))
    if hint in (float, int):  # a numpy integer in place of a number would overflow without a word
        return isinstance(value, float | int | np.floating if hint is float else numbers.Integral)
    return isinstance(value, origin or hint) if isinstance(origin or hint, type) else True


def _is_finite(array: np.ndarray) -> bool:
    return array.dtype.kind in "biuf" and bool(np.isfinite(array).all())


def _fits(shape: tuple[int, ...], letters: str, sizes: dict[str, int]) -> bool:
    if len(shape) != len(letters):
        return False
    return all(n == sizes.setdefault(letter, n) for n, letter in zip(shape, letters, strict=True) if letter != ".")


MAX_CHARACTERS = 60  # of a value that is printed as it is
MAX_NUMBERS = 6  # of an array, likewise


class Brief:
    """A dataclass that prints one line a field; large arrays by their shape, records in it by their name.

    >>> from dataclasses import dataclass
    >>> @dataclass(repr=False)
    ... class Fit(Brief):
    ...     status: str
    ...     weights: np.ndarray
    >>> Fit("converged", np.zeros((200, 3)))
    Fit
      status: 'converged'
      weights: array (200, 3)
    """

    def __repr__(self) -> str:
        lines = [f"  {field.name}: {describe_value(getattr(self, field.name))}" for field in fields(self)]  # type: ignore[arg-type]
        return "\n".join([type(self).__name__, *lines])


def describe_value(value: object) -> str:
    """Describe a value in at most `MAX_CHARACTERS`.

    >>> describe_value([np.zeros(3), np.zeros(900)])
    '[array([0., 0., 0.]), array (900,)]'
    """
    if isinstance(value, np.ndarray):
        if value.size > MAX_NUMBERS or value.dtype.names:
            return f"array {value.shape}"
        return f"array({np.array2string(value, precision=6, separator=', ')})"
    if isinstance(value, Brief):
        return type(value).__name__
    if isinstance(value, list | tuple):
        shown = ", ".join(describe_value(item) for item in value)
        return f"[{shown}]" if len(shown) <= MAX_CHARACTERS else f"{len(value)} x {type(value[0]).__name__}"
    text = repr(value)
    return text if len(text) <= MAX_CHARACTERS else type(value).__name__
