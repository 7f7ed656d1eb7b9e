"""Refuse an artifact that would run code or access files while torch loads it.

This runs only in a child process, and imports nothing of the project, so that any Python (3.10 and
later) with torch can run it. Checked, and why:

- TorchScript is a language of its own, but it includes ``torch.save`` and ``torch.from_file``, and
  ``__setstate__`` runs while an archive is loaded.
- torch.export.load opens pickles without restriction if a restricted attempt fails, passes
  expressions to sympy, which evaluates them as Python, and accepts any dotted name under ``torch``
  as an operator, ``torch.ops.load_library`` included.

Seen in: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/serde/serialize.py
"""

import ast
import io
import json
import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_TEXT_BYTES = 256 << 20  # of one text member
PROGRAM = re.compile(r"(.*/)?(models/.+|serialized_exported_program)\.json", re.DOTALL)
CONFIG = re.compile(r"(.*/)?data/(weights|constants)/.+_config\.json", re.DOTALL)
PICKLED = re.compile(
    r"(.*/)?(data/(weights|constants|sample_inputs)/.+\.pt"
    r"|serialized_(state_dict|constants|example_inputs)\.(pt|json))",
    re.DOTALL,
)
# Data of other kinds is compiled code: data/aotinductor is a library that loading runs.
OTHER = re.compile(r"(.*/)?data/(?!(weights|constants|sample_inputs)/).+", re.DOTALL)
END = struct.Struct("<4s4H2LH")  # APPNOTE 4.3.16, end of central directory record
IN_ZIP64 = 0xFFFFFFFF  # in a 32-bit field: zip64 has the value

# -- TorchScript ---------------------------------------------------------------------------------

FILES = ("save", "from_file", "_save", "load", "_load_for_lite_interpreter")
SCRIPT_FILES = re.compile(
    r"\b(torch|aten)[\s\\]*\.[\s\\]*(save|from_file|load)\b|\btorch[\s\\]*\.[\s\\]*classes"
    r"[\s\\]*\.[\s\\]*(dist_\w+|profiler)\b"
)
REFUSED_NODES = frozenset((
    "aten::save", "aten::from_file", "prim::PythonOp", "prim::Print", "aten::_save",
))  # fmt: skip

# -- exported programs ---------------------------------------------------------------------------

TARGET = re.compile(
    r"torch\.ops\.(aten|prim|prims|quantized|quantized_decomposed|_quantized|torchvision|torchao"
    r"|mkldnn|onnx)\.(?!(save|from_file|load|_save)\b)\w+(\.\w+)?"
    r"|torch\.ops\.higher_order\.(cond|while_loop|map|map_impl|scan|associative_scan|wrap"
    r"|wrap_with_set_grad_enabled|wrap_with_autocast|invoke_subgraph|hints_wrapper|flex_attention)"
    r"|_operator\.(add|sub|mul|floordiv|truediv|mod|neg|pos|pow|abs|eq|ne|lt|le|gt|ge|getitem"
    r"|and_|or_|not_|xor|lshift|rshift|iadd|isub|imul)"
    r"|math\.\w+|torch\.(_?sym_\w+)"
)
SYMBOL = re.compile(r"(s|u|f|z|zf|zu|zuf|i|ps|backed|unbacked)\d+|int_oo|oo|nan|true|false")
FUNCTIONS = frozenset((
    "Abs", "Add", "And", "BitwiseFn_bitwise_and", "BitwiseFn_bitwise_or", "BitwiseFn_bitwise_xor",
    "CeilDiv", "CeilToInt", "CleanDiv", "Eq", "Equality", "Float", "FloatPow", "FloatTrueDiv",
    "FloorDiv", "FloorToInt", "Ge", "GreaterThan", "Gt", "Identity", "IntTrueDiv", "Integer",
    "IsNonOverlappingAndDenseIndicator", "LShift", "Le", "LessThan", "Lt", "Max", "Min", "Mod",
    "ModularIndexing", "Mul", "Ne", "Not", "Or", "Piecewise", "Pow", "PowByNatural", "PythonMod",
    "RShift", "Rational", "RoundDecimal", "RoundToInt", "StrictGreaterThan", "StrictLessThan",
    "Symbol", "ToFloat", "TruncToFloat",
    "TruncToInt", "Unequality", "Where", "ceiling", "floor", "sqrt", "log2",
))  # fmt: skip
ASSUMPTIONS = frozenset(("integer", "positive", "nonnegative", "real", "negative", "zero"))
PLAIN = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop, ast.Load, ast.Tuple, ast.IfExp,
)  # fmt: skip
SIZES = frozenset(("size", "stride", "storage_offset", "dim"))
OF_NUMBERS = frozenset(("max", "min", "abs", "round", "int", "float", "bool"))
CODE_IN_SPECS = ("default_factory_module", "__enum__")  # what a tree's specification may import


