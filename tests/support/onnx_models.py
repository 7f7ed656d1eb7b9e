"""ONNX files of every kind that a graph must carry, built in memory: name → model.

Each runs in onnxruntime as it is; none is larger than a few kilobytes.
"""

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser

RNG = np.random.default_rng(5)


def _parsed(text: str, *weights: onnx.TensorProto) -> onnx.ModelProto:
    model = parser.parse_model(text)
    model.graph.initializer.extend(weights)
    return model


def _weight(name: str, *shape: int, dtype: str = "float32") -> onnx.TensorProto:
    values = RNG.standard_normal(shape) * 3
    return numpy_helper.from_array(values.astype(dtype), name)


def _model(nodes, inputs, outputs, weights=(), *, opset=18, ir=8, more=(), **graph):
    made = helper.make_graph(nodes, "g", inputs, outputs, list(weights), **graph)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, v) for d, v in more)]
    return helper.make_model(made, opset_imports=opsets, ir_version=ir)


def _info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def plain():
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 18],
            metadata_props: ["names": "{0: 'cat'}", "stride": "32"]>
        g (float[batch, 3, 8, 8] image) => (float[batch, 4] y) {
            a = Conv <kernel_shape = [3, 3], auto_pad = "SAME_UPPER"> (image, w, b)
            s = BatchNormalization <epsilon = 0.001> (a, scale, bias, mean, spread)
            r = Relu (s)
            p = GlobalAveragePool (r)
            y = Flatten (p)
        }""",
        _weight("w", 4, 3, 3, 3), _weight("b", 4), _weight("scale", 4), _weight("bias", 4),
        _weight("mean", 4), numpy_helper.from_array(np.linspace(1, 2, 4, dtype="f4"), "spread"),
    )  # fmt: skip


def opset_7():
    """Axes are attributes, initializers are inputs, and Upsample reads its scales."""
    nodes = [
        helper.make_node("Unsqueeze", ["x"], ["u"], axes=[0]),
        helper.make_node("Squeeze", ["u"], ["v"], axes=[0]),
        helper.make_node("MatMul", ["v", "w"], ["m"]),
        helper.make_node("Slice", ["m"], ["s"], axes=[1], starts=[1], ends=[3]),
        helper.make_node("Pad", ["s"], ["y"], mode="constant", pads=[0, 1, 0, 0], value=2.5),
    ]
    inputs = [_info("x", ["n", 5]), _info("w", [5, 4])]
    return _model(nodes, inputs, [_info("y", ["n", 3])], [_weight("w", 5, 4)], opset=7, ir=3)


def upsample():
    nodes = [helper.make_node("Upsample", ["x", "scales"], ["y"], mode="nearest")]
    scales = numpy_helper.from_array(np.array([1, 1, 2, 3], "f4"), "scales")
    return _model(
        nodes, [_info("x", ["n", 1, 2, 2])], [_info("y", ["n", 1, 4, 6])],
        [scales], opset=9, ir=4,
    )  # fmt: skip


def resize():
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 2, 4, 4] x) => (float[n, 2, h, w] y) {
            roi = Constant <value = float[0] {}> ()
            scales = Constant <value = float[4] {1, 1, 1.5, 2.5}> ()
            y = Resize <mode = "linear"> (x, roi, scales)
        }"""
    )


def default_value():
    """An input that has a value, which nobody must give."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["y"])]
    return _model(
        nodes, [_info("x", ["n", 4]), _info("w", [4])], [_info("y", ["n", 4])], [_weight("w", 4)]
    )


def branches():
    """Inner graphs with weights of their own, names of the outside, and names used twice."""
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, 4] x, bool flag) => (float[n, 4] y, float total) {
            y = If (flag) <
                then_branch = one () => (float[n, 4] t) <float[4] k = {1.5, -2, 3, 0.25}> {
                    inner = Mul (x, k)
                    t = Add (inner, outside)
                },
                else_branch = two () => (float[n, 4] e) {
                    c = Constant <value = float[4] {7, 8, 9, 10}> ()
                    inner = Sub (x, c)
                    e = Identity (inner)
                }
            >
            total = ReduceSum <keepdims = 0> (y)
        }""",
        _weight("outside", 4),
    )


