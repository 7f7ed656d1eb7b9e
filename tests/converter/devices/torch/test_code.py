"""Devices in TorchScript's text: every spelling, and what only looks like one."""

import contextlib

import pytest

from converter.devices.names import parse_torch_device
from converter.devices.torch.code import CodeDevices, apply_edits, edit_code
from formats.errors import LimitError, UnsupportedError

# text, home, device, text afterwards
ROWS = [
    ('a = torch.device("cuda:0")', "cuda:0", "cpu", 'a = torch.device("cpu")'),
    ('a = torch.device("cpu")', "cpu", "cuda:1", 'a = torch.device("cuda:1")'),
    ('a = torch.device("cuda", 1)', "cuda:0", "cpu", 'a = torch.device("cpu")'),
    ('a = torch.device("cuda", 1)', "cuda:1", "cuda:1", 'a = torch.device("cuda:1")'),
    ('a = torch.device("xpu:3")', "xpu:3", "cuda", 'a = torch.device("cuda")'),
    ('a = torch.to(x, dtype=6, layout=0, device=torch.device("cuda:0"))', "cuda:0", "mps",
     'a = torch.to(x, dtype=6, layout=0, device=torch.device("mps"))'),
    ("a = torch.cuda(torch.add(x, y))", "cuda:0", "cpu", "a = torch.cpu(torch.add(x, y))"),
    ("a = torch.cpu(torch.add(x, y), )", "cpu", "cuda", "a = torch.cuda(torch.add(x, y), )"),
    ("a = torch.cpu(torch.add(x, (y)))", "cpu", "cuda:1",
     'a = torch.to(torch.add(x, (y)), torch.device("cuda:1"))'),
    ("op_version_set = 0\na = torch.ones([2], dtype=6, device=[0, -1])", "cpu", "cuda:1",
     "op_version_set = 0\na = torch.ones([2], dtype=6, device=[1, 1])"),
    ("op_version_set = 0\na = torch.ones([2], dtype=6, device=[1, 0])", "cuda:0", "cpu",
     "op_version_set = 0\na = torch.ones([2], dtype=6, device=[0, -1])"),
    # what was true stays true
    ('a = torch.eq(ops.prim.device(x), torch.device("cuda:0"))', "cuda:0", "cpu",
     'a = torch.eq(ops.prim.device(x), torch.device("cpu"))'),
    ('a = torch.ne(ops.prim.device(x), torch.device("cpu"))', "cpu", "cuda:1",
     'a = torch.ne(ops.prim.device(x), torch.device("cuda:1"))'),
    ('a = torch.eq(str(ops.prim.device(x)), "cuda:0")', "cuda:0", "cuda:1",
     'a = torch.eq(str(ops.prim.device(x)), "cuda:1")'),
    ('a = torch.eq(ops.prim.device(x), torch.device("cuda:0"))', "cuda:0", "cuda",
     'a = torch.eq(ops.prim.device(x), torch.device("cuda:0"))'),
]  # fmt: skip

# text that stays, home, device, what is said
STAYS = [
    ('a = torch.eq(ops.prim.device(x), torch.device("cuda:1"))', "cuda:0", "cpu",
     "compares with cuda:1, where it was not"),
    ('a = torch.eq(ops.prim.type(ops.prim.device(x)), "cuda")', "cuda:0", "cpu",
     'has the text "cuda"'),
    ("a = ops.prim.is_cuda(x)", "cuda:0", "cpu", "asks ops.prim.is_cuda(…)"),
    ("a = torch.device(s)", "cpu", "cuda:0", "computes a device"),
    ('print("cuda:0")', "cuda:0", "cpu", 'has the text "cuda:0"'),
    ("a = torch.pin_memory(x, )", "cpu", "cuda:0", "pins memory, which only the CPU has"),
    ("op_version_set = 0\na = torch.ones([2], dtype=6, device=[6, 0])", "cpu", "cuda:0",
     "names a device as device=[6, 0]"),
]  # fmt: skip

UNTOUCHED = [
    r'print("torch.device(\"cuda:0\") of \"cuda:1\"")',
    r'print("ends with \\", "torch.device(")',
    'print("torch.cpu(x)")',
    'a = mytorch.device("cuda:0")',
    'a = x.torch.device("cuda:0")',
    'b = "näme, cuda:0"',
    "a = ops.prim.device(x)",
    "a = ops.own.op(x, device=[1, 0])",
    "",
]


@pytest.mark.parametrize(("text", "home", "device", "after"), ROWS)
def test_spellings(text, home, device, after):
    said = CodeDevices()
    code = text.encode()
    made = apply_edits(code, edit_code(code, parse_torch_device(device), {home}, said))
    assert made.decode() == after
    assert said.literals.total() == 1
    # what is there, stays there
    again = CodeDevices()
    assert apply_edits(made, edit_code(made, parse_torch_device(device), {device}, again)) == made


