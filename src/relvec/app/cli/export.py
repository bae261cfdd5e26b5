"""`relvec export`: write a model as ONNX or C."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from relvec import GPRegressor, RelevanceVectorRegressor, to_c, to_onnx
from relvec.app.cli.console import Console, check_output, read_pipeline
from relvec.app.tables.files import read_table
from relvec.app.tables.pipelines import transform_table
from relvec.app.tables.table import Table, TableError
from relvec.runtime.files import write_atomically


def run_export(arguments: argparse.Namespace) -> int:
    """Write a model in a form that other programs run."""
    if arguments.onnx is None and arguments.c is None:
        arguments.parser.error("choose --onnx, --c or both")
    written = _output_paths(arguments)
    for path in written.values():
        check_output(path, arguments.model)
    if len({os.path.realpath(path) for path in written.values()}) < len(written):
        arguments.parser.error("--onnx and --c name the same file")
    console, pipeline = Console(arguments.json), read_pipeline(arguments.model)
    if arguments.distill is not None:
        pipeline = distill_pipeline(pipeline, read_table(arguments.distill), arguments.loss)
        console.print(distilled_in_words(pipeline[-1]))
    inputs = export_inputs(pipeline)
    made = {path: _onnx_bytes(pipeline, inputs, arguments.interval) if suffix == ".onnx"
            else to_c(pipeline[1:], coverage=arguments.interval).encode()
            for suffix, path in written.items()}  # fmt: skip
    for path, data in made.items():
        write_atomically(path, data)
    console.print(f"written: {', '.join(map(str, made))}")
    console.print("inputs, in this order; a category is given as the number of its level, a missing number as NaN")
    console.print_table(("input", "kind", "levels"), [(i["name"], i["kind"], _number_levels(i)) for i in inputs])
    console.print_json({"written": list(map(str, made)), "inputs": inputs})
    return 0


def distill_pipeline(pipeline: Pipeline, table: Table, loss: float) -> Pipeline:
    """Return a pipeline with few functions in place of its Gaussian process, which lose so many nats a row at most."""
    model = pipeline[-1]
    if not isinstance(model, GPRegressor):
        raise TableError("--distill is for a Gaussian process that predicts numbers: this model is none, leave it out")
    small = model.distill(transform_table(pipeline, table)[0], loss)
    return Pipeline([*pipeline.steps[:-1], (pipeline.steps[-1][0], small)])


def distilled_in_words(small: RelevanceVectorRegressor) -> str:
    """Say how many functions predict as the process did, and what they lose."""
    return f"{small.fitted_.size}; they lose {float(np.max(small.loss_nats_)):.2g} nats a row of the process's density"


def _output_paths(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the files to write by their suffix; those that are not named stand beside the model."""
    asked = {".onnx": arguments.onnx, ".c": arguments.c}
    return {suffix: Path(path or Path(arguments.model).with_suffix(suffix))
            for suffix, path in asked.items() if path is not None}  # fmt: skip


def _number_levels(column: dict[str, str | list[str]]) -> str:
    return ", ".join(f"{k} {level}" for k, level in enumerate(column["levels"]))


def _onnx_bytes(pipeline: Pipeline, inputs: list[dict[str, str | list[str]]], coverage: float) -> bytes:
    graph = to_onnx(pipeline[1:], np.zeros((1, len(inputs))), coverage)
    for key, value in (("relvec.inputs", json.dumps(inputs)), ("relvec.target", pipeline["columns"].target.name)):
        graph.metadata_props.add(key=key, value=value)
    return graph.SerializeToString()


def export_inputs(pipeline: Pipeline) -> list[dict[str, str | list[str]]]:
    """Return the numbers that an exported model takes, in order: name, kind and, for a category, its levels."""
    return [
        {"name": name, "column": column.name, "kind": column.kind, "levels": list(column.levels)}
        for column in pipeline["columns"].inputs()
        for name in column.features()
    ]
