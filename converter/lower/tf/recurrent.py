"""Recurrent layers and cells that are one op: cuDNN's, BlockLSTM, GRUBlockCell."""
