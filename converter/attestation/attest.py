"""Write the attestations of a conversion into a folder."""

import tempfile
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
from converter.write import catalog as targets
from converter.write.output_path import AnyPath, locate_output
from formats.containers.jsontext import laid_out
from formats.core.output import Output
from formats.core.storage import File
from formats.errors import InternalError, StorageError, UsageError
from formats.portable import MANIFEST

# Suffix of a file → what makes it.
KINDS = {".manifest.json": make_manifest, ".intoto.json": make_statement, ".cdx.json": make_bom}


def check_folder(folder: Path, source: Path, out: AnyPath | None, options: Options) -> None:
    """Make the folder of attestations before a conversion, and check that it can be written.

    Args:
        folder: The folder.
        source: The artifact.
        out: The output, or None for its default name.
        options: Options of the conversion.

    Raises:
        StorageError: It cannot be made or written.
        UsageError: It is the output, or a folder in it.
    """
    target = targets.check_options(options)
    output, _ = locate_output(source, out, target, options.device)
    if output.resolve() in (folder.resolve(), *folder.resolve().parents):
        raise UsageError("attestations would be written into the output", where=folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
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
