"""Schema tables of TensorFlow's protobufs: SavedModel, GraphDef and checkpoints.

Field numbers and names are those of TensorFlow 2.21 (and of `saved_metadata.proto` of tf_keras
2.21, under ``keras.``); older releases used a subset. Tables, not generated code, because reading
must not need TensorFlow; tests/contracts/test_proto_tables.py compares them with its descriptors.
Spec: https://github.com/tensorflow/tensorflow/tree/v2.21.0/tensorflow/core/protobuf and
.../core/framework.
"""

from formats.containers.protobuf.messages import Schema

# fmt: off
MESSAGES = {
    "SavedModel": {1: "saved_model_schema_version int64", 2: "meta_graphs MetaGraphDef*"},
    "BundleHeaderProto": {
        1: "num_shards int32", 2: "endianness BundleHeaderProto.Endianness",
        3: "version VersionDef",
    },
    "BundleEntryProto": {
        1: "dtype DataType", 2: "shape TensorShapeProto", 3: "shard_id int32", 4: "offset int64",
        5: "size int64", 6: "crc32c fixed32", 7: "slices TensorSliceProto*",
    },
    "TrackableObjectGraph": {1: "nodes TrackableObjectGraph.TrackableObject*"},
    "FingerprintDef": {
        1: "saved_model_checksum uint64", 2: "graph_def_program_hash uint64",
        3: "signature_def_hash uint64", 4: "saved_object_graph_hash uint64",
        5: "checkpoint_hash uint64", 6: "version VersionDef", 7: "uuid string",
    },
    "SavedTensorSlices": {1: "meta SavedTensorSliceMeta", 2: "data SavedSlice"},
    "VariableDef": {
        1: "variable_name string", 2: "initializer_name string", 3: "snapshot_name string",
        4: "save_slice_info_def SaveSliceInfoDef", 5: "is_resource bool",
        6: "initial_value_name string", 7: "trainable bool",
        8: "synchronization VariableSynchronization", 9: "aggregation VariableAggregation",
    },
    "CheckpointState": {
        1: "model_checkpoint_path string", 2: "all_model_checkpoint_paths string*",
        3: "all_model_checkpoint_timestamps double*", 4: "last_preserved_timestamp double",
    },
    "keras.SavedMetadata": {1: "nodes keras.SavedObject*"},
    "MetaGraphDef": {
        1: "meta_info_def MetaGraphDef.MetaInfoDef", 2: "graph_def GraphDef",
        3: "saver_def SaverDef", 4: "collection_def map string CollectionDef",
        5: "signature_def map string SignatureDef", 6: "asset_file_def AssetFileDef*",
        7: "object_graph_def SavedObjectGraph",
    },
    "VersionDef": {1: "producer int32", 2: "min_consumer int32", 3: "bad_consumers int32*"},
    "TensorShapeProto": {2: "dim TensorShapeProto.Dim*", 3: "unknown_rank bool"},
    "TensorSliceProto": {1: "extent TensorSliceProto.Extent*"},
    "TrackableObjectGraph.TrackableObject": {
        1: "children TrackableObjectGraph.TrackableObject.ObjectReference*",
        2: "attributes TrackableObjectGraph.TrackableObject.SerializedTensor*",
        3: "slot_variables TrackableObjectGraph.TrackableObject.SlotVariableReference*",
        4: "registered_saver RegisteredSaver", 5: "has_checkpoint_values google.protobuf.BoolValue",
    },
    "SavedTensorSliceMeta": {1: "tensor SavedSliceMeta*", 2: "versions VersionDef"},
    "SavedSlice": {1: "name string", 2: "slice TensorSliceProto", 3: "data TensorProto"},
    "SaveSliceInfoDef": {
        1: "full_name string", 2: "full_shape int64*", 3: "var_offset int64*",
        4: "var_shape int64*",
    },
    "keras.SavedObject": {
        2: "node_id int32", 3: "node_path string", 4: "identifier string", 5: "metadata string",
        6: "version VersionDef",
    },
    "MetaGraphDef.MetaInfoDef": {
        1: "meta_graph_version string", 2: "stripped_op_list OpList",
        3: "any_info google.protobuf.Any", 4: "tags string*", 5: "tensorflow_version string",
        6: "tensorflow_git_version string", 7: "stripped_default_attrs bool",
        8: "function_aliases map string string",
    },
    "GraphDef": {
        1: "node NodeDef*", 2: "library FunctionDefLibrary", 3: "version int32",
        4: "versions VersionDef", 5: "debug_info GraphDebugInfo",
    },
    "SaverDef": {
        1: "filename_tensor_name string", 2: "save_tensor_name string", 3: "restore_op_name string",
        4: "max_to_keep int32", 5: "sharded bool", 6: "keep_checkpoint_every_n_hours float",
        7: "version SaverDef.CheckpointFormatVersion",
    },
    "CollectionDef": {
        1: "node_list CollectionDef.NodeList (kind)",
        2: "bytes_list CollectionDef.BytesList (kind)",
        3: "int64_list CollectionDef.Int64List (kind)",
        4: "float_list CollectionDef.FloatList (kind)", 5: "any_list CollectionDef.AnyList (kind)",
    },
    "SignatureDef": {
        1: "inputs map string TensorInfo", 2: "outputs map string TensorInfo",
        3: "method_name string", 4: "defaults map string TensorProto",
    },
    "AssetFileDef": {1: "tensor_info TensorInfo", 2: "filename string"},
    "SavedObjectGraph": {
        1: "nodes SavedObject*", 2: "concrete_functions map string SavedConcreteFunction",
    },
    "TensorShapeProto.Dim": {1: "size int64", 2: "name string"},
    "TensorSliceProto.Extent": {1: "start int64", 2: "length int64 (has_length_hack)"},
    "TrackableObjectGraph.TrackableObject.ObjectReference": {
        1: "node_id int32", 2: "local_name string",
    },
    "TrackableObjectGraph.TrackableObject.SerializedTensor": {
        1: "name string", 2: "full_name string", 3: "checkpoint_key string",
    },
    "TrackableObjectGraph.TrackableObject.SlotVariableReference": {
        1: "original_variable_node_id int32", 2: "slot_name string",
        3: "slot_variable_node_id int32",
    },
    "RegisteredSaver": {1: "name string", 2: "object_name string"},
    "google.protobuf.BoolValue": {1: "value bool"},
    "SavedSliceMeta": {
        1: "name string", 2: "shape TensorShapeProto", 3: "type DataType",
        4: "slice TensorSliceProto*",
    },
    "TensorProto": {
        1: "dtype DataType", 2: "tensor_shape TensorShapeProto", 3: "version_number int32",
        4: "tensor_content bytes~", 5: "float_val float*~", 6: "double_val double*~",
        7: "int_val int32*~", 8: "string_val bytes*", 9: "scomplex_val float*~",
        10: "int64_val int64*~", 11: "bool_val bool*~", 12: "dcomplex_val double*~",
        13: "half_val int32*~", 14: "resource_handle_val ResourceHandleProto*",
        15: "variant_val VariantTensorDataProto*", 16: "uint32_val uint32*~",
        17: "uint64_val uint64*~", 18: "float8_val bytes~",
    },
    "OpList": {1: "op OpDef*"},
    "google.protobuf.Any": {1: "type_url string", 2: "value bytes"},
    "NodeDef": {
        1: "name string", 2: "op string", 3: "input string*", 4: "device string",
        5: "attr map string AttrValue", 6: "experimental_debug_info NodeDef.ExperimentalDebugInfo",
        7: "experimental_type FullTypeDef",
    },
    "FunctionDefLibrary": {
        1: "function FunctionDef*", 2: "gradient GradientDef*",
        3: "registered_gradients RegisteredGradient*",
    },
    "GraphDebugInfo": {
        1: "files string*", 2: "traces map string GraphDebugInfo.StackTrace",
        4: "frames_by_id map fixed64 GraphDebugInfo.FileLineCol",
        5: "name_to_trace_id map string fixed64",
        6: "traces_by_id map fixed64 GraphDebugInfo.StackTrace",
    },
    "CollectionDef.NodeList": {1: "value string*"},
    "CollectionDef.BytesList": {1: "value bytes*"},
    "CollectionDef.Int64List": {1: "value int64*"},
    "CollectionDef.FloatList": {1: "value float*"},
    "CollectionDef.AnyList": {1: "value google.protobuf.Any*"},
    "TensorInfo": {
        1: "name string (encoding)", 2: "dtype DataType", 3: "tensor_shape TensorShapeProto",
        4: "coo_sparse TensorInfo.CooSparse (encoding)",
        5: "composite_tensor TensorInfo.CompositeTensor (encoding)",
    },
    "SavedObject": {
        1: "children TrackableObjectGraph.TrackableObject.ObjectReference*",
        3: "slot_variables TrackableObjectGraph.TrackableObject.SlotVariableReference*",
        4: "user_object SavedUserObject (kind)", 5: "asset SavedAsset (kind)",
        6: "function SavedFunction (kind)", 7: "variable SavedVariable (kind)",
        8: "bare_concrete_function SavedBareConcreteFunction (kind)",
        9: "constant SavedConstant (kind)", 10: "resource SavedResource (kind)",
        11: "saveable_objects map string SaveableObject",
        12: "captured_tensor CapturedTensor (kind)", 13: "registered_name string",
        14: "serialized_user_proto google.protobuf.Any",
        15: "dependencies TrackableObjectGraph.TrackableObject.ObjectReference*",
        16: "registered_saver string",
    },
    "SavedConcreteFunction": {
        2: "bound_inputs int32*", 3: "canonicalized_input_signature StructuredValue",
        4: "output_signature StructuredValue",
    },
    "ResourceHandleProto": {
        1: "device string", 2: "container string", 3: "name string", 4: "hash_code uint64",
        5: "maybe_type_name string", 6: "dtypes_and_shapes ResourceHandleProto.DtypeAndShape*",
    },
    "VariantTensorDataProto": {
        1: "type_name string", 2: "metadata bytes", 3: "tensors TensorProto*",
    },
    "OpDef": {
        1: "name string", 2: "input_arg OpDef.ArgDef*", 3: "output_arg OpDef.ArgDef*",
        4: "attr OpDef.AttrDef*", 5: "summary string", 6: "description string",
        8: "deprecation OpDeprecation", 16: "is_aggregate bool", 17: "is_stateful bool",
        18: "is_commutative bool", 19: "allows_uninitialized_input bool",
        20: "control_output string*", 21: "is_distributed_communication bool",
    },
    "AttrValue": {
        1: "list AttrValue.ListValue (value)", 2: "s bytes (value)", 3: "i int64 (value)",
        4: "f float (value)", 5: "b bool (value)", 6: "type DataType (value)",
        7: "shape TensorShapeProto (value)", 8: "tensor TensorProto (value)",
        9: "placeholder string (value)", 10: "func NameAttrList (value)",
    },
    "NodeDef.ExperimentalDebugInfo": {
        1: "original_node_names string*", 2: "original_func_names string*",
    },
    "FullTypeDef": {
        1: "type_id FullTypeId", 2: "args FullTypeDef*", 3: "s string (attr)", 4: "i int64 (attr)",
    },
    "FunctionDef": {
        1: "signature OpDef", 3: "node_def NodeDef*", 4: "ret map string string",
        5: "attr map string AttrValue", 6: "control_ret map string string",
        7: "arg_attr map uint32 FunctionDef.ArgAttrs",
        8: "resource_arg_unique_id map uint32 uint32",
    },
    "GradientDef": {1: "function_name string", 2: "gradient_func string"},
    "RegisteredGradient": {1: "gradient_func string", 2: "registered_op_type string"},
    "GraphDebugInfo.StackTrace": {
        1: "file_line_cols GraphDebugInfo.FileLineCol*", 2: "frame_id fixed64*",
    },
    "GraphDebugInfo.FileLineCol": {
        1: "file_index int32", 2: "line int32", 3: "col int32", 4: "func string", 5: "code string",
    },
    "TensorInfo.CooSparse": {
        1: "values_tensor_name string", 2: "indices_tensor_name string",
        3: "dense_shape_tensor_name string",
    },
    "TensorInfo.CompositeTensor": {1: "type_spec TypeSpecProto", 2: "components TensorInfo*"},
    "SavedUserObject": {1: "identifier string", 2: "version VersionDef", 3: "metadata string"},
    "SavedAsset": {1: "asset_file_def_index int32"},
    "SavedFunction": {1: "concrete_functions string*", 2: "function_spec FunctionSpec"},
    "SavedVariable": {
        1: "dtype DataType", 2: "shape TensorShapeProto", 3: "trainable bool",
        4: "synchronization VariableSynchronization", 5: "aggregation VariableAggregation",
        6: "name string", 7: "device string",
        8: "experimental_distributed_variable_components SavedVariable*",
    },
    "SavedBareConcreteFunction": {
        1: "concrete_function_name string", 2: "argument_keywords string*",
        3: "allowed_positional_arguments int64", 4: "function_spec FunctionSpec",
    },
    "SavedConstant": {1: "operation string"},
    "SavedResource": {1: "device string"},
    "SaveableObject": {2: "save_function int32", 3: "restore_function int32"},
    "CapturedTensor": {1: "name string", 2: "concrete_function string"},
    "StructuredValue": {
        1: "none_value NoneValue (kind)", 11: "float64_value double (kind)",
        12: "int64_value sint64 (kind)", 13: "string_value string (kind)",
        14: "bool_value bool (kind)", 31: "tensor_shape_value TensorShapeProto (kind)",
        32: "tensor_dtype_value DataType (kind)", 33: "tensor_spec_value TensorSpecProto (kind)",
        34: "type_spec_value TypeSpecProto (kind)",
        35: "bounded_tensor_spec_value BoundedTensorSpecProto (kind)",
        51: "list_value ListValue (kind)", 52: "tuple_value TupleValue (kind)",
        53: "dict_value DictValue (kind)", 54: "named_tuple_value NamedTupleValue (kind)",
        55: "tensor_value TensorProto (kind)", 56: "numpy_value TensorProto (kind)",
    },
    "ResourceHandleProto.DtypeAndShape": {1: "dtype DataType", 2: "shape TensorShapeProto"},
    "OpDef.ArgDef": {
        1: "name string", 2: "description string", 3: "type DataType", 4: "type_attr string",
        5: "number_attr string", 6: "type_list_attr string",
        7: "handle_data ResourceHandleProto.DtypeAndShape*", 16: "is_ref bool",
        17: "experimental_full_type FullTypeDef",
    },
    "OpDef.AttrDef": {
        1: "name string", 2: "type string", 3: "default_value AttrValue", 4: "description string",
        5: "has_minimum bool", 6: "minimum int64", 7: "allowed_values AttrValue",
    },
    "OpDeprecation": {1: "version int32", 2: "explanation string"},
    "AttrValue.ListValue": {
        2: "s bytes*", 3: "i int64*", 4: "f float*", 5: "b bool*", 6: "type DataType*",
        7: "shape TensorShapeProto*", 8: "tensor TensorProto*", 9: "func NameAttrList*",
    },
    "NameAttrList": {1: "name string", 2: "attr map string AttrValue"},
    "FunctionDef.ArgAttrs": {1: "attr map string AttrValue"},
    "TypeSpecProto": {
        1: "type_spec_class TypeSpecProto.TypeSpecClass", 2: "type_state StructuredValue",
        3: "type_spec_class_name string", 4: "num_flat_components int32",
    },
    "FunctionSpec": {
        1: "fullargspec StructuredValue", 2: "is_method bool", 5: "input_signature StructuredValue",
        6: "jit_compile FunctionSpec.JitCompile",
    },
    "NoneValue": {},
    "TensorSpecProto": {1: "name string", 2: "shape TensorShapeProto", 3: "dtype DataType"},
    "BoundedTensorSpecProto": {
        1: "name string", 2: "shape TensorShapeProto", 3: "dtype DataType",
        4: "minimum TensorProto", 5: "maximum TensorProto",
    },
    "ListValue": {1: "values StructuredValue*"},
    "TupleValue": {1: "values StructuredValue*"},
    "DictValue": {1: "fields map string StructuredValue"},
    "NamedTupleValue": {1: "name string", 2: "values PairValue*"},
    "PairValue": {1: "key string", 2: "value StructuredValue"},
}

