"""What torch is never given to load, and what it is; in this process, which is a child's stand-in.

Each of the files that are refused here runs something of its author's where torch loads it as its
own documentation says: that is asserted for the worst of them.
"""

import io
import json
import pickle
import sys
import zipfile
from functools import partial

import pytest

torch = pytest.importorskip("torch")
torch_models = pytest.importorskip("torch_models")

from converter.verification.children.run_torch import LOADING, loading  # noqa: E402 - as the child loads it

nn = torch.nn
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::torch.serialization.SourceChangeWarning"),
]
RefusedError, MismatchError = loading.RefusedError, loading.MismatchError
torch_guard = loading.guard
ROOT = str(LOADING.parents[2])


def load(form, path, trusted=(), arch=None):
    question = {"form": form, "source": str(path), "trusted": trusted, "root": ROOT, "arch": arch}
    return loading.load(torch, question)


# -- pickled modules -----------------------------------------------------------------------------


class Calls:
    """What a pickle of it calls."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


HOSTILE = {
    "a function": Calls(exec, "raise AssertionError('it was run')"),
    "getattr": Calls(getattr, nn, "Linear"),
    "a loader": Calls(torch.load, "somewhere"),
    "bytes that are a pickle": Calls(torch.storage._load_from_bytes, b""),
    "an extension": Calls(torch.ops.load_library, "somewhere.so"),
    "a hub": Calls(torch.hub.load, "a", "b"),
    "source text": Calls(torch.fx.graph_module.reduce_graph_module, {"_code": "1"}, ""),
    "a partial of a function": partial(exec, "raise AssertionError('it was run')"),
    "a class that is no module": Calls(torch.utils.data.DataLoader, [1]),
    "a compiler": Calls(torch.jit.CompilationUnit, "def f(): pass"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("is_zip", [True, False])
def test_nothing_is_found_that_is_not_allowed(tmp_path, name, is_zip):
    path = tmp_path / "m.pt"
    value = {"model": nn.Linear(2, 2), "more": HOSTILE[name]}
    try:
        torch.save(value, path, _use_new_zipfile_serialization=is_zip)
    except (TypeError, AttributeError, pickle.PicklingError):
        pytest.skip("torch does not write that")
    with pytest.raises(RefusedError, match=r"needs|names"):
        load("torch_modules", path)


def test_a_path_of_attributes_is_none(tmp_path):
    data = b"\x80\x04\x8c\x08torch.nn\x8c\x0fModule.__init__\x93."
    with pytest.raises(RefusedError, match=r"names torch\.nn\.Module\.__init__"):
        loading.Finder(torch, {}).as_module().Unpickler(io.BytesIO(data)).load()


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, activation=nn.functional.gelu),
        lambda: nn.LSTM(3, 4, 2, bidirectional=True),
        lambda: nn.Embedding(5, 3, padding_idx=0),
        lambda: nn.DataParallel(nn.Linear(3, 4)),
    ],
)
@pytest.mark.parametrize("is_zip", [True, False])
def test_modules_of_torchs_own_are_loaded(tmp_path, make, is_zip):
    torch.manual_seed(0)
    model = make().train()
    path = tmp_path / "m.pt"
    torch.save({"epoch": 1, "net": model}, path, _use_new_zipfile_serialization=is_zip)
    model = model.module if isinstance(model, nn.DataParallel) else model
    loaded = load("torch_modules", path)
    assert type(loaded.module) is type(model)
    assert not loaded.module.training
    expected, found = model.state_dict(), loaded.module.state_dict()
    assert list(expected) == list(found)
    assert all(torch.equal(expected[k], found[k]) for k in expected)
    assert "the module is the pickle's 'net'" in loaded.notes


def test_classes_of_the_authors_own_need_trust(tmp_path):
    path = tmp_path / "m.pt"
    torch.save(torch_models.Heads(), path)
    with pytest.raises(
        RefusedError, match=r"needs torch_models\.Heads.* trust=\['torch_models'\]$"
    ):
        load("torch_modules", path)
    trusted = [["torch_models", torch_models.__file__]]
    kept = sys.modules["torch_models"]
    try:
        loaded = load("torch_modules", path, trusted)
    finally:
        sys.modules["torch_models"] = kept
    assert type(loaded.module).__name__ == "Heads"
    # Another module that is trusted does not lend its trust.
    with pytest.raises(RefusedError):
        load("torch_modules", path, [["torch_zoo", None]])


def test_a_class_of_main_is_looked_for_in_trusted_modules(tmp_path, monkeypatch):
    path = tmp_path / "m.pt"
    monkeypatch.setattr(torch_models.Tokens, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Tokens", torch_models.Tokens, raising=False)
    torch.save(torch_models.Tokens(), path)
    with pytest.raises(RefusedError, match=r"trust=\['MODULE=FILE\.py'\], where its class is"):
        load("torch_modules", path)
    loaded = load("torch_modules", path, [["torch_models", None]])
    assert type(loaded.module) is torch_models.Tokens


def test_of_several_modules_none_is_chosen(tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"g": nn.Linear(2, 2), "d": nn.Linear(2, 2)}, path)
    with pytest.raises(ValueError, match="has 2 modules to run, not one: g, d"):
        load("torch_modules", path)


# -- TorchScript ---------------------------------------------------------------------------------


class Writes(nn.Module):
    def __init__(self, path: str):
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, self.path)
        return x


class Reads(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_file("/etc/passwd", False, 4)


def test_scripts_that_touch_files_are_refused(tmp_path):
    written = tmp_path / "written"
    for model in (Writes(str(written)), Reads()):
        path = tmp_path / "s.pt"
        torch.jit.script(model).save(str(path))
        with pytest.raises(RefusedError, match=r"code/.* names torch\.(save|from_file)"):
            load("torchscript", path)
        with pytest.raises(RefusedError, match=r"its code has aten::(save|from_file)"):
            torch_guard.refuse_nodes(torch.jit.load(path))
    assert not written.exists()
    torch.jit.load(tmp_path / "s.pt")  # which torch itself does without a word


def test_a_script_of_torchs_own_is_loaded(tmp_path):
    path = tmp_path / "s.pt"
    torch.jit.script(nn.Sequential(nn.Linear(2, 3), nn.Dropout())).save(str(path))
    loaded = load("torchscript", path)
    assert not loaded.module.training
    assert loading.parameters(loaded.module) == ["input"]


# -- exported programs ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("pt2") / "p.pt2"
    n = torch.export.Dim("n", min=2, max=64)
    model = torch_models.Heads().eval()
    given = torch.randn(4, 6), torch.randn(4, 6)
    shapes = {"alpha": {0: 2 * n}, "zeta": {0: 2 * n}}
    torch.export.save(torch.export.export(model, given, dynamic_shapes=shapes), path)
    return path


def edited(source, path, member, edit):
    """Copy an archive, with the member whose name ends so changed."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename.endswith(member):
                data = edit(data)
            new.writestr(info.filename, data)
    return path