class RefusedError(Exception):
    """Loading or running the source would run untrusted code or access files."""


def refuse_script(path: str) -> None:
    """Refuse a TorchScript archive whose code names files.

    Raises:
        RefusedError: It does.
    """
    with zipfile.ZipFile(path) as archive:
        _check_archive(archive, path)
        for info in archive.infolist():
            if "/code/" not in f"/{info.filename}" or not info.filename.endswith(".py"):
                continue
            found = SCRIPT_FILES.search(_text(archive, info))
            if found is not None:
                raise RefusedError(f"{info.filename} names {''.join(found.group().split())}")


def refuse_nodes(module: Any) -> None:
    """Refuse a loaded ScriptModule whose graphs access files or call Python.

    Raises:
        RefusedError: One does.
    """
    kinds = {kind for graph in _graphs(module) for kind in _kinds(graph)} & REFUSED_NODES
    if kinds:
        raise RefusedError(f"its code has {', '.join(sorted(kinds))}")


def _graphs(module: Any) -> Iterator[Any]:
    for part in module.modules():
        for name in part._c._method_names():
            yield part._c._get_method(name).graph


def _kinds(block: Any) -> Iterator[str]:
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _kinds(inner)


def refuse_exported(torch: Any, path: str) -> None:
    """Refuse a .pt2 archive that has anything but a program of known operators, and tensors.

    Raises:
        RefusedError: It has.
    """
    with zipfile.ZipFile(path) as archive:
        _check_archive(archive, path)
        for info in archive.infolist():
            name = info.filename
            config = CONFIG.fullmatch(name)
            if PROGRAM.fullmatch(name):
                _check_program(_json(archive, info), name)
            elif config is not None:
                folder = f"{config[1] or ''}data/{config[2]}"
                _check_payloads(torch, archive, folder, _json(archive, info))
            elif PICKLED.fullmatch(name):
                _check_pickle(torch, archive, name)
            elif OTHER.fullmatch(name):
                raise RefusedError(f"{name} may be compiled code")


def _check_archive(archive: zipfile.ZipFile, path: str) -> None:
    """Refuse an archive in which torch's reader may see other members than zipfile does.

    torch's reader supports neither comments nor leading bytes, and ignores the case of names.
    """
    names = [info.filename.casefold() for info in archive.infolist()]
    if len(set(names)) < len(names):
        raise RefusedError("two members of the archive have one name")
    with Path(path).open("rb") as f:
        f.seek(-END.size, io.SEEK_END)
        mark, *_, offset, comment = END.unpack(f.read(END.size))
    is_at_start = offset in (archive.start_dir, IN_ZIP64)
    if mark != b"PK\5\6" or comment or not is_at_start:
        raise RefusedError("there are bytes in front of the archive, or behind it")
    first = min((info.header_offset for info in archive.infolist()), default=0)
    if first:
        raise RefusedError("there are bytes in front of the archive")


