"""The programs that a model of Hugging Face's becomes: one, or its encoder and its decoder apart.

Imports nothing of the project, as the other files of the child. Names of programs, inputs and
outputs are those that Optimum's runtime classes look for. The keys and values that a decoder keeps
between steps are inputs and outputs of it if the task ends in `WITH_PAST`: of an encoder-decoder
model they take two programs, one for the first step, which also computes what the encoder's states
become, and one for the others.
Spec: https://huggingface.co/docs/optimum-onnx/onnxruntime/package_reference/modeling_ort
"""

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

WITH_PAST = "-with-past"
# Tasks of models that generate from what an encoder has read.
SEQUENCE_TASKS = ("text2text-generation", "automatic-speech-recognition", "image-to-text")
ENCODER, DECODER, DECODER_WITH_PAST = "encoder_model", "decoder_model", "decoder_with_past_model"
PARTS = (ENCODER, DECODER, DECODER_WITH_PAST)  # signatures of the graphs, and stems of their files
TEXT = ["batch", "sequence"]
PAST, TOTAL = "past_sequence", "past_sequence + sequence"  # of keys; of what a mask covers
EXAMPLE_SIZE = {"float32": 1600, "int64": 4}  # of free axes, in the input that tells sizes

Specs = list[dict[str, Any]]


class Part(NamedTuple):
    """A program: its name, the module that computes it, and name, dtype and shape of its inputs."""

    name: str
    module: Any
    inputs: Specs


def split_model(
    torch: Any, model: Any, inputs: Specs, task: str | None, part: str | None = None
) -> list[Part]:
    """Return the programs of a model.

    Args:
        torch: The module.
        model: The model.
        inputs: Its inputs.
        task: What it is for; None is what its configuration says.
        part: The only program that is wanted, one of `PARTS`; None is all of them.

    Raises:
        ValueError: Its cache is no plain list of keys and values, or it has no such part.
    """
    keeps_past = task is not None and task.endswith(WITH_PAST)
    takes_encoded = "encoder_outputs" in inspect.signature(model.forward).parameters
    if takes_encoded and (part or (task or "").removesuffix(WITH_PAST) in SEQUENCE_TASKS):
        made = _Sequences(torch, model, inputs)
        wanted = PARTS if keeps_past else PARTS[:2]
        return [made.part(name, keeps_past=keeps_past) for name in ([part] if part else wanted)]
    if part:
        raise ValueError(f"{type(model).__name__} has no {part}")
    if keeps_past:
        return [_decoder_with_past(torch, model, inputs)]
    return [Part("", as_module(torch, model, inputs, _call), inputs)]


