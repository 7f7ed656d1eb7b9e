"""Pipelines and models of diffusers become graphs that compute what the library computes."""

import json
import sys

import numpy as np
import pytest

import converter
from converter.child.process import TORCH_PYTHON_VARIABLE
from converter.options import Comparison, Options
from formats.errors import CorruptError, UnsupportedError, UsageError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")
from tensorflow_server import stand_in  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 16, "bos_token_id": 97,
    "eos_token_id": 98, "pad_token_id": 1, "projection_dim": 32,
}  # fmt: skip
UNET = {
    "block_out_channels": (16, 32), "layers_per_block": 1, "sample_size": 16, "in_channels": 4,
    "out_channels": 4, "norm_num_groups": 8, "attention_head_dim": 4, "cross_attention_dim": 32,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}  # fmt: skip
DEEP = {
    **UNET, "addition_embed_type": "text_time", "addition_time_embed_dim": 8,
    "projection_class_embeddings_input_dim": 80, "use_linear_projection": True,
}  # fmt: skip
BLOCKS = {
    "block_out_channels": [16, 32], "norm_num_groups": 8, "latent_channels": 4,
    "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2,
}  # fmt: skip
# Class, configuration, and the inputs of its graph in Optimum's order.
MODELS = {
    "xl": ("UNet2DConditionModel", DEEP, {
        "sample": (4, 8, 12), "timestep": None, "encoder_hidden_states": (7, 32),
        "text_embeds": (32,), "time_ids": (6,),
    }),
    "plain": ("UNet2DModel", {
        "block_out_channels": (16, 32), "layers_per_block": 1, "sample_size": 16,
        "norm_num_groups": 8, "attention_head_dim": 8,
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    }, {"sample": (3, 8, 12), "timestep": None}),
    "control": ("ControlNetModel", {
        **{k: v for k, v in UNET.items() if k not in ("up_block_types", "out_channels",
                                                      "sample_size")},
        "conditioning_embedding_out_channels": (16, 32),
    }, {"sample": (4, 8, 12), "timestep": None, "encoder_hidden_states": (7, 32),
        "controlnet_cond": (3, 16, 24)}),
    "sd3": ("SD3Transformer2DModel", {
        "sample_size": 16, "patch_size": 1, "in_channels": 4, "num_layers": 1,
        "attention_head_dim": 8, "num_attention_heads": 4, "caption_projection_dim": 32,
        "joint_attention_dim": 32, "pooled_projection_dim": 64, "out_channels": 4,
        "pos_embed_max_size": 32,
    }, {"hidden_states": (4, 8, 12), "encoder_hidden_states": (7, 32),
        "pooled_projections": (64,), "timestep": ()}),
    "flux": ("FluxTransformer2DModel", {
        "patch_size": 1, "in_channels": 4, "num_layers": 1, "num_single_layers": 1,
        "attention_head_dim": 16, "num_attention_heads": 2, "joint_attention_dim": 32,
        "pooled_projection_dim": 32, "axes_dims_rope": [4, 4, 8], "guidance_embeds": True,
    }, {"hidden_states": (24, 4), "encoder_hidden_states": (7, 32), "pooled_projections": (32,),
        "timestep": (), "img_ids": (24, 3), "txt_ids": (7, 3), "guidance": ()}),
}  # fmt: skip
WITHOUT_BATCH = ("img_ids", "txt_ids")
ADDED = ("text_embeds", "time_ids")