def in_json(edit):
    def changed(data):
        value = json.loads(data)
        edit(value)
        return json.dumps(value).encode()

    return changed


def with_symbols(value, text):
    """Put a text in place of each expression."""
    if isinstance(value, dict):
        for key, inside in value.items():
            if key == "expr_str":
                value[key] = text
            else:
                with_symbols(inside, text)
    elif isinstance(value, list):
        for inside in value:
            with_symbols(inside, text)


def calling(target):
    def edit(value):
        value["graph_module"]["graph"]["nodes"][0]["target"] = target

    return in_json(edit)


RUNS = "__import__('builtins').exec('raise AssertionError(7)')"
PROGRAMS = {
    "an expression": ("models/model.json", in_json(lambda v: with_symbols(v, RUNS))),
    "an expression of calls": (
        "models/model.json", in_json(lambda v: with_symbols(v, "eval(chr(49) + chr(50))")),
    ),
    "an attribute": ("models/model.json", in_json(lambda v: with_symbols(v, "s0.__class__"))),
    "a text in an expression": (
        "models/model.json", in_json(lambda v: with_symbols(v, "Symbol('s0; exit()')")),
    ),
    "a range's name": (
        "models/model.json", in_json(lambda v: v["range_constraints"].update({"open(0)": {}})),
    ),
    "a guard": (
        "models/model.json", in_json(lambda v: v.update(guards_code=["exit() == L['x']"])),
    ),
    "a guard that is passed a function": (
        "models/model.json", in_json(lambda v: v.update(guards_code=["max([1], key=exit) == 1"])),
    ),
    "a guard in a module": (
        "models/model.json", in_json(lambda v: v.update(guards_code=["math.__loader__ == 1"])),
    ),
    "torch.os.system": ("models/model.json", calling("torch.os.system")),
    "a library": ("models/model.json", calling("torch.ops.load_library")),
    "a file": ("models/model.json", calling("torch.ops.aten.from_file.default")),
    "a method": ("models/model.json", calling("_operator.methodcaller")),
    "an object of its own": (
        "model_constants_config.json",
        in_json(lambda v: v["config"].update(x={"path_name": "opaque_obj_0", "use_pickle": True})),
    ),
    "a pickle": (
        "sample_inputs/model.pt",
        lambda _: archived(Calls(exec, "raise AssertionError('it was run')")),
    ),
    "no JSON": ("models/model.json", lambda _: b"{"),
}  # fmt: skip


