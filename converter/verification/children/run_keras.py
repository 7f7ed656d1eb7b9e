"""The child that runs a source in its own framework: ``python run_keras.py FOLDER``.

Plain, and nothing of the project but the files beside it, so that any Python (3.10 and later) that
has Keras can run it.
``question.json``:

    framework   ``keras`` or ``tf_keras``
    source      path of the model, with a suffix that says its format
    inputs      names of the graph's inputs, in order
    prefix      of the files of inputs, ``PREFIX-NUMBER-INPUT.npy``
    cases       for each case the numbers of its alternatives
    states      states of layers that each run begins with other values of, as ``LAYER:NUMBER``:
                ``PREFIX-NUMBER-INPUT.npy`` after those of the inputs; their values after the run
                are further outputs
    first       numbers of the inputs that are run from the states of a model that is loaded
    layers      paths of layers whose outputs are wanted too
    trusted     modules of the user's, name and path, to take the source's own classes from
    root        where the project is, which imports those
    device      to run on, as ``GPU:0`` or, of TensorFlow's logical ones, ``CPU:1``; need not be
    allow_tf32  whether products may be rounded to TF32 there

``answer.json``: a status, ``done``, ``absent`` (not installed, or broken) or ``cannot load``;
versions and device; for each case the alternative that ran, its outputs' dtypes (they are in
``out-NUMBER-OUTPUT.npy``), and how others were refused; path, number and dtype of the wanted
layers' outputs (in ``layer-K.npy``); with a device, where variables and operations were (see
`converter.verification.placement`). ``--probe`` in place of the folder prints which packages
are there.
"""

import functools
import importlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

PACKAGES = ("keras", "tf_keras", "tensorflow", "jax", "torch")


def beside(name: str) -> Any:
    """Return a module of a path from this file's folder, which is no place to import from."""
    path = Path(__file__).parent / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


describe_error = beside("../../child/describe_error").describe_error


def main(folder: Path) -> None:
    """Answer the question in the folder."""
    question = json.loads((folder / "question.json").read_text())
    answer = {"python": sys.version.split()[0]} | run(folder, question)
    (folder / "answer.json").write_text(json.dumps(answer))


def run(folder: Path, question: dict[str, Any]) -> dict[str, Any]:
    """Load the source and run it on every case."""
    try:
        framework = Framework(question)
    except Exception as e:  # a broken installation may raise anything
        return {"status": "absent", "error": describe_error(e)}
    about = {"versions": framework.versions()}
    if not question.get("device"):
        return about | compute(framework, folder, question, None)
    if about["versions"]["backend"] != "tensorflow":
        said = "only Keras's TensorFlow backend runs on a named device"
        return about | {"status": "no device", "error": said}
    device = beside("run_tensorflow_device").Device(framework.tensorflow(), question)
    if why := device.lacks():
        return about | {"status": "no device", "error": why}
    device.make_deterministic(is_random=False)
    with device.scope():
        return about | compute(framework, folder, question, device)


def compute(
    framework: "Framework", folder: Path, question: dict[str, Any], device: Any
) -> dict[str, Any]:
    """Load the source and run it on every case, on a device or on the CPU."""
    try:
        model = framework.load(question["source"], framework.own_objects(question))
    except Exception as e:
        return {"status": "cannot load", "error": describe_error(e)}
    if framework.has_bias_guess:
        framework.broadcast_additions()
    framework.turn_kernels(model, frozenset(question["flipped"]))
    recorder = Recorder(framework, folder, model, question["layers"])
    cases = [
        first_that_runs(framework, folder, model, question["inputs"], alternatives)
        for alternatives in question["cases"]
    ]
    placement = {}
    ran = [case["chosen"] for case in cases if case["chosen"] is not None]
    if device is not None and ran:
        inputs = framework.inputs(model, folder, ran[0], question["inputs"])
        placement = {"placement": device.answer(framework.places(model, inputs), "a tf.function")}
    return placement | {
        "status": "done",
        "cases": cases,
        "device": framework.device,
        "inputs": framework.list_inputs(model),
        "layers": recorder.found,
        "notes": framework.notes(),
    }


