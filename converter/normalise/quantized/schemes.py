"""The table of quantisation schemes, and bundles with their weights as floats.

To add a scheme: a module with ``PARTS``, which finds the tensors of a layer by their names, and
``dequantize``, which returns the weight of one; and a row here.
"""

import json
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from converter.normalise.quantized import (
    awq,
    bitsandbytes,
    compressed_tensors,
    float8,
    gptq,
    mxfp4,
    torchao,
)
from converter.normalise.quantized.forms import Dequantized, FindForm
from converter.normalise.quantized.layer import Layer, Settings
from formats import hugging_face
from formats.containers import jsontext
from formats.core.bundle import JSON, Bundle, LeftOut, Normalisation
from formats.core.storage import Buffer, Span
from formats.core.weights import Tensor
from formats.errors import UnsupportedError, UsageError


class Scheme(NamedTuple):
    """A way to quantise.

    Attributes:
        methods: As ``quant_method`` names it.
        parts: Finds the tensors of a layer; None: the metadata of the file names them.
        dequantize: Returns a layer's weight.
    """

    methods: tuple[str, ...]
    parts: re.Pattern[str] | None
    dequantize: Callable[[Layer], Dequantized]


# fmt: off
SCHEMES = (
    Scheme(("gptq",),                 gptq.PARTS,               gptq.dequantize),
    Scheme(("awq",),                  gptq.PARTS,               awq.dequantize),
    Scheme(("bitsandbytes",),         bitsandbytes.PARTS,       bitsandbytes.dequantize),
    Scheme(("compressed-tensors",),   compressed_tensors.PARTS, compressed_tensors.dequantize),
    Scheme(("fp8", "fbgemm_fp8"),     float8.PARTS,             float8.dequantize),
    Scheme(("mxfp4",),                mxfp4.PARTS,              mxfp4.dequantize),
    Scheme(("torchao",),              None,                     torchao.dequantize),
)
# fmt: on
# Scales of what flows through a layer: floats have no use for them.
OF_ACTIVATIONS = re.compile(r".+\.(input|output|[qkv])_(scale|zero_point|global_scale|g_idx)")


def dequantize(bundle: Bundle) -> Bundle:
    """Return a bundle whose quantised weights are floats, and whose configuration says so.

    Raises:
        ConvertError: As `find_floats`.
    """
    floats, forms = find_floats(bundle)
    scheme = bundle.topology.summary.get("quantization") if bundle.topology else None
    return with_changes(floats, [Normalisation("weights dequantised", len(forms), str(scheme))])


def with_changes(bundle: Bundle, changes: Sequence[Normalisation]) -> Bundle:
    """Return a bundle that records more changes."""
    known = bundle.metadata.normalisations
    return replace(bundle, metadata=replace(bundle.metadata, normalisations=(*known, *changes)))


def find_floats(bundle: Bundle) -> tuple[Bundle, dict[Hashable, FindForm]]:
    """Return a bundle whose quantised weights are floats, and what finds the form of each.

    Forms are by the identity of the float tensor, which keeps it under any name.

    Raises:
        UsageError: Nothing says that the weights are quantised.
        UnsupportedError: By a scheme, or in a form of it, that is not known.
        CorruptError: Tensors of a layer are missing, or do not fit each other.
    """
    content = bundle.topology.content if bundle.topology else None
    settings = hugging_face.find_quantization(content)
    if settings is None:
        raise UsageError("dequantize=True, and the source names no quantisation of its weights")
    method = settings["quant_method"]
    scheme = next((s for s in SCHEMES if find_method(settings) in s.methods), None)
    if scheme is None:
        known = ", ".join(name for s in SCHEMES for name in s.methods)
        raise UnsupportedError(f"dequantisation of {method}", hint=f"supported: {known}")
    model: Settings = content if isinstance(content, dict) else {}
    layers = (
        _of_metadata(bundle, model) if scheme.parts is None
        else _of_names(bundle.weights, scheme.parts, settings, model)
    )  # fmt: skip
    if not layers:
        raise UnsupportedError(f"holds no weights quantised by {method}")
    used = {id(part): layer for layer in layers for part in layer.parts.values()}
    weights: dict[str, Tensor] = {}
    forms: dict[Hashable, FindForm] = {}
    left_out = []
    for name, tensor in bundle.weights.items():
        if id(tensor) in used:
            layer = used[id(tensor)]
            if layer.name not in weights:
                floats, find_form = scheme.dequantize(layer)
                weights[layer.name], forms[floats.identity] = floats, find_form
        elif OF_ACTIVATIONS.fullmatch(name):
            left_out.append(LeftOut(name, "a scale of activations, which are floats now"))
        else:
            weights[name] = tensor
    metadata = replace(
        bundle.metadata,
        user=_other_notes(bundle.metadata.user) if scheme.parts is None else bundle.metadata.user,
        left_out=(*bundle.metadata.left_out, *left_out),
    )
    return _without_settings(replace(bundle, weights=weights, metadata=metadata)), forms


