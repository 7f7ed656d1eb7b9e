"""Ops that models of tf.keras hold one by one (TensorFlowOpLayer), taken over as they are there."""

from converter.lower.keras.table import TF_OPS
from converter.lower.tf.table import OPS, Row

OUTPUTS = {"TopKV2": ("values", "indices")}

for _name, _row in TF_OPS.items():
    _arguments = _row.arguments - {"input", "x", "y"}
    OPS.enter_spare(_name, Row(_row.handler, _arguments, OUTPUTS.get(_name, ())))
