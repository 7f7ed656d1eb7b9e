"""One operation as each front end spells it: models of a single call, written without a framework.

Each function returns the graph and the weights of a model whose inputs are x0, x1, … A row of a
test names the operation's reference once, and the spelling of each front end that has it.
"""

import json
import zipfile

import numpy as np

import converter
from converter.graphs import lower_signature as lower
from converter.options import parse_inputs
from formats.core.bundle import Bundle, Metadata, Topology
from formats.core.weights import DTYPES, Tensor

TENSORFLOW_TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "string": 7,
    "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
TORCH_TYPES = {
    "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7,
    "float64": 8, "bool": 12,
}  # fmt: skip


def tensorflow(folder, op, inputs, constants=(), attributes="", output="y", types=("T",),
               result=None):  # fmt: skip
    """Return a GraphDef's node.

    Args:
        folder: Where the file goes.
        op: Name of the op.
        inputs: dtype and shape of each; None for an unknown size.
        constants: Arrays that follow the inputs.
        attributes: Further ones, as protobuf text.
        output: Name of the output, as ``y:1``.
        types: Attributes that are the dtype of the first input.
        result: dtype of the output; that of the first input by default.
    """
    nodes, names = [], []
    for i, (dtype, shape) in enumerate(inputs):
        dims = "".join(f"dim {{ size: {-1 if n is None else n} }}" for n in shape)
        nodes.append(
            f'node {{ name: "x{i}" op: "Placeholder" {_attribute("dtype", _type(dtype))}'
            f"{_attribute('shape', f'shape {{ {dims} }}')} }}"
        )
        names.append(f"x{i}")
    for i, array in enumerate(constants):
        array = np.asarray(array)
        dims = "".join(f"dim {{ size: {n} }}" for n in array.shape)
        content = "".join(f"\\{byte:03o}" for byte in array.tobytes())
        value = (
            f"tensor {{ dtype: {TENSORFLOW_TYPES[array.dtype.name]} tensor_shape {{ {dims} }} "
            f'tensor_content: "{content}" }}'
        )
        nodes.append(
            f'node {{ name: "c{i}" op: "Const" {_attribute("dtype", _type(array.dtype.name))}'
            f"{_attribute('value', value)} }}"
        )
        names.append(f"c{i}")
    given = " ".join(f'input: "{name}"' for name in names)
    kinds = "".join(_attribute(name, _type(inputs[0][0])) for name in types)
    nodes.append(f'node {{ name: "made" op: "{op}" {given} {kinds}{attributes} }}')
    nodes.append(
        f'node {{ name: "y" op: "Identity" input: "made{output[1:]}" '
        f"{_attribute('T', _type(result or inputs[0][0]))} }}"
    )
    path = folder / "graph.pbtxt"
    path.write_text("\n".join(nodes))
    return _lower(converter.read(path))


def _type(dtype):
    return f"type: {TENSORFLOW_TYPES[dtype]}"


def _attribute(key, value):
    return f'attr {{ key: "{key}" value {{ {value} }} }} '


def keras_operation(folder, name, inputs, module="numpy", config=None, args=None, kwargs=None):
    """Return an operation of keras.ops in a functional model.

    Args:
        folder: Not used: the model is in memory.
        name: Name of its class.
        inputs: dtype and shape of each, the batch among them.
        module: Of keras.src.ops.
        config: Arguments of the class.
        args: Arguments of the call, where a number stands for an input; all inputs by default.
        kwargs: Further ones, which are no tensors.
    """
    del folder
    entry = {
        "module": f"keras.src.ops.{module}", "class_name": name, "registered_name": name,
        "config": {"name": "made", **(config or {})}, "name": "made",
    }  # fmt: skip
    return _lower(_keras(entry, inputs, args, kwargs))


def keras_layer(folder, name, inputs, config=None, weights=None):
    """Return a layer of Keras 3 in a functional model, with weights by their names."""
    del folder
    entry = {
        "module": "keras.layers", "class_name": name, "registered_name": None,
        "config": {"name": "made", "dtype": inputs[0][0], **(config or {})}, "name": "made",
    }  # fmt: skip
    return _lower(_keras(entry, inputs, None, None, weights))


