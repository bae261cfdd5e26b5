"""Kernels and dictionaries as functions in C."""

from __future__ import annotations

import re

import numpy as np

from relvec import basis as bases
from relvec import kernels
from relvec.export.c99.source import CSource, Statements, format_double
from relvec.export.formulas import PROFILED, Number, profile


def _add_kernel(source: CSource, kernel: kernels.Kernel) -> str:
    """Append a function of (x, z); return its name."""
    if isinstance(kernel, kernels.Sum | kernels.Product):
        calls = [f"{_add_kernel(source, part)}(x, z)" for part in kernel.parts]
        return _add_function(source, f"    return {(' + ' if isinstance(kernel, kernels.Sum) else ' * ').join(calls)};")
    if type(kernel) is kernels.Linear:
        return _add_function(source, f"{_loop('s += x[i] * z[i];')}\n    return s;")
    if type(kernel) is kernels.Polynomial:
        width = _write_width(source, kernel.width_array())
        body = _loop(f"s += x[i] * z[i] / ({width} * {width});")
        power = f"pow(s + {format_double(kernel.offset)}, {kernel.degree}.0)"
        return _add_function(source, f"{body}\n    return {power};")
    if type(kernel) is kernels.LinearSpline:  # T01 eq. (29)
        body = """    double s = 1.0;
    int i;
    for (i = 0; i < @INPUTS; i++) {
        const double low = x[i] < z[i] ? x[i] : z[i], high = x[i] < z[i] ? z[i] : x[i];
        s *= 1.0 + x[i] * z[i] + low * low * (3.0 * high - low) / 6.0;
    }
    return s;"""
        return _add_function(source, body)
    if type(kernel) in PROFILED:
        assert isinstance(kernel, kernels.StationaryKernel)
        width = _write_width(source, kernel.width_array())
        body = _loop(f"const double u = (x[i] - z[i]) / {width}; s += u * u;")
        known = Statements()
        value = profile(kernel, Number(known, "s"))
        lines = [body, "    if (s > 1e300) s = 1e300;", *known.lines, f"    return {value.name};"]
        return _add_function(source, "\n".join(lines))
    raise NotImplementedError(
        f"to_c cannot translate the kernel {kernel!r}: use one of relvec.kernels; Python functions cannot be translated"
    )


def _loop(statement: str) -> str:
    return f"    double s = 0.0;\n    int i;\n    for (i = 0; i < @INPUTS; i++) {{ {statement} }}"


def _add_function(source: CSource, body: str) -> str:
    name = source.new_name("k")
    source.add(f"static double {name}(const double *x, const double *z)\n{{\n{body}\n}}")
    return name


def _write_width(source: CSource, width: np.ndarray) -> str:
    return f"{source.table(width, 'w')}[i]" if width.ndim else format_double(width)


def add_columns(source: CSource, basis: bases.Basis) -> None:
    """Add NAME_columns(x, phi): the basis functions at x. A model without any gets one that is 0."""
    M = basis.n_atoms
    source.constant("ATOMS", max(M, 1))
    lines = _write_part(source, basis, np.arange(M)) if M else ["phi[0] = 0.0 * x[0];"]
    loops = "    int j;\n" if any("j" in re.findall(r"\bj\b", line) for line in lines) else ""
    unused = "" if any(re.search(r"\bx\b", line) for line in lines) else "    (void)x;\n"
    body = "\n".join(f"    {line}" for line in lines)
    source.add(f"static void @columns(const double *x, double *phi)\n{{\n{loops}{unused}{body}\n}}")


def _write_part(source: CSource, basis: bases.Basis, columns: np.ndarray) -> list[str]:
    """Write the statements that write the atoms of a dictionary to their columns (M,) of phi."""
    if isinstance(basis, bases.Concat):
        parts = zip(basis.parts, basis.part_columns(), strict=True)
        return [line for part, where in parts for line in _write_part(source, part, columns[where])]
    if type(basis) is bases.KernelBasis:
        kernel = _add_kernel(source, basis.kernel)
        centres = source.table(basis.bound_centres(), "z")
        at = _column_expression(source, columns)
        return [f"for (j = 0; j < {len(columns)}; j++) phi[{at}] = {kernel}(x, {centres} + j * @INPUTS);"]
    if type(basis) is bases.Precomputed:
        rows = source.table(basis.rows, "r", "int")
        return [f"for (j = 0; j < {len(columns)}; j++) phi[{_column_expression(source, columns)}] = x[{rows}[j]];"]
    if isinstance(basis, bases.Monomials):
        terms = [" * ".join(f"x[{k}]" for k in term) or "1.0" for term in basis.terms]
        if isinstance(basis, bases.Linear) and basis.centre is not None:
            terms = [f"{term} - ({format_double(c)})" for term, c in zip(terms, basis.term_centres, strict=True)]
        return [f"phi[{m}] = {term};" for m, term in zip(columns, terms, strict=True)]
    raise NotImplementedError(
        f"to_c cannot translate the basis {basis!r}: use one of relvec.basis other than Functions"
    )


def _column_expression(source: CSource, columns: np.ndarray) -> str:
    """Return the index of atom j in phi, as an expression."""
    first = int(columns[0])
    if np.array_equal(columns, np.arange(first, first + len(columns))):
        return f"j + {first}" if first else "j"
    return f"{source.table(columns, 'at', 'int')}[j]"
