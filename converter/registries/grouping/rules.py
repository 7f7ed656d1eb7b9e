"""Group the files of a folder into artifacts.

A SavedModel is a folder, a checkpoint a prefix, a sharded model its index: their files are never
listed one by one. `divide` says what belongs together in one folder, what of it is left out and
why, and what remains to be looked at alone. It opens nothing itself, so that a folder anywhere can
be divided.
"""

from collections.abc import Callable

from converter.registries.grouping.division import Division, Listing
from converter.registries.grouping.file_sets import (
    find_checkpoints,
    find_external_data,
    find_indices,
    find_numbered,
)
from converter.registries.grouping.hugging_face import find_components, find_hugging_face
from converter.registries.grouping.whole_folders import (
    find_deepspeed,
    find_distributed,
    find_keras,
    find_megatron,
    find_mlflow,
    find_portable,
    find_ranks,
    find_saved_model,
    find_triton,
)

# In this order: artifacts that are whole folders go before those recognised by parts of them.
RULES: tuple[Callable[[Division], None], ...] = (
    find_mlflow,  # names what of it is the model, whatever else lies there
    find_triton,  # its versions are models
    find_portable,  # has files that look like those of Hugging Face
    find_saved_model,  # its variables are a checkpoint
    find_keras,  # its config.json would be Hugging Face's
    find_distributed,
    find_deepspeed,
    find_megatron,
    find_ranks,
    find_components,  # its folders are models of Hugging Face's
    find_hugging_face,  # before the indices, of which it has several for the same weights
    find_indices,
    find_numbered,  # what no index names
    find_checkpoints,
    find_external_data,
)


def divide(listing: Listing) -> Division:
    """Divide a folder into artifacts, skipped files, and files to look into."""
    found = Division(listing)
    for rule in RULES:
        rule(found)
    return found
