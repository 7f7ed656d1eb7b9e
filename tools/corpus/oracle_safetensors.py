"""What the official safetensors library reads in a file, as JSON; arguments: KIND PATH."""

import hashlib
import json
import sys


def main():
    from safetensors import safe_open

    with safe_open(sys.argv[2], "np") as f:
        arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - it is no dict
    tensors = {
        name: [a.dtype.name, list(a.shape), hashlib.sha256(a.tobytes()).hexdigest()]
        for name, a in arrays.items()
    }
    json.dump({"tensors": tensors}, sys.stdout)
