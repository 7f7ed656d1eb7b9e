"""Random inputs for a model, from a seed, within the ranges that the model expects.

The range of an Embedding, the vocabulary of a lookup or the scale of a Rescaling follow from the
configuration of the source; `find_hints` finds them for each input. Dynamic sizes are drawn twice,
with different values. Only the framework knows which sizes a model accepts: each case has
alternatives, and the first that the framework runs is used.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from converter.lower import dims
from converter.lower.element_types import numpy_type
from converter.lower.keras.model import Model, Reference, references
from formats.core.bundle import TensorSpec
from formats.errors import UsageError

BATCHES = (1, 3)

# Sizes of axes after the batch, by rank: alternatives, each for the first and the second case.
# They differ between axes if possible, so that swapped axes are found.
# fmt: off
LADDERS: Mapping[int, Sequence[tuple[Sequence[int], Sequence[int]]]] = {
    2: (((12,), (7,)), ((64,), (48,)), ((320,), (256,)), ((16000,), (8000,))),
    3: (((12, 6), (7, 5)), ((64, 64), (48, 48)), ((320, 320), (256, 256)), ((16000,), (8000,))),
    4: (((64, 96), (128, 64)), ((96, 96), (128, 128)), ((224, 224), (256, 256)), ((512,), (640,))),
    5: (((8, 16, 24), (16, 8, 16)), ((16,), (32,)), ((64,), (48,)), ((96,), (128,))),
}
# Sizes for graphs in which only a later node fixes a size: images of CIFAR, MNIST and Inception,
# and vectors of those.
COMMON_SIZES: Mapping[int, Sequence[Sequence[int]]] = {
    2: ((784,), (10,), (4,), (1,)), 3: ((28,), (32,), (299,)), 4: ((32,), (28,), (299,)),
}
# Shapes of inputs of unknown rank, the most informative first.
UNRANKED: Sequence[tuple[tuple[int, ...], tuple[int, ...]]] = (
    ((2, 3), (3, 2)), ((4,), (3,)), ((1, 4), (3, 4)), ((1, 784), (3, 784)), ((2, 3, 4), (3, 2, 5)),
    ((1, 28, 28), (3, 28, 28)), ((1, 28, 28, 1), (3, 28, 28, 1)), ((1, 32, 32, 3), (3, 32, 32, 3)),
    ((1, 224, 224, 3), (3, 224, 224, 3)), ((), ()),
)
# fmt: on
SIZE_LEVELS = 4
# Other values, if a source does not accept the first ones or its outputs are not finite.
SMALL, PERMUTED, POSITIVE = "of 0 and 1", "permutations", "positive"
SINGLE = "one in each row"  # of values that may be any number
VARIANTS = (SINGLE, SMALL, PERMUTED, POSITIVE)

# Layers and operations that pass on the elements of their input.
PASSING = frozenset((
    "Reshape", "Flatten", "Permute", "RepeatVector", "Dropout", "SpatialDropout1D", "Identity",
    "Cast", "ExpandDims", "Squeeze", "GetItem", "SlicingOpLambda", "Concatenate",
    "ZeroPadding1D", "Cropping1D", "Cropping2D", "CenterCrop", "Resizing",
))  # fmt: skip
EXAMPLE = "the registry's example"
WORDS = ("the", "a", "of", "model", "unheard-of")


@dataclass(frozen=True, slots=True)
class Hint:
    """The values that an input expects.

    Attributes:
        low: Least integer, of any dtype.
        high: Upper bound of integers, exclusive; None if they are not known to be integers.
        scale: Standard deviation of floating point numbers.
        offset: Mean of floating point numbers.
        words: Strings or integers to draw from.
        is_mask: Whether it is a mask.
        is_permutation: Whether each row is a permutation of the integers below its length.
        is_sorted: Whether integers grow along the last axis, as the sides of boxes do.
        is_scalar: Whether it has no axes, if its shape is unknown.
        masked: Value of masked timesteps.
        is_alone: Whether it has no batch axis.
        counted: Name of the axis whose size is the sum of the elements.
        sizes: Sizes of axes by name, in the first and the second case.
        grain: Factor of floating point numbers that are its integer multiples.
    """

    low: int = 0
    high: int | None = None
    scale: float = 1.0
    offset: float = 0.0
    words: tuple[Any, ...] = ()
    is_mask: bool = False
    is_permutation: bool = False
    is_sorted: bool = False
    is_scalar: bool = False
    masked: float | None = None
    is_alone: bool = False
    counted: str = ""
    sizes: tuple[tuple[str, tuple[int, int]], ...] = ()
    grain: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """One array for each input of a model, in order.

    Attributes:
        name: Name in reports.
        arrays: The arrays; those of state are set in the source before it runs.
        is_first: Whether the source runs from the state that it stores, which the arrays equal.
    """

    name: str
    arrays: tuple[np.ndarray, ...]
    is_first: bool = False


def find_hints(model: Model, vocabulary: Sequence[str] = ()) -> dict[str, Hint]:
    """Return a hint for each input of a model, by name, in order.

    Args:
        model: The model of the source.
        vocabulary: Vocabulary of lookups that is not part of the configuration.
    """
    found = list(references(model.inputs))
    return {r.layer: _merge_hints(list(_find_readers(model, r)), vocabulary) for r in found}


def plan_cases(
    specs: Sequence[TensorSpec],
    found: Sequence[Hint],
    *,
    seed: int,
    samples: int = 1,
    is_varied: bool = False,
) -> list[list[Case]]:
    """Return the cases to run, each as a list of alternatives in the order to try them.

    Args:
        specs: Specs of the inputs.
        found: Hints of the inputs, in the same order.
        seed: Seed of the generator; equal seeds give equal inputs.
        samples: Number of cases for each combination of sizes.
        is_varied: Whether other ranges of values are alternatives, too.
    """
    rng = np.random.default_rng(seed)
    is_unknown = any(s.shape is None for s in specs)
    is_free = is_unknown or any(
        isinstance(n, str)
        for s, h in zip(specs, found, strict=True)
        for n in (s.shape or ())[0 if h.is_alone else 1 :]
    )
    is_batched = any(isinstance(n, str) for s in specs for n in (s.shape or ())[:1])
    cases = []
    levels = SIZE_LEVELS + max(len(sizes) for sizes in COMMON_SIZES.values())
    levels = max(levels, len(UNRANKED)) if is_unknown else levels
    for sizing in (0, 1) if is_free or is_batched else (0,):
        for sample in range(samples):
            alternatives: dict[tuple[object, ...], Case] = {}
            for values, level in _attempts(levels if is_free else 1, VARIANTS if is_varied else ()):
                if values == SINGLE and not any(hint.counted for hint in found):
                    continue
                shapes = _choose_shapes(specs, found, level, sizing, is_single=values == SINGLE)
                taken = [_vary_hint(s.dtype, h, values) for s, h in zip(specs, found, strict=True)]
                key = (*shapes, *taken)
                if key in alternatives:
                    continue
                named = _sizes_by_name(specs, shapes)
                arrays = tuple(
                    draw_array(rng, spec.dtype, shape, hint, named.get(hint.counted, 0))
                    for spec, shape, hint in zip(specs, shapes, taken, strict=True)
                )
                name = "; ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
                name = name or "no inputs"
                name += f", {values}" if values else ""
                name += f" #{sample + 1}" if samples > 1 else ""
                alternatives[key] = Case(name, arrays)
            cases.append([*alternatives.values()])
    return cases


def _attempts(levels: int, variants: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the variant of the values and the level of the sizes, default values first."""
    yield from (("", level) for level in range(levels))
    yield from ((values, level) for values in variants for level in range(min(levels, 2)))