def as_module(torch: Any, model: Any, inputs: Specs, call: Callable[..., dict[str, Any]]) -> Any:
    """Return a module whose ``forward`` takes the inputs and returns tensors by name."""
    names = ["self", *(spec["name"] for spec in inputs)]
    own = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    signature = inspect.Signature(own)

    def forward(self: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        given = dict(signature.bind(self, *args, **kwargs).arguments)
        del given["self"]
        result = call(self.model, given)
        return {name: value for name, value in result.items() if isinstance(value, torch.Tensor)}

    forward.__signature__ = signature  # type: ignore[attr-defined]
    module = type(type(model).__name__, (torch.nn.Module,), {"forward": forward})()
    module.model = model
    return module


def _call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    result = model(**given, return_dict=True)
    return {name: value for name, value in result.items() if name != "loss"}


# -- keys and values -----------------------------------------------------------------------------


def _plain_layers(cache: Any) -> list[Any]:
    """Return the layers of a cache.

    Raises:
        ValueError: They are no plain keys and values.
    """
    layers = getattr(cache, "layers", None) or []
    if not layers or any(type(layer).__name__ != "DynamicLayer" for layer in layers):
        raise ValueError("a key-value cache that is no plain list of keys and values")
    return layers


def _past_inputs(layers: list[Any], role: str, length: int | str) -> Iterator[dict[str, Any]]:
    """Yield the inputs of each layer's keys and values; ``role`` follows the layer's number."""
    for i, layer in enumerate(layers):
        for kind, tensor in (("key", layer.keys), ("value", layer.values)):
            called = f"past_key_values.{i}.{role}{kind}"
            _, heads, _, width = tensor.shape
            yield {
                "name": called.replace(".", "__"), "called": called,
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "shape": ["batch", heads, length, width],
            }  # fmt: skip


def _fill(cache: Any, given: Mapping[str, Any], role: str) -> Any:
    """Return a cache that holds the keys and values among the inputs of a program."""
    layer_class = importlib.import_module("transformers.cache_utils").DynamicLayer
    i = 0
    while (key := given.get(f"past_key_values__{i}__{role}key")) is not None:
        if i == len(cache.layers):
            cache.layers.append(layer_class())
        layer = cache.layers[i]
        layer.keys, layer.values = key, given[f"past_key_values__{i}__{role}value"]
        layer.dtype, layer.device, layer.is_initialized = key.dtype, key.device, True
        i += 1
    return cache


def _present(cache: Any, role: str) -> dict[str, Any]:
    """Return the keys and values of a cache as outputs of a program."""
    found: dict[str, Any] = {}
    for i, layer in enumerate(cache.layers):
        found |= {f"present.{i}.{role}key": layer.keys, f"present.{i}.{role}value": layer.values}
    return found


def _decoder_with_past(torch: Any, model: Any, inputs: Specs) -> Part:
    """Return a decoder whose key-value cache is among its inputs and outputs."""
    transformers: Any = importlib.import_module("transformers")
    kept = [spec for spec in inputs if spec["name"] in ("input_ids", "attention_mask")]
    if "position_ids" in inspect.signature(model.forward).parameters:
        kept.append({"name": "position_ids", "dtype": "int64", "shape": TEXT})
    example = torch.ones(1, 2, dtype=torch.int64, device=model.device)
    with torch.no_grad():
        cache = model(input_ids=example, use_cache=True).past_key_values
    kept += _past_inputs(_plain_layers(cache), "", PAST)
    for spec in kept:
        if spec["name"] == "attention_mask":
            spec["shape"] = ["batch", TOTAL]

    def call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        past = _fill(transformers.DynamicCache(config=model.config), given, "")
        rest = {name: value for name, value in given.items() if "__" not in name}
        result = model(**rest, past_key_values=past, use_cache=True, return_dict=True)
        return {"logits": result["logits"]} | _present(past, "")

    return Part("", as_module(torch, model, kept, call), kept)


# -- encoder and decoder -------------------------------------------------------------------------


class _Sequences:
    """A model that generates a sequence from an encoded one, as the programs of its parts."""

    def __init__(self, torch: Any, model: Any, inputs: Specs) -> None:
        self.torch, self.model, self.encoder = torch, model, model.get_encoder()
        self.transformers: Any = importlib.import_module("transformers")
        taken = inspect.signature(self.encoder.forward).parameters
        self.inputs = [spec for spec in inputs if spec["name"] in taken]
        self.has_mask = any(spec["name"] == "attention_mask" for spec in self.inputs)
        with torch.no_grad():
            states = self.encoder(**self._example(), return_dict=True)["last_hidden_state"]
        is_free = any(isinstance(n, str) for spec in self.inputs for n in spec["shape"][1:])
        length = "encoder_sequence" if is_free else states.shape[1]
        self.states: dict[str, Any] = {
            "name": "encoder_hidden_states", "dtype": str(states.dtype).removeprefix("torch."),
            "shape": ["batch", length, states.shape[2]],
        }  # fmt: skip
        start = {"input_ids": torch.ones(1, 2, dtype=torch.int64), "encoder_hidden_states": states}
        with torch.no_grad():
            cache = self.decode(model, start, self._new_cache())[1]
        own, encoded = cache.self_attention_cache, cache.cross_attention_cache
        self.past = [
            *_past_inputs(_plain_layers(own), "decoder.", PAST),
            *_past_inputs(_plain_layers(encoded), "encoder.", length),
        ]
        self.past.sort(key=lambda spec: int(spec["called"].split(".")[1]))

    def part(self, name: str, *, keeps_past: bool) -> Part:
        """Return a program by its name in `PARTS`.

        Args:
            name: Of the program.
            keeps_past: Whether the decoder of the first step returns its keys and values.
        """
        if name == ENCODER:
            return Part(name, self._module(self.encoder, self.inputs, self.encode), self.inputs)
        given = [{"name": "input_ids", "dtype": "int64", "shape": TEXT}]
        if self.has_mask:
            shape = self.states["shape"][:2]
            given.append({"name": "encoder_attention_mask", "dtype": "int64", "shape": shape})
        given += self.past if name == DECODER_WITH_PAST else [self.states]
        call = {DECODER: self._first if keeps_past else self._alone}.get(name, self._next)
        return Part(name, self._module(self.model, given, call), given)

    def _module(self, model: Any, inputs: Specs, call: Callable[..., dict[str, Any]]) -> Any:
        return as_module(self.torch, model, inputs, call)

    def encode(self, encoder: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the encoder makes of its inputs."""
        return {"last_hidden_state": encoder(**given, return_dict=True)["last_hidden_state"]}

    def decode(self, model: Any, given: Mapping[str, Any], cache: Any) -> tuple[Any, Any]:
        """Return logits and cache after a step."""
        outputs = importlib.import_module("transformers.modeling_outputs")
        states = outputs.BaseModelOutput(last_hidden_state=given["encoder_hidden_states"])
        mask = given.get("encoder_attention_mask")
        result = model(
            decoder_input_ids=given["input_ids"], encoder_outputs=states,
            past_key_values=cache, use_cache=cache is not None, return_dict=True,
            **({} if mask is None else {"attention_mask": mask}),
        )  # fmt: skip
        return result["logits"], cache

    def _alone(self, model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"logits": self.decode(model, given, None)[0]}

    def _first(self, model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        logits, cache = self.decode(model, given, self._new_cache())
        own, encoded = cache.self_attention_cache, cache.cross_attention_cache
        present = _present(own, "decoder.") | _present(encoded, "encoder.")
        ordered = sorted(present, key=lambda name: int(name.split(".")[1]))
        return {"logits": logits} | {name: present[name] for name in ordered}

    def _next(self, model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        cache = self._new_cache(given)
        # Of the encoder's states only the size is read: the cache has what they become.
        length = cache.cross_attention_cache.layers[0].keys.shape[2]
        states = given["past_key_values__0__encoder__key"].new_zeros(
            (given["input_ids"].shape[0], length, self.states["shape"][2]),
            dtype=getattr(self.torch, self.states["dtype"]),
        )
        logits, cache = self.decode(model, {**given, "encoder_hidden_states": states}, cache)
        return {"logits": logits} | _present(cache.self_attention_cache, "decoder.")

    def _new_cache(self, given: Mapping[str, Any] | None = None) -> Any:
        caches = [
            _fill(self.transformers.DynamicCache(), given or {}, role)
            for role in ("decoder__", "encoder__")
        ]
        cache = self.transformers.EncoderDecoderCache(*caches)
        cache.is_updated = dict.fromkeys(range(len(caches[1].layers)), True)
        return cache

    def _example(self) -> dict[str, Any]:
        """Return inputs of the encoder, of one element."""
        made = {}
        for spec in self.inputs:
            free = EXAMPLE_SIZE[spec["dtype"]]
            sizes = [1, *(n if isinstance(n, int) else free for n in spec["shape"][1:])]
            dtype = getattr(self.torch, spec["dtype"])
            made[spec["name"]] = self.torch.ones(sizes, dtype=dtype, device=self.model.device)
        return made