@pytest.mark.parametrize(("text", "home", "device", "expected"), STAYS)
def test_what_cannot_be_decided_stays_and_is_said(text, home, device, expected):
    said = CodeDevices()
    assert edit_code(text.encode(), parse_torch_device(device), {home}, said) == []
    assert said.warnings == {expected: 1}


@pytest.mark.parametrize("text", UNTOUCHED)
def test_what_only_looks_like_a_device(text):
    said = CodeDevices()
    for device in ("cpu", "cuda:1"):
        assert edit_code(text.encode(), parse_torch_device(device), {"cuda:0"}, said) == []
    assert not said.literals


def test_a_comparison_that_would_come_true_is_refused():
    code = b'a = torch.eq(ops.prim.device(x), torch.device("cuda:0"))'
    with pytest.raises(UnsupportedError, match="asks whether it is on cuda:0"):
        edit_code(code, parse_torch_device("cuda:0"), {"cpu"}, CodeDevices())
    assert edit_code(code, parse_torch_device("cuda:1"), {"cpu"}, CodeDevices()) == []


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("a = ops.quantized.linear_dynamic(x, self.packed, )", "cuda:0"),
        ("a = ops.mkldnn_prepacked.conv2d_run(x, self.packed, )", "cuda:0"),
        ("a = torch._cudnn_rnn(x, )", "cpu"),
        ("a = torch.cudnn_convolution(x, )", "cpu"),
    ],
)
def test_operators_that_do_not_run_there_are_refused(text, device):
    with pytest.raises(UnsupportedError, match="does not run"):
        edit_code(text.encode(), parse_torch_device(device), {"cuda:0"}, CodeDevices())
    other = "cuda:0" if device == "cpu" else "cpu"
    assert edit_code(text.encode(), parse_torch_device(other), {"cuda:0"}, CodeDevices()) == []
    assert (
        edit_code(
            b'print("%b")' % text.encode(), parse_torch_device(device), {"cuda:0"}, CodeDevices()
        )
        == []
    )


@pytest.mark.parametrize(
    "text",
    [
        '  n = torch.to(m, torch.device("cpu"))\n  a = torch._pack_padded_sequence(x, n, False)\n',
        '  a, b, = torch._pack_padded_sequence(x, torch.to(n, torch.device("cpu")), False)\n',
    ],
)
def test_lengths_of_packed_sequences_stay_on_the_cpu(text):
    said = CodeDevices()
    assert edit_code(text.encode(), parse_torch_device("cuda:0"), {"cuda:0"}, said) == []
    assert said.kept == {"cpu": 1}


def test_positions_are_bytes():
    text = 'print("ääää")\na = torch.device("cuda:0")\n'
    code = text.encode()
    (edit,) = edit_code(code, parse_torch_device("cpu"), {"cuda:0"}, CodeDevices())
    assert code[edit.start : edit.end] == b'torch.device("cuda:0")'


def test_megabytes_of_code():
    line = b'  _1 = torch.add(torch.to(x, torch.device("cuda:0")), torch.mul(y, ((z))))\n'
    code = line * 30_000
    said = CodeDevices()
    edits = edit_code(code, parse_torch_device("cpu"), {"cuda:0"}, said)
    assert len(edits) == 30_000
    assert len(apply_edits(code, edits)) == len(code) - 3 * 30_000


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "code",
    [
        b'device "' + b'\\"' * 2_000_000,
        b"device " + b'"' * 1_000_001,
        b"device torch.device(" * 200_000,
        b"device" + b"(" * 2_000_000,
        b"device" + b")" * 1_000_000,
        b"torch._pack_padded_sequence(a, b," + b' = torch.device("cpu")' * 50_000,
    ],
    ids=["escapes", "quotes", "calls", "open", "closed", "one long line"],
)
def test_hostile_texts_take_their_length(code):
    for device in ("cpu", "cuda:0"):
        with contextlib.suppress(LimitError):
            apply_edits(
                code, edit_code(code, parse_torch_device(device), {"cuda:0"}, CodeDevices())
            )


def test_tokens_are_counted_over_all_texts(monkeypatch):
    monkeypatch.setattr("converter.devices.torch.code.MAX_TOKENS", 1000)
    said = CodeDevices()
    edit_code(b"device" + b")" * 900, parse_torch_device("cpu"), {"cuda:0"}, said)
    with pytest.raises(LimitError, match="more than 1000"):
        edit_code(b"device" + b")" * 900, parse_torch_device("cpu"), {"cuda:0"}, said)


def test_calls_nest_only_so_deep():
    with pytest.raises(LimitError, match="nested 1000 deep"):
        edit_code(
            b"device" + b"torch.add(" * 1001, parse_torch_device("cpu"), {"cuda:0"}, CodeDevices()
        )
