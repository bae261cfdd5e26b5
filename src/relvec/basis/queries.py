"""Questions about a dictionary: whether rows are needed to bind it, and the memory that it takes."""

from __future__ import annotations

from relvec.basis.base import Basis
from relvec.basis.concat import Concat, leaves
from relvec.basis.functions import Functions
from relvec.basis.kernel_basis import KernelBasis
from relvec.basis.monomials import Monomials
from relvec.kernels import FromCallable, Kernel, Product, Sum, has_numeric_widths


def is_fixed(basis: Basis) -> bool:
    """Whether the atoms are known before any training row: no centres, widths or kernel values come from the rows.

    >>> from relvec.kernels import Gaussian
    >>> is_fixed(Concat(["bias", KernelBasis(Gaussian(1.0), centres=[[0.0]])])), is_fixed(KernelBasis(Gaussian(1.0)))
    (True, False)
    """
    if isinstance(basis, Concat):
        return all(is_fixed(part) for part in basis.parts)
    if isinstance(basis, KernelBasis):
        return basis.centres is not None and has_numeric_widths(basis.kernel)
    return isinstance(basis, Monomials | Functions) or basis.n_features is not None


def numbers_per_entry(basis: Basis) -> int:
    """Doubles of workspace per entry of the design matrix of a bound dictionary.

    A function is assumed to form the differences of all features, and their squares.

    >>> import numpy as np
    >>> [numbers_per_entry(KernelBasis(kernel).bind([[1.0, 2.0]])) for kernel in ("gaussian", np.dot)]
    [4, 8]
    """

    def of(kernel: Kernel) -> int:
        if isinstance(kernel, Sum | Product):
            return 1 + max(of(part) for part in kernel.parts)
        return 2 * (basis.n_features or 1) + 3 if isinstance(kernel, FromCallable) else 3

    return 1 + max((of(leaf.kernel) for leaf in leaves(basis) if isinstance(leaf, KernelBasis)), default=3)