def _vary_hint(dtype: str, hint: Hint, values: str) -> Hint:
    """Return the hint of a variant, for inputs whose values are not known."""
    if values == SINGLE:
        return replace(hint, high=2) if hint.counted else hint
    is_known = hint.high is not None or hint.words or hint.is_mask
    if is_known or "int" not in dtype or not values:
        is_plain = hint == Hint() and "float" in dtype
        return replace(hint, scale=0.2, offset=1.0) if values == POSITIVE and is_plain else hint
    if values == PERMUTED:
        return replace(hint, is_permutation=True)
    return replace(hint, high=2) if values == SMALL else hint


def share_arrays(plan: Sequence[Sequence[Case]], tensors: Sequence[str]) -> list[list[Case]]:
    """Return a plan in which inputs that feed the same tensor have the same array.

    Args:
        plan: Alternatives of each case.
        tensors: For each input, the name of the tensor that it feeds.
    """
    first = [tensors.index(tensor) for tensor in tensors]
    return [
        [replace(case, arrays=tuple(case.arrays[i] for i in first)) for case in alternatives]
        for alternatives in plan
    ]


def cases_from_file(path: Path, specs: Sequence[TensorSpec]) -> list[list[Case]]:
    """Return the case in a user's .npz file: an array for each input, by name.

    Raises:
        UsageError: It is not an .npz file of plain arrays, or not for these inputs.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            given = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, AttributeError, TypeError, BadZipFile) as e:
        raise UsageError(f"is no .npz of plain arrays: {e}", where=path) from e
    names = [spec.name for spec in specs]
    if set(given) == {f"arr_{i}" for i in range(len(specs))}:  # np.savez without names
        given = {name: given[f"arr_{i}"] for i, name in enumerate(names)}
    if set(given) != set(names):
        raise UsageError(
            f"holds {', '.join(sorted(given)) or 'nothing'}", expected=", ".join(names), where=path
        )
    return [[Case(path.name, tuple(_fit_to_spec(given[s.name], s, path) for s in specs))]]


def cases_from_example(path: Path | None, specs: Sequence[TensorSpec]) -> list[list[Case]]:
    """Return the case in a registry's .npz file; no case if it is for other inputs.

    The name of a single input may differ: registries record arrays without names.
    """
    if path is None:
        return []
    try:
        with np.load(path, allow_pickle=False) as archive:
            given = [archive[name] for name in archive.files]
        if len(specs) == 1 and len(given) == 1:
            return [[Case(EXAMPLE, (_fit_to_spec(given[0], specs[0], path),))]]
        return [
            [replace(case, name=EXAMPLE) for case in cases]
            for cases in cases_from_file(path, specs)
        ]
    except (OSError, ValueError, AttributeError, TypeError, BadZipFile, UsageError):
        return []


def _fit_to_spec(array: np.ndarray, spec: TensorSpec, path: Path) -> np.ndarray:
    sizes = spec.shape if spec.shape is not None else array.shape
    fits = len(sizes) == array.ndim and all(
        isinstance(n, str) or n == m for n, m in zip(sizes, array.shape, strict=True)
    )
    is_text = array.dtype.kind in "US"
    if not fits or is_text != (spec.dtype == "string"):
        raise UsageError(
            f"{spec.name!r} is {array.dtype}{list(array.shape)}",
            expected=f"{spec.dtype}{list(sizes)}",
            where=path,
        )
    return array.astype("U") if is_text else array.astype(storage_dtype(spec.dtype))


def storage_dtype(dtype: str) -> "np.dtype[np.generic]":
    """Return the NumPy dtype that stores arrays of a dtype in an .npy file.

    It has neither bfloat16 nor float8: they are stored as float32, and the runtime casts them.
    """
    found = numpy_type(dtype)
    return found if found.kind in "fiub" else np.dtype(np.float32)


# -- sizes ---------------------------------------------------------------------------------------

SUM = " + "  # in the name of an axis: its size is that of two others together


def _choose_shapes(
    specs: Sequence[TensorSpec], found: Sequence[Hint], level: int, sizing: int, *,
    is_single: bool = False,
) -> tuple[tuple[int, ...], ...]:  # fmt: skip
    """Return a shape for each input; axes of one name have one size, a sum that of its terms."""
    named = {name: both[sizing] for hint in found for name, both in hint.sizes}
    for spec, hint in zip(specs, found, strict=True) if is_single else ():
        if hint.counted and spec.shape:
            rows = spec.shape[0]
            named[hint.counted] = rows if isinstance(rows, int) else BATCHES[sizing]
    shapes: list[tuple[int | str, ...]] = []
    for spec, hint in zip(specs, found, strict=True):
        if spec.shape is None:
            shapes.append(() if hint.is_scalar else UNRANKED[min(level, len(UNRANKED) - 1)][sizing])
            continue
        sizes = spec.shape
        steps = _steps(len(sizes) + hint.is_alone, level, sizing)
        shape: list[int | str] = []
        for axis, n in enumerate(sizes, int(hint.is_alone)):
            if isinstance(n, int) or SUM in n:
                shape.append(n)  # the terms of a sum may be those of a later input
            elif axis == 0:
                shape.append(named.setdefault(n, BATCHES[sizing]))
            else:
                size, unit = steps[(axis - 1) % len(steps)], dims.find_factor(n)
                shape.append(named.setdefault(n, -(-size // unit) * unit))
        shapes.append(tuple(shape))

    def size_of(n: int | str) -> int:
        if isinstance(n, int):
            return n
        return sum(named.setdefault(term, BATCHES[sizing]) for term in n.split(SUM))

    return tuple(tuple(map(size_of, shape)) for shape in shapes)


def _sizes_by_name(
    specs: Sequence[TensorSpec], shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """Return the sizes of named axes."""
    return {
        n: size
        for spec, shape in zip(specs, shapes, strict=True)
        for n, size in zip(spec.shape or (), shape, strict=False)
        if isinstance(n, str)
    }


def _steps(rank: int, level: int, sizing: int) -> Sequence[int]:
    ladder = LADDERS.get(rank, LADDERS[5] if rank > 5 else LADDERS[2])
    if level < SIZE_LEVELS:
        return ladder[level][sizing]
    more = COMMON_SIZES.get(rank, ())
    return more[level - SIZE_LEVELS] if level - SIZE_LEVELS < len(more) else ladder[0][sizing]


# -- elements ------------------------------------------------------------------------------------


def draw_array(
    rng: np.random.Generator, dtype: str, shape: tuple[int, ...], hint: Hint, total: int = 0
) -> np.ndarray:
    """Return a random array; if it counts the elements of another, its sum is ``total``."""
    array: np.ndarray
    if hint.counted and hint.high == 2 and total == shape[0]:
        array = np.ones(shape, np.int64)
    elif hint.counted:
        array = np.bincount(rng.integers(0, shape[0], total), minlength=shape[0])
    elif hint.grain:
        array = rng.integers(hint.low, hint.high or 1, shape) * hint.grain
    elif hint.is_mask:
        array = rng.integers(0, 2, shape)
        array[..., :1] = 1  # a fully masked row is undefined in many models
    elif hint.words or dtype == "string":
        # NumPy would convert integers beyond int64 to floating point numbers.
        words = np.array(hint.words or WORDS, None if dtype == "string" else storage_dtype(dtype))
        array = words[rng.integers(0, len(words), shape)]
    elif hint.is_permutation and shape:
        array = rng.permuted(np.broadcast_to(np.arange(shape[-1]), shape), axis=-1)
    elif hint.high is not None:
        array = rng.integers(hint.low, hint.high, shape)
        array = np.sort(array) if hint.is_sorted and shape else array
    elif dtype == "bool":
        array = rng.integers(0, 2, shape)
    elif dtype == "uint8":
        array = rng.integers(0, 256, shape)
    elif "int" in dtype:
        array = rng.integers(0, 10, shape)
    else:
        array = rng.standard_normal(shape) * hint.scale + hint.offset
    if dtype == "string":
        return array.astype("U")
    array = array.astype(storage_dtype(dtype))
    if hint.masked is not None and len(shape) > 1:
        for row in range(1, shape[0], 2):  # the first row counts in full, the next in half
            array[row, (shape[1] + 1) // 2 :] = hint.masked
    return array


# -- hints from the configuration ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Reader:
    """A layer that reads an input; ``argument`` is the keyword of its call, or empty."""

    class_name: str
    config: Mapping[str, Any]
    argument: str


def _find_readers(model: Model, source: Reference) -> Iterator[_Reader]:
    """Yield the layers that read an input unchanged, in nested models too."""
    todo: list[tuple[Model, Reference]] = [(model, source)]
    done: set[tuple[int, Reference]] = set()
    while todo:
        inside, wanted = todo.pop()
        if (id(inside), wanted) in done:
            continue
        done.add((id(inside), wanted))
        for layer in inside.layers.values():
            for number, call in enumerate(layer.calls):
                keyword = next((k for k, v in call.keywords.items() if wanted in references(v)), "")
                places = [i for i, r in enumerate(references(call.arguments)) if r == wanted]
                if not places and not keyword:
                    continue
                if layer.model is not None:
                    inner = list(references(layer.model.inputs))
                    todo += [(layer.model, inner[i]) for i in places if i < len(inner)]
                    continue
                wrapped = layer.config.get("layer")
                if isinstance(wrapped, Mapping) and isinstance(wrapped.get("config"), Mapping):
                    yield _Reader(str(wrapped.get("class_name")), wrapped["config"], keyword)
                yield _Reader(layer.class_name, layer.config, keyword)
                if layer.class_name in PASSING:
                    todo.append((inside, Reference(layer.name, number, 0)))


def _merge_hints(readers: Sequence[_Reader], vocabulary: Sequence[str]) -> Hint:
    if any("mask" in reader.argument for reader in readers):
        return Hint(is_mask=True)
    found = [h for h in (_layer_hint(r, vocabulary) for r in readers) if h is not None]
    integers = [h for h in found if h.high is not None]
    if integers:  # the range that is valid for all of them
        masked = next((h.masked for h in integers if h.masked is not None), None)
        high = min(h.high for h in integers if h.high is not None)
        return Hint(low=min(max(h.low for h in integers), high - 1), high=high, masked=masked)
    return found[0] if found else Hint()


def _layer_hint(reader: _Reader, vocabulary: Sequence[str]) -> Hint | None:
    """Return the values that a layer expects, if its configuration says so."""
    config = reader.config
    match reader.class_name:
        case "Embedding" if _is_size(config.get("input_dim")):
            size = config["input_dim"]
            if config.get("mask_zero"):
                return Hint(low=min(1, size - 1), high=size, masked=0)
            return Hint(high=size)
        case "CategoryEncoding" if _is_size(config.get("num_tokens")):
            return Hint(high=config["num_tokens"])
        case "StringLookup" | "TextVectorization":
            own = config.get("vocabulary")
            known = tuple(map(str, own)) if isinstance(own, list) else tuple(vocabulary)
            return Hint(words=(*known, WORDS[-1]) if known else WORDS)
        case "IntegerLookup" if isinstance(config.get("vocabulary"), list):
            numbers = [n for n in config["vocabulary"] if isinstance(n, int)]
            return Hint(words=(*numbers, max(numbers, default=0) + 7))
        case "Rescaling":
            return _rescaling_hint(config)
        case "Normalization" if config.get("mean") is not None:
            mean, variance = (_mean(config.get(k)) for k in ("mean", "variance"))
            return Hint(scale=abs(variance) ** 0.5 or 1.0, offset=mean)
        case "Discretization" if isinstance(config.get("bin_boundaries"), list):
            bounds = [float(b) for b in config["bin_boundaries"]] or [0.0]
            return Hint(
                scale=(max(bounds) - min(bounds)) / 2 or 1.0, offset=(max(bounds) + min(bounds)) / 2
            )
        case "Masking":
            return Hint(masked=_mean(config.get("mask_value", 0.0)))
    return None


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _rescaling_hint(config: Mapping[str, Any]) -> Hint:
    """Return the values that Rescaling (``x * scale + offset``) maps to numbers around zero."""
    scale, offset = _mean(config.get("scale", 1.0)) or 1.0, _mean(config.get("offset", 0.0))
    return Hint(scale=1 / abs(scale), offset=-offset / scale)


def _mean(value: Any) -> float:
    """Return a number, or the mean of nested lists of them; zero for anything else."""
    try:
        array = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        return 0.0
    return float(array.mean()) if array.size and np.isfinite(array).all() else 0.0
