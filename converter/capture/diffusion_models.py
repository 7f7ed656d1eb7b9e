"""Load a component of a pipeline of diffusers, and declare its inputs.

Imports nothing of the project, as the other files of the child. diffusers, or transformers for
encoders of text, makes the class that ``config.json`` names and loads its weights, without network.
An autoencoder becomes two programs. Names of programs, inputs and outputs are those that Optimum's
pipelines look for. Spec:
https://huggingface.co/docs/optimum-onnx/onnxruntime/package_reference/modeling_diffusion
"""

import importlib
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ENCODER, DECODER = "encoder", "decoder"
IMAGE = ["height", "width"]
AUTOENCODERS = ("Autoencoder", "AsymmetricAutoencoder", "VQModel")
# Pipelines that read the hidden states of their text encoders, besides those of T5.
DEEP_PIPELINES = ("StableDiffusionXL", "StableDiffusion3")
DIMENSIONS = 3  # of a position in Flux

Specs = list[dict[str, Any]]
Program = tuple[str, Any, Specs, Any]  # name, model, inputs and call


def load(
    torch: Any, folder: Path, device: str, pretrained: Any, model_inputs: Any
) -> list[Program]:
    """Return the programs of a component: name, model, inputs and call of each.

    Args:
        torch: The module.
        folder: The component's folder.
        device: Name of the device in torch.
        pretrained: The module that loads transformers' models.
        model_inputs: The module that declares their inputs.

    Raises:
        IncompleteError: Tensors of the model are missing.
        ValueError: The class is none of diffusers' models, or its inputs are not known.
        Exception: Whatever diffusers raises.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    pipeline = _read_json(folder.parent / "model_index.json")
    called = folder.name if pipeline else ""
    if "_class_name" not in config:
        return [(called, *_text_encoder(folder, device, pipeline, pretrained, model_inputs))]
    name = str(config["_class_name"])
    diffusers: Any = importlib.import_module("diffusers")
    found = getattr(diffusers, name, None)
    if not isinstance(found, type) or not issubclass(found, diffusers.ModelMixin):
        raise ValueError(f"diffusers has no model {name}")  # noqa: TRY004 - what it is, the file says
    cls: Any = found
    model, report = cls.from_pretrained(
        folder, torch_dtype=_stored_dtype(torch, folder), local_files_only=True,
        low_cpu_mem_usage=False, output_loading_info=True, variant=_find_variant(folder),
    )  # fmt: skip
    missing = sorted(report["missing_keys"])
    if missing:
        raise pretrained.IncompleteError(f"lacks tensors of {name} ({len(missing)}): {missing[0]}")
    model = model.eval().to(device)
    declare = _Declaration(model, str(model.dtype).removeprefix("torch."), pipeline)
    if not name.startswith(AUTOENCODERS):
        return [(called, model, *declare.denoiser(name))]
    takes, gives = declare.autoencoder()
    called = called or "vae"
    return [
        (f"{called}_{ENCODER}", model, takes, _encode),
        (f"{called}_{DECODER}", model, gives, _decode),
    ]


def _read_json(path: Path) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return found if isinstance(found, dict) else {}


def _find_variant(folder: Path) -> str | None:
    """Return the variant of the weights, where there is no file without one."""
    names = sorted(path.name for path in folder.glob("diffusion_pytorch_model*"))
    plain = [name for name in names if len(name.split(".")) == 2 or ".index.json" in name]
    found = [name.split(".")[1] for name in names if name.endswith(".safetensors")]
    return None if plain or not found else found[0]


def _stored_dtype(torch: Any, folder: Path) -> Any:
    """Return the dtype of the first floating tensor; the library itself reads float32."""
    for path in sorted(folder.glob("*.safetensors")):
        with importlib.import_module("safetensors").safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                dtype = file.get_tensor(name).dtype
                if dtype.is_floating_point:
                    return dtype
    for path in sorted(folder.glob("*.bin")):
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return next((t.dtype for t in tensors.values() if t.dtype.is_floating_point), None)
    return None


# -- text ----------------------------------------------------------------------------------------


def _text_encoder(
    folder: Path, device: str, pipeline: Mapping[str, Any], pretrained: Any, model_inputs: Any
) -> tuple[Any, Specs, Any]:
    """Return an encoder of a prompt, its inputs and call.

    Hidden states are among the outputs where the pipeline reads them.
    """
    model, _ = pretrained.load(folder, device, {}, None)
    inputs, _ = model_inputs.declare_inputs(model, model.config, folder)
    is_clip = type(model).__name__.startswith("CLIPText")
    is_deep = is_clip and str(pipeline.get("_class_name")).startswith(DEEP_PIPELINES)
    # Optimum's pipelines feed these without a mask, and others as the model has them.
    only = ("input_ids",) if is_clip or type(model).__name__ == "T5EncoderModel" else None
    kept = [spec for spec in inputs if only is None or spec["name"] in only]

    def call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
        result = dict(model(**given, output_hidden_states=is_deep, return_dict=True))
        states = result.pop("hidden_states", ())
        return result | {f"hidden_states.{i}": value for i, value in enumerate(states)}

    return model, kept, call


# -- models of diffusers -------------------------------------------------------------------------


class _Declaration:
    """What a model of diffusers takes and returns.

    Inputs that are not the model's own parameters, such as ``text_embeds``, are passed on in
    ``added_cond_kwargs``.
    """

    def __init__(self, model: Any, dtype: str, pipeline: Mapping[str, Any]) -> None:
        self.model, self.dtype, self.pipeline = model, dtype, pipeline
        self.config = model.config
        blocks = self.config.get("down_block_types") or self.config.get("block_out_channels") or ()
        self.factor = 2 ** max(len(blocks) - 1, 0)  # by which it shrinks images
        if "decoder_block_out_channels" in self.config:
            self.factor = 2 ** (len(self.config["decoder_block_out_channels"]) - 1)

    def spec(self, name: str, shape: Sequence[Any], dtype: str | None = None) -> dict[str, Any]:
        """Return the spec of an input, by default of the model's own dtype."""
        return {"name": name, "dtype": dtype or self.dtype, "shape": [*shape]}

    def image(self, name: str, channels: int, unit: int, scale: int = 1) -> dict[str, Any]:
        """Return the spec of an image whose height and width are free.

        Args:
            name: Of the input.
            channels: Number of channels.
            unit: Sizes of the example are multiples of it.
            scale: Of the model's own size, where both have to be fixed.
        """
        size = self.config.get("sample_size") or 8 * unit * scale
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        sizes = {"height": [4 * unit, height // scale], "width": [6 * unit, width // scale]}
        return self.spec(name, ["batch", channels, *IMAGE]) | {"sizes": sizes}

    # -- autoencoders

    def autoencoder(self) -> tuple[Specs, Specs]:
        """Return the inputs of the encoder, and of the decoder."""
        latent = self.config.get("latent_channels", 4)
        takes = [self.image("sample", self.config.get("in_channels", 3), self.factor)]
        gives = [self.image("latent_sample", latent, 2, self.factor)]
        return takes, gives

    # -- denoisers

    def denoiser(self, name: str) -> tuple[Specs, Any]:
        """Return the inputs and the call of a model that predicts noise.

        Raises:
            ValueError: Its inputs are not known.
        """
        known = {
            "UNet2DConditionModel": self.conditional, "UNet2DModel": self.unconditional,
            "ControlNetModel": self.control, "SD3Transformer2DModel": self.sd3,
            "FluxTransformer2DModel": self.flux,
        }  # fmt: skip
        if name not in known:
            raise ValueError(f"inputs of {name} are not known, only of {', '.join(known)}")
        inputs = known[name]()
        output = "out_hidden_states" if "Transformer" in name else "out_sample"
        own = inspect.signature(self.model.forward).parameters

        def call(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
            passed = {n: v for n, v in given.items() if n in own}
            if added := {n: v for n, v in given.items() if n not in own}:
                passed["added_cond_kwargs"] = added
            result = model(**passed, return_dict=True)
            if "sample" in result:
                return {output: result["sample"]}
            blocks = result["down_block_res_samples"]
            found = {f"down_block_res_samples.{i}": value for i, value in enumerate(blocks)}
            return found | {"mid_block_res_sample": result["mid_block_res_sample"]}

        return inputs, call

    def unconditional(self) -> Specs:
        """Return the inputs of a UNet."""
        specs = [
            self.image("sample", self.config["in_channels"], self.factor),
            self.spec("timestep", []),
        ]
        if self.config.get("num_class_embeds") is not None:
            specs.append(self.spec("class_labels", ["batch"], "int64"))
        return specs

    def conditional(self) -> Specs:
        """Return the inputs of a UNet that reads a prompt, and what its embeddings add."""
        config, kind = self.config, self.config.get("addition_embed_type")
        specs = self.unconditional()
        width = config.get("encoder_hid_dim") or config["cross_attention_dim"]
        width = width[0] if isinstance(width, (list, tuple)) else width
        if config.get("encoder_hid_dim_type") == "image_proj":  # of Kandinsky: no prompt
            specs.append(self.spec("image_embeds", ["batch", width]))
        elif config.get("encoder_hid_dim_type") in (None, "text_proj"):
            specs.append(self.spec("encoder_hidden_states", ["batch", "sequence", width]))
        else:
            raise ValueError(f"encoder_hid_dim_type {config['encoder_hid_dim_type']!r}")
        if kind == "text_time":
            count = 5 if self.pipeline.get("requires_aesthetics_score") else 6
            inner = count * config["addition_time_embed_dim"]
            embeds = config["projection_class_embeddings_input_dim"] - inner
            specs.append(self.spec("text_embeds", ["batch", embeds]))
            specs.append(self.spec("time_ids", ["batch", count]))
        elif kind not in (None, "text", "image"):
            raise ValueError(f"addition_embed_type {kind!r}")
        if config.get("time_cond_proj_dim") is not None:
            specs.append(self.spec("timestep_cond", ["batch", config["time_cond_proj_dim"]]))
        return specs

    def control(self) -> Specs:
        """Return the inputs of a ControlNet."""
        latent, *rest = self.conditional()
        scale = 2 ** (len(self.config["conditioning_embedding_out_channels"]) - 1)
        picture = self.spec("controlnet_cond", ["batch", 3, "cond_height", "cond_width"])
        picture["sizes"] = {
            f"cond_{name}": [scale * n for n in sizes] for name, sizes in latent["sizes"].items()
        }
        return [latent, *rest, picture]

    def joint(self) -> Specs:
        """Return the inputs of a transformer besides the image."""
        width = self.config["joint_attention_dim"]
        return [
            self.spec("encoder_hidden_states", ["batch", "sequence", width]),
            self.spec("pooled_projections", ["batch", self.config["pooled_projection_dim"]]),
            self.spec("timestep", ["batch"]),
        ]

    def sd3(self) -> Specs:
        """Return the inputs of the transformer of Stable Diffusion 3."""
        config = self.config
        return [
            self.image("hidden_states", config["in_channels"], config["patch_size"]),
            self.spec(
                "encoder_hidden_states", ["batch", "sequence", config["joint_attention_dim"]]
            ),
            self.spec("pooled_projections", ["batch", config["pooled_projection_dim"]]),
            self.spec("timestep", ["batch"]),
        ]

    def flux(self) -> Specs:
        """Return the inputs of the transformer of Flux, whose images are packed."""
        config, packed = self.config, "packed_height_width"
        specs = [
            self.spec("hidden_states", ["batch", packed, config["in_channels"]]),
            self.spec(
                "encoder_hidden_states", ["batch", "sequence", config["joint_attention_dim"]]
            ),
            self.spec("pooled_projections", ["batch", config["pooled_projection_dim"]]),
            self.spec("timestep", ["batch"]),
            self.spec("img_ids", [packed, DIMENSIONS]),
            self.spec("txt_ids", ["sequence", DIMENSIONS]),
        ]
        if config.get("guidance_embeds"):
            specs.append(self.spec("guidance", ["batch"]))
        return specs


def _encode(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    result = model.encode(given["sample"], return_dict=True)
    if "latent_dist" in result:
        return {"latent_parameters": result["latent_dist"].parameters}
    return {"latent_sample": result["latents"] if "latents" in result else result["latent"]}


def _decode(model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"sample": model.decode(given["latent_sample"], return_dict=True)["sample"]}
