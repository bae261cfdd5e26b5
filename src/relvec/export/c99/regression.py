"""Means and standard deviations of regression in C."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from relvec import basis as bases
from relvec.export.c99.kernels import add_columns
from relvec.export.c99.source import Source, add_dot, add_squares, format_double, open_body, write_dot, write_squares
from relvec.export.exported import ExportedModel, ExportedOutput, expand_output
from relvec.gaussian_process.target import AS_IT_IS, MAX_LOG_VARIANCE
from relvec.inference.heteroscedastic import BUMP_WIDTH, CUT_OFF, LogNoise
from relvec.inference.process import LinearExpansion


def add_regression(source: Source, model: ExportedModel, prepared: bool, std: bool) -> None:
    """NAME_predict(x, mean, std), or NAME_predict(x, mean) without ``std``; ``prepared`` if steps come before."""
    basis, outputs = expand_outputs(model)
    add_columns(source, basis)
    source.constant("OUTPUTS", len(outputs))
    deviates = std or model.thresholds is not None
    if any(part.root.size and each.needs_variance(deviates) for each in outputs for part in each.parts):
        add_squares(source)
    add_dot(source)
    arguments = "const double *x, double *mean, double *std" if std else "const double *x, double *mean"
    source.add(f"void @predict({arguments});")
    _add_moments(source, f"void @predict({arguments})", outputs, prepared, std)
    if model.thresholds is not None:
        _add_interval(source, outputs, model.thresholds, prepared, std)


def _add_moments(source: Source, head: str, outputs: list[ExportedOutput], prepared: bool, std: bool) -> None:
    """A function with this head that sets mean and, if asked, std."""
    inputs = "u" if prepared else "x"
    body = [line for o, each in enumerate(outputs) for line in _write_output(source, o, each, std, inputs)]
    names = [name for name in "fvle" if name == "f" or any(f" {name} " in line for line in body)]
    most = max(len(each.parts) for each in outputs)
    names += [f"m[{most}]", f"w[{most}]"] if most > 1 else []
    first = open_body(prepared, f"    double {', '.join(names)};")
    source.add(f"{head}\n{{\n{first}" + "\n".join(body) + "\n}")


def _add_interval(
    source: Source, outputs: list[ExportedOutput], thresholds: np.ndarray, prepared: bool, std: bool
) -> None:
    """NAME_predict_interval(x, lower, upper), of a calibrated model."""
    function = "predict"
    if not std or any(each.scale.sign for each in outputs):
        function, own = "locate", [replace(each, scale=AS_IT_IS) for each in outputs]
        _add_moments(source, "static void @locate(const double *x, double *mean, double *std)", own, prepared, True)
    lines = ["    double mean[@OUTPUTS], std[@OUTPUTS];", f"    @{function}(x, mean, std);"]
    for o, (each, threshold) in enumerate(zip(outputs, thresholds, strict=True)):
        for end, sign in (("lower", "-"), ("upper", "+")):
            value = f"mean[{o}] {sign} {format_double(threshold)} * std[{o}]"
            if each.scale.sign:  # `Scale.inverse`
                s, e, scale, offset = (
                    format_double(v) for v in (each.scale.sign, each.scale.end, each.scale.scale, each.scale.offset)
                )
                value = f"{e} + {s} * {scale} * (exp({s} * ({value})) - {offset})"
            elif each.counts:
                value = f"fmax(ceil({value}), 0.0)" if end == "lower" else f"floor({value})"
            lines.append(f"    {end}[{o}] = {value};")
    arguments = "const double *x, double *lower, double *upper"
    source.add(f"void @predict_interval({arguments});")
    source.add(f"void @predict_interval({arguments})\n{{\n" + "\n".join(lines) + "\n}")


def _write_output(source: Source, index: int, output: ExportedOutput, std: bool, inputs: str) -> Iterator[str]:
    """Statements that compute the mean and, if asked, the standard deviation of one output."""
    if output.noise is None:
        yield from _write_mixture(source, output, std, inputs)
    else:
        deviates = output.needs_variance(std)
        yield from _write_mixture(source, output.function, deviates, inputs)
        if deviates:
            yield f"    v += {_add_noise(source, output.noise)}({inputs}, f);"
        yield from _write_scale(output, std)
    yield f"    mean[{index}] = f;" + (f"\n    std[{index}] = sqrt(v);" if std else "")


def _add_noise(source: Source, noise: LogNoise) -> str:
    """The name of a function of the inputs and the predicted mean, the variance of the noise: `LogNoise.variance`."""
    name, k, d = source.new_name("noise"), len(noise.columns), len(noise.centre) - 1
    columns, bumps = source.table(noise.columns, "j", "int"), source.table(~np.isinf(noise.places), "b", "int")
    centre, scale = (source.table(values[noise.columns], "n") for values in (noise.centre, noise.scale))
    places = source.table(np.where(np.isinf(noise.places), 0.0, noise.places), "n")
    mean, covariance = source.table(noise.mean, "n"), source.table(noise.covariance, "n")
    source.add(f"""static double {name}(const double *x, double mean)
{{
    double psi[{k}], s = {format_double(noise.level)};
    int i, j;
    for (i = 0; i < {k}; i++) {{
        double t = (({columns}[i] < {d} ? x[{columns}[i]] : mean) - {centre}[i]) / {scale}[i];
        t = fmin(fmax(t, {format_double(-CUT_OFF)}), {format_double(CUT_OFF)});
        if ({bumps}[i]) {{
            t = (t - {places}[i]) / {format_double(BUMP_WIDTH)};
            t = exp(-0.5 * t * t);
        }}
        psi[i] = t;
        s += psi[i] * {mean}[i];
    }}
    for (i = 0; i < {k}; i++)
        for (j = 0; j < {k}; j++) s += 0.5 * psi[i] * {covariance}[i * {k} + j] * psi[j];
    return exp(s);
}}""")
    return name


def _write_mixture(source: Source, output: ExportedOutput, std: bool, inputs: str) -> Iterator[str]:
    """Statements that set f and, where it is needed, v to the mean and variance of a mixture."""
    if len(output.parts) == 1:
        yield from _write_part(source, output, output.parts[0], std, inputs)
    else:
        for i, part in enumerate(output.parts):
            yield from _write_part(source, output, part, std, inputs)
            yield f"    m[{i}] = f;\n    w[{i}] = {'v' if output.needs_variance(std) else '0.0'};"
        shares = [format_double(share) for share in output.shares]
        yield "    f = " + " + ".join(f"{share} * m[{i}]" for i, share in enumerate(shares)) + ";"
        if std:
            apart = [f"{share} * (w[{i}] + (m[{i}] - f) * (m[{i}] - f))" for i, share in enumerate(shares)]
            yield "    v = " + " + ".join(apart) + ";"
        else:
            yield "    (void)w;"


def _write_part(source: Source, output: ExportedOutput, part: LinearExpansion, std: bool, inputs: str) -> Iterator[str]:
    """Statements that set f and, where it is needed, v to the mean and variance of one part of a mixture."""
    yield f"    f = {write_dot(source, part.weights)};"
    if output.needs_variance(std):
        value = write_squares(source, part.root)
        if part.prior:
            known = f"@squares(phi, {source.table(part.represented, 's')}, {part.represented.shape[1]})"
            value += f"\n    l = v + {format_double(part.prior)} - {known};\n    v = l > 0.0 ? l : 0.0;"
        yield value + (f"\n    v += {format_double(part.noise)};" if part.noise else "")
        if part.varying is not None:
            yield f"    v *= {_add_noise(source, part.varying)}({inputs}, f);"
    if output.counts:  # moments of a log-normal rate, and of the counts
        yield "    f = exp(f + 0.5 * v);" + ("\n    v = f * f * expm1(v) + f;" if std else "")
    yield from _write_scale(output, std)


def _write_scale(output: ExportedOutput, std: bool) -> Iterator[str]:
    """Statements that take f and v from the scale of the target to its units: `Scale.moments`."""
    if output.scale.sign:
        sign, end, scale, offset = (
            format_double(v) for v in (output.scale.sign, output.scale.end, output.scale.scale, output.scale.offset)
        )
        yield f"    if (v > {format_double(MAX_LOG_VARIANCE)}) v = {format_double(MAX_LOG_VARIANCE)};"
        yield f"    e = exp({sign} * f + 0.5 * v);\n    f = {end} + {sign} * {scale} * (e - {offset});"
        if std:
            yield f"    v = {scale} * {scale} * e * e * expm1(v);"


def expand_outputs(model: ExportedModel) -> tuple[bases.Basis, list[ExportedOutput]]:
    """One basis for all outputs, and the weights of each output over it."""
    found = [expand_output(model, predictor, "to_c") for predictor in model.predictors]
    parts = [part for output in found for part in output.parts]
    if all(part.basis is model.basis for part in parts):
        return model.basis, found
    whole, joined = join_expansions(parts, model.n_features)
    padded = iter(joined)
    return whole, [replace(output, parts=[next(padded) for _ in output.parts]) for output in found]


def join_expansions(parts: list[LinearExpansion], n_features: int) -> tuple[bases.Basis, list[LinearExpansion]]:
    """One basis of all functions of several expansions, and their weights over it."""
    different = list({id(part.basis): part.basis for part in parts}.values())
    ends = np.cumsum([0, *(basis.n_atoms for basis in different)])
    place = {id(basis): slice(*ends[i : i + 2]) for i, basis in enumerate(different)}
    whole = bases.Concat(tuple(different), n_features=n_features)

    def pad(values: np.ndarray, part: LinearExpansion) -> np.ndarray:
        rows = np.zeros((ends[-1], *values.shape[1:]))
        rows[place[id(part.basis)]] = values
        return rows

    return whole, [
        replace(p, basis=whole, weights=pad(p.weights, p), root=pad(p.root, p), represented=pad(p.represented, p))
        for p in parts
    ]
