""".pt2 archives of ``torch.export``: the weights, and what the JSON says about the program.

Two layouts: torch 2.1 to 2.6 zip the JSON beside nested ``torch.save`` files; later ones keep each
weight's raw bytes with a JSON table of sizes and strides. The graph stays JSON, by name.

Spec: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_export/serde/schema.py
"""

import re
from collections.abc import Iterator

from formats.artifact import Artifact
from formats.containers import jsontext
from formats.containers.zip.archive import ZipArchive
from formats.core.bundle import JSON, Bundle, SafetyFinding, Signature, TensorSpec, Topology
from formats.core.plurals import count
from formats.core.storage import Span
from formats.core.weights import ByteOrder
from formats.errors import CorruptError
from formats.torch.bundle import asset_members, finish
from formats.torch.containers import Session, read_any, read_bare
from formats.torch.tensor_values import TYPES, StorageRef, TensorValue
from formats.torch.walk import Tree
from formats.torch.zip_storages import zip_records

PROGRAM = "serialized_exported_program.json"
# enum ScalarType of the schema; 0 is unknown.
SCALAR_TYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
    28: "uint16",
    29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz",
    33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}  # fmt: skip
CONFIG = re.compile(r"data/(weights|constants)/(.+)_(?:weights|constants)_config\.json")
SYMBOL = re.compile(r"Symbol\('(\w+)'[^)]*\)")
PAYLOAD = re.compile(r"data/(weights|constants)/(.+)\.pt")


def sniff(artifact: Artifact) -> str | None:
    """Return the evidence that this is an archive of torch.export."""
    prefix = None if artifact.zip is None else prefix_of(artifact.zip)
    if prefix is None:
        return None
    return f"a zip archive with {prefix or 'an exported program'}"


def prefix_of(archive: ZipArchive) -> str | None:
    """Return the folder inside the archive that is the program, with its slash."""
    for name, member in archive.members.items():
        folder, _, last = name.rpartition("/")
        prefix = folder + "/" if folder else ""
        if last == PROGRAM:
            return prefix
        if last == "archive_format" and member.size == 3 and member.read(3) == b"pt2":
            return prefix
    return None


def read(artifact: Artifact) -> Bundle:
    """Read the weights of an exported program, and what its JSON says.

    Raises:
        CorruptError: It is damaged.
        LimitError: It asks for more than the limits grant.
    """
    archive = artifact.zip
    prefix = None if archive is None else prefix_of(archive)
    if archive is None or prefix is None:
        raise CorruptError("is no archive of torch.export", where=artifact.path)
    reader = _Reader(artifact, archive, prefix)
    programs = reader.programs()
    old = prefix + PROGRAM in archive
    for model, program in programs.items():
        path = model if len(programs) > 1 else ""
        if old:
            reader.old_payloads(path)
        else:
            reader.payloads(model, path)
        reader.note(program, path)
    if not programs and not old:
        for name in sorted(reader.models()):
            reader.payloads(name, name)
    return reader.finish(programs, old=old)


