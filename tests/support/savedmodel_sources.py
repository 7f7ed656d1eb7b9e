"""The SavedModels that these tests convert."""

import zipfile

from repository import ROOT

TENSORFLOW = ROOT / "fixtures" / "tensorflow"
ARCHIVE = TENSORFLOW / "multi_gpu.zip"
POLICIES = ("default", "devices", "expanded")
STRATEGIES = [f"{kind}_{policy}" for kind in ("keras3", "tf_keras", "loop") for policy in POLICIES]
NAMES = [*STRATEGIES, "sharded", "explicit", "collective", "ancient"]


def unpack(folder, *names):
    """Put SavedModels of the archive, and their stored values, into a folder."""
    with zipfile.ZipFile(ARCHIVE) as archive:
        for member in archive.namelist():
            if member.split("/")[0].removesuffix(".npz") in names:
                archive.extract(member, folder)
    return folder
