"""The files of a model besides its weights: vocabularies, tokenizers, configurations."""

from pathlib import Path

from formats.core.bundle import Bundle
from formats.core.output import Output
from formats.errors import SafetyError, StorageError


def write_assets(bundle: Bundle, folder: Path, *, sync: bool) -> None:
    """Write the files that belong to a model besides its weights.

    Raises:
        SafetyError: One has a name that would leave the folder.
        StorageError: It cannot be written.
    """
    for name, span in bundle.assets.items():
        parts = name.split("/")
        if not all(parts) or {".", ".."} & set(parts) or "\0" in name:
            raise SafetyError(f"an asset is named {name!r:.80}", where=span.name)
        path = folder.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as e:  # too long, or a folder where another asset is a file
            raise StorageError.writing(path, e) from e
        with Output(path) as out:
            for _ in out.append([span]):
                pass
            if sync:
                out.sync()
