"""Recognise the ops that run only together with ops on other devices, or on a TPU."""

import re

# Reductions whose partners may all be in one graph; each reduces the inputs of all.
REDUCTIONS = frozenset(("NcclAllReduce", "NcclReduce", "CollectiveReduce", "CollectiveReduceV2"))

_PARTNERS = re.compile(
    r"Collective\w+|_?Nccl\w+|_(?:Host)?(?:Send|Recv)|_?TPU\w+|\w*DistributedTPU|CrossReplicaSum|"
    r"AllToAll|CollectivePermute|RecvTPUEmbedding\w*|SendTPUEmbedding\w*|"
    r"(?:Enqueue|Dequeue|LoadTPU|RetrieveTPU)\w*TPU\w*|(?:In|Out)feed\w+|"
    r"(?:Anonymous)?MultiDeviceIterator\w*"
)


def needs_other_devices(op: str) -> bool:
    """Return whether an op runs only together with ops on other devices, or on a TPU."""
    return _PARTNERS.fullmatch(op) is not None
