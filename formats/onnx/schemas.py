"""Schema tables of ONNX's protobufs.

Field numbers and names are those of onnx 1.23 (IR version 14); older files use a subset. A table,
not generated code, because reading must not need the onnx package;
tests/contracts/test_proto_tables.py compares it with onnx's descriptors.
Spec: https://github.com/onnx/onnx/blob/v1.23.0/onnx/onnx.in.proto
"""

from formats.containers.protobuf.messages import Schema

# fmt: off
MESSAGES = {
    "ModelProto": {
        1: "ir_version int64", 2: "producer_name string", 3: "producer_version string",
        4: "domain string", 5: "model_version int64", 6: "doc_string string", 7: "graph GraphProto",
        8: "opset_import OperatorSetIdProto*", 14: "metadata_props StringStringEntryProto*",
        20: "training_info TrainingInfoProto*", 25: "functions FunctionProto*",
        26: "configuration DeviceConfigurationProto*",
    },
    "GraphProto": {
        1: "node NodeProto*", 2: "name string", 5: "initializer TensorProto*",
        10: "doc_string string", 11: "input ValueInfoProto*", 12: "output ValueInfoProto*",
        13: "value_info ValueInfoProto*", 14: "quantization_annotation TensorAnnotation*",
        15: "sparse_initializer SparseTensorProto*", 16: "metadata_props StringStringEntryProto*",
    },
    "OperatorSetIdProto": {1: "domain string", 2: "version int64"},
    "StringStringEntryProto": {1: "key string", 2: "value string"},
    "TrainingInfoProto": {
        1: "initialization GraphProto", 2: "algorithm GraphProto",
        3: "initialization_binding StringStringEntryProto*",
        4: "update_binding StringStringEntryProto*",
    },
    "FunctionProto": {
        1: "name string", 4: "input string*", 5: "output string*", 6: "attribute string*",
        7: "node NodeProto*", 8: "doc_string string", 9: "opset_import OperatorSetIdProto*",
        10: "domain string", 11: "attribute_proto AttributeProto*",
        12: "value_info ValueInfoProto*", 13: "overload string",
        14: "metadata_props StringStringEntryProto*",
    },
    "DeviceConfigurationProto": {1: "name string", 2: "num_devices int32", 3: "device string*"},
    "NodeProto": {
        1: "input string*", 2: "output string*", 3: "name string", 4: "op_type string",
        5: "attribute AttributeProto*", 6: "doc_string string", 7: "domain string",
        8: "overload string", 9: "metadata_props StringStringEntryProto*",
        10: "device_configurations NodeDeviceConfigurationProto*",
    },
    "TensorProto": {
        1: "dims int64*", 2: "data_type int32", 3: "segment TensorProto.Segment",
        4: "float_data float*~", 5: "int32_data int32*~", 6: "string_data bytes*",
        7: "int64_data int64*~", 8: "name string", 9: "raw_data bytes~", 10: "double_data double*~",
        11: "uint64_data uint64*~", 12: "doc_string string",
        13: "external_data StringStringEntryProto*", 14: "data_location TensorProto.DataLocation",
        16: "metadata_props StringStringEntryProto*",
    },
    "ValueInfoProto": {
        1: "name string", 2: "type TypeProto", 3: "doc_string string",
        4: "metadata_props StringStringEntryProto*",
    },
    "TensorAnnotation": {
        1: "tensor_name string", 2: "quant_parameter_tensor_names StringStringEntryProto*",
    },
    "SparseTensorProto": {1: "values TensorProto", 2: "indices TensorProto", 3: "dims int64*"},
    "AttributeProto": {
        1: "name string", 2: "f float", 3: "i int64", 4: "s bytes", 5: "t TensorProto",
        6: "g GraphProto", 7: "floats float*~", 8: "ints int64*~", 9: "strings bytes*",
        10: "tensors TensorProto*", 11: "graphs GraphProto*", 13: "doc_string string",
        14: "tp TypeProto", 15: "type_protos TypeProto*", 20: "type AttributeProto.AttributeType",
        21: "ref_attr_name string", 22: "sparse_tensor SparseTensorProto",
        23: "sparse_tensors SparseTensorProto*",
    },
    "NodeDeviceConfigurationProto": {
        1: "configuration_id string", 2: "sharding_spec ShardingSpecProto*",
        3: "pipeline_stage int32",
    },
    "TensorProto.Segment": {1: "begin int64", 2: "end int64"},
    "TypeProto": {
        1: "tensor_type TypeProto.Tensor (value)", 4: "sequence_type TypeProto.Sequence (value)",
        5: "map_type TypeProto.Map (value)", 6: "denotation string",
        7: "opaque_type TypeProto.Opaque (value)",
        8: "sparse_tensor_type TypeProto.SparseTensor (value)",
        9: "optional_type TypeProto.Optional (value)",
    },
    "ShardingSpecProto": {
        1: "tensor_name string", 2: "device int64*",
        3: "index_to_device_group_map IntIntListEntryProto*", 4: "sharded_dim ShardedDimProto*",
    },
    "TypeProto.Tensor": {1: "elem_type int32", 2: "shape TensorShapeProto"},
    "TypeProto.Sequence": {1: "elem_type TypeProto"},
    "TypeProto.Map": {1: "key_type int32", 2: "value_type TypeProto"},
    "TypeProto.Opaque": {1: "domain string", 2: "name string"},
    "TypeProto.SparseTensor": {1: "elem_type int32", 2: "shape TensorShapeProto"},
    "TypeProto.Optional": {1: "elem_type TypeProto"},
    "IntIntListEntryProto": {1: "key int64", 2: "value int64*"},
    "ShardedDimProto": {1: "axis int64", 2: "simple_sharding SimpleShardedDimProto*"},
    "TensorShapeProto": {1: "dim TensorShapeProto.Dimension*"},
    "SimpleShardedDimProto": {
        1: "dim_value int64 (dim)", 2: "dim_param string (dim)", 3: "num_shards int64",
    },
    "TensorShapeProto.Dimension": {
        1: "dim_value int64 (value)", 2: "dim_param string (value)", 3: "denotation string",
    },
}

ENUMS = {
    "TensorProto.DataLocation": {0: "DEFAULT", 1: "EXTERNAL"},
    "AttributeProto.AttributeType": {
        0: "UNDEFINED", 1: "FLOAT", 2: "INT", 3: "STRING", 4: "TENSOR", 5: "GRAPH",
        11: "SPARSE_TENSOR", 13: "TYPE_PROTO", 6: "FLOATS", 7: "INTS", 8: "STRINGS", 9: "TENSORS",
        10: "GRAPHS", 12: "SPARSE_TENSORS", 14: "TYPE_PROTOS",
    },
}
# fmt: on

SCHEMA = Schema(MESSAGES, ENUMS)
