"""Operations of ``keras.ops`` that a functional model of Keras 3 records, a file for each kind."""

from converter.lower.keras.operations import (
    elementwise,
    indexing,
    nn,
    pictures,
    products,
    reductions,
    shaping,
    signals,
    statistics,
)

FAMILIES = (
    elementwise, indexing, nn, pictures, products, reductions, shaping, signals, statistics,
)  # fmt: skip
