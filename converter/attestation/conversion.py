"""What attestations say of a conversion: facts that its bytes and its options prove, no others."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from converter.attestation.files import AttestedFile
from converter.options import Options
from formats.core.bundle import JSON, Bundle

# Options that say where and for whom, not what is made.
_OF_A_RUN = frozenset(("overwrite", "sync", "limits"))


@dataclass(frozen=True, slots=True)
class AttestedConversion:
    """A finished conversion, with the digests of its files.

    Attributes:
        source: Name of the source.
        output: Name of the output.
        inputs: Files of the source that were read.
        outputs: Files of the output.
        bundle: What was written.
        evidence: What was verified, as manifests have it.
        options: Options of the conversion.
    """

    source: str
    output: str
    inputs: tuple[AttestedFile, ...]
    outputs: tuple[AttestedFile, ...]
    bundle: Bundle
    evidence: Mapping[str, JSON]
    options: Options

    @property
    def parameters(self) -> dict[str, JSON]:
        """The options that differ from their defaults, and the target, as JSON types."""
        default = Options()
        given = {
            field.name: _plain(getattr(self.options, field.name))
            for field in fields(Options)
            if field.name not in _OF_A_RUN
            and getattr(self.options, field.name) != getattr(default, field.name)
        }
        return {"to": self.options.to, **given}


def _plain(value: Any) -> JSON:
    """Return the value of an option as JSON types."""
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
