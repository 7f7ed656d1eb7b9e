"""Limits on what a source may demand before it is refused as hostile."""

from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds on one artifact; every reader takes them as an argument.

    The defaults pass every real model met so far with room to spare, and keep a hostile file
    under ten seconds and one GiB.
    """

    max_header_bytes: int = 100 * MIB  # a JSON header or index; safetensors itself allows 100 MB
    max_text_bytes: int = 256 * MIB  # a text-format protobuf, read whole
    max_pickle_bytes: int = 256 * MIB  # one pickle stream, storages excluded
    max_pickle_opcodes: int = 4_000_000  # of one pickle, at up to a microsecond each
    bytes_per_opcode: int = 256  # of a torch file that may have more of them, up to four times
    max_integer_bytes: int = 1 * KIB  # one pickled big integer
    max_depth: int = 200  # nesting of containers, messages, groups
    max_members: int = 1_000_000  # zip or tar members, HDF5 objects
    # HDF5 groups and datasets; inputs, functions and constants of graphs: 70 microseconds each
    max_objects: int = 100_000
    max_nodes: int = 300_000  # of graphs, and ONNX's attributes: up to 25 microseconds each
    max_described: int = 40_000  # tensors and slices that protobufs describe: 200 microseconds each
    max_tensors: int = 250_000  # of one artifact
    max_rank: int = 64  # axes of a tensor
    max_files: int = 100_000  # files of one folder artifact
    max_values: int = 5_000_000  # values decoded from one protobuf; a message counts as five
    max_tokens: int = 3_000_000  # of a text-format protobuf, at over a microsecond each
    max_key_bytes: int = 64 * KIB  # one key of an SSTable
    max_checked_block_bytes: int = 1 * MIB  # an SSTable block whose checksum is worth computing
    max_checked_bytes: int = 16 * MIB  # all such blocks of a checkpoint
    max_message_bytes: int = 2 * GIB  # one protobuf file; protobuf's own limit
    max_chunk_bytes: int = 256 * MIB  # one compressed chunk, inflated
    max_inflated_bytes: int = 256 * MIB  # one inflated member that must be held as a whole
    # Logical tensor bytes (inflated, filled, expanded by zero strides) per stored byte, past an
    # allowance that small files may always use.
    max_expansion_ratio: int = 200
    expansion_allowance_bytes: int = 256 * MIB  # the allowance of max_expansion_ratio


DEFAULT = Limits()