def find_method(settings: Settings) -> str:
    """Return the method, of auto-round's the one whose tensors it writes."""
    method = str(settings.get("quant_method")).lower()
    if method in ("auto-round", "auto_round", "intel/auto-round"):
        return "awq" if "awq" in str(settings.get("packing_format")) else "gptq"
    return method


def _of_names(
    weights: Mapping[str, Tensor], parts: re.Pattern[str], settings: Settings, model: Settings
) -> list[Layer]:
    """Return the layers whose tensors' names say that they are quantised."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in weights.items():
        if match := parts.fullmatch(name):
            groups = match.groupdict()
            role = next(v for k, v in groups.items() if k != "layer" and v)
            found.setdefault(groups["layer"], {})[role] = tensor
    made = []
    for module, tensors in found.items():
        name = module if parts is mxfp4.PARTS else f"{module}.weight"
        if name in weights:
            tensors["weight"] = weights[name]
        made.append(Layer(name, tensors, settings, model))
    return made


def _parse(text: str, where: str) -> JSON:
    """Return what the description of a tensor says.

    Raises:
        CorruptError: It is no JSON.
    """
    return jsontext.parse(text, where=where, limit=len(text) * 4)


def _of_metadata(bundle: Bundle, model: Settings) -> list[Layer]:
    """Return the layers that the metadata of safetensors files describes (torchao)."""
    made = []
    for name, text in bundle.metadata.user.items():
        description = _parse(text, name) if isinstance(text, str) and text.startswith("{") else None
        roles = None
        if isinstance(description, dict):
            roles = description.get("_tensor_data_names")
        if not isinstance(description, dict) or not isinstance(roles, list):
            continue
        module, _, last = name.rpartition(".")
        names = {str(role): f"{module}._{last}_{role}" for role in roles}
        parts = {role: bundle.weights[n] for role, n in names.items() if n in bundle.weights}
        made.append(Layer(name, parts, description, model))
    return made


def _other_notes(user: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the notes that describe no tensors."""
    return {
        k: v for k, v in user.items()
        if k != "tensor_names" and not (isinstance(v, str) and v.startswith('{"_type"'))
    }  # fmt: skip


def _without_settings(bundle: Bundle) -> Bundle:
    """Return the bundle with a configuration that tells of no quantisation."""
    topology, assets = bundle.topology, dict(bundle.assets)
    for name in hugging_face.QUANTIZATION_FILES:
        assets.pop(name, None)
    if topology is None or not isinstance(topology.content, dict):
        return replace(bundle, assets=assets)
    content = hugging_face.without_quantization(topology.content)
    if hugging_face.CONFIG in assets:
        text = json.dumps(content, indent=2, ensure_ascii=False).encode() + b"\n"
        assets[hugging_face.CONFIG] = Span.whole(Buffer(text, hugging_face.CONFIG))
    summary = {k: v for k, v in topology.summary.items() if k != "quantization"}
    changed = replace(topology, content=content, summary=summary)
    return replace(bundle, topology=changed, assets=assets)
