"""Functions of TensorFlow's API in functional models of tf.keras and in the code of Lambdas.

They have the names that a TFOpLambda gives them, without ``math.``, ``nn.``, ``linalg.`` or
``compat.v1.`` in front, and call the ops that TensorFlow's own functions call.
Spec: https://www.tensorflow.org/versions/r2.16/api_docs/python/tf
"""
