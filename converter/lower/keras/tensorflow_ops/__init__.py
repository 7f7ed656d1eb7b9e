"""TensorFlow's own operations in functional models of tf.keras.

`arithmetic`, `arrays` and `networks` have functions of TensorFlow's API, as a TFOpLambda names
them: without ``math.``, ``nn.``, ``linalg.`` or ``compat.v1.`` in front. `nodes` has ops, as the
node of a TensorFlowOpLayer names them.
Spec: https://www.tensorflow.org/versions/r2.16/api_docs/python/tf
"""
