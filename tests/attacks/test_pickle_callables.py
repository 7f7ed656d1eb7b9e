"""Pickles that would run code: nothing runs, what they name is reported, and tensors are read.

Every pickle here, loaded by Python's own `pickle`, would write a marker file. The arena fails a
test when any file but the output appears.
"""

import pickle
import subprocess
import sys
import zipfile

import pytest
from attacks.arena import Attack
from attacks.pickles import (
    APPEND,
    EMPTY_DICT,
    EMPTY_TUPLE,
    MARK,
    NEWOBJ,
    NEWOBJ_EX,
    OBJ,
    POP,
    PROTO,
    REDUCE,
    SETITEM,
    STACK_GLOBAL,
    STOP,
    build,
    call,
    get,
    named,
    put,
    short_bytes,
    state_dict,
    storage,
    text,
    torch_stream,
    torch_zip,
    value,
    weights,
)

import converter
from converter.options import Options
from formats.errors import SafetyError

COMMAND = "touch {}"
CODE = "open({!r}, 'w').close()"


def by_code(function):
    return lambda marker: call(function, CODE.format(marker))


def by_command(function):
    return lambda marker: call(function, COMMAND.format(marker))


def inst(marker):
    return MARK + text(COMMAND.format(marker)) + b"iposix\nsystem\n"


def obj(marker):
    return MARK + named("posix.system") + text(COMMAND.format(marker)) + OBJ


def newobj(marker):
    return named("subprocess.Popen") + value((["touch", marker],)) + NEWOBJ


def newobj_ex(marker):
    return named("subprocess.Popen") + EMPTY_TUPLE + value({"args": ["touch", marker]}) + NEWOBJ_EX


def stack_global(marker):
    return text("posix") + text("system") + STACK_GLOBAL + value((COMMAND.format(marker),)) + REDUCE


def computed_name(marker):
    """The name of the function is put together by other calls."""
    name = call("posixpath.join", "sys", "tem")
    return text("posix") + name + STACK_GLOBAL + value((COMMAND.format(marker),)) + REDUCE


def dotted_name(marker):
    """Protocol 4 follows dots in names."""
    function = text("os") + text("path.os.system") + STACK_GLOBAL
    return function + value((COMMAND.format(marker),)) + REDUCE


def through_getattr(marker):
    function = call("builtins.getattr", call("builtins.__import__", "os"), "system")
    return call(function, COMMAND.format(marker))


def setstate(marker):
    """BUILD calls ``__setstate__``, or updates a ``__dict__`` that holds one."""
    state = {"__setstate__": named("posix.system")}
    return build(build(call("types.SimpleNamespace"), state), COMMAND.format(marker))


def instance_append(marker):
    """APPEND looks the method up on the instance, whose attributes BUILD sets."""
    target = build(call("types.SimpleNamespace"), {"append": named("posix.system")})
    return target + text(COMMAND.format(marker)) + APPEND


def through_memo(marker):
    """The call's parts come from the memo, put there in another order."""
    parts = named("posix.system") + put(900) + POP + value((COMMAND.format(marker),)) + put(901)
    return parts + POP + get(900) + get(901) + REDUCE


def replaced_in_memo(marker):
    """What was a harmless class becomes another function under the same memo index."""
    parts = named("collections.OrderedDict") + put(902) + POP
    parts += named("posix.system") + put(902) + POP
    return parts + get(902) + value((COMMAND.format(marker),)) + REDUCE


def in_bytes(marker):
    """A whole torch file in bytes, which torch.load would load in its turn."""
    inner = torch_stream(PROTO + by_command("posix.system")(marker) + STOP, {})
    return call("torch.storage._load_from_bytes", short_bytes(inner))


def in_zip_in_bytes(marker):
    inner = torch_zip(PROTO + by_command("posix.system")(marker) + STOP, {})
    return call("torch.storage._load_from_bytes", short_bytes(inner))


def through_pickle_loads(marker):
    return call("_pickle.loads", short_bytes(PROTO + by_command("posix.system")(marker) + STOP))


def through_numpy_load(marker):
    return call("numpy.load", marker, None, True)


def in_object_array(marker):
    array = call("numpy.core.multiarray._reconstruct", named("numpy.ndarray"), (0,), b"C\x01b")
    kind = build(call("numpy.dtype", "O8", False, True), (3, "|", None, None, None, -1, -1, 63))
    return build(array, (1, (1,), kind, False, [by_command("posix.system")(marker)]))


def as_dict_key(marker):
    return EMPTY_DICT + by_command("posix.system")(marker) + text("x") + SETITEM


def as_persistent_id(marker):
    return value(("storage", by_command("posix.system")(marker), "0", "cpu", 1)) + b"Q"


def in_tensor_state(marker):
    """A tensor with attributes, one of which is a call."""
    args = value(("0", by_command("posix.system")(marker)))
    return call("torch._tensor._rebuild_from_type_v2", named("posix.system"), named("torch.Tensor"),
                (COMMAND.format(marker),), {"a": args})  # fmt: skip


