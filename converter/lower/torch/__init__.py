"""Lowering of torch's programs: ATen ops over tensors, numbers and lists, without torch."""