def archived(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_that_run_more_than_operators_are_refused(tmp_path, program, name):
    path = edited(program, tmp_path / "p.pt2", *PROGRAMS[name])
    with pytest.raises(RefusedError):
        load("exported_program", path)


def test_guards_of_arithmetic_are_not_refused(tmp_path, program):
    guards = ["max(1, L['x'].size()[0] // 2) >= 1", "math.floor(L['x'].size()[0] / 2) >= 0"]
    change = in_json(lambda v: v.update(guards_code=guards))
    load("exported_program", edited(program, tmp_path / "p.pt2", "models/model.json", change))


def test_torch_itself_would_have_run_it(tmp_path, program):
    path = edited(program, tmp_path / "p.pt2", *PROGRAMS["an expression"])
    with pytest.raises(Exception, match="7"):
        torch.export.load(path)


def test_programs_of_torchs_own_are_loaded(program):
    loaded = load("exported_program", program)
    assert loaded.program is not None
    far, near = loaded.module(torch.ones(6, 6), torch.ones(6, 6))
    assert far.shape == near.shape == (6, 4)


def added(name, data=b"x"):
    def copy(source, path):
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
            for info in old.infolist():
                new.writestr(info.filename, old.read(info))
            folder = old.namelist()[0].partition("/")[0]
            new.writestr(name.format(folder), data)

    return copy


def surrounded(before, after):
    def copy(source, path):
        path.write_bytes(before + source.read_bytes() + after)

    return copy


ARCHIVES = {
    "a library": (added("{}/data/aotinductor/model/model.so"), "may be compiled code"),
    "a name twice": (added("{}/models/MODEL.json"), "two members"),
    "bytes in front": (surrounded(b"x" * 8, b""), "bytes in front"),
    "bytes behind": (surrounded(b"", b"x"), "bytes in front of the archive, or behind"),
    "an old pickle": (added("serialized_state_dict.json", b"cos\nsystem\n."), "no pickle of plain"),
    "a program deeper": (added("{}/models/a/b.json", b"{"), "is no JSON"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives_that_torch_may_read_otherwise_are_refused(tmp_path, program, name):
    change, said = ARCHIVES[name]
    path = tmp_path / "p.pt2"
    change(program, path)
    with pytest.raises(RefusedError, match=said):
        load("exported_program", path)


def in_guard(text):
    torch_guard._check_expression(text, "here", is_guard=True)


def test_expressions_as_torch_writes_them():
    for text in (
        "s77", "2*s0", "(s0 + 1)//2", "Max(1, s0)", "FloorDiv(s0, 2)", "Mod(s1, 8) + 3", "-1*u0",
        "Symbol('s0', integer=True, positive=True)", "Eq(s0, 3)", "s0 >= 2", "zuf0*2.5", "int_oo",
    ):  # fmt: skip
        torch_guard._check_expression(text, "here", is_guard=False)
    in_guard("L['x'].size()[0] == L['y'].size()[1]")
    for text in ("open('x')", "s0.real", "[s0]", "lambda: 0", "s0 if f() else 1", "'s0'.upper()"):
        with pytest.raises(RefusedError):
            torch_guard._check_expression(text, "here", is_guard=False)
    for text in ("L['x'].__class__()", "print(L)", "L['x'].size(exit())"):
        with pytest.raises(RefusedError):
            in_guard(text)


# -- state dicts ---------------------------------------------------------------------------------


def fill(module, value):
    return loading.states.fill(torch, module, value)


def state():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).state_dict()


def net():
    return nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))


@pytest.mark.parametrize(
    ("prefix", "taken"),
    [
        ("", ""), ("module.", "module."), ("_orig_mod.", "_orig_mod."),
        ("_orig_mod.module.", "_orig_mod.module."), ("model.net.", "model.net."),
    ],
)  # fmt: skip
def test_wrappers_are_taken_off_names(prefix, taken):
    given, module = state(), net()
    renamed, notes = fill(module, {"state_dict": {prefix + k: v for k, v in given.items()}})
    assert renamed["0.weight"] == f"state_dict.{prefix}0.weight"
    more = [f"{taken!r} taken off its names"] if taken else []
    assert notes == ["state dict 'state_dict'", *more]
    assert all(torch.equal(v, given[k]) for k, v in module.state_dict().items())


def test_counters_that_torch_04_did_not_have_may_be_missing():
    given = {k: v for k, v in state().items() if "num_batches" not in k}
    fill(net(), given)


def test_the_nearest_dict_is_the_one_that_is_complained_of():
    given = {k: v for k, v in state().items() if k != "0.bias"} | {"2.extra": torch.ones(1)}
    with pytest.raises(MismatchError) as e:
        fill(net(), {"optimizer": {"state": {"x": torch.ones(1)}}, "ema": {"weights": given}})
    assert str(e.value) == (
        "the file lacks tensors in 'ema.weights' (1): 0.bias; "
        "the module has no 1 of the file's: 2.extra"
    )


def test_what_holds_no_tensors_is_no_state_dict():
    with pytest.raises(MismatchError, match="no dict of tensors"):
        fill(net(), {"a": [1, {"b": 2}]})


def test_code_in_a_state_dicts_pickle_does_not_run(tmp_path):
    path = tmp_path / "s.pt"
    torch.save(state() | {"x": Calls(exec, "raise AssertionError('it was run')")}, path)
    with pytest.raises(pickle.UnpicklingError):
        loading.states.state_of(torch, str(path))
