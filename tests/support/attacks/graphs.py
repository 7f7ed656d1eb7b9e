"""GraphDefs taken apart into nodes and attributes, and put together otherwise than anyone would.

Deliberately written without the reader under test: fields are numbers and bytes. What is damaged is
what a graph says, and no longer its bytes: those `mutate` damages.
Spec: https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/core/framework/node_def.proto
"""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from attacks.protos import num, run, tag, varint

FLOAT, DOUBLE, INT32, STRING, INT64, BOOL = 1, 2, 3, 7, 9, 10
TYPES = (*range(24), 30, 101, 107, 109, -1, 1000)
NUMBERS = (
    0, 1, 2, 3, 4, 5, 7, 8, 16, 100, 1000, -1, -2, -3, -100, 1 << 16, 1 << 20, (1 << 31) - 1,
    -(1 << 31), 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-30, 3e38, float("inf"), float("-inf"), float("nan"))
TEXTS = (
    b"", b"SAME", b"VALID", b"EXPLICIT", b"NHWC", b"NCHW", b"abc,cd->ad", b"...i,ij->...j",
    b"\xff\xfe", b"x" * 300, b"a\0b", b"a\nb", b"REFLECT", b"SYMMETRIC",
)  # fmt: skip

Field = tuple[int, int, int | bytes]  # number, wire type, value


def fields(data: bytes) -> list[Field]:
    """Return the fields of a message.

    Raises:
        ValueError: It is none.
    """
    found: list[Field] = []
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            found.append((key >> 3, 0, value))
            continue
        if wire == 2:
            length, at = _varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(wire)
        found.append((key >> 3, wire, data[at : at + length]))
        at += length
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def put(parts: Sequence[Field]) -> bytes:
    """Return a message of these fields."""
    out = bytearray()
    for number, wire, value in parts:
        if isinstance(value, int):
            out += num(number, value)
        elif wire == 2:
            out += run(number, value)
        else:
            out += tag(number, wire) + value
    return bytes(out)


def packed(numbers: Sequence[int]) -> bytes:
    return b"".join(varint(n) for n in numbers)


def vector(numbers: Sequence[int], kind: int = INT32, sizes: Sequence[int] | None = None) -> bytes:
    """Return a TensorProto of integers, a vector of them unless ``sizes`` says otherwise."""
    dims = b"".join(run(2, num(1, n)) for n in ((len(numbers),) if sizes is None else sizes))
    width = "q" if kind == INT64 else "i"
    if all(-(1 << 31) <= n < 1 << 31 for n in numbers) or kind == INT64:
        content = struct.pack(f"<{len(numbers)}{width}", *numbers)
        return num(1, kind) + run(2, dims) + (run(4, content) if content else b"")
    return num(1, kind) + run(2, dims) + run(7, packed(numbers))


def floats(numbers: Sequence[float], sizes: Sequence[int] | None = None) -> bytes:
    """Return a TensorProto of float32."""
    dims = b"".join(run(2, num(1, n)) for n in ((len(numbers),) if sizes is None else sizes))
    return num(1, FLOAT) + run(2, dims) + run(4, struct.pack(f"<{len(numbers)}f", *numbers))


def texts(count: int, each: bytes = b"x") -> bytes:
    """Return a TensorProto of strings."""
    return num(1, STRING) + run(2, run(2, num(1, count))) + run(8, each) * count


def shape(sizes: Sequence[int] | None) -> bytes:
    """Return a TensorShapeProto; of an unknown rank for None."""
    return num(3, 1) if sizes is None else b"".join(run(2, num(1, n)) for n in sizes)


# -- nodes -----------------------------------------------------------------------------------------


@dataclass
class Made:
    """One node of a graph, open to change.

    Attributes:
        attributes: AttrValues, undecoded.
    """

    name: str
    op: str
    inputs: list[str] = field(default_factory=list)
    attributes: dict[str, bytes] = field(default_factory=dict)

    def message(self) -> bytes:
        out = run(1, self.name) + run(2, self.op) + b"".join(run(3, i) for i in self.inputs)
        return out + b"".join(run(5, run(1, k) + run(2, v)) for k, v in self.attributes.items())


def typed(kind: int) -> bytes:
    return num(6, kind)


def placeholder(name: str, sizes: Sequence[int] | None, kind: int = FLOAT) -> Made:
    return Made(name, "Placeholder", [], {"dtype": typed(kind), "shape": run(7, shape(sizes))})


def const(name: str, tensor: bytes) -> Made:
    kind = next(v for n, _, v in fields(tensor) if n == 1)
    assert isinstance(kind, int)
    return Made(name, "Const", [], {"dtype": typed(kind), "value": run(8, tensor)})


def function(
    name: str,
    takes: Sequence[str],
    nodes: Sequence[Made],
    yields: dict[str, str],
    kind: int = FLOAT,
) -> bytes:
    """Return a FunctionDef whose arguments and results are all of one type."""
    arguments = b"".join(run(2, run(1, a) + num(3, kind)) for a in takes)
    results = b"".join(run(3, run(1, r) + num(3, kind)) for r in yields)
    out = run(1, run(1, name) + arguments + results)
    out += b"".join(run(3, n.message()) for n in nodes)
    return out + b"".join(run(4, run(1, r) + run(2, port)) for r, port in yields.items())


