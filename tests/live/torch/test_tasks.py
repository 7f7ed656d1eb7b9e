"""Models of each task that docs/hugging-face.md lists become graphs that compute what they do.

torch.export takes ten seconds and more for each. CI tries those of a few tasks, and all of them
every night.
"""

import os

import numpy as np
import pytest

import converter
from converter.options import Options
from formats.errors import UnsupportedError

torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")
transformers = pytest.importorskip("transformers")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("export_server")]
TEXT = {"vocab_size": 99, "max_position_embeddings": 64, "pad_token_id": 0}
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 48}  # fmt: skip
VISION = {**SIZE, "image_size": 32, "patch_size": 8}
SOUND = {**SIZE, "vocab_size": 20, "conv_dim": [8, 8, 8], "conv_stride": [5, 4, 4],
         "conv_kernel": [10, 4, 4], "num_feat_extract_layers": 3, "num_conv_pos_embeddings": 8,
         "num_conv_pos_embedding_groups": 2, "xvector_output_dim": 16, "tdnn_dim": [16, 16],
         "tdnn_kernel": [3, 1], "tdnn_dilation": [1, 1], "classifier_proj_size": 8}  # fmt: skip
RESNET = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8, 16],
          "depths": [1, 1], "out_features": ["stage2"]}  # fmt: skip
SERIES = {"context_length": 32, "patch_length": 8, "patch_stride": 8, "num_input_channels": 3,
          "prediction_length": 5, "d_model": 16, "num_attention_heads": 2,
          "num_hidden_layers": 1, "ffn_dim": 16}  # fmt: skip
ENCODED = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
           "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}  # fmt: skip
BERT = {**TEXT, **SIZE}
OFTEN = ("automatic-speech-recognition", "object-detection", "zero-shot-image-classification")
EVERY = "CONVERTER_EVERY_TASK"
# Task, class, configuration; inputs and outputs of the graph.
ROWS = {
    "multiple-choice": (
        "BertForMultipleChoice", BERT, ["input_ids", "attention_mask", "token_type_ids"],
        ["logits"],
    ),
    "question-answering": (
        "DistilBertForQuestionAnswering",
        {**TEXT, "dim": 32, "n_layers": 1, "n_heads": 4, "hidden_dim": 48},
        ["input_ids", "attention_mask"], ["start_logits", "end_logits"],
    ),
    "automatic-speech-recognition": ("Wav2Vec2ForCTC", SOUND, ["input_values"], ["logits"]),
    "audio-frame-classification": (
        "Wav2Vec2ForAudioFrameClassification", SOUND, ["input_values"], ["logits"],
    ),
    "audio-xvector": ("Wav2Vec2ForXVector", SOUND, ["input_values"], ["logits", "embeddings"]),
    "zero-shot-image-classification": (
        "SiglipModel", {"text_config": {**BERT, "projection_size": 32}, "vision_config": VISION},
        ["input_ids", "attention_mask", "pixel_values"],
        ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"],
    ),
    "zero-shot-object-detection": (
        "OwlViTForObjectDetection",
        {"text_config": {**BERT, "max_position_embeddings": 16}, "vision_config": VISION,
         "projection_dim": 32},
        ["input_ids", "attention_mask", "pixel_values"],
        ["logits", "pred_boxes", "text_embeds", "image_embeds"],
    ),
    "object-detection": (
        "DetrForObjectDetection",
        {**ENCODED, "num_queries": 7, "use_timm_backbone": False, "backbone_config": RESNET},
        ["pixel_values"], ["logits", "pred_boxes"],
    ),
    "semantic-segmentation": (
        "SegformerForSemanticSegmentation",
        {"depths": [1, 1], "num_encoder_blocks": 2, "hidden_sizes": [8, 16], "sr_ratios": [2, 1],
         "num_attention_heads": [1, 2], "strides": [4, 2], "patch_sizes": [7, 3],
         "mlp_ratios": [2, 2], "decoder_hidden_size": 16},
        ["pixel_values"], ["logits"],
    ),
    "image-to-image": (
        "Swin2SRForImageSuperResolution",
        {"image_size": 16, "embed_dim": 12, "depths": [1], "num_heads": [2], "window_size": 4,
         "upscale": 2},
        ["pixel_values"], ["reconstruction"],
    ),
    "mask-generation": (
        "SamModel",
        {"vision_config": {**VISION, "mlp_dim": 48, "output_channels": 16, "window_size": 2,
                           "global_attn_indexes": [1], "num_pos_feats": 8},
         "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 8,
                                   "mask_input_channels": 4},
         "mask_decoder_config": {"hidden_size": 16, "num_hidden_layers": 1, "mlp_dim": 32,
                                 "num_attention_heads": 2, "iou_head_hidden_dim": 16}},
        ["pixel_values", "input_points", "input_labels"], ["iou_scores", "pred_masks"],
    ),
    "depth-estimation": (
        "DPTForDepthEstimation",
        {**VISION, "num_hidden_layers": 4, "is_hybrid": False, "backbone_out_indices": [0, 1, 2, 3],
         "neck_hidden_sizes": [8, 8, 8, 8], "fusion_hidden_size": 8},
        ["pixel_values"], ["predicted_depth"],
    ),
    "video-classification": (
        "VideoMAEForVideoClassification", {**VISION, "num_frames": 4, "tubelet_size": 2},
        ["pixel_values"], ["logits"],
    ),
    "document-question-answering": (
        "LayoutLMForQuestionAnswering", BERT,
        ["input_ids", "bbox", "attention_mask", "token_type_ids"], ["start_logits", "end_logits"],
    ),
    "time-series-forecasting": (
        "PatchTSTForPrediction", SERIES, ["past_values"], ["prediction_outputs"],
    ),
}  # fmt: skip
SIZES = (
    {"batch": 2, "sequence": 9, "choices": 2, "samples": 3000, "queries": 2, "text_batch": 4,
     "image_batch": 1, "point_batch": 2, "points": 3},
    {"batch": 3, "sequence": 5, "choices": 4, "samples": 4100, "queries": 5, "text_batch": 1,
     "image_batch": 3, "point_batch": 1, "points": 1},
)  # fmt: skip


