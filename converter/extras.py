"""Commands that install what a feature needs: the packages of each extra of pyproject.toml.

``model-convert`` itself is on no package index, so its extras are only for checkouts and wheels.
"""

from shlex import quote

# A test holds this table against pyproject.toml.
EXTRAS = {
    "cpu": ("onnxruntime>=1.20,<2", "onnx>=1.17,<2"),
    "torch": ("torch>=2.6", "onnx>=1.17,<2", "onnxscript>=0.5"),
    "transformers": ("torch>=2.6", "transformers>=4.56"),
    "sentence-transformers": ("torch>=2.6", "transformers>=4.56", "sentence-transformers>=5"),
    "timm": ("torch>=2.6", "timm>=1.0.16"),
    "diffusers": ("torch>=2.6", "transformers>=4.56", "diffusers>=0.35"),
    "tensorflow": ("tensorflow>=2.16,<2.22", "tf_keras>=2.16,<2.22", "keras>=3.5"),
    "mlflow": ("mlflow-skinny>=2.16,<4",),
    "s3": ("s3fs>=2024.6",),
    "gcs": ("gcsfs>=2024.6",),
    "ray": ("ray>=2.40",),
}


def describe_install(extra: str) -> str:
    """Return the command that installs an extra's packages, and the one for a checkout."""
    packages = " ".join(map(quote, EXTRAS[extra]))
    return f"pip install {packages}  # in a checkout: pip install '.[{extra}]'"
