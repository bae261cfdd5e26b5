"""Dictionaries of basis functions: the M atoms phi_m(x) a model may choose from.

A `Basis` is immutable. `bind(X)` fixes what depends on the training rows (centres, widths, number of features)
and gives a new one; `basis(X)` is the design matrix Phi (n, M); `take(atoms)` keeps some atoms and only what they
need, which is all a fitted model stores.
"""

from relvec.basis.base import Basis, Bias, EmptyBasis, Linear, Monomials, Polynomial
from relvec.basis.concat import (
    Concat,
    as_basis,
    atom_keys,
    centres_of,
    content_ranks,
    even_draw,
    input_columns,
    is_fixed,
    is_inputs,
    kernels_of,
    leaves,
    multi_scale,
    numbers_per_entry,
)  # fmt: skip
from relvec.basis.kernel_basis import Functions, KernelBasis, Precomputed

__all__ = [
    "Basis", "Bias", "Concat", "EmptyBasis", "Functions", "KernelBasis", "Linear", "Monomials", "Polynomial",
    "Precomputed", "as_basis", "atom_keys", "centres_of", "content_ranks", "even_draw", "input_columns", "is_fixed",
    "is_inputs", "kernels_of", "leaves", "multi_scale", "numbers_per_entry",
]  # fmt: skip