def loop():
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[4] x, int64 trips) => (float[4] last, float[k, 4] all) {
            go = Constant <value = bool {1}> ()
            last, all = Loop <body = b (int64 i, bool more, float[4] state)
                => (bool again, float[4] next, float[4] seen) {
                    again = Identity (more)
                    next = Mul (state, factor)
                    seen = Add (next, x)
                }> (trips, go, x)
        }""",
        _weight("factor", 4),
    )


def functions():
    """Functions in functions: attributes handed on and left away, constants, inner graphs."""
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[n, 4] x, bool flag) => (float[n, 4] y, float[n, 4] z) {
            a = own.block <slope = 0.5> (x, w, flag)
            b = own.block (a, w, flag)
            y, z = own.both (b, a)
        }
        <domain: "own", opset_import: ["" : 18, "own" : 1]>
        block <slope: float = 0.25, alpha: float = 0.1> (u, w, flag) => (v) {
            k = Constant <value = float[4] {1, 2, 3, 4}> ()
            m = MatMul (u, w)
            s = Add (m, k)
            l = own.leaky <alpha: float = @slope> (s)
            v = If (flag) <
                then_branch = t () => (float[n, 4] a) { a = Add (l, k) },
                else_branch = e () => (float[n, 4] a) { a = LeakyRelu <alpha: float = @alpha> (l) }
            >
        }
        <domain: "own", opset_import: ["" : 18]>
        leaky <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
        <domain: "own", opset_import: ["" : 18]>
        both (a, b) => (c, d) { c = Add (a, b)  d = Sub (a, b) }
        """,
        _weight("w", 4, 4),
    )


def omitted():
    """A function whose last input and output a call leaves away."""
    model = _parsed(
        """<ir_version: 8, opset_import: ["" : 18, "own" : 1]>
        g (float[n, 4] x) => (float[n, 4] y) {
            y = own.clipped (x)
        }
        <domain: "own", opset_import: ["" : 18]>
        clipped (x, low, high) => (y, mask) {
            zero = Constant <value = float {0}> ()
            y = Clip (x, zero, high)
            mask = Greater (x, zero)
        }
        """
    )
    model.graph.node[0].output.append("")
    return model


def constants():
    """Constants written in all ways, one of them an output."""
    nodes = [
        helper.make_node("Constant", [], ["i"], value_int=3),
        helper.make_node("Constant", [], ["f"], value_float=0.1),
        helper.make_node("Constant", [], ["fs"], value_floats=[1.0, 2.5, -3.0]),
        helper.make_node("Constant", [], ["is"], value_ints=[1, 3]),
        helper.make_node("Constant", [], ["t"], value=_weight("t", 1, 3)),
        helper.make_node("Constant", [], ["kept"], value=_weight("k", 2, 200)),
        helper.make_node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "f"], ["a"]),
        helper.make_node("Add", ["a", "fs"], ["b"]),
        helper.make_node("Mul", ["b", "c"], ["d"]),
        helper.make_node("Add", ["d", "t"], ["e"]),
        helper.make_node("Reshape", ["e", "minus"], ["y"]),
        helper.make_node("Constant", [], ["minus"], value_ints=[-1, 3]),
    ]
    nodes.insert(0, nodes.pop())
    return _model(
        nodes, [_info("x", ["n", 3])], [_info("y", ["n", 3]), _info("kept", [2, 200])], opset=13
    )


def sparse():
    values = numpy_helper.from_array(np.array([1.5, -2, 4], "f4"), "s")
    linear = numpy_helper.from_array(np.array([1, 4, 11], "i8"), "i")
    places = numpy_helper.from_array(np.array([[0, 1], [1, 1], [2, 3]], "i8"), "j")
    one = helper.make_sparse_tensor(values, linear, [3, 4])
    values = numpy_helper.from_array(np.array([1.5, -2, 4], "f4"), "")
    other = helper.make_sparse_tensor(values, places, [3, 4])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=other),
        helper.make_node("Add", ["s", "c"], ["w"]),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    model = _model(nodes, [_info("x", ["n", 3])], [_info("y", ["n", 4])])
    model.graph.sparse_initializer.append(one)
    return model


