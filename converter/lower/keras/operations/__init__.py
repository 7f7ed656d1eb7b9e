"""Operations of ``keras.ops`` that a functional model of Keras 3 records, a file for each kind."""