def save(class_name, settings, folder):
    """Save a model with weights that keep signals alive, and return it."""
    torch.manual_seed(0)
    model_class = getattr(transformers, class_name)
    model = model_class(model_class.config_class(**settings)).eval()
    for parameter in model.parameters():
        if parameter.ndim < 2:
            torch.nn.init.normal_(parameter, 0.5, 0.2)
    model.save_pretrained(folder)
    return model


def draw(session, sizes):
    """Return inputs of a graph, whose free axes have these sizes."""
    given = {}
    for one in session.get_inputs():
        shape = [n if isinstance(n, int) else sizes[n] for n in one.shape]
        if one.type == "tensor(float)":
            given[one.name] = torch.randn(shape)
        elif one.name == "attention_mask":
            given[one.name] = torch.ones(shape, dtype=torch.int64)
        else:
            high = 2 if one.name in ("token_type_ids", "input_labels") else 90
            given[one.name] = torch.randint(0, high, shape)
        if one.name == "bbox":  # left and top, right and bottom
            given[one.name] = given[one.name].sort(-1).values
    return given


@pytest.mark.parametrize("task", [*ROWS])
def test_a_graph_computes_what_the_model_of_its_task_does(task, tmp_path):
    if task not in OFTEN and not os.environ.get(EVERY):
        pytest.skip(f"takes many seconds: set {EVERY}")
    class_name, settings, inputs, outputs = ROWS[task]
    model = save(class_name, settings, tmp_path / "model")
    out = tmp_path / "model.onnx"
    converter.convert(tmp_path / "model", to="onnx", out=out, options=Options(verify="weights"))
    session = onnxruntime.InferenceSession(out)
    assert sorted(i.name for i in session.get_inputs()) == sorted(inputs)
    assert [o.name for o in session.get_outputs()][: len(outputs)] == outputs
    for sizes in SIZES:
        given = draw(session, sizes)
        with torch.no_grad():
            expected = model(**given, return_dict=True)
        found = session.run(outputs, {n: v.numpy() for n, v in given.items()})
        for name, array in zip(outputs, found, strict=True):
            scale = float(expected[name].abs().max())
            np.testing.assert_allclose(array, expected[name], atol=2e-4 * scale, err_msg=name)


def test_a_task_finds_the_head_whose_models_have_this_type(tmp_path):
    save("Wav2Vec2ForCTC", SOUND, tmp_path / "model")
    out = tmp_path / "model.onnx"
    options = Options(verify="weights", task="automatic-speech-recognition")
    converter.convert(tmp_path / "model", to="onnx", out=out, options=options)
    assert [o.name for o in onnxruntime.InferenceSession(out).get_outputs()] == ["logits"]


def test_a_model_that_mixes_images_into_text_becomes_the_graph_of_text_alone(tmp_path):
    text = {**BERT, "model_type": "llama", "num_key_value_heads": 2}
    vision = {**VISION, "model_type": "clip_vision_model"}
    settings = {"text_config": text, "vision_config": vision, "image_token_index": 98}
    model = save("LlavaForConditionalGeneration", settings, tmp_path / "model")
    out = tmp_path / "model.onnx"
    found = converter.convert(
        tmp_path / "model", to="onnx", out=out, options=Options(verify="weights")
    )
    assert any("takes text alone" in step.text for step in found.steps)
    session = onnxruntime.InferenceSession(out)
    given = draw(session, SIZES[0])
    with torch.no_grad():
        expected = model(**given).logits
    (array,) = session.run(["logits"], {n: v.numpy() for n, v in given.items()})
    np.testing.assert_allclose(array, expected, atol=1e-4 * float(expected.abs().max()))
    with pytest.raises(UnsupportedError, match="images or sounds in the place of tokens"):
        converter.convert(
            tmp_path / "model", to="onnx", out=tmp_path / "b.onnx",
            options=Options(task="image-to-text"),
        )  # fmt: skip


def test_a_model_that_forecasts_by_sampling_is_refused_in_words(tmp_path):
    settings = {"prediction_length": 4, "context_length": 8, "lags_sequence": [1], "d_model": 16}
    save("TimeSeriesTransformerForPrediction", settings, tmp_path / "model")
    with pytest.raises(UnsupportedError, match="forecasts by sampling"):
        converter.convert(tmp_path / "model", to="onnx", out=tmp_path / "x.onnx")
