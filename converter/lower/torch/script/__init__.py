"""TorchScript archives into graphs: their text is interpreted, and nothing of it is run."""
