"""A new option is its field in `Options`, its row in the command line's table, and its use."""

from dataclasses import fields
from inspect import signature, unwrap

import pytest

from converter.batch.request import Request
from converter.cli import app
from converter.cli.batch_parameters import REQUEST, make_request
from converter.cli.parameters import ROWS, field_of, make_options, rows_of
from converter.options import Arch, Comparison, Options

NESTED = {"arch": Arch, "comparison": Comparison}
# Fields that nobody types, and who sets them.
INTERNAL = {
    "hinted_inputs": "a registry, from a model's signature",
    "comparison.example": "a registry, from a model's input example",
    "limits": "callers of the library",
}


def every_field() -> set[str]:
    found = set()
    for field in fields(Options):
        nested = NESTED.get(field.name)
        found |= {f"{field.name}.{f.name}" for f in fields(nested)} if nested else {field.name}
    return found


def test_every_field_has_a_row_or_is_internal() -> None:
    assert {row.field for row in ROWS} == every_field() - INTERNAL.keys()
    assert every_field() >= INTERNAL.keys()


@pytest.mark.parametrize("command", ["convert", "batch", "verify"])
def test_without_options_a_command_has_the_defaults(command: str) -> None:
    rows = rows_of(command)
    assert len({row.field for row in rows}) == len({row.name for row in rows}) == len(rows) > 10
    made = make_options({row.field: row.value(row.default) for row in rows})
    assert made == Options()


def test_every_row_reaches_its_field() -> None:
    values = {
        "to": "onnx", "device": "cuda:1", "precision": "fp16", "keep_structure": True,
        "propagate_nan": True,
        "format": "keras", "checkpoint": "v", "task": "fill-mask",
        "merge_adapter": "b", "dequantize": True,
        "arch.factory": "a:b", "arch.arguments": '{"c": 1}',
        "inputs": ["x:float32:1"], "exporter": "native", "state": "io", "include": "optimizer",
        "strip_prefix": "m.", "verify": "none", "require": "cpu", "comparison.atol": ["1"],
        "comparison.rtol": ["o:1"], "comparison.inputs": "f", "comparison.seed": 5,
        "comparison.samples": 2, "comparison.layers": True, "comparison.allow_tf32": True,
        "comparison.allow_cpu_nodes": 1,
        "comparison.timeout": 5.0,
        "max_shard_size": "1GB", "opset": 19, "signatures": ["s"], "triton": ["version=2"],
        "trust": ["json"], "strict_safety": True, "sync": True, "overwrite": True,
    }  # fmt: skip
    assert values.keys() == {row.field for row in ROWS}
    for row in ROWS:
        needed = {"arch.factory": "a:b"} if row.field == "arch.arguments" else {}
        value = values[row.field]
        if row.type == str | None and isinstance(value, list):
            value = value[0]
        made = make_options({**needed, row.field: row.value(value)})
        assert field_of(made, row.field) != field_of(Options(), row.field), row.field


def test_a_batch_has_the_defaults_of_a_request() -> None:
    given = {"registries": ["r"], "destination": "out"}
    values = {row.field: row.value(given.get(row.field, row.default)) for row in REQUEST}
    assert make_request(values) == Request(("r",), "out", Options())


def test_commands_take_options_whole() -> None:
    for command in (app.convert, app.batch, app.verify):
        own = unwrap(command)
        assert not signature(own).parameters.keys() & {row.name for row in ROWS}
        assert len(signature(own).parameters) <= 10


def test_a_flag_is_one_option() -> None:
    by_name: dict[str, set[str]] = {}
    for row in ROWS:
        by_name.setdefault(row.name, set()).add(row.field)
    assert all(len(found) == 1 for found in by_name.values())