def _text(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> str:
    if info.file_size > MAX_TEXT_BYTES:
        raise RefusedError(f"{info.filename} has {info.file_size} bytes of text")
    return archive.read(info).decode("utf-8", "replace")


def _json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    try:
        return json.loads(_text(archive, info))
    except ValueError as e:
        raise RefusedError(f"{info.filename} is no JSON: {e}") from e


def _check_payloads(torch: Any, archive: zipfile.ZipFile, folder: str, said: Any) -> None:
    config = said.get("config") if isinstance(said, dict) else None
    for name, entry in (config or {}).items():
        path = str(entry.get("path_name"))
        if not re.fullmatch(r"(weight|tensor)_\w+", path):
            raise RefusedError(f"{name} is an object of its own ({path}), not a tensor")
        if entry.get("use_pickle"):
            _check_pickle(torch, archive, f"{folder}/{path}")


def _check_pickle(torch: Any, archive: zipfile.ZipFile, name: str) -> None:
    """Refuse a pickle that ``torch.load(weights_only=True)`` does not open."""
    try:
        data = archive.read(name)
    except KeyError:
        return  # torch reports it
    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True, map_location="meta")
    except Exception as e:
        said = " ".join(str(e).split())[:200]
        raise RefusedError(f"{name} is no pickle of plain tensors: {said}") from e


def _check_program(value: Any, where: str) -> None:
    """Refuse names and expressions of a program that torch.export does not write."""
    todo: list[tuple[str, Any]] = [("", value)]
    while todo:
        key, found = todo.pop()
        if isinstance(found, dict):
            todo += found.items()
        elif isinstance(found, list):
            todo += [(key, item) for item in found]
        elif isinstance(found, str):
            _check_text(key, found, where)
    constraints = value.get("range_constraints") if isinstance(value, dict) else None
    for symbol in constraints or {}:
        _check_expression(symbol, where, is_guard=False)


def _check_text(key: str, text: str, where: str) -> None:
    if key == "target" and not TARGET.fullmatch(text):
        raise RefusedError(f"{where} calls {text[:80]!r}")
    if key in ("expr_str", "as_expr"):
        _check_expression(text, where, is_guard=False)
    elif key == "guards_code":
        _check_expression(text, where, is_guard=True)
    elif key in ("in_spec", "out_spec"):
        for word in CODE_IN_SPECS:
            if word in text:
                raise RefusedError(f"{where} has {word} in {key}")


def _check_expression(text: str, where: str, *, is_guard: bool) -> None:
    """Refuse an expression that is more than arithmetic on sizes."""
    refusal = RefusedError(f"{where} has the expression {text[:80]!r}")
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise refusal from e
    for node in ast.walk(tree):
        if not (_is_plain(node) or (is_guard and _is_of_guard(node))):
            raise refusal


def _is_plain(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        # A string is the name of a Symbol that sympy does not evaluate as anything else.
        is_number = isinstance(node.value, int | float)
        return is_number or (isinstance(node.value, str) and bool(SYMBOL.fullmatch(node.value)))
    if isinstance(node, ast.Name):
        return node.id in FUNCTIONS or bool(SYMBOL.fullmatch(node.id))
    if isinstance(node, ast.Call):
        is_known = isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS
        return is_known and all(k.arg in ASSUMPTIONS for k in node.keywords)
    return isinstance(node, (*PLAIN, ast.keyword))


def _is_of_guard(node: ast.AST) -> bool:
    """Return whether only guards have the node: ``L['x'].size()[0]``, ``max(1, …)``, ``math.…``."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in OF_NUMBERS and not node.keywords
        is_size = isinstance(node.func, ast.Attribute) and node.func.attr in SIZES
        return not node.keywords and (_is_of_math(node.func) or (is_size and not node.args))
    if isinstance(node, ast.Attribute):
        return node.attr in SIZES or _is_of_math(node)
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and node.value.isidentifier()
    if isinstance(node, ast.Name):
        return node.id in ("L", "math") or node.id in OF_NUMBERS
    return isinstance(node, ast.Subscript)


def _is_of_math(node: ast.AST) -> bool:
    """Return whether this is a function of Python's module ``math``: ``math.floor``."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "math"
        and not node.attr.startswith("_")
    )


def is_zip(path: str) -> bool:
    """Return whether a file is a zip archive."""
    return Path(path).is_file() and zipfile.is_zipfile(path)
