"""TorchScript text that was damaged, or written to harm: clear errors in seconds, nothing run."""

import io
import zipfile

import pytest
from repository import ROOT

from converter.lower import OPSET
from converter.lower.torch.lowering import lower
from converter.options import parse_inputs
from formats.artifact import Artifact
from formats.errors import ConvertError, CorruptError, LimitError, UnsupportedError
from formats.torch import script as torch_script

ARCHIVE = ROOT / "fixtures" / "torch_programs" / "scripts.zip"
CLASS = """class Branches(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  def forward(self: __torch__.programs.Branches,
    x: Tensor) -> Tensor:
"""
FUNCTION = "def {0}(x: Tensor) -> Tensor:\n  a = __torch__.programs.{1}(x, )\n  return {2}\n"


def text(*lines):
    return CLASS + "".join(f"    {line}\n" for line in lines)


def archive(folder, code):
    """Return an archive whose one class has this text."""
    with zipfile.ZipFile(ARCHIVE) as held:
        inner = zipfile.ZipFile(io.BytesIO(held.read("branches-script.pt")))
    path = folder / "hostile.pt"
    with zipfile.ZipFile(path, "w") as made:
        for name in inner.namelist():
            is_code = "/code/" in name and name.endswith("programs.py")
            data = inner.read(name)
            made.writestr(name, code if is_code else data)
    return path


def lower_code(folder, code):
    bundle = torch_script.read(Artifact(archive(folder, code)))
    return lower(bundle, opset=OPSET, inputs=parse_inputs(["x:float32:n,3"]))


def calls(count):
    return "".join(
        FUNCTION.format(f"f{i}", f"f{i + 1}", f"__torch__.programs.f{i + 1}(a, )")
        for i in range(count)
    ) + FUNCTION.format(f"f{count}", f"f{count}", "a").replace(
        f"__torch__.programs.f{count}(x, )", "x"
    )


TOO_MUCH = {
    "a list that doubles": text("l = [1]", "for i in range(60):", "  l = torch.add(l, l)"),
    "a loop without end": text("while True:", "  pass", "return x"),
    "loops in loops": text("for i in range(100000):", "  for j in range(100000):", "    pass"),
    "recursion": text("return (self).forward(x, )"),
    "calls that double": text("return __torch__.programs.f0(x, )") + calls(33),
    "brackets": text("y = " + "(" * 5000 + "x" + ")" * 5000),
    "dots": text("y = x" + ".a" * 100_000),
    "signs": text("y = " + "-" * 100_000 + "1"),
    "a list in itself": text("l = [x]", "_ = torch.append(l, l)", "return l"),
    "tuples that double": text("t = (x, x)", "for i in range(99):", "  t = (t, t)", "return t"),
    "words": text("y = [" + "1," * 1_000_000 + "]"),
}
DAMAGED = {
    "no text": b"\xff\xfe\x00",
    "zeros": b"class Branches(Module):\x00\n",
    "blocks": CLASS + "".join("    " + " " * i + "if True:\n" for i in range(300)),
    "half a call": text("y = torch.relu("),
    "code outside": "print(1)\n" + text("return x"),
    "a constant that is not there": text("return CONSTANTS.c9"),
    "an attribute that is not there": text("return self.weight"),
    "a call without arguments": text("return (self).forward()"),
}
GAPS = {
    "a text that doubles": text("l = 'ab'", "for i in range(60):", "  l = torch.add(l, l)"),
    "texts joined": text("t = 'aa'", "for i in range(60):", "  t = torch.join(t, ['a', t])"),
    "texts replaced": text("t = 'aa'", "for i in range(60):", "  t = torch.replace(t, 'a', t)"),
    "a power": text("n = torch.pow(10, 100000000)"),
    "a shift": text("n = torch.__lshift__(1, 10000000000)"),
    "a long list": text("l = torch.mul([1], 10000000000)"),
    "an import": text("y = __import__('os').system('touch ran')"),
    "eval": text("y = eval('1')"),
    "a class of Python's": text("y = x.__class__.__bases__"),
    "a lambda": text("y = (lambda: 1)()"),
    "too many arguments": text("return torch.relu(x, x, x, x)"),
    "a name that is not there": text("return y"),
    "an axis that is not there": text("return torch.softmax(x, 99)"),
    "a division by zero": text("n = torch.remainder(1, 0)"),
    "an op that there is not": text("if torch.nothing(x):", "  y = x", "return x"),
    "a list as a key": text("y = {[1]: x}"),
    "a try": text("try:", "  y = x", "except:", "  y = x"),
    "a number of infinity": text("return torch.select(x, 0, int(1e999))"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_asks_for_too_much(what, tmp_path):
    with pytest.raises(LimitError) as e:
        lower_code(tmp_path, TOO_MUCH[what])
    assert e.value.exit_code == 3


@pytest.mark.parametrize("what", DAMAGED)
def test_what_is_damaged(what, tmp_path):
    with pytest.raises(CorruptError):
        lower_code(tmp_path, DAMAGED[what])


@pytest.mark.parametrize("what", GAPS)
def test_what_no_program_does(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = GAPS[what] if "return" in GAPS[what] else GAPS[what] + "    return x\n"
    with pytest.raises(UnsupportedError, match="not supported") as e:
        lower_code(tmp_path, code)
    assert len(str(e.value)) < 1000
    assert [p.name for p in tmp_path.iterdir()] == ["hostile.pt"]


def test_one_tensor_that_every_round_of_a_loop_changes_and_keeps(tmp_path):
    """Torch's list holds that tensor as it is in the end, several times."""
    zeros = 'torch.zeros([3], dtype=6, layout=0, device=torch.device("cpu"), pin_memory=False)'
    code = text(
        f"h = {zeros}", "l = annotate(List[Tensor], [])", "for i in range(torch.size(x, 0)):",
        "  _0 = torch.add_(h, 1)", "  _1 = torch.append(l, h)", "return torch.stack(l, 0)",
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="later rounds write to"):
        lower_code(tmp_path, code)


def test_text_cut_anywhere_is_an_error_or_a_program(tmp_path):
    whole = text("y = torch.add(x, 1)", "if bool(torch.sum(x)):", "  y = x", "return y")
    for end in range(0, len(whole), 7):
        try:
            lower_code(tmp_path, whole[:end])
        except ConvertError:
            continue


def test_text_with_a_byte_changed_is_an_error_or_a_program(tmp_path):
    whole = text("y = torch.add(x, 1)", "if bool(torch.sum(x)):", "  y = x", "return y").encode()
    for at in range(0, len(whole), 3):
        for other in b"(7 \n.":
            changed = whole[:at] + bytes([other]) + whole[at + 1 :]
            try:
                lower_code(tmp_path, changed)
            except ConvertError:
                continue