def through_partial(marker):
    function = call("functools.partial", named("posix.system"), COMMAND.format(marker))
    return call(function)


def through_methodcaller(marker):
    return call(call("operator.methodcaller", "system", COMMAND.format(marker)), named("os.path"))


def through_map(marker):
    return call(
        "builtins.list", call("builtins.map", named("posix.system"), [COMMAND.format(marker)])
    )


def through_defaultdict(marker):
    """A default factory runs at the first missing key."""
    table = call("collections.defaultdict", named("posix.system"))
    return call(call("operator.itemgetter", COMMAND.format(marker)), table)


def through_codecs(marker):
    return call(
        "builtins.exec", call("codecs.decode", short_bytes(marker.encode().hex().encode()), "hex")
    )


def appended(marker):
    """APPEND calls the method ``append`` of whatever is there."""
    return call("collections.deque") + by_command("posix.system")(marker) + APPEND


# fmt: off
CALLS = {
    "os.system": by_command("os.system"),
    "posix.system": by_command("posix.system"),
    "nt.system": by_command("nt.system"),
    "os.popen": by_command("os.popen"),
    "os.execl": lambda m: call("os.execl", "/bin/touch", "touch", m),
    "os.mkdir": lambda m: call("os.mkdir", m),
    "eval": by_code("builtins.eval"),
    "exec": by_code("builtins.exec"),
    "python 2 eval": by_code("__builtin__.eval"),
    "compile": lambda m: call("builtins.compile", CODE.format(m), "", "exec"),
    "open": lambda m: call("builtins.open", m, "w"),
    "io.open": lambda m: call("io.open", m, "w"),
    "__import__": lambda m: call("builtins.__import__", "antigravity"),
    "getattr": through_getattr,
    "importlib": lambda m: call("importlib.import_module", "antigravity"),
    "subprocess.Popen": lambda m: call("subprocess.Popen", ["touch", m]),
    "subprocess.check_output": lambda m: call("subprocess.check_output", ["touch", m]),
    "pty.spawn": lambda m: call("pty.spawn", ["touch", m]),
    "shutil.copy": lambda m: call("shutil.copy", "/etc/hostname", m),
    "pathlib write": lambda m: call("pathlib.Path.write_text", call("pathlib.Path", m), "x"),
    "runpy": lambda m: call("runpy.run_path", m),
    "pip.main": lambda m: call("pip.main", ["install", "x"]),
    "timeit": by_code("timeit.timeit"),
    "code.interact": by_code("code.InteractiveInterpreter.runcode"),
    "pdb": by_code("pdb.run"),
    "ctypes": lambda m: call("ctypes.CDLL", m),
    "webbrowser": lambda m: call("webbrowser.open", "file://" + m),
    "socket": lambda m: call("socket.create_connection", ("127.0.0.1", 9)),
    "urllib": lambda m: call("urllib.request.urlopen", "file://" + m),
    "torch.hub": lambda m: call("torch.hub.load", "x/y", "z"),
    "torch.hub url": lambda m: call("torch.hub.load_state_dict_from_url", "http://127.0.0.1"),
    "torch.load": lambda m: call("torch.load", m),
    "torch.jit.load": lambda m: call("torch.jit.load", m),
    "torch run": lambda m: call("torch.distributed.run.main", ["x"]),
    "torch system call": by_command("torch.utils.cpp_extension.os.system"),
    "numpy.load": through_numpy_load,
    "numpy f2py": by_code("numpy.f2py.crackfortran.myeval"),
    "numpy runstring": lambda m: call("numpy.testing._private.utils.runstring", CODE.format(m), {}),
    "joblib": lambda m: call("joblib.load", m),
    "dill": lambda m: call("dill.loads", b"C\x01x"),
    "cloudpickle": lambda m: call("cloudpickle.cloudpickle._make_function", None, None),
    "pickle.loads": through_pickle_loads,
    "logging config": lambda m: call("logging.config.listen", 9999),
    "operator.methodcaller": through_methodcaller,
    "through partial": through_partial,
    "through map": through_map,
    "through defaultdict": through_defaultdict,
    "through codecs": through_codecs,
    "INST": inst,
    "OBJ": obj,
    "NEWOBJ": newobj,
    "NEWOBJ_EX": newobj_ex,
    "STACK_GLOBAL": stack_global,
    "dotted STACK_GLOBAL": dotted_name,
    "__setstate__": setstate,
    "instance append": instance_append,
    "memo": through_memo,
    "replaced memo": replaced_in_memo,
    "in bytes": in_bytes,
    "in a zip in bytes": in_zip_in_bytes,
    "in an object array": in_object_array,
    "as a key": as_dict_key,
    "in a tensor's state": in_tensor_state,
    "in a deque": appended,
}
# Not read at all: Python itself could not load some of them either.
REFUSED = {
    "a name that is computed": computed_name,
    "a persistent id": as_persistent_id,
    "EXT1": lambda m: b"\x82\x01",
    "EXT2": lambda m: b"\x83\x01\x01",
    "EXT4": lambda m: b"\x84\x01\0\0\0",
    "arguments that are no tuple": lambda m: named("posix.system") + text(m) + REDUCE,
}
CONTAINERS = {
    "zip": ("m.pt", torch_zip),
    "stream": ("m.pth", torch_stream),
}
# fmt: on


