"""The version of this tool; pyproject.toml and manifests read it from here."""

VERSION = "0.1.0"
