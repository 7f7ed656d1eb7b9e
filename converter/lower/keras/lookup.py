"""Lookup of strings and integers in a vocabulary, and splitting of strings into words.

A vocabulary is in the configuration, or in a file of the archive, which `vocabularies` reads.
Lookups are LabelEncoder of ONNX's machine-learning domain.
Spec: https://github.com/keras-team/keras/tree/v3.15.0/keras/src/layers/preprocessing
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from converter.lower.builder import Builder
from converter.lower.graph import Attribute
from converter.lower.keras.model import Layer, Model
from converter.lower.keras.preprocessing import dense, dtype_named, encode
from converter.lower.keras.table import Roles, Unsupported, keras_layer
from converter.lower.values import Value
from formats.core.storage import Span
from formats.errors import LimitError
from formats.keras.variable_names import objects

ML = "ai.onnx.ml"
LARGEST = np.iinfo(np.int64).max  # what Keras makes of masked tokens, so that nothing counts them
FILE = "vocabulary.txt"
MAX_BYTES = 1 << 28  # of a vocabulary; the largest published ones have a hundredth of that


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The vocabulary of a layer.

    Attributes:
        tokens: Text or numbers, without the special ones.
        special: How many numbers come before those of the tokens.
        oov: Number of the first of those that unknown tokens have.
        oov_count: How many of those there are.
        oov_token: Token of an unknown index.
        mask: The token that is masked, or None.
    """

    tokens: Sequence[Any]
    special: int
    oov: int
    oov_count: int
    oov_token: Any
    mask: Any


def _vocabulary(
    given: Any, mask_token: Any, oov_token: Any, num_oov_indices: int, *, as_numbers: bool
) -> Vocabulary:
    """Return a vocabulary; its list of tokens begins with all special tokens or with none."""
    if not given:
        raise Unsupported("a vocabulary that is not recorded")
    oov = 1 if mask_token is not None and as_numbers else 0
    special = [mask_token] * oov + [oov_token] * num_oov_indices
    tokens = list(given)
    if special and tokens[: len(special)] == special:
        tokens = tokens[len(special) :]
    return Vocabulary(tokens, len(special), oov, num_oov_indices, oov_token, mask_token)


def _encoder(
    op: Builder, x: Value, keys: Sequence[Any], values: Sequence[Any], default: Any
) -> Value:
    """Return the value of each element in a table."""
    kinds = {"string": ("strings", str), "int64": ("int64s", int)}
    text = any(isinstance(v, str) for v in [*values, default])
    dtype = "string" if text else "int64"
    key_name, key_type = kinds[x.dtype]
    value_name, value_type = kinds[dtype]
    attributes: dict[str, Attribute] = {
        f"keys_{key_name}": [key_type(k) for k in keys],
        f"values_{value_name}": [value_type(v) for v in values],
        f"default_{value_name.removesuffix('s')}": value_type(default),
    }
    return op.node(
        "LabelEncoder", [x], [(dtype, x.shape)], attributes=attributes, stored=x.stored, domain=ML
    )[0]


def _indices_of_tokens(op: Builder, x: Value, words: Vocabulary, *, as_numbers: bool) -> Value:
    """Return the index of each token."""
    default = words.oov if words.oov_count == 1 else -1
    keys = list(words.tokens)
    values = [words.special + i for i in range(len(keys))]
    if words.mask is not None:
        keys, values = [words.mask, *keys], [0 if as_numbers else int(LARGEST), *values]
    found = _encoder(op, x, keys, values, default)
    if words.oov_count < 2:
        return found
    if x.dtype == "string":
        raise Unsupported("several numbers for unknown words, which are hashes of them")
    share = op.constant(words.oov_count, "int64")
    unknown = op.elementwise("Equal", found, op.constant(-1, "int64"))
    number = op.add(op.elementwise("Mod", x, share), op.constant(words.oov, "int64"))
    return op.where(unknown, number, found)


def _tokens_of_indices(op: Builder, x: Value, words: Vocabulary) -> Value:
    """Return the token of each index."""
    keys = [words.special + i for i in range(len(words.tokens))]
    values = list(words.tokens)
    if words.mask is not None:
        keys, values = [0, *keys], [words.mask, *values]
    return _encoder(op, op.cast(x, "int64"), keys, values, words.oov_token)


