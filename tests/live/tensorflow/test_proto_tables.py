"""The schema table of TensorFlow is TensorFlow's own."""

import importlib
import re

import pytest
from proto_descriptors import compare, described

from formats.tensorflow import schemas as tf_protos


def test_tensorflow():
    pytest.importorskip("tensorflow")
    roots = []
    for module, name in re.findall(
        r"(\S+):(\S+)",
        """
        tensorflow.core.protobuf.saved_model_pb2:SavedModel
        tensorflow.core.protobuf.tensor_bundle_pb2:BundleHeaderProto
        tensorflow.core.protobuf.tensor_bundle_pb2:BundleEntryProto
        tensorflow.core.protobuf.trackable_object_graph_pb2:TrackableObjectGraph
        tensorflow.core.protobuf.fingerprint_pb2:FingerprintDef
        tensorflow.core.util.saved_tensor_slice_pb2:SavedTensorSlices
        tensorflow.core.framework.variable_pb2:VariableDef
        tensorflow.python.training.checkpoint_state_pb2:CheckpointState
        tf_keras.protobuf.saved_metadata_pb2:SavedMetadata
        """,
    ):
        roots.append(getattr(importlib.import_module(module), name).DESCRIPTOR)
    prefixes = {
        "tensorflow.": "",
        "third_party.py.tf_keras.protobuf.VersionDef": "VersionDef",
        "third_party.py.tf_keras.protobuf.": "keras.",
    }
    compare(tf_protos, *described(roots, prefixes))
