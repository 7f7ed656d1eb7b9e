"""An ONNX graph as a module of torch's, which torch.export takes. It runs in a child process only.

Each operator is a function: its parameters are the operator's inputs, its keywords the attributes,
and its annotations say which inputs it takes as tensors and which as sizes (see `operators`).
Spec: https://onnx.ai/onnx/operators/
"""