def attack(name, make, container):
    filename, pack = CONTAINERS[container]

    def write(folder):
        marker = str(folder.parent / "marker")
        path = folder / filename
        path.write_bytes(pack(state_dict(weights(), {"evil": make(marker)})))
        return path

    return Attack(f"{name} in a {container}", write)


def check_weights(bundle):
    for name, array in weights().items():
        read = bundle.weights[name]
        assert read.tobytes() == array.tobytes()
        assert read.shape == array.shape


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_reported_and_not_made(arena, tmp_path, name, container):
    bad = attack(name, CALLS[name], container)
    arena.read(bad)
    (tmp_path / "in").mkdir()
    path = bad.build(tmp_path / "in")
    bundle = converter.read(path)
    check_weights(bundle)
    assert bundle.metadata.findings, "nothing was reported"
    kinds = {finding.kind for finding in bundle.metadata.findings}
    assert "pickle-callable" in kinds
    assert kinds <= {"pickle-callable", "pickle-reference"}  # what the call is given
    with pytest.raises(SafetyError) as caught:
        converter.convert(
            path, to="safetensors", out=tmp_path / "o", options=Options(strict_safety=True)
        )
    assert caught.value.exit_code == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in"]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused(arena, name, container):
    outcomes = arena.one(attack(name, REFUSED[name], container))
    assert {o.code for o in outcomes} <= {3, 4}, outcomes


def test_the_attacks_are_real(tmp_path):
    """Python's own pickle, in a child, does what these pickles say."""
    for name in (
        "INST",
        "OBJ",
        "STACK_GLOBAL",
        "memo",
        "dotted STACK_GLOBAL",
        "eval",
        "getattr",
        "instance append",
        "__setstate__",
    ):  # fmt: skip:
        marker = tmp_path / f"marker {len(list(tmp_path.iterdir()))}".replace(" ", "_")
        (tmp_path / "p").write_bytes(b"\x80\x04" + CALLS[name](str(marker)) + STOP)
        program = f"import pickle; pickle.load(open({str(tmp_path / 'p')!r}, 'rb'))"
        subprocess.run([sys.executable, "-c", program], check=False, stderr=subprocess.DEVNULL)
        assert marker.exists(), name


@pytest.mark.parametrize("options", [[], ["--strict-safety"]])
def test_on_the_command_line(tmp_path, options):
    path = tmp_path / "m.pt"
    path.write_bytes(torch_zip(state_dict(weights(), {"evil": obj(str(tmp_path / "marker"))})))
    done = subprocess.run(
        [sys.executable, "-m", "converter", path, "-o", tmp_path / "o", *options],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == (5 if options else 0)
    assert "posix.system" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == (["m.pt"] if options else ["m.pt", "o"])


def test_a_bare_pickle(arena):
    def write(folder):
        path = folder / "m.pkl"
        path.write_bytes(PROTO + obj(str(folder.parent / "marker")) + STOP)
        return path

    for outcome in arena.one(Attack("bare pickle", write)):
        assert outcome.code in (0, 3, 4)


def test_a_tensor_that_depends_on_a_call_is_named_as_left_out(tmp_path):
    args = (storage("0", 12), 0, (3, 4), (4, 1), False, call("collections.OrderedDict"))
    evil = call("my.module.rebuild", *args)
    path = tmp_path / "m.pt"
    path.write_bytes(torch_zip(state_dict(weights(), {"lost": evil})))
    bundle = converter.read(path)
    check_weights(bundle)
    assert any(f.subject == "my.module.rebuild" for f in bundle.metadata.findings)
    assert any("lost" in name for name in (*bundle.metadata.opaque, *bundle.weights))


def test_python_agrees_about_sound_files():
    assert pickle.loads(PROTO + value({"a": [1, (2.5, None)], "b": "x"}) + STOP) == {
        "a": [1, (2.5, None)], "b": "x"
    }  # fmt: skip


def test_code_of_torchscript_and_packages_stays_text(arena):
    """An archive may hold any Python source; it is carried, never compiled."""

    def write(folder):
        path = folder / "m.pt"
        path.write_bytes(torch_zip(state_dict(weights())))
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("m/code/__torch__.py", CODE.format(str(folder.parent / "marker")))
            archive.writestr("m/constants.pkl", PROTO + EMPTY_TUPLE + STOP)
        return path

    arena.one(Attack("code", write))