def graph(nodes: Sequence[Made], functions: Sequence[bytes] = ()) -> bytes:
    out = b"".join(run(1, n.message()) for n in nodes)
    return out + (run(2, b"".join(run(1, f) for f in functions)) if functions else b"")


# -- damage to what a graph says -------------------------------------------------------------------


def damaged_graphs(
    data: bytes, count: int, seed: str, ops: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield a GraphDef with something else in it, ``count`` times.

    Args:
        data: A sound GraphDef.
        count: How many.
        seed: The same seed gives the same ones.
        ops: Names of ops that a node may be made to be.
    """
    for i in range(count):
        rng = random.Random(f"{seed}/{i}")
        parts = fields(data)
        names = []
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            parts, name = _damage(parts, rng, ops)
            names.append(name)
        yield f"{i}:{'+'.join(names)}", put(parts)


def _damage(parts: list[Field], rng: random.Random, ops: Sequence[str]) -> tuple[list[Field], str]:
    """Damage one node of the graph or of a function."""
    places = [(n, i) for i, (n, wire, _) in enumerate(parts) if wire == 2 and n in (1, 2)]
    if not places:
        return parts, "nothing"
    number, at = rng.choice(places)
    value = parts[at][2]
    assert isinstance(value, bytes)
    if number == 1:
        new, name = _damage_nodes([(1, 2, value)], [p for p in parts if p[0] == 1], rng, ops)
        return [*parts[:at], *new, *parts[at + 1 :]], name
    library = fields(value)
    which = rng.randrange(len(library)) if library else 0
    if not library or library[which][0] != 1:
        return parts, "nothing"
    inner = fields(library[which][2])  # type: ignore[arg-type]
    nodes = [i for i, p in enumerate(inner) if p[0] == 3]
    rest = [i for i, p in enumerate(inner) if p[0] != 3]
    if rest and (not nodes or rng.random() < 0.2):
        i = rng.choice(rest)
        new, name = [_scrambled(inner[i], rng)] if rng.random() < 0.6 else [], "signature"
    else:
        i = rng.choice(nodes)
        all_nodes = [(1, 2, inner[n][2]) for n in nodes]
        made, name = _damage_nodes([(1, 2, inner[i][2])], all_nodes, rng, ops)
        new = [(3, wire, v) for _, wire, v in made]
    inner[i : i + 1] = new
    library[which] = (1, 2, put(inner))
    parts = list(parts)
    parts[at] = (2, 2, put(library))
    return parts, f"function {name}"


def _damage_nodes(
    one: list[Field], others: Sequence[Field], rng: random.Random, ops: Sequence[str]
) -> tuple[list[Field], str]:
    """Damage one node, given all those beside it."""
    node = fields(one[0][2])  # type: ignore[arg-type]
    kind = rng.choice(
        ("inputs", "inputs", "op", "attribute", "attribute", "attribute", "attribute", "node")
    )
    if kind == "op":
        name = rng.choice(ops).encode()
        node = [(2, 2, name) if n == 2 else (n, w, v) for n, w, v in node]
    elif kind == "inputs":
        _damage_inputs(node, others, rng)
    elif kind == "attribute":
        at = [i for i, p in enumerate(node) if p[0] == 5]
        if not at:
            return one, "nothing"
        i = rng.choice(at)
        choice = rng.random()
        entry = {n: v for n, _, v in fields(node[i][2])}  # type: ignore[arg-type]
        if choice < 0.1:
            del node[i]
        elif choice < 0.2:
            other = [p for p in fields(rng.choice(others)[2]) if p[0] == 5]  # type: ignore[arg-type]
            if other:
                found = {n: v for n, _, v in fields(rng.choice(other)[2])}  # type: ignore[arg-type]
                node[i] = (5, 2, run(1, entry.get(1, b"")) + run(2, found.get(2, b"")))
        else:
            value = _damaged_value(entry.get(2, b""), rng)
            node[i] = (5, 2, run(1, entry.get(1, b"")) + run(2, value))
    elif rng.random() < 0.5:
        return [], "gone"
    else:
        return [*one, *one], "twice"
    return [(1, 2, put(node))], kind


def _damage_inputs(node: list[Field], others: Sequence[Field], rng: random.Random) -> None:
    at = [i for i, p in enumerate(node) if p[0] == 3]
    names = [v for o in others for n, _, v in fields(o[2]) if n == 1]  # type: ignore[arg-type]
    other = rng.choice(names) if names else b"x"
    assert isinstance(other, bytes)
    choice = rng.choice(("other", "other", "other", "gone", "more", "port", "swap", "none"))
    if choice == "more" or not at:
        node.append((3, 2, other))
    elif choice == "other":
        node[rng.choice(at)] = (3, 2, other)
    elif choice == "gone":
        del node[rng.choice(at)]
    elif choice == "port":
        i = rng.choice(at)
        end = rng.choice((b":1", b":2", b":-1", b":999999999999", b":y:0", b":output:1"))
        node[i] = (3, 2, bytes(node[i][2]) + end)  # type: ignore[arg-type]
    elif choice == "swap":
        i, j = rng.choice(at), rng.choice(at)
        node[i], node[j] = node[j], node[i]
    else:
        node[rng.choice(at)] = (3, 2, b"not there")


def _damaged_value(value: bytes, rng: random.Random) -> bytes:
    """Return an AttrValue with something else in it."""
    parts = fields(value)
    if not parts or rng.random() < 0.08:
        return rng.choice((
            b"", num(3, rng.choice(NUMBERS)), num(5, 1), typed(rng.choice(TYPES)),
            run(2, rng.choice(TEXTS)), run(1, b""), run(7, shape((2, 3))), run(10, run(1, "f")),
        ))  # fmt: skip
    i = rng.randrange(len(parts))
    number, _, inside = parts[i]
    if number == 8 and isinstance(inside, bytes):
        parts[i] = (8, 2, _damaged_tensor(inside, rng))
    elif number == 7:
        parts[i] = (7, 2, _damaged_shape(inside, rng))
    elif number == 6:
        parts[i] = (6, 0, rng.choice(TYPES))
    else:
        parts[i] = _scrambled(parts[i], rng)
    return put(parts)


def _damaged_shape(value: int | bytes, rng: random.Random) -> bytes:
    if not isinstance(value, bytes) or rng.random() < 0.1:
        return shape(rng.choice((None, (), (0,), (2, 3, 4), (1 << 40, 1 << 40))))
    parts = fields(value)
    choice = rng.random()
    if parts and choice < 0.6:
        parts[rng.randrange(len(parts))] = (2, 2, num(1, rng.choice(NUMBERS)))
    elif parts and choice < 0.8:
        del parts[rng.randrange(len(parts))]
    else:
        parts.append((2, 2, num(1, rng.choice((-1, 1, 2, 3)))))
    return put(parts)


def _damaged_tensor(value: bytes, rng: random.Random) -> bytes:
    """Return a TensorProto of other numbers, of another shape or of another type."""
    parts = fields(value)
    content = {n: v for n, _, v in parts}
    kind = content.get(1)
    choice = rng.random()
    for i, (number, wire, inside) in enumerate(parts):
        if number == 2 and choice < 0.25:
            parts[i] = (2, 2, _damaged_shape(inside, rng))
        elif number == 1 and choice < 0.32:
            parts[i] = (1, 0, rng.choice(TYPES))
        elif number == 4 and choice >= 0.32 and isinstance(inside, bytes):
            width, letter = {INT32: (4, "<i"), INT64: (8, "<q"), FLOAT: (4, "<f")}.get(
                kind, (1, "<b")
            )  # type: ignore[arg-type]
            if len(inside) >= width:
                new = bytearray(inside)
                at = rng.randrange(len(inside) // width) * width
                if letter == "<f":
                    new[at : at + 4] = struct.pack("<f", rng.choice(FLOATS))
                else:
                    bits = 8 * width
                    n = rng.choice(NUMBERS) % (1 << bits)
                    new[at : at + width] = n.to_bytes(width, "little")
                parts[i] = (4, 2, bytes(new))
        elif number >= 5 and choice >= 0.32:
            if number == 5:
                packed_floats = struct.pack("<f", rng.choice(FLOATS))
                parts[i] = (5, wire, packed_floats) if wire in (2, 5) else parts[i]
            elif number in (7, 10, 11):
                parts[i] = (number, 2, packed([rng.choice(NUMBERS)]))
            else:
                parts[i] = _scrambled(parts[i], rng)
    return put(parts)


def _scrambled(part: Field, rng: random.Random) -> Field:
    """Return a field with another value of its kind."""
    number, wire, value = part
    if wire == 0:
        return number, 0, rng.choice(NUMBERS)
    if wire == 5:
        return number, 5, struct.pack("<f", rng.choice(FLOATS))
    if wire == 1:
        return number, 1, struct.pack("<d", rng.choice(FLOATS))
    assert isinstance(value, bytes)
    if number in (3, 6) and rng.random() < 0.7:  # a list of numbers
        count = rng.choice((0, 1, 2, 3, 4, 5, 9))
        return number, 2, packed([rng.choice(NUMBERS) for _ in range(count)])
    if rng.random() < 0.4:
        return number, 2, rng.choice(TEXTS)
    try:
        inner = fields(value)
        if not inner:
            raise ValueError
        i = rng.randrange(len(inner))
        if rng.random() < 0.3:
            del inner[i]
        else:
            inner[i] = _scrambled(inner[i], rng)
        return number, 2, put(inner)
    except (ValueError, IndexError):
        return number, 2, rng.choice(TEXTS)


Damage = Callable[[bytes, int, str, Sequence[str]], Iterator[tuple[str, bytes]]]
