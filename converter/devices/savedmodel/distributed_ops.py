"""Which ops run only together with others: on other devices, or on a TPU."""

import re

# Those of them whose partners may all stand in one graph, where each reduces what all are given.
REDUCTIONS = frozenset(("NcclAllReduce", "NcclReduce", "CollectiveReduce", "CollectiveReduceV2"))

_PARTNERS = re.compile(
    r"Collective\w+|_?Nccl\w+|_(?:Host)?(?:Send|Recv)|_?TPU\w+|\w*DistributedTPU|CrossReplicaSum|"
    r"AllToAll|CollectivePermute|RecvTPUEmbedding\w*|SendTPUEmbedding\w*|"
    r"(?:Enqueue|Dequeue|LoadTPU|RetrieveTPU)\w*TPU\w*|(?:In|Out)feed\w+|"
    r"(?:Anonymous)?MultiDeviceIterator\w*"
)


def needs_partners(op: str) -> bool:
    """Tell whether an op runs only together with others on other devices, or on a TPU."""
    return _PARTNERS.fullmatch(op) is not None