def first_that_runs(
    framework: "Framework", folder: Path, model: Any, names: list[str], alternatives: list[int]
) -> dict[str, Any]:
    """Run the model on the first of several inputs that it takes, and makes something of."""
    refused = {}
    chosen: tuple[int, list[tuple[Any, str]]] | None = None
    for number in alternatives:
        try:
            framework.reset(model)
            framework.set_states(model, folder, number, len(names))
            outputs = model(framework.inputs(model, folder, number, names), training=False)
            found = [framework.array(output) for output in framework.flat(outputs)]
            found += [framework.array(state) for state in framework.values(model)]
        except Exception as e:
            refused[number] = describe_error(e)
            continue
        has_elements = not found or any(array.size for array, _ in found)
        if chosen is None or has_elements:
            chosen = number, found
        if has_elements:
            break
    if chosen is None:
        return {"chosen": None, "dtypes": [], "refused": refused}
    number, found = chosen
    for i, (array, _) in enumerate(found):
        framework.np.save(folder / f"out-{number}-{i}.npy", array)
    return {"chosen": number, "dtypes": [dtype for _, dtype in found], "refused": refused}


class Framework:
    """Keras 3 on any backend, or tf_keras: the differences between the two.

    Attributes:
        device: Where the last output that was looked at had been made.
        broadcast: Terms that were added as other backends add them: see `is_mistaken`.
    """

    def __init__(self, question: dict[str, Any]) -> None:
        name = question["framework"]
        self.is_legacy = name == "tf_keras"
        self.name, self.prefix = name, question["prefix"]
        self.states: list[str] = question.get("states", [])
        self.first: list[int] = question.get("first", [])
        self.device = ""
        self.turned: list[str] = []
        self.broadcast: set[tuple[int, ...]] = set()
        self.np: Any = importlib.import_module("numpy")
        self.keras: Any = importlib.import_module(name)
        if not self.is_legacy and int(self.keras.__version__.split(".")[0]) < 3:
            raise ImportError(f"keras is {self.keras.__version__}: its models need tf_keras")
        self.tree: Any = self.tensorflow().nest if self.is_legacy else self.keras.tree

    def tensorflow(self) -> Any:
        """Return TensorFlow."""
        return importlib.import_module("tensorflow")

    def versions(self) -> dict[str, str]:
        """Return the versions of all that takes part."""
        backend = "tensorflow" if self.is_legacy else self.keras.backend.backend()
        found = {self.name: self.keras.__version__, "numpy": self.np.__version__}
        module = sys.modules.get(backend)
        return found | {"backend": backend, backend: getattr(module, "__version__", "")}

    @property
    def has_bias_guess(self) -> bool:
        """Whether it adds as `is_mistaken` says."""
        return not self.is_legacy and self.keras.backend.backend() == "tensorflow"

    def broadcast_additions(self) -> None:
        """Have all additions broadcast, as those of Keras's other backends do."""
        numpy: Any = importlib.import_module("keras.src.backend.tensorflow.numpy")
        tensorflow, keras, own = self.tensorflow(), self.keras, numpy.add

        @functools.wraps(own)
        def add(x1: Any, x2: Any) -> Any:
            is_sparse = any(isinstance(x, tensorflow.SparseTensor) for x in (x1, x2))
            x, term = shape_of(x1), shape_of(x2)
            if is_sparse or x is None or term is None or not is_mistaken(x, term):
                return own(x1, x2)
            self.broadcast.add(tuple(term))
            dtype = keras.backend.result_type(x1.dtype, x2.dtype)
            return tensorflow.add(*(keras.ops.convert_to_tensor(x, dtype) for x in (x1, x2)))

        numpy.add = add

    def turn_kernels(self, model: Any, wanted: frozenset[str], above: str = "") -> None:
        """Turn the kernels of layers whose paths are wanted, as Theano's convolution does.

        It convolves where others correlate, so its stored kernels are turned around; Keras loads
        them as they are.
        """
        for layer in getattr(model, "operations", None) or model.layers:
            path = f"{above}{layer.name}"
            if path in wanted:
                for weight in layer.weights[: 2 if "LSTM" in type(layer).__name__ else 1]:
                    kernel = self.np.asarray(weight.numpy())
                    weight.assign(self.np.flip(kernel, tuple(range(kernel.ndim - 2))))
                self.turned.append(path)
            if getattr(layer, "layers", None):
                self.turn_kernels(layer, wanted, f"{path}/")

    def notes(self) -> list[str]:
        """Return what was done otherwise than the framework does it."""
        turned = ", ".join(map(repr, self.turned))
        theano = f"Theano's kernels of {turned} were turned around, which Keras does not do"
        return [theano] * bool(self.turned) + [
            f"Keras's TensorFlow backend adds {list(shape)} along the last axis, which has the "
            "same size by chance (keras-team/keras#20386): added as its other backends do"
            for shape in sorted(self.broadcast)
        ]

    def own_objects(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the layers and functions of the modules that the user trusts, by name."""
        found: dict[str, Any] = {}
        for module, path in question["trusted"]:
            if question["root"] not in sys.path:
                sys.path.append(question["root"])
            loaded = importlib.import_module("converter.child.trust").load(module, path)
            for name, value in vars(loaded).items():
                is_class = isinstance(value, type) and not hasattr(self.keras.layers, name)
                own = isinstance(value, type) and issubclass(value, self.keras.layers.Layer)
                if is_class or own or isinstance(value, types.FunctionType):
                    found.setdefault(name, value)
        return found

    def load(self, path: str, objects: dict[str, Any]) -> Any:
        """Return the model; code that it carries is refused."""
        if not self.is_legacy:
            return self.keras.models.load_model(
                path, custom_objects=objects, compile=False, safe_mode=True
            )
        # Its reader of .h5 files looks at this scope and opens none itself.
        library = importlib.import_module("tf_keras.src.saving.serialization_lib")
        with library.SafeModeScope(safe_mode=True):
            return self.keras.models.load_model(path, custom_objects=objects, compile=False)

    def list_inputs(self, model: Any) -> list[list[Any]]:
        """Return name, dtype and shape of the model's inputs, and of the states."""
        tensors = [*self.wanted(model), *self.values(model)]
        shapes = [[None if n is None else int(n) for n in t.shape] for t in tensors]
        names = [*self.names(model), *self.states]
        rows = zip(names, map(self.dtype, tensors), shapes, strict=True)
        return [list(row) for row in rows]

    def names(self, model: Any) -> list[str]:
        """Return the names of the model's inputs."""
        if self.is_legacy and getattr(model, "input_names", None):
            return list(model.input_names)
        return [t.name for t in self.wanted(model)]

    def wanted(self, model: Any) -> list[Any]:
        """Return what the model takes; one of its author's class what it was built with."""
        if getattr(model, "inputs", None):
            return list(model.inputs)
        shapes = self.built_with(model)
        listed = [(str(k), shapes[k]) for k in sorted(shapes)] if isinstance(shapes, dict) else [
            (f"{model.name}_input", shapes)
        ]  # fmt: skip
        return [types.SimpleNamespace(name=n, dtype="float32", shape=s) for n, s in listed]

    def built_with(self, model: Any) -> Any:
        """Return the shape of the one input of a model of its author's class, or those of each."""
        config = model.get_build_config() or {}
        if "input_shape" not in config:
            raise ValueError("the model does not say what it was built with")
        return config["input_shape"]

    def dtype(self, tensor: Any) -> str:
        """Return numpy's name of a tensor's dtype."""
        name = getattr(tensor.dtype, "name", None) or str(tensor.dtype)
        return str(name).rpartition(".")[2]  # torch.float32

    def inputs(self, model: Any, folder: Path, number: int, names: list[str]) -> Any:
        """Return a case's arrays as the model takes them: by name, or in order."""
        own = self.names(model)
        by_name = len(set(own)) == len(own) and set(own) == set(names)
        order = [names.index(n) for n in own] if by_name else range(len(names))
        tensors = []
        for i, wanted in zip(order, self.wanted(model), strict=True):
            array = self.np.load(folder / f"{self.prefix}-{number}-{i}.npy")
            dtype = self.dtype(wanted)
            if dtype == "string":
                tensors.append(self.tensorflow().constant(array))
            elif self.is_legacy:
                tensors.append(self.tensorflow().cast(array, dtype))
            else:
                tensors.append(self.keras.ops.convert_to_tensor(array, dtype))
        structure = getattr(model, "_nested_inputs" if self.is_legacy else "_inputs_struct", None)
        if not getattr(model, "inputs", None) and isinstance(self.built_with(model), dict):
            return dict(zip(own, tensors, strict=True))
        if structure is not None:
            return self.tree.pack_sequence_as(structure, tensors)
        return tensors[0] if len(tensors) == 1 else tensors

    def flat(self, outputs: Any) -> list[Any]:
        """Return the tensors of lists and dicts, in order."""
        return list(self.tree.flatten(outputs))

    def reset(self, model: Any) -> None:
        """Forget the states of recurrent layers."""
        for layer in model._flatten_layers():
            if not getattr(layer, "stateful", False):
                continue
            if not self.is_legacy:  # its own method knows no states of stacked cells
                for state in self.flat(getattr(layer, "states", None) or []):
                    state.assign(self.keras.ops.zeros_like(state.value))
            elif hasattr(layer, "reset_states"):
                layer.reset_states()

    def variables(self, model: Any) -> list[tuple[Any, str]]:
        """Return the variables of the states, and what their layers compute in."""
        found = []
        for place in self.states:
            path, _, number = place.rpartition(":")
            layer = model
            for part in path.split("/"):
                inner = getattr(layer, f"{part}_layer", None)  # a direction of Bidirectional
                layer = layer.get_layer(part) if inner is None else inner
            found.append((self.flat(layer.states)[int(number)], layer.compute_dtype))
        return found

    def values(self, model: Any) -> list[Any]:
        """Return the values of the states, as tensors of the dtypes that layers compute in."""
        cast = self.tensorflow().cast if self.is_legacy else self.keras.ops.cast
        return [cast(variable, dtype) for variable, dtype in self.variables(model)]

    def set_states(self, model: Any, folder: Path, number: int, own: int) -> None:
        """Set the states to a case's arrays, which come after ``own`` others."""
        variables = [] if number in self.first else self.variables(model)
        for i, (variable, _) in enumerate(variables, own):
            array = self.np.load(folder / f"{self.prefix}-{number}-{i}.npy")
            if self.is_legacy:
                variable.assign(self.tensorflow().cast(array, variable.dtype))
            else:
                variable.assign(self.keras.ops.convert_to_tensor(array, variable.dtype))

    def places(self, model: Any, inputs: Any) -> list[tuple[str, str, str]]:
        """Run once more, and return what each variable and operation is, its name and its device.

        As a function, for what runs operation by operation leaves no graph to look at.
        """
        devices = beside("run_tensorflow_device")
        compute = functools.partial(model, training=False)
        self.reset(model)
        with devices.collected() as metadata:
            try:
                outputs = self.tensorflow().function(compute)(inputs)
            except Exception:  # it cannot be traced: its outputs and variables say where they are
                outputs = compute(inputs)
        rows = [("output", f"#{i}", short(t.device)) for i, t in enumerate(self.flat(outputs))]
        for weight in model.weights:
            own = getattr(weight, "_value", weight)
            place = short(getattr(own, "handle", own).device)
            rows.append(("variable", getattr(weight, "path", weight.name), place))
        return rows + list(devices.of_partitions(metadata))

    def array(self, tensor: Any) -> tuple[Any, str]:
        """Return a tensor as an .npy file can keep it, and the dtype it really has."""
        device = getattr(tensor, "device", "")
        self.device = short(str(device() if callable(device) else device))
        array = tensor.numpy() if self.is_legacy else self.keras.ops.convert_to_numpy(tensor)
        array = self.np.asarray(array)
        if array.dtype.kind in "OS":
            texts = [t.decode() if isinstance(t, bytes) else str(t) for t in array.flat]
            return self.np.array(texts, "U").reshape(array.shape), "string"
        dtype = self.dtype(tensor)
        return (array if array.dtype.kind in "fiubc" else array.astype("float32")), dtype


def short(device: str) -> str:
    """Return the last part of TensorFlow's name of a device; of others all."""
    return device.rpartition("/device:")[2]


def shape_of(value: Any) -> list[Any] | None:
    """Return the shape of a tensor; None for a number."""
    shape = getattr(value, "shape", None)
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return [None if n is None else int(n) for n in shape]


def is_mistaken(x: list[Any], term: list[Any]) -> bool:
    """Return whether the TensorFlow backend of Keras adds a term along a wrong axis.

    Since 3.7 it takes a term with one axis longer than 1 for a bias, and adds it along the last
    axis, or else the second, by size only: [1, 4, 1, 1] to the columns of [N, 4, H, 4]. Compiled
    with a convolution it does not, nor on other backends.
    https://github.com/keras-team/keras/pull/20386
    """
    long = [axis for axis, n in enumerate(term) if n is None or n > 1]
    if len(long) != 1 or len(x) < 2:
        return False
    size, axis = term[long[0]], long[0] - len(term)
    if size is None or size not in (x[1], x[-1]):
        return False
    if -axis <= len(x) and x[axis] not in (1, size):
        return False  # it broadcasts along no axis: as the backend has it, or not at all
    taken = -1 if x[-1] == size else 1 - len(x)
    return axis != taken or len(term) > len(x)


class Recorder:
    """What wanted layers yield, written down while the model runs.

    Attributes:
        found: Path, number of the output and dtype of each ``layer-K.npy``.
    """

    def __init__(self, framework: Framework, folder: Path, model: Any, wanted: list[str]) -> None:
        self.framework = framework
        self.folder = folder
        self.found: list[tuple[str, int, str]] = []
        self.wanted = frozenset(wanted)
        self.path: list[str] = []
        if wanted:
            self.watch(model, set())

    def watch(self, model: Any, seen: set[int]) -> None:
        """Put ourselves around the calls of a model's layers, and of those of models in it."""
        for layer in getattr(model, "operations", None) or model.layers:
            if id(layer) in seen:
                continue
            seen.add(id(layer))
            for name in ("call", "quantized_call"):
                if callable(getattr(layer, name, None)):
                    setattr(layer, name, self.around(layer.name, getattr(layer, name)))
            if getattr(layer, "layers", None):
                self.watch(layer, seen)

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that writes down what it returns."""

        @functools.wraps(call)
        def recorded(*arguments: Any, **keywords: Any) -> Any:
            self.path.append(name)
            try:
                result = call(*arguments, **keywords)
                self.keep("/".join(self.path), result)
            finally:
                self.path.pop()
            return result

        return recorded

    def keep(self, path: str, result: Any) -> None:
        """Write a layer's outputs."""
        if path not in self.wanted:
            return
        for i, tensor in enumerate(self.framework.flat(result)):
            if hasattr(tensor, "shape") and hasattr(tensor, "dtype"):
                array, dtype = self.framework.array(tensor)
                self.framework.np.save(self.folder / f"layer-{len(self.found)}.npy", array)
                self.found.append((path, i, dtype))


def probe() -> list[str]:
    """Return the packages that are there, without importing them."""
    return [name for name in PACKAGES if importlib.util.find_spec(name) is not None]


if __name__ == "__main__":
    # This file's folder is no place to import from: its modules may be called like others'.
    if sys.path and Path(sys.path[0]).resolve() == Path(__file__).resolve().parent:
        del sys.path[0]
    if sys.argv[1] == "--probe":
        sys.stdout.write(f"{json.dumps(probe())}\n")
    else:
        main(Path(sys.argv[1]))