_DATA_TYPES = {
    0: "DT_INVALID", 1: "DT_FLOAT", 2: "DT_DOUBLE", 3: "DT_INT32", 4: "DT_UINT8", 5: "DT_INT16",
    6: "DT_INT8", 7: "DT_STRING", 8: "DT_COMPLEX64", 9: "DT_INT64", 10: "DT_BOOL",
    11: "DT_QINT8", 12: "DT_QUINT8", 13: "DT_QINT32", 14: "DT_BFLOAT16", 15: "DT_QINT16",
    16: "DT_QUINT16", 17: "DT_UINT16", 18: "DT_COMPLEX128", 19: "DT_HALF", 20: "DT_RESOURCE",
    21: "DT_VARIANT", 22: "DT_UINT32", 23: "DT_UINT64", 24: "DT_FLOAT8_E5M2",
    25: "DT_FLOAT8_E4M3FN", 26: "DT_FLOAT8_E4M3FNUZ", 27: "DT_FLOAT8_E4M3B11FNUZ",
    28: "DT_FLOAT8_E5M2FNUZ", 29: "DT_INT4", 30: "DT_UINT4", 31: "DT_INT2", 32: "DT_UINT2",
    33: "DT_FLOAT4_E2M1FN",
}

ENUMS = {
    # The types of reference edges of TF 1 are 100 higher.
    "DataType": _DATA_TYPES | {n + 100: f"{name}_REF" for n, name in _DATA_TYPES.items() if n},
    "BundleHeaderProto.Endianness": {0: "LITTLE", 1: "BIG"},
    "VariableSynchronization": {
        0: "VARIABLE_SYNCHRONIZATION_AUTO", 1: "VARIABLE_SYNCHRONIZATION_NONE",
        2: "VARIABLE_SYNCHRONIZATION_ON_WRITE", 3: "VARIABLE_SYNCHRONIZATION_ON_READ",
    },
    "VariableAggregation": {
        0: "VARIABLE_AGGREGATION_NONE", 1: "VARIABLE_AGGREGATION_SUM",
        2: "VARIABLE_AGGREGATION_MEAN", 3: "VARIABLE_AGGREGATION_ONLY_FIRST_REPLICA",
    },
    "SaverDef.CheckpointFormatVersion": {0: "LEGACY", 1: "V1", 2: "V2"},
    "FullTypeId": {
        0: "TFT_UNSET", 1: "TFT_VAR", 2: "TFT_ANY", 3: "TFT_PRODUCT", 4: "TFT_NAMED",
        20: "TFT_FOR_EACH", 100: "TFT_CALLABLE", 1000: "TFT_TENSOR", 1001: "TFT_ARRAY",
        1002: "TFT_OPTIONAL", 1003: "TFT_LITERAL", 1004: "TFT_ENCODED", 1005: "TFT_SHAPE_TENSOR",
        200: "TFT_BOOL", 201: "TFT_UINT8", 202: "TFT_UINT16", 203: "TFT_UINT32", 204: "TFT_UINT64",
        205: "TFT_INT8", 206: "TFT_INT16", 207: "TFT_INT32", 208: "TFT_INT64", 209: "TFT_HALF",
        210: "TFT_FLOAT", 211: "TFT_DOUBLE", 215: "TFT_BFLOAT16", 212: "TFT_COMPLEX64",
        213: "TFT_COMPLEX128", 214: "TFT_STRING", 10102: "TFT_DATASET", 10103: "TFT_RAGGED",
        10104: "TFT_ITERATOR", 10202: "TFT_MUTEX_LOCK", 10203: "TFT_LEGACY_VARIANT",
    },
    "TypeSpecProto.TypeSpecClass": {
        0: "UNKNOWN", 1: "SPARSE_TENSOR_SPEC", 2: "INDEXED_SLICES_SPEC", 3: "RAGGED_TENSOR_SPEC",
        4: "TENSOR_ARRAY_SPEC", 5: "DATA_DATASET_SPEC", 6: "DATA_ITERATOR_SPEC", 7: "OPTIONAL_SPEC",
        8: "PER_REPLICA_SPEC", 9: "VARIABLE_SPEC", 10: "ROW_PARTITION_SPEC",
        12: "REGISTERED_TYPE_SPEC", 13: "EXTENSION_TYPE_SPEC",
    },
    "FunctionSpec.JitCompile": {0: "DEFAULT", 1: "ON", 2: "OFF"},
}
# fmt: on

SCHEMA = Schema(MESSAGES, ENUMS)