class _Reader:
    """One archive being read."""

    def __init__(self, artifact: Artifact, archive: ZipArchive, prefix: str) -> None:
        self.where = artifact.name
        self.archive = archive
        self.prefix = prefix
        self.limits = artifact.limits
        self.session = Session.begin(artifact.limits)
        self.tree = Tree(artifact.limits, classify=False)
        self.recorded = zip_records(archive, prefix)
        self.findings: list[SafetyFinding] = []
        self.opaque: list[tuple[str, str]] = []

    def member(self, name: str) -> Span | None:
        """Return a member of the program's folder, or None."""
        found = self.archive.members.get(self.prefix + name)
        return None if found is None else found.span()

    def names(self) -> Iterator[str]:
        """Yield the members of the program's folder."""
        for name in self.archive.members:
            if name.startswith(self.prefix):
                yield name[len(self.prefix) :]

    def models(self) -> set[str]:
        """Return the names of models that have weights."""
        found = (CONFIG.fullmatch(n) or PAYLOAD.fullmatch(n) for n in self.names())
        return {m.group(2) for m in found if m is not None}

    def json(self, name: str) -> dict[str, JSON]:
        """Return a JSON member, which must hold an object."""
        limit = self.limits.max_inflated_bytes
        data = self.archive.read(self.prefix + name, limit)
        value = jsontext.parse(data, where=f"{self.where}!{name}", limit=limit)
        if not isinstance(value, dict):
            raise CorruptError("is no JSON object", where=f"{self.where}!{name}")
        return value

    def programs(self) -> dict[str, dict[str, JSON]]:
        """Return the exported programs by model name."""
        if self.prefix + PROGRAM in self.archive:
            return {"model": self.json(PROGRAM)}
        found = {}
        for name in self.names():
            if name.startswith("models/") and name.endswith(".json"):
                found[name[len("models/") : -len(".json")]] = self.json(name)
        return found

    def old_payloads(self, path: str) -> None:
        """Add the nested torch files of torch 2.1 to 2.6."""
        for name in self.names():
            if name.startswith(("serialized_state_dict", "serialized_constants")):
                self.add_nested(name, path)
            elif name.startswith("serialized_example_inputs"):
                self.tree.leave_out(name, "example inputs of the export, not part of the model")

    def payloads(self, model: str, path: str) -> None:
        """Add weights and constants of one model of the newer layout."""
        for kind in ("weights", "constants"):
            config = f"data/{kind}/{model}_{kind}_config.json"
            if f"{self.prefix}data/{kind}/{model}.pt" in self.archive:
                self.add_nested(f"data/{kind}/{model}.pt", path)
            if self.prefix + config in self.archive:
                self._table(self.json(config), kind, path)
        if f"{self.prefix}data/sample_inputs/{model}.pt" in self.archive:
            self.tree.leave_out(
                f"data/sample_inputs/{model}.pt",
                "example inputs of the export, not part of the model",
            )

    def add_nested(self, name: str, path: str) -> None:
        """Add the tensors of a member that is a torch file itself."""
        span = self.member(name)
        if span is not None and span.length:
            loaded = read_any(span, self.session, f"{self.where}!{name}")
            self.tree.add(loaded.value, path, name)

    def _table(self, config: dict[str, JSON], kind: str, path: str) -> None:
        for name, row in rows_of(config, f"{self.where}!{kind}").items():
            full = f"{path}.{name}" if path else name
            file = row.get("path_name") if isinstance(row, dict) else None
            if not isinstance(row, dict) or not isinstance(file, str):
                raise CorruptError(f"{name!r} has no file", where=self.where)
            member = f"data/{kind}/{file}"
            if file.startswith(("custom_obj_", "opaque_obj_")):
                self._object(member, full)
            elif row.get("use_pickle") is True:
                self.add_nested(member, full)
            else:
                self.tree.add(self._tensor(row.get("tensor_meta"), member), full, member)

    def _object(self, member: str, path: str) -> None:
        """Note an object that is no tensor: real loaders would unpickle it."""
        span = self.member(member)
        if span is None:
            raise CorruptError(f"the archive has no member {member!r}", where=self.where)
        if span.length and "/opaque_obj_" in member:
            loaded = read_bare(span, self.session, f"{self.where}!{member}")
            self.tree.add(loaded.value, path, member)
        else:
            self.opaque.append((path, "torch.ScriptObject"))
            self.tree.leave_out(member, "a TorchScript object of the exported program")

    def _tensor(self, meta: JSON, member: str) -> TensorValue:
        if not isinstance(meta, dict):
            raise CorruptError("a tensor has no sizes", where=f"{self.where}!{member}")
        number = meta.get("dtype")
        type_ = TYPES.get(SCALAR_TYPES.get(number, "") if isinstance(number, int) else "")
        shape, strides = self._whole(meta.get("sizes")), self._whole(meta.get("strides"))
        (offset,) = self._whole([meta.get("storage_offset", {"as_int": 0})])
        if type_ is None:
            raise CorruptError(f"a tensor has type {number!r:.40}", where=f"{self.where}!{member}")
        span = self.member(member)
        if span is None:
            raise CorruptError(f"the archive has no member {member!r}", where=self.where)
        ref = StorageRef(member, type_, device_text(meta.get("device")), span.length)
        ref.span, ref.byteorder = span, self._byteorder()
        return TensorValue(
            "strided", type_, shape, storage=ref, offset=offset, strides=strides,
            requires_grad=None,
        )  # fmt: skip

    def _byteorder(self) -> ByteOrder:
        return "big" if self.recorded.get("byteorder") == "big" else "little"

    def _whole(self, value: JSON) -> tuple[int, ...]:
        numbers = []
        for item in value if isinstance(value, list) else [None]:
            number = item.get("as_int") if isinstance(item, dict) else None
            if type(number) is not int:
                raise CorruptError("a tensor's sizes are no whole numbers", where=self.where)
            numbers.append(number)
        if len(numbers) > self.limits.max_rank:
            raise CorruptError(f"tensor of {count('axis', len(numbers))}", where=self.where)
        return tuple(numbers)

    def note(self, program: dict[str, JSON], path: str) -> None:
        """Note on tensors what the program's signature says of them."""
        notes: dict[str, tuple[str, JSON]] = {}
        for spec in input_specs(program):
            for kind, entry in spec.items():
                if not isinstance(entry, dict):
                    continue
                if kind == "buffer" and entry.get("persistent") is False:
                    notes[str(entry.get("buffer_name"))] = ("persistent", False)
                elif kind == "tensor_constant":
                    notes[str(entry.get("tensor_constant_name"))] = ("attribute", True)
        for found in self.tree.tensors:
            name = found.path[len(path) + 1 :] if path else found.path
            if name in notes:
                key, value = notes[name]
                found.notes[key] = value

    def finish(self, programs: dict[str, dict[str, JSON]], *, old: bool) -> Bundle:
        """Return the bundle."""
        summary: dict[str, JSON] = {}
        signatures: list[Signature] = []
        for model, program in programs.items():
            summary[model] = _summary(program)
            signatures.append(_signature(model if len(programs) > 1 else "forward", program))
            if isinstance(program.get("torch_version"), str):
                self.recorded["torch_version"] = str(program["torch_version"])
            schema = program.get("schema_version")
            if isinstance(schema, dict):
                self.recorded["schema_version"] = f"{schema.get('major')}.{schema.get('minor')}"
        self._native_code()
        self.tree.opaque.update(self.opaque)
        kept = ("data/weights/weight_", "data/constants/tensor_", "data/aotinductor/", "extra/")
        content = {
            n: self.archive[self.prefix + n].span() for n in self.names() if not n.startswith(kept)
        }
        start = f"{self.prefix}extra/"
        variant = "archive of torch 2.1 to 2.6" if old else "archive of torch 2.7 and later"
        return finish(
            self.tree, self.session, format="torch-export", variant=variant,
            recorded=self.recorded, topology=Topology("exported_program", summary, content),
            signatures=signatures, assets=asset_members(self.archive, start, self.session),
            findings=self.findings,
        )  # fmt: skip

    def _native_code(self) -> None:
        for name in self.names():
            if name.startswith("data/aotinductor/"):
                if name.endswith((".so", ".dylib", ".dll", ".cubin", ".o")):
                    self.findings.append(SafetyFinding("native-code", name, self.where))
                self.tree.leave_out(name, "compiled by AOTInductor for one kind of machine")