def _look_up(
    op: Builder, w: Roles, x: Value, words: Vocabulary, mode: str, *,
    invert: bool, max_tokens: int | None, pad_to_max_tokens: bool, idf_weights: Any, dtype: str,
) -> Value:  # fmt: skip
    """Look tokens up, and encode their indices."""
    if invert:
        return _tokens_of_indices(op, x, words)
    mode = {"binary": "multi_hot", "tf-idf": "tf_idf"}.get(mode, mode)
    numbers = _indices_of_tokens(op, x, words, as_numbers=mode == "int")
    if mode == "int":
        return numbers
    size = words.special + len(words.tokens)
    depth = int(max_tokens or size) if pad_to_max_tokens else size
    if mode != "tf_idf":
        return encode(op, numbers, mode, depth, dtype)
    counts = encode(op, numbers, "count", depth, "float32")
    return op.mul(counts, _idf_weights(op, w, words, depth, idf_weights))


def _idf_weights(op: Builder, w: Roles, words: Vocabulary, depth: int, given: Any) -> Value:
    """Return the weight of each token; special tokens without a weight get the mean."""
    if "idf_weights" in w:
        return op.cast(w.exact("idf_weights"), "float32")
    if given is None:
        raise Unsupported("weights of tokens that are not recorded")
    weights = np.asarray(given, np.float64)
    if len(weights) == len(words.tokens):
        weights = np.concatenate([np.full(words.special, weights.mean()), weights])
    weights = np.concatenate([weights, np.zeros(depth - len(weights))])
    return op.constant(weights, "float32")


@keras_layer("IntegerLookup")
def integer_lookup(
    op: Builder, w: Roles, x: Value, /, *,
    max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: int | None = None,
    oov_token: int = -1, vocabulary: Any = None, vocabulary_dtype: str = "int64",
    idf_weights: Any = None, invert: bool = False, output_mode: str = "int", sparse: bool = False,
    pad_to_max_tokens: bool = False, oov_method: str = "floormod", salt: Any = None,
    vocabulary_size: int | None = None, has_input_vocabulary: bool = True, dtype: Any = None,
    encodes_as: str = "int64",
) -> Value:  # fmt: skip
    """The index of each integer in a vocabulary, or its encoding, or the inverse lookup."""
    del vocabulary_dtype, salt, vocabulary_size, has_input_vocabulary
    dense(sparse)
    if oov_method != "floormod" and num_oov_indices > 1:
        raise Unsupported(f"oov_method {oov_method!r}")
    as_numbers = output_mode == "int"
    words = _vocabulary(vocabulary, mask_token, oov_token, num_oov_indices, as_numbers=as_numbers)
    return _look_up(
        op, w, op.cast(x, "int64"), words, output_mode, invert=invert, max_tokens=max_tokens,
        pad_to_max_tokens=pad_to_max_tokens, idf_weights=idf_weights,
        dtype=dtype_named(dtype, "float32") if encodes_as == "policy" else encodes_as,
    )  # fmt: skip


@keras_layer("StringLookup")
def string_lookup(
    op: Builder, w: Roles, x: Value, /, *,
    max_tokens: int | None = None, num_oov_indices: int = 1, mask_token: str | None = None,
    oov_token: str = "[UNK]", vocabulary: Any = None, idf_weights: Any = None,  # noqa: S107
    invert: bool = False, output_mode: str = "int", pad_to_max_tokens: bool = False,
    sparse: bool = False, encoding: str = "utf-8", salt: Any = None,
    vocabulary_size: int | None = None, has_input_vocabulary: bool = True, dtype: Any = None,
    oov_method: str = "farmhash", encodes_as: str = "int64",
) -> Value:  # fmt: skip
    """The index of each string in a vocabulary, or its encoding, or the inverse lookup."""
    del encoding, salt, vocabulary_size, has_input_vocabulary, oov_method
    dense(sparse)
    as_numbers = output_mode == "int"
    words = _vocabulary(vocabulary, mask_token, oov_token, num_oov_indices, as_numbers=as_numbers)
    return _look_up(
        op, w, x, words, output_mode, invert=invert, max_tokens=max_tokens,
        pad_to_max_tokens=pad_to_max_tokens, idf_weights=idf_weights,
        dtype=dtype_named(dtype, "float32") if encodes_as == "policy" else encodes_as,
    )  # fmt: skip


