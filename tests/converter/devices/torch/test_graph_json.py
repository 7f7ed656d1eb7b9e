"""Devices in the JSON of exported programs: edited where they are, and nowhere else."""

import json

import pytest

from converter.devices.names import parse_torch_device
from converter.devices.torch.graph_json import GraphDevices, move_graph_json
from formats.errors import CorruptError, LimitError, UnsupportedError

CUDA = {"type": "cuda", "index": 0}


def move(text, device, is_old=False):
    found = GraphDevices()
    data = text if isinstance(text, bytes) else text.encode()
    made = move_graph_json(
        data, parse_torch_device(device), found, is_old=is_old, limit=1 << 20, where="graph"
    )
    return made.decode(), found


@pytest.mark.parametrize(
    ("text", "device", "expected"),
    [
        ('{"device": {"type": "cuda", "index": 0}}', "cpu",
         '{"device": {"type": "cpu", "index": null}}'),
        ('{"device": {"type": "cpu", "index": null}}', "cuda:1",
         '{"device": {"type": "cuda", "index": 1}}'),
        ('{"as_device":{"index":3,"type":"cuda"}}', "cuda:12",
         '{"as_device":{"index":12,"type":"cuda"}}'),
        ('{"device" : {\n "type" : "cuda"}}', "cuda:1",
         '{"device" : {\n "type" : "cuda", "index": 1}}'),
        ('{"device": {"type": "cuda", "index": 0, "mesh": [1]}}', "mps",
         '{"device": {"type": "mps", "index": null, "mesh": [1]}}'),
        ('{"device": {"type": "meta", "index": null}}', "cuda:1",
         '{"device": {"type": "meta", "index": null}}'),
        ('{"device": null, "as_device": "cuda"}', "cpu", '{"device": null, "as_device": "cuda"}'),
    ],
)  # fmt: skip
def test_devices(text, device, expected):
    assert move(text, device)[0] == expected


def test_what_is_none_stays_left_out_where_it_was():
    text = '{"device": {"type": "cuda", "index": 0}, "b": 1}'
    assert move(text, "cpu", is_old=True)[0] == '{"device": {"type": "cpu"}, "b": 1}'
    assert move(text, "cpu")[0] == '{"device": {"type": "cpu", "index": null}, "b": 1}'
    text = '{"device": {"type": "cuda", "index": 0}, "b": null}'
    assert (
        move(text, "cpu", is_old=True)[0] == '{"device": {"type": "cpu", "index": null}, "b": null}'
    )


def test_texts_that_look_like_json_stay():
    inside = json.dumps({"device": CUDA, "as_device": CUDA})
    document = {
        "stack_trace": inside,
        'odd "device': {"type": "cuda", "index": 0},
        "nested": json.dumps(inside),
        "ünï": "\\",
        "device": CUDA,
    }
    made, found = move(json.dumps(document), "cpu")
    assert json.loads(made) == document | {"device": {"type": "cpu", "index": None}}
    assert found.values == {"cuda:0": 1}


def test_fields_that_nobody_knows_stay():
    document = {"new": [{"devices": [CUDA], "other_device": CUDA}], "device": {"name": "x"}}
    text = json.dumps(document, indent=3)
    assert move(text, "cpu")[0] == text


def node(target, *inputs):
    return {"target": target, "inputs": [{"name": n, "arg": a, "kind": 1} for n, a in inputs]}


def test_arguments():
    document = {
        "nodes": [
            node("torch.ops.aten.ones.default", ("device", {"as_device": CUDA})),
            node("torch.ops.own.op.default", ("device", {"as_string": "cuda:0"})),
            node("torch.ops.own.op.default", ("device_type", {"as_string": "cuda"})),
            node("torch.ops.own.op.default", ("mode", {"as_string": "cuda"})),
        ]
    }
    made, found = move(json.dumps(document), "cpu")
    after = [n["inputs"][0]["arg"] for n in json.loads(made)["nodes"]]
    assert after == [
        {"as_device": {"type": "cpu", "index": None}},
        {"as_string": "cpu"},
        {"as_string": "cpu"},
        {"as_string": "cuda"},
    ]
    assert found.arguments == {"cuda:0": 2, "cuda": 1}
    assert "a node has the text 'cuda': left as it is" in found.warnings
    assert any("own's own operators" in text for text in found.warnings)


def autocast(kind, dtype):
    return json.dumps(
        node("torch.ops.higher_order.wrap_with_autocast",
             ("", {"as_string": kind}), ("", dtype), ("", {"as_bool": True}))
    )  # fmt: skip


def test_autocast():
    made, found = move(autocast("cpu", {"as_scalar_type": 13}), "cuda:1")
    assert made == autocast("cuda", {"as_scalar_type": 13})
    assert any("autocast of cpu" in text for text in found.warnings)
    made, found = move(autocast("cuda", {"as_none": True}), "cuda:1")
    assert made == autocast("cuda", {"as_none": True})
    with pytest.raises(UnsupportedError, match="autocast of cuda without a dtype"):
        move(autocast("cuda", {"as_none": True}), "cpu")


@pytest.mark.parametrize(
    ("target", "device"),
    [
        ("torch.ops.aten._pack_padded_sequence.default", "cuda:0"),
        ("torch.ops.quantized.linear.default", "cuda:0"),
        ("torch.ops.aten._cudnn_rnn.default", "cpu"),
        ("torch.ops.aten.miopen_convolution.default", "cpu"),
    ],
)
def test_operators_that_do_not_run_there_are_refused(target, device):
    with pytest.raises(UnsupportedError, match="does not run"):
        move(json.dumps(node(target)), device)
    move(json.dumps(node(target)), "cpu" if device != "cpu" else "cuda:0")


def test_other_spellings_are_refused():
    """A key that is escaped is one for every reader of JSON, and none for our pattern."""
    with pytest.raises(UnsupportedError, match="in a way that we do not know"):
        move('{"d\\u0065vice": {"type": "cuda", "index": 0}}', "cpu")
    with pytest.raises(UnsupportedError, match="in a way that we do not know"):
        move('{"device": {"type": "cuda", "index": 0, "more": {"index": 5}}}', "cpu")


def test_damage():
    for data in (b"", b"{", b'{"device": {"type": "cuda", }}', b"[" * 5000, b"\xff"):
        with pytest.raises(CorruptError):
            move(data, "cpu")
    with pytest.raises(LimitError):
        move(b"[" + b"1," * (1 << 20) + b"1]", "cpu")


@pytest.mark.timeout(60)
def test_hostile_documents_take_their_length():
    for text in (
        '{"device": {' + ", ".join(f'"k{i}": "{{"' for i in range(40_000)) + "}}",
        '{"device": {"a": "' + '\\"' * 300_000 + '"}}',
        "[" + ", ".join(['{"device": {"type": "cuda", "index": 0}}'] * 20_000) + "]",
        '{"device": "' + '{\\"device\\": ' * 50_000 + '"}',
    ):
        move(text, "cpu")
