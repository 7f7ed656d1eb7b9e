"""TorchScript and exported programs moved to another device, without torch."""
