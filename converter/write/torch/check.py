"""Check that the tensors in a written torch file are those that were planned."""

from collections import Counter
from collections.abc import Iterator

from converter.write.torch.storages import Description
from formats.containers.pickle.values import Odd, Record, SetOf
from formats.core.plurals import count
from formats.core.weights import row_major
from formats.errors import VerificationError
from formats.torch.tensor_values import TensorValue


def check_tensors(planned: Counter[Description], value: object) -> None:
    """Compare the tensors of a file with the planned ones.

    Args:
        planned: Type, shape, strides, position and device of each.
        value: As `formats.torch.structure.read` returned it.

    Raises:
        VerificationError: They differ.
    """
    found = Counter(_describe(tensor) for tensor in find_tensors(value))
    if found == planned:
        return
    lacking, extra = list(planned - found), list(found - planned)
    raise VerificationError(
        f"the file lacks {count('tensor', len(lacking))} and has {len(extra)} others, first "
        f"{(lacking + extra)[0]}"
    )


def find_tensors(root: object) -> Iterator[TensorValue]:
    """Yield every tensor that has elements, once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, TensorValue):
            if value.layout in ("strided", "quantized"):
                yield value
            waiting += [*value.parts.values(), *value.state]
        elif isinstance(value, dict):
            waiting += [key.value for key in value if isinstance(key, Odd)]
            waiting += value.values()
            waiting.append(getattr(value, "state", None))
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif isinstance(value, SetOf):
            waiting += value.items
        elif isinstance(value, Record):
            waiting += [*value.args, *value.items, *value.pairs.values(), *value.state]


def _describe(value: TensorValue) -> Description:
    ref, type_ = value.storage, value.type
    if ref is None or type_ is None:
        raise VerificationError("the file has a tensor without a type or a storage")
    strides = value.strides
    if strides is None:
        strides = tuple(s // type_.itemsize for s in row_major(value.shape, type_.dtype))
    place = None
    if ref.span is not None:
        place = ref.span.offset + value.offset * type_.itemsize
    return (type_.name, value.shape, strides, place, value.device or str(ref.location))