@pytest.fixture(scope="module", autouse=True)
def server(tmp_path_factory):
    with (
        stand_in(sys.executable, tmp_path_factory.mktemp("s"), "exporter") as path,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv(TORCH_PYTHON_VARIABLE, str(path))
        # The kernels approximate exponentials, with errors of many units of rounding.
        torch.backends.cuda.enable_flash_sdp(False)
        yield
        torch.backends.cuda.enable_flash_sdp(True)


def make(class_name, settings, library=diffusers):
    """Return a small model with weights that keep signals alive.

    Large means beside small deviations would make normalization ill-conditioned.
    """
    torch.manual_seed(0)
    model = (
        getattr(library, class_name)(settings)
        if library is transformers
        else getattr(library, class_name)(**settings)
    )
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            torch.nn.init.normal_(parameter, 0.0 if name.endswith("bias") else 1.0, 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory):
    """Return the folder of a pipeline, and its components."""
    folder = tmp_path_factory.mktemp("pipeline")
    parts = {
        "unet": make("UNet2DConditionModel", UNET),
        "vae": make("AutoencoderKL", BLOCKS),
        "text_encoder": make("CLIPTextModel", transformers.CLIPTextConfig(**TEXT), transformers),
        "scheduler": diffusers.DDIMScheduler(),
    }
    for name, part in parts.items():
        part.save_pretrained(folder / name)
    index = {n: [type(p).__module__.partition(".")[0], type(p).__name__] for n, p in parts.items()}
    index |= {"_class_name": "StableDiffusionPipeline", "safety_checker": [None, None]}
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder, parts


def run(path, given):
    session = onnxruntime.InferenceSession(path)
    names = [i.name for i in session.get_inputs()]
    assert names == [*given]
    found = session.run(None, {n: v.numpy() for n, v in given.items()})
    return dict(zip([o.name for o in session.get_outputs()], found, strict=True))


def same(found, expected):
    assert [*found] == [*expected]
    for name, array in found.items():
        scale = float(expected[name].abs().max())
        np.testing.assert_allclose(array, expected[name], atol=2e-5 * scale, err_msg=name)


def draw(shapes, batch):
    given = {}
    for name, shape in shapes.items():
        sizes = () if shape is None else shape if name in WITHOUT_BATCH else (batch, *shape)
        given[name] = torch.randn(sizes)
    return given | {"timestep": torch.full(given["timestep"].shape, 7.0)}


@torch.no_grad()
def test_a_pipeline_becomes_the_graphs_that_optimum_loads(pipeline, tmp_path):
    folder, parts = pipeline
    out = tmp_path / "out"
    made = converter.convert(folder, to="onnx", out=out, options=Options(verify="weights"))
    assert made.verification.level == "weights"
    files = sorted(p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file())
    names = ("text_encoder", "unet", "vae_decoder", "vae_encoder")
    assert {f"{n}/model.onnx" for n in names} | {f"{n}/config.json" for n in names} <= {*files}
    assert {"model_index.json", "scheduler/scheduler_config.json"} <= {*files}
    for batch, height, width in ((2, 8, 12), (1, 16, 4)):
        given = draw({"sample": (4, height, width), "timestep": None,
                      "encoder_hidden_states": (height, 32)}, batch)  # fmt: skip
        same(run(out / "unet/model.onnx", given), {"out_sample": parts["unet"](**given).sample})
        image, latents = torch.randn(batch, 3, 2 * height, 2 * width), given["sample"]
        encoded = parts["vae"].encode(image).latent_dist.parameters
        same(run(out / "vae_encoder/model.onnx", {"sample": image}), {"latent_parameters": encoded})
        decoded = parts["vae"].decode(latents).sample
        same(run(out / "vae_decoder/model.onnx", {"latent_sample": latents}), {"sample": decoded})
        ids = torch.randint(3, 98, (batch, height))
        expected = parts["text_encoder"](ids)
        same(run(out / "text_encoder/model.onnx", {"input_ids": ids}), dict(expected))


@torch.no_grad()
def test_text_encoders_of_deep_pipelines_return_their_hidden_states(tmp_path):
    config = transformers.CLIPTextConfig(**TEXT)
    model = make("CLIPTextModelWithProjection", config, transformers)
    model.save_pretrained(tmp_path / "p/text_encoder_2")
    index = {"_class_name": "StableDiffusionXLPipeline",
             "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"]}  # fmt: skip
    (tmp_path / "p/model_index.json").write_text(json.dumps(index))
    converter.convert(tmp_path / "p", to="onnx", out=tmp_path / "out", verify="weights")
    ids = torch.randint(3, 98, (2, 5))
    result = dict(model(ids, output_hidden_states=True))
    states = {f"hidden_states.{i}": v for i, v in enumerate(result.pop("hidden_states"))}
    same(run(tmp_path / "out/text_encoder_2/model.onnx", {"input_ids": ids}), result | states)


@pytest.mark.parametrize("kind", [*MODELS])
@torch.no_grad()
def test_a_model_of_its_own_becomes_a_graph(kind, tmp_path):
    class_name, settings, shapes = MODELS[kind]
    model = make(class_name, settings)
    model.save_pretrained(tmp_path / "model")
    out = tmp_path / "model.onnx"
    converter.convert(tmp_path / "model", to="onnx", out=out, verify="weights")
    for batch in (1, 3):
        given = draw(shapes, batch)
        added = {n: v for n, v in given.items() if n in ADDED}
        passed = {n: v for n, v in given.items() if n not in ADDED}
        passed |= {"added_cond_kwargs": added} if added else {}
        result = model(**passed)
        if kind == "control":
            blocks = result.down_block_res_samples
            expected = {f"down_block_res_samples.{i}": v for i, v in enumerate(blocks)}
            expected["mid_block_res_sample"] = result.mid_block_res_sample
        else:
            name = "out_hidden_states" if "Transformer" in class_name else "out_sample"
            expected = {name: result.sample}
        found = run(out, {n: given[n] for n in onnx_order(out)})
        same(found, expected)


def onnx_order(path):
    return [i.name for i in onnxruntime.InferenceSession(path).get_inputs()]


def test_a_graph_is_verified_beside_the_component_that_it_is_of(pipeline, tmp_path, monkeypatch):
    monkeypatch.setenv(TORCH_PYTHON_VARIABLE, sys.executable)  # the child that verifies is another
    folder, _ = pipeline
    given = tmp_path / "given.npz"  # torch's kernel of several images rounds more than that of one
    np.savez(given, latent_sample=np.random.default_rng(0).standard_normal((2, 4, 8, 12), "f4"))
    options = Options(signatures=("vae_decoder",), comparison=Comparison(inputs=given))
    made = converter.convert(folder, to="onnx", out=tmp_path / "out", options=options)
    ((name, report),) = made.verification.graphs.items()
    assert (name, report.status, report.reason) == ("vae_decoder", "passed", "")
    with pytest.raises(UsageError, match="no component 'vae_middle'"):
        converter.convert(folder, to="onnx", out=tmp_path / "x", signatures=["vae_middle"])
    with pytest.raises(UsageError, match="2 graphs in one file"):
        converter.convert(folder / "vae", to="onnx", out=tmp_path / "x.onnx")


def test_what_has_no_graph_is_named(pipeline, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    make("UNet2DModel", MODELS["plain"][1]).save_pretrained(folder)
    path = folder / "diffusion_pytorch_model.safetensors"
    weights = load_file(path)
    del weights["conv_in.weight"]
    save_file(weights, path, {"format": "pt"})
    with pytest.raises(CorruptError, match=r"lacks tensors of UNet2DModel \(1\): conv_in\.weight"):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "_class_name": "system"}))
    with pytest.raises(UnsupportedError, match="diffusers has no model system"):
        converter.convert(folder, to="onnx", out=tmp_path / "x.onnx")