def rows_of(config: JSON, where: str) -> dict[str, JSON]:
    """Return the rows of a table of weights or constants, by the names of tensors.

    Raises:
        CorruptError: There are none.
    """
    rows = config.get("config") if isinstance(config, dict) else None
    if not isinstance(rows, dict):
        raise CorruptError("the table has no rows", where=where)
    return rows


def input_specs(program: dict[str, JSON]) -> list[dict[str, JSON]]:
    """Return the signature's inputs, in the order of the graph's."""
    module = program.get("graph_module")
    signature = module.get("signature") if isinstance(module, dict) else None
    specs = signature.get("input_specs") if isinstance(signature, dict) else None
    return [s for s in specs if isinstance(s, dict)] if isinstance(specs, list) else []


def device_text(value: JSON) -> str | None:
    """Return ``{"type": "cuda", "index": 0}`` as ``cuda:0``."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return None
    index = value.get("index")
    return f"{value['type']}:{index}" if type(index) is int else str(value["type"])


def _graph(program: dict[str, JSON]) -> dict[str, JSON]:
    module = program.get("graph_module")
    graph = module.get("graph") if isinstance(module, dict) else None
    return graph if isinstance(graph, dict) else {}


def _summary(program: dict[str, JSON]) -> dict[str, JSON]:
    graph = _graph(program)
    nodes, values = graph.get("nodes"), graph.get("tensor_values")
    devices: dict[str, JSON] = {}
    for value in values.values() if isinstance(values, dict) else ():
        device = device_text(value.get("device")) if isinstance(value, dict) else None
        if device is not None:
            count = devices.get(device, 0)
            devices[device] = 1 + (count if isinstance(count, int) else 0)
    return {
        "nodes": len(nodes) if isinstance(nodes, list) else 0,
        "opset_version": program.get("opset_version"),
        "dialect": program.get("dialect") or program.get("verifiers"),
        "devices": devices,
    }


def _signature(name: str, program: dict[str, JSON]) -> Signature:
    graph = _graph(program)
    values = graph.get("tensor_values")
    known = values if isinstance(values, dict) else {}
    lifted = {
        entry_name(entry.get("arg"))
        for spec in input_specs(program)
        for kind, entry in spec.items()
        if kind != "user_input" and isinstance(entry, dict)
    }
    module = program.get("graph_module")
    signature = module.get("signature") if isinstance(module, dict) else None
    for old in ("inputs_to_parameters", "inputs_to_buffers"):  # torch 2.1
        mapped = signature.get(old) if isinstance(signature, dict) else None
        lifted.update(mapped if isinstance(mapped, dict) else ())
    return Signature(
        name,
        tuple(s for s in _specs(graph.get("inputs"), known) if s.name not in lifted),
        tuple(_specs(graph.get("outputs"), known)),
    )


def entry_name(arg: JSON) -> str | None:
    """Return the name inside ``{"name": …}`` or ``{"as_tensor": {"name": …}}``."""
    for _ in range(3):
        if not isinstance(arg, dict):
            return None
        if isinstance(arg.get("name"), str):
            return str(arg["name"])
        arg = next(iter(arg.values()), None)
    return None


def _specs(args: JSON, values: dict[str, JSON]) -> Iterator[TensorSpec]:
    for arg in args if isinstance(args, list) else ():
        name = entry_name(arg)
        meta = values.get(name) if name is not None else None
        if name is None or not isinstance(meta, dict):
            continue
        number, sizes = meta.get("dtype"), meta.get("sizes")
        dtype = SCALAR_TYPES.get(number, "unknown") if isinstance(number, int) else "unknown"
        shape = tuple(map(_axis, sizes)) if isinstance(sizes, list) else None
        yield TensorSpec(name, dtype, shape)


def _axis(size: JSON) -> int | str:
    if isinstance(size, dict):
        if type(size.get("as_int")) is int:
            return int(str(size["as_int"]))
        expression = size.get("as_expr")
        if isinstance(expression, dict):  # "s0", or "Symbol('s0', positive=True, integer=True)"
            said = str(expression.get("expr_str", "?"))
            return SYMBOL.sub(r"\1", said)[:80]
    return "?"
