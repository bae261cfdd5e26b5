"""Moves and atoms that are equal for all that a double can tell: the content of the atoms decides between them."""

from __future__ import annotations

import numpy as np

TIE_NATS = 1e-9  # gains closer than this are equal
MIN_COPY_CORRELATION = 1.0 - 1e-12  # of two columns of which one is a copy, or a negation, of the other


def best(gains: np.ndarray, order: np.ndarray) -> int:
    """Index of the largest gain; among equals the lowest in order."""
    largest = gains.max()
    equal = np.flatnonzero(gains >= largest - TIE_NATS * max(1.0, largest))
    return int(equal[0]) if equal.size == 1 else int(equal[np.argmin(order[equal])])


def first_of_equals(ratio: np.ndarray, order: np.ndarray) -> np.ndarray:
    """For each row (k, m) the column of its largest entry; among equals the lowest in order ((m,) or (k, m))."""
    top = ratio.max(axis=1)
    equal = ratio >= (top * (1.0 - TIE_NATS))[:, None]
    many = equal.sum(axis=1) > 1
    j = ratio.argmax(axis=1)
    if many.any():
        ranks = np.where(equal, order, np.iinfo(np.intp).max)
        j = np.where(many, ranks.argmin(axis=1), j)
    return j


def merge_copies(gram: np.ndarray, alpha: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which of k columns with inner products (k, k) to keep, and their precisions, where some are copies or negations.

    The evidence depends on copies only through the sum of 1 / alpha (T01 section 2.2), so the first in order takes it
    all and nothing changes.
    """
    norm = np.sqrt(gram.diagonal())  # not quite one where columns are held in single precision
    equal = np.abs(gram) > MIN_COPY_CORRELATION * np.outer(norm, norm)
    np.fill_diagonal(equal, True)
    if np.count_nonzero(equal) == len(alpha):
        return np.arange(len(alpha)), alpha
    first = np.array([np.flatnonzero(row)[np.argmin(order[row])] for row in equal])
    keep = np.flatnonzero(first == np.arange(len(alpha)))
    return keep, np.array([1.0 / np.sum(1.0 / alpha[first == i]) for i in keep])
