"""Write the attestations of a conversion into a folder."""

from collections.abc import Mapping
from pathlib import Path

from converter.attestation.bom import make_bom
from converter.attestation.conversion import AttestedConversion
from converter.attestation.files import hash_files, list_files
from converter.attestation.manifest import make_manifest
from converter.attestation.statement import make_statement
from converter.filesystem.atomic_output import publish, staging
from converter.options import Options
from converter.pipeline import Conversion
from formats.containers.jsontext import laid_out
from formats.core.output import Output
from formats.core.storage import File
from formats.errors import InternalError, StorageError
from formats.portable import MANIFEST

# Suffix of a file → what makes it.
KINDS = {".manifest.json": make_manifest, ".intoto.json": make_statement, ".cdx.json": make_bom}


def prepare(folder: Path) -> None:
    """Make the folder of attestations, before a conversion.

    Raises:
        StorageError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StorageError.writing(folder, e) from e


def attest(
    folder: Path, made: Conversion, source: str, files: Mapping[str, File], options: Options
) -> tuple[Path, ...]:
    """Write manifest, provenance and bill of materials of an output; return their paths.

    Those of a former output of the same name are replaced. A portable bundle has its own manifest,
    and gets no other.

    Args:
        folder: Where they are written, as ``OUTPUT.manifest.json``, ``OUTPUT.intoto.json`` and
            ``OUTPUT.cdx.json``.
        made: The conversion.
        source: What its source is called.
        files: Files of the source that were read, by name.
        options: Options of the conversion.

    Raises:
        SourceError: A file cannot be read again.
        StorageError: They cannot be written.
    """
    if made.path is None:
        raise InternalError("there is no output to attest")
    name = made.path.name
    graphs = tuple(made.verification.graphs)
    about = AttestedConversion(
        source,
        name,
        hash_files(files.items()),
        hash_files(list_files(made.path, name)),
        made.bundle,
        made.verification.manifest(len(made.bundle.weights), graphs),
        options,
    )
    has_own = (made.path / MANIFEST).is_file()
    paths = []
    for suffix, make in KINDS.items():
        if has_own and make is make_manifest:
            continue
        path = folder / f"{name}{suffix}"
        text = laid_out(make(about), ensure_ascii=True, allow_nan=False)
        with staging(path) as scratch:
            with Output(scratch / "payload") as out:
                out.write(text.encode() + b"\n")
            publish(scratch / "payload", path, force=True, sync=False)
        paths.append(path)
    return tuple(paths)