def keras_function(folder, name, inputs, kwargs=None, second="y"):
    """Return a function of TensorFlow that a model of tf.keras calls (a TFOpLambda).

    Args:
        folder: Not used: the model is in memory.
        name: Name of the function below ``tf``.
        inputs: dtype and shape of each, two at most.
        kwargs: Further arguments.
        second: Name of the parameter that takes the second input.
    """
    del folder
    entry = {"class_name": "TFOpLambda", "name": "made",
             "config": {"name": "made", "dtype": "float32", "function": name}}  # fmt: skip
    first, *others = [[f"x{i}", 0, 0] for i in range(len(inputs))]
    given = dict(kwargs or {})
    if others:
        given |= {second: others[0]}
    entry["inbound_nodes"] = [[*first, given]]
    layers = [_tf_keras_input(i, *spec) for i, spec in enumerate(inputs)]
    config = {
        "name": "m", "layers": [*layers, entry],
        "input_layers": [[f"x{i}", 0, 0] for i in range(len(inputs))],
        "output_layers": [["made", 0, 0]],
    }  # fmt: skip
    content = {"class_name": "Functional", "config": config}
    recorded = {"keras_version": "2.15.0", "backend": "tensorflow"}
    metadata = Metadata("keras", "model", framework="keras", recorded=recorded)
    return _lower(Bundle(metadata, {}, topology=Topology("keras_config", {}, content)))


def _tf_keras_input(i, dtype, shape):
    config = {"batch_input_shape": list(shape), "dtype": dtype, "sparse": False, "name": f"x{i}"}
    return {"class_name": "InputLayer", "config": config, "name": f"x{i}", "inbound_nodes": []}


def _keras(entry, inputs, args, kwargs, weights=None):
    tensors = [
        {"class_name": "__keras_tensor__",
         "config": {"shape": list(shape), "dtype": dtype, "keras_history": [f"x{i}", 0, 0]}}
        for i, (dtype, shape) in enumerate(inputs)
    ]  # fmt: skip
    given = tensors if args is None else [tensors[a] if type(a) is int else a for a in args]
    entry["inbound_nodes"] = [{"args": given, "kwargs": kwargs or {}}]
    layers = [
        {"module": "keras.layers", "class_name": "InputLayer", "registered_name": None,
         "config": {"batch_shape": list(shape), "dtype": dtype, "name": f"x{i}"},
         "name": f"x{i}", "inbound_nodes": []}
        for i, (dtype, shape) in enumerate(inputs)
    ]  # fmt: skip
    config = {
        "name": "m", "layers": [*layers, entry],
        "input_layers": [[f"x{i}", 0, 0] for i in range(len(inputs))],
        "output_layers": [["made", 0, 0]],
    }  # fmt: skip
    content = {"module": "keras.src.models.functional", "class_name": "Functional",
               "config": config}  # fmt: skip
    metadata = Metadata("keras", "archive", framework="keras", recorded={"keras_version": "3.15.0"})
    held = {
        n: Tensor.inline(DTYPES[a.dtype.name], a.shape, a.tobytes())
        for n, a in (weights or {}).items()
    }
    return Bundle(metadata, held, topology=Topology("keras_config", {}, content))


# The pickle of a `__torch__.M` whose attribute `training` is False.
MODULE = b"\x80\x02c__torch__\nM\n)\x81}X\x08\x00\x00\x00training\x89sb."


