"""Walk a decoded pickle: find tensors, and separate plain data from unknown objects.

Names are the path that leads to a tensor, joined by dots: keys, attributes, positions. Inside a
module the dictionaries that torch keeps its tensors in (``_parameters``, ``_buffers``,
``_modules``) leave no trace in names, as in ``state_dict()``; origins keep them.

The walk is a loop over iterators, not a recursion. It goes round cycles once, and when an object
is reached by several paths it is walked again for its names, until a budget of repeats is spent.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from formats.containers.pickle.values import Global, Record, SetOf
from formats.core.bundle import JSON, Group, LeftOut
from formats.core.names import printable
from formats.core.plurals import count
from formats.core.storage import Span
from formats.core.weights import Tensor
from formats.errors import LimitError
from formats.limits import KIB, MIB, Limits
from formats.torch.numpy_globals import NumpyArray, NumpyScalar
from formats.torch.pickled_values import (
    SCALARS,
    as_tensor,
    attributes,
    is_module,
    leaf_text,
    list_children,
    plain,
    state_dict,
    width,
)
from formats.torch.tensor_values import TensorValue
from formats.torch.training_groups import find_group, is_random_state

MAX_USER_BYTES = 1 * MIB  # plain data kept; what is beyond is named
MAX_KEY = 512  # characters of one key in a path
MAX_PATH = 4096  # characters of a path; longer ones only occur to harm
MAX_REPEATS = 100_000  # values walked again because another path leads to them
MAX_WORK = 1_600_000  # scalars looked at, and four for every other value
MAX_TENSORS = 200_000  # tensors of pickles; each takes more than a KiB here
MAX_NOTES = 10_000  # entries of opaque, left_out
SLOTS = frozenset({"_parameters", "_buffers", "_modules"})
PLACEHOLDER = "(tensor)"  # replaces a tensor in a list of plain data


@dataclass(eq=False, slots=True)
class Found:
    """A tensor, and where it was.

    Attributes:
        path: Readable, dotted.
        origin: Exact: keys and attributes joined by slashes, behind the member's name.
        value: The tensor.
        group: What of training it belongs to; None for the model itself.
        notes: What a plain tensor cannot carry.
        roles: Attribute → tensor, for a class that holds other tensors.
        tensor: The tensor, where it is already made.
    """

    path: str
    origin: str
    value: TensorValue
    group: Group | None
    notes: dict[str, JSON] = field(default_factory=dict)
    roles: "dict[str, Found]" = field(default_factory=dict)
    tensor: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """A value, which may be None."""

    value: object


@dataclass(eq=False, slots=True)
class Frame:
    """A container being walked."""

    value: object
    path: str
    origin: str
    key: str
    children: Iterator[tuple[str, object]]
    out: "dict[str, JSON] | list[JSON]"
    group: Group | None
    slot: str = ""
    module: Record | None = None
    owner: Found | None = None
    tensors: bool = False
    cost: int = 16


# Bytes, and what to call them → what is pickled in them; None where they are no torch file.
Opener = Callable[[bytes | Span, str], "Value | None"]


class Tree:
    """Everything found in one artifact so far."""

    def __init__(
        self,
        limits: Limits,
        *,
        classify: bool = True,
        slots: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """Start empty.

        Args:
            limits: Bounds on depth, tensors and names.
            classify: Whether keys tell which tensors are of training and not of the model.
            slots: TorchScript class → names of its parameters and buffers, where known.
        """
        self.limits = limits
        self.classify = classify
        self.slots = slots or {}
        self.tensors: list[Found] = []
        self.user: dict[str, JSON] = {}
        self.opaque: dict[str, str] = {}
        self.modules: dict[str, JSON] = {}
        self.left_out: list[LeftOut] = []
        self.unnamed = 0  # entries that no longer fitted into left_out
        self.wrappers: dict[str, JSON] = {}
        self.user_bytes = 0
        self.name_bytes = 0
        self.repeats = 0
        self.work = 0
        self.open: Opener | None = None  # reads what lies inside byte strings
        self._stack: list[Frame] = []
        self._open: set[int] = set()
        self._done: dict[int, tuple[bool, JSON, int]] = {}
        self._alive: list[object] = []  # so that no id is used twice

    def add(
        self, root: object, path: str = "", origin: str = "", group: Group | None = None
    ) -> None:
        """Walk one value that the artifact holds, named ``path``."""
        self._alive.append(root)
        base: dict[str, JSON] = {}
        holder = Frame(None, path, origin, "", iter(()), base, group)
        self._stack = [holder]
        self._visit(holder, "", root)
        while len(self._stack) > 1:
            frame = self._stack[-1]
            for key, child in frame.children:
                depth = len(self._stack)
                self._visit(frame, key, child)
                if len(self._stack) > depth:
                    break
            else:
                self._leave(self._stack.pop())
        for found in base.values():
            self._merge_user(path, found)

    def add_joined(self, like: TensorValue, tensor: Tensor, path: str, group: Group | None) -> None:
        """Add a tensor put together from several; ``like`` is one of them."""
        found = Found(path, path, like, group, tensor=tensor)
        self.tensors.append(found)

    def _merge_user(self, path: str, found: JSON) -> None:
        if not path and isinstance(found, dict):
            self.user.update(found)
        else:
            self.user[path or "value"] = found

    def leave_out(self, name: str, reason: str) -> None:
        """Note that something is not in the bundle."""
        if len(self.left_out) < MAX_NOTES:
            self.left_out.append(LeftOut(name or "(root)", reason))
        else:
            self.unnamed += 1

    def _visit(self, frame: Frame, key: str, value: object) -> None:
        kind = type(value)
        self.work += 1
        if self.work > MAX_WORK:
            raise LimitError("objects of too many parts", where=frame.origin[:200])
        if kind is bytes or kind is Span:
            self.work += 1
            inner = self._open_bytes(frame, key, value)
            if inner is not None:
                self._alive.append(inner.value)
                self._visit(frame, key, inner.value)
                return
        if kind in SCALARS or kind is bytes:
            if value is not None or not frame.slot:  # a module without a bias has None for it
                self._put_leaf(frame, key, value)
            return
        self.work += 3
        tensor = as_tensor(value)
        if tensor is not None:
            self._emit(frame, key, tensor)
            return
        scalar = value.value if isinstance(value, NumpyScalar) else value
        text = leaf_text(scalar)
        if text is not None or scalar is not value:
            if isinstance(value, Global) and not value.name.startswith("torch."):
                self._note_opaque(self._place(frame, key)[0], value.name)
            self._put_leaf(frame, key, scalar if text is None else text)
            return
        path, origin = self._place(frame, key)
        if isinstance(value, Span):
            self._mark(frame, None)
            self.leave_out(path, f"{value.length} bytes of opaque data")
        elif isinstance(value, NumpyArray) and value.objects is None:
            self.leave_out(path, f"a numpy array of {value.dtype or 'unknown'}{list(value.shape)}")
        elif id(value) in self._open:
            return  # a cycle: it is being walked already
        elif self._repeat(frame, key, path, value):
            return
        elif len(self._stack) > self.limits.max_depth:
            self.leave_out(path, f"nests deeper than {self.limits.max_depth} levels")
        else:
            self._enter(frame, key, path, origin, value)

    def _open_bytes(self, frame: Frame, key: str, value: object) -> Value | None:
        """Return what a torch file inside a byte string holds."""
        if self.open is None or not isinstance(value, (bytes, Span)):
            return None
        return self.open(value, self._place(frame, key)[1])

    def _place(self, frame: Frame, key: str) -> tuple[str, str]:
        """Return the path and the origin of a child."""
        text = key if len(key) <= MAX_KEY else key[: MAX_KEY - 1] + "…"
        origin = f"{frame.origin}/{text}" if frame.origin and text else frame.origin or text
        if frame.module is not None and key in SLOTS:
            return frame.path, origin[:MAX_PATH]
        path = f"{frame.path}.{text}" if frame.path and text else frame.path or text
        return path[:MAX_PATH], origin[:MAX_PATH]

    def _repeat(self, frame: Frame, key: str, path: str, value: object) -> bool:
        """Deal with an object that another path led to before; return whether that was all."""
        known = self._done.get(id(value))
        if known is None:
            return False
        has_tensors, out, cost = known
        if not has_tensors:
            self._put(frame, key, out, cost)
            return True
        self.repeats += 1 + width(value)
        if self.repeats < MAX_REPEATS:
            return False
        self.leave_out(path, "an object that is stored elsewhere too")
        return True

    def _enter(self, frame: Frame, key: str, path: str, origin: str, value: object) -> None:
        if self._take_scalars(frame, key, path, value):
            return
        record = value if isinstance(value, Record) else None
        module = record if record is not None and is_module(record) else None
        group = frame.group or self._group(frame, key, value, module)
        as_list = isinstance(value, (list, tuple, SetOf, NumpyArray))
        child = Frame(
            value, path, origin, key, list_children(value), [] if as_list else {}, group,
            slot=key if frame.module is not None and key in SLOTS else "", module=module,
        )  # fmt: skip
        if module is not None:
            self._note_wrapper(path, module)
        known = ("__torch__.", "torch.nn.") if module else ("__torch__.",)
        if record is not None and not record.cls.startswith(known):
            self._note_opaque(path, record.cls)
        self._open.add(id(value))
        self._stack.append(child)

    def _take_scalars(self, frame: Frame, key: str, path: str, value: object) -> bool:
        """Take many scalars at once: they may be millions, and nothing is inside them."""
        if isinstance(value, (list, tuple)):
            if not all(type(v) in SCALARS for v in value):
                return False
            cost = 16 + 16 * len(value) + sum(len(v) for v in value if type(v) is str)
            if self.user_bytes + cost + len(key) <= MAX_USER_BYTES:
                out: JSON = [plain(v) for v in value]
                self._done[id(value)] = (False, out, cost)
                self._put(frame, key, out, cost)
                return True
        elif (
            type(value) is not dict
            or 16 * len(value) <= MAX_USER_BYTES - self.user_bytes
            or not all(type(v) in SCALARS for v in value.values())
        ):
            return False
        self._done[id(value)] = (False, None, MAX_USER_BYTES)
        self._mark(frame, None)
        self.leave_out(path, f"{count('plain value', len(value))}, too many to keep")
        return True

    def _leave(self, frame: Frame) -> None:
        self._open.discard(id(frame.value))
        out: JSON = frame.out
        if frame.module is not None:
            self._note_module(frame, frame.module)
            frame.tensors = True
        self._done[id(frame.value)] = (frame.tensors, out, frame.cost)
        parent = self._stack[-1]
        if frame.tensors:
            parent.tensors = True
        useful = any(v != PLACEHOLDER for v in out) if isinstance(out, list) else bool(out)
        empty = not frame.tensors and not isinstance(frame.value, Record)  # `opaque` has those
        if frame.module is None and (useful or empty):
            self._put(parent, frame.key, out, 0 if frame.tensors else 16)
            parent.cost += frame.cost

    def _put(self, frame: Frame, key: str, value: JSON, cost: int) -> None:
        """Keep plain data, if there is room."""
        cost += len(key)
        if not self._fits(frame, key, cost):
            return
        self.user_bytes += cost
        frame.cost += cost
        if isinstance(frame.out, list):
            frame.out.append(value)
            return
        name, n = key[: 2 * KIB], len(frame.out)
        while name in frame.out:
            n += 1
            name = f"{key[: 2 * KIB]}~{n}"
        frame.out[printable(name) if name else name] = value

    def _put_leaf(self, frame: Frame, key: str, value: object) -> None:
        """Keep one plain value. It is not looked at before it is known to fit."""
        cost = 16 + (2 * len(value) if isinstance(value, (str, bytes)) else 0)
        if self._fits(frame, key, cost):
            self._put(frame, key, plain(value), cost)

    def _fits(self, frame: Frame, key: str, cost: int) -> bool:
        if self.user_bytes + cost + len(key) <= MAX_USER_BYTES:
            return True
        if len(self.left_out) < MAX_NOTES:
            kept = f"plain data past the first {MAX_USER_BYTES >> 10} KiB"
            self.leave_out(self._place(frame, key)[0], kept)
        else:
            self.unnamed += 1
        return False

    def _mark(self, frame: Frame, found: Found | None) -> None:
        """Note that a tensor, or data left out, was here."""
        frame.tensors = frame.tensors or found is not None
        if isinstance(frame.out, list):
            frame.out.append(PLACEHOLDER if found else None)

    def _emit(self, frame: Frame, key: str, value: TensorValue) -> None:
        path, origin = self._place(frame, key)
        group = frame.group
        if group is None and self.classify and is_random_state(key, value):
            group = "training"
        found = Found(path or "tensor", origin, value, group)
        self.name_bytes += len(path) + len(origin)
        self.tensors.append(found)
        self._mark(frame, found)
        if frame.owner is not None:
            frame.owner.roles[key] = found
        self._note_tensor(frame, key, found)
        if len(self.tensors) > min(self.limits.max_tensors, MAX_TENSORS):
            raise LimitError(f"more than {MAX_TENSORS} tensors", where=origin[:200])
        if self.name_bytes > self.limits.max_header_bytes:
            raise LimitError(f"tensor names of {self.name_bytes} bytes", where=origin[:200])
        for state in value.state:
            if id(state) in self._open or not isinstance(state, (dict, tuple)):
                continue
            self._open.add(id(state))
            self._stack.append(
                Frame(state, path, origin, key, attributes(state), {}, group, owner=found)
            )
            break  # states past the first do not occur

    def _note_tensor(self, frame: Frame, key: str, found: Found) -> None:
        """Note on a tensor what its place in a module says, and what its class adds."""
        value = found.value
        if frame.slot == "_parameters" and value.requires_grad is False:
            found.notes["requires_grad"] = False
        elif frame.slot == "_buffers":
            if key in _not_persistent(self._stack):
                found.notes["persistent"] = False
        elif frame.module is not None or self._is_attribute(frame.value, key):
            found.notes["attribute"] = True
        elif value.requires_grad and self.classify and not value.is_parameter and not frame.slot:
            found.notes["requires_grad"] = True
        if value.cls is not None:
            found.notes["class"] = value.cls
        if "dtype" in value.parameters:
            found.notes["dtype"] = value.parameters["dtype"]

    def _is_attribute(self, owner: object, key: str) -> bool:
        """Return whether a tensor of a TorchScript object is no parameter or buffer of it."""
        slots = self.slots.get(owner.cls) if isinstance(owner, Record) else None
        return slots is not None and key not in slots

    def _group(self, frame: Frame, key: str, value: object, module: Record | None) -> Group | None:
        if not self.classify:
            return None
        if module is not None or frame.module is not None or frame.slot:
            is_optimizer = isinstance(value, Record) and value.cls.startswith("torch.optim.")
            return "optimizer" if is_optimizer else None
        return find_group(key, value, frame.value)

    def _note_opaque(self, path: str, name: str) -> None:
        if len(self.opaque) < MAX_NOTES:
            self.opaque.setdefault(path or "(root)", name)
        else:
            self.unnamed += 1

    def _note_module(self, frame: Frame, module: Record) -> None:
        if not isinstance(frame.out, dict) or len(self.modules) >= MAX_NOTES:
            self.unnamed += 1
            return
        # Hooks and the like: nearly always empty, and of no use where they are not run.
        kept = {k: v for k, v in frame.out.items() if v or not k.startswith("_")}
        self.modules.setdefault(frame.path, {"class": module.cls, **kept})

    def _note_wrapper(self, path: str, module: Record) -> None:
        if module.cls.endswith(("DataParallel", "DistributedDataParallel", "OptimizedModule")):
            state = state_dict(module)
            entry: dict[str, JSON] = {"class": module.cls}
            devices = state.get("device_ids")
            if isinstance(devices, list) and all(type(d) is int for d in devices[:1000]):
                entry["device_ids"] = devices[:1000]
            self.wrappers[path or "(root)"] = entry


def _not_persistent(stack: list[Frame]) -> Iterable[object]:
    """Return names of buffers that ``state_dict()`` leaves out; the frame below is the module."""
    module = stack[-2].module if len(stack) > 1 else None
    names = state_dict(module).get("_non_persistent_buffers_set") if module else None
    return names.items if isinstance(names, SetOf) and len(names.items) < 100 else ()
