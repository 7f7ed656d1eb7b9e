"""A model of Triton's: what stands in a model repository of the Triton Inference Server."""