def torch_script(folder, code, inputs, others=(), given=()):
    """Return a TorchScript module whose forward returns an expression of x0, x1, …

    Args:
        folder: Folder of the file.
        code: The expression, or the lines of forward.
        inputs: Dtype and shape of each tensor.
        others: Declarations of further arguments, as ``rate: int``.
        given: What the user says of them, as ``rate=16000``.
    """
    path = folder / "script.pt"
    arguments = ",\n    ".join([*(f"x{i}: Tensor" for i in range(len(inputs))), *others])
    lines = code if isinstance(code, (list, tuple)) else [f"return {code}"]
    body = "".join(f"    {line}\n" for line in lines)
    source = (
        "class M(Module):\n  __parameters__ = []\n  __buffers__ = []\n  training : bool\n"
        f"  def forward(self: __torch__.M,\n    {arguments}) -> Tensor:\n{body}"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/data.pkl", MODULE)
        archive.writestr("m/code/__torch__.py", source)
        archive.writestr("m/constants.pkl", b"\x80\x02).")
        archive.writestr("m/version", "10")
    specs = tuple(f"x{i}:{dtype}:{_sizes(shape)}" for i, (dtype, shape) in enumerate(inputs))
    return _lower(converter.read(path), inputs=(*specs, *given))


def _sizes(shape):
    """Return sizes as the command line has them; a free one has the same name in all inputs."""
    return ",".join(f"n{axis}" if n is None else str(n) for axis, n in enumerate(shape))


def torch_program(folder, target, inputs, outputs, arguments=(), named=None):
    """Return an exported program of one node.

    Args:
        folder: Where the file goes.
        target: ``aten.erfc.default``.
        inputs: dtype and shape of each; None for a size that is free.
        outputs: dtype and shape of each.
        arguments: What follows the tensors, as the schema orders them.
        named: Arguments by their names.
    """

    def of(i):
        return {"as_tensor": {"name": f"x{i}"}}

    given = [{"name": "", "arg": of(i), "kind": 1} for i in range(len(inputs))]
    given += [{"name": "", "arg": _argument(a), "kind": 1} for a in arguments]
    given += [{"name": n, "arg": _argument(a), "kind": 2} for n, a in (named or {}).items()]
    names = [f"y{i}" for i in range(len(outputs))]
    node = {
        "target": f"torch.ops.{target}", "inputs": given, "metadata": {},
        "outputs": [{"as_tensor": {"name": n}} for n in names], "is_hop_single_tensor_return": None,
    }  # fmt: skip
    values = {f"x{i}": _meta(*spec) for i, spec in enumerate(inputs)}
    values |= {n: _meta(*spec) for n, spec in zip(names, outputs, strict=True)}
    graph = {
        "inputs": [of(i) for i in range(len(inputs))],
        "outputs": [{"as_tensor": {"name": names[0]}}], "nodes": [node], "tensor_values": values,
        "sym_int_values": {}, "sym_bool_values": {}, "sym_float_values": {},
        "is_single_tensor_return": False, "custom_obj_values": {},
    }  # fmt: skip
    signature = {
        "input_specs": [{"user_input": {"arg": of(i)}} for i in range(len(inputs))],
        "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": names[0]}}}}],
    }
    model = {
        "graph_module": {"graph": graph, "signature": signature, "module_call_graph": [],
                         "metadata": {}, "treespec_namedtuple_fields": {}},
        "opset_version": {"aten": 10}, "range_constraints": {"s0": {"min_val": 0, "max_val": None}},
        "schema_version": {"major": 8, "minor": 20}, "verifiers": ["ATEN"],
        "torch_version": "2.13.0", "guards_code": [],
    }  # fmt: skip
    path = folder / "program.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/archive_format", "pt2")
        archive.writestr("archive/archive_version", "0")
        archive.writestr("archive/.data/version", "3")
        archive.writestr("archive/byteorder", "little")
        archive.writestr("archive/models/model.json", json.dumps(model))
        for kind in ("weights", "constants"):
            name = f"archive/data/{kind}/model_{kind}_config.json"
            archive.writestr(name, json.dumps({"config": {}}))
    return _lower(converter.read(path))


def _argument(value):
    if value is None:
        return {"as_none": True}
    if isinstance(value, bool):
        return {"as_bool": value}
    if isinstance(value, int):
        return {"as_int": value}
    if isinstance(value, float):
        return {"as_float": value}
    if isinstance(value, str):
        return {"as_string": value}
    return {"as_ints": list(value)}


def _meta(dtype, shape):
    free = {"as_expr": {"expr_str": "s0", "hint": {"as_int": 2}}}
    sizes = [free if n is None else {"as_int": n} for n in shape]
    return {
        "dtype": TORCH_TYPES[dtype], "sizes": sizes, "requires_grad": False,
        "device": {"type": "cpu", "index": None}, "strides": [{"as_int": 1} for _ in shape],
        "storage_offset": {"as_int": 0}, "layout": 7,
    }  # fmt: skip


def _lower(bundle, **options):
    if "inputs" in options:
        options["inputs"] = parse_inputs(options["inputs"])
    return lower(bundle, **options), bundle.weights