def typed():
    """Numbers in typed fields: halves as integers, varints, doubles, booleans."""
    half = np.array([0.5, -2, 3, 1e-3], "f2").view("u2")
    weights = [
        helper.make_tensor("h", TensorProto.FLOAT16, [4], half.tolist()),
        helper.make_tensor("d", TensorProto.DOUBLE, [4], [0.1, 0.2, 0.3, -0.4]),
        helper.make_tensor("i", TensorProto.INT64, [4], [1, -2, 3, 1 << 40]),
        helper.make_tensor("u", TensorProto.UINT8, [400], [n % 256 for n in range(400)]),
        helper.make_tensor("big", TensorProto.INT32, [400], [n * n - 9 for n in range(400)]),
        helper.make_tensor("m", TensorProto.BOOL, [4], [1, 0, 1, 1]),
    ]
    nodes = [
        helper.make_node("Cast", ["h"], ["hf"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["d"], ["df"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["i"], ["if"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["hf", "df"], ["a"]),
        helper.make_node("Add", ["a", "if"], ["b"]),
        helper.make_node("Where", ["m", "b", "x"], ["y"]),
        helper.make_node("Cast", ["u"], ["ui"], to=TensorProto.INT32),
        helper.make_node("Add", ["ui", "big"], ["z"]),
    ]
    outputs = [_info("y", ["n", 4]), _info("z", [400], TensorProto.INT32)]
    return _model(nodes, [_info("x", ["n", 4])], outputs, weights)


def texts():
    words = numpy_helper.from_array(np.array(["a", "bc", "ä\0b"], object), "words")
    nodes = [
        helper.make_node("Gather", ["words", "x"], ["y"]),
        helper.make_node(
            "LabelEncoder", ["y"], ["z"], domain="ai.onnx.ml",
            keys_strings=["a", "bc"], values_int64s=[5, 6], default_int64=-1,
        ),
    ]  # fmt: skip
    outputs = [_info("y", ["n"], TensorProto.STRING), _info("z", ["n"], TensorProto.INT64)]
    inputs = [_info("x", ["n"], TensorProto.INT64)]
    return _model(nodes, inputs, outputs, [words], more=[("ai.onnx.ml", 2)])


def forest():
    """scikit-learn's: a forest whose probabilities are a sequence of maps, and empty lists."""
    trees = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.25, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "nodes_missing_value_tracks_true": [0, 0, 0], "nodes_hitrates": [1.0, 1.0, 1.0],
        "class_treeids": [0, 0], "class_nodeids": [1, 2], "class_ids": [0, 0],
        "class_weights": [0.125, 0.875], "classlabels_int64s": [3, 8],
        "post_transform": "NONE",
    }  # fmt: skip
    node = helper.make_node(
        "TreeEnsembleClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", **trees
    )
    empty = node.attribute.add(name="base_values", type=onnx.AttributeProto.FLOATS)
    assert not empty.floats
    zip_map = helper.make_node(
        "ZipMap", ["p"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=[3, 8]
    )
    kind = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
    maps = helper.make_value_info("maps", helper.make_sequence_type_proto(kind))
    outputs = [_info("label", ["n"], TensorProto.INT64), maps]
    model = _model([node, zip_map], [_info("x", ["n", 2])], outputs, more=[("ai.onnx.ml", 1)])
    del model.opset_import[0]  # it needs none of ONNX's own
    return model


def sequences():
    """Lists and optional values inside, and a list as an output."""
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 18]>
        g (float[6, n] x) => (float[m, n] y, seq(float[k, n]) parts, bool there) {
            two = Constant <value = int64 {2}> ()
            at = Constant <value = int64 {1}> ()
            parts = SplitToSequence <axis = 0> (x, two)
            less = SequenceErase (parts, at)
            y = ConcatFromSequence <axis = 0> (less)
            maybe = Optional (y)
            there = OptionalHasElement (maybe)
        }"""
    )


def optional_type():
    """An attribute that is a type."""
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [3]))
    nodes = [
        helper.make_node("Optional", [], ["nothing"], type=kind.optional_type.elem_type),
        helper.make_node("OptionalHasElement", ["nothing"], ["there"]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    outputs = [_info("there", [], TensorProto.BOOL), _info("y", ["n"])]
    return _model(nodes, [_info("x", ["n"])], outputs)


def quantized():
    return _parsed(
        """<ir_version: 8, opset_import: ["" : 13, "com.microsoft" : 1]>
        g (float[n, 4] x) => (float[n, 3] y, float[n, 3] z) {
            s = Constant <value = float {0.05}> ()
            zero = Constant <value = uint8 {128}> ()
            q = QuantizeLinear (x, s, zero)
            d = DequantizeLinear (q, s, zero)
            wd = DequantizeLinear <axis = 1> (w, ws, wz)
            y = MatMul (d, wd)
            a = com.microsoft.FusedMatMul <alpha = 0.5> (d, wd)
            z = com.microsoft.Gelu (a)
        }""",
        numpy_helper.from_array(RNG.integers(-99, 99, (4, 3)).astype("i1"), "w"),
        numpy_helper.from_array(np.array([0.1, 0.2, 0.3], "f4"), "ws"),
        numpy_helper.from_array(np.zeros(3, "i1"), "wz"),
    )


def four_bits():
    packed = helper.make_tensor("w", TensorProto.INT4, [16, 129], RNG.integers(-8, 8, 16 * 129))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    scale = numpy_helper.from_array(np.array(0.5, "f4"), "s")
    return _model(
        nodes, [_info("x", ["n", 16])], [_info("y", ["n", 129])], [packed, scale], opset=21, ir=10
    )


def brain():
    weight = RNG.standard_normal((4, 400)).astype(ml_dtypes.bfloat16)
    nodes = [
        helper.make_node("Cast", ["w"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    given = numpy_helper.from_array(weight, "w")
    return _model(nodes, [_info("x", ["n", 4])], [_info("y", ["n", 400])], [given])


def words_and_devices():
    """What a graph cannot represent, and a conversion reports."""
    model = plain()
    model.graph.node[0].doc_string = "from line 12"
    model.graph.quantization_annotation.add(tensor_name="a")
    return model


MODELS = {
    f.__name__: f
    for f in (
        plain, opset_7, upsample, resize, default_value, branches, loop, functions, omitted,
        constants, sparse, typed, texts, forest, sequences, optional_type, quantized, four_bits,
        brain, words_and_devices,
    )
}  # fmt: skip
