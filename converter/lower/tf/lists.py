"""Lists of tensors and TensorArrays: tensors stacked along a first axis."""