@keras_layer("TextVectorization")
def text_vectorization(
    op: Builder, w: Roles, x: Value, /, *,
    max_tokens: int | None = None, standardize: Any = "lower_and_strip_punctuation",
    split: Any = "whitespace", ngrams: Any = None, output_mode: str = "int",
    output_sequence_length: int | None = None, pad_to_max_tokens: bool = False,
    vocabulary: Any = None, idf_weights: Any = None, sparse: bool = False, ragged: bool = False,
    encoding: str = "utf-8", vocabulary_size: int | None = None,
    has_input_vocabulary: bool = True, encodes_as: str = "int64",
) -> Value:  # fmt: skip
    """The indices of the words of strings, which are split at whitespace or not at all."""
    del encoding, vocabulary_size, has_input_vocabulary
    dense(sparse)
    if standardize is not None:
        raise Unsupported(f"standardize {standardize!r}, for which ONNX has no operator")
    if ngrams is not None or ragged:
        raise Unsupported("ngrams" if ngrams is not None else "ragged output")
    if split not in (None, "whitespace"):
        raise Unsupported(f"split {split!r}")
    words = _vocabulary(vocabulary, "", "[UNK]", 1, as_numbers=output_mode == "int")
    found = _look_up(
        op, w, _split(op, x) if split else x, words, output_mode, invert=False,
        max_tokens=max_tokens, pad_to_max_tokens=pad_to_max_tokens, idf_weights=idf_weights,
        dtype="float32" if encodes_as == "policy" else encodes_as,
    )  # fmt: skip
    if output_mode != "int" or output_sequence_length is None:
        return found
    return _of_length(op, found, output_sequence_length)


def _split(op: Builder, x: Value) -> Value:
    """Split strings at whitespace; shorter ones are padded with empty words."""
    if op.graph.opset < 20:
        raise Unsupported("split 'whitespace', which takes opset=20")
    text = op.plain(op.squeeze(x, [-1]) if x.rank > 1 else x)
    parts = ("string", (*text.shape, None)), ("int64", text.shape)
    return op.node("StringSplit", [text], parts)[0]


def _of_length(op: Builder, x: Value, length: int) -> Value:
    """Cut or pad the last axis to a length."""
    longer = op.pad(x, [0] * x.rank, [*[0] * (x.rank - 1), length])
    cut = op.slice(longer, [-1], [0], [length])
    return replace(cut, shape=(*cut.shape[:-1], length))


# -- files ---------------------------------------------------------------------------------------


def vocabularies(model: Model, config: Any, assets: Mapping[str, Span]) -> Model:
    """Return a model whose layers have the vocabularies that an archive keeps in files.

    Args:
        model: Model, as its configuration describes it.
        config: That configuration.
        assets: Files of the archive: ``<path of the layer in the weight store>/vocabulary.txt``.

    Raises:
        LimitError: One is too large.
    """
    folders = {
        name.removesuffix(f"/{FILE}"): span for name, span in assets.items() if name.endswith(FILE)
    }
    if not folders:
        return model
    named = objects(config, list(folders))
    for folder, span in folders.items():
        parts = folder.split("/")
        places = ("/".join(parts[:n]) for n in range(1, len(parts) + 1))
        path = [str(found.name) for place in places if (found := named.get(place)) and found.name]
        model = _with(model, path, span)
    return model


def _with(model: Model, path: Sequence[str], span: Span) -> Model:
    if not path or path[0] not in model.layers:
        return model
    layer = model.layers[path[0]]
    if layer.model is not None:
        changed = replace(layer, model=_with(layer.model, path[1:], span))
    else:
        changed = _with_words(layer, span)
    return replace(model, layers={**model.layers, path[0]: changed})


def _with_words(layer: Layer, span: Span) -> Layer:
    if layer.config.get("vocabulary"):
        return layer
    if span.length > MAX_BYTES:
        raise LimitError(f"a vocabulary of {span.length} bytes", where=span.name)
    lines = bytes(span.read()).decode("utf-8").split("\n")
    while lines and not lines[-1]:
        lines.pop()
    tokens = [int(n) for n in lines] if layer.class_name == "IntegerLookup" else lines
    return replace(layer, config={**layer.config, "vocabulary": tokens})
