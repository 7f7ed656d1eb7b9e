"""What a model's `forward` and configuration say of its inputs, without transformers."""

from types import SimpleNamespace

import pytest

from converter.capture.model_inputs import TEXT_ALONE, UnservedError, declare_inputs


class Wav:
    def forward(self, input_values):
        raise NotImplementedError


class SpeechEncoderDecoderModel:
    def forward(self, input_values, input_features, decoder_input_ids):
        raise NotImplementedError

    def get_encoder(self):
        return Wav()


class Recurrent:
    def forward(self, input_ids):
        raise NotImplementedError


class SeerForSequenceClassification:
    def forward(self, input_ids, pixel_values):
        raise NotImplementedError


def compute_in_parts(x, chunk_size=64):
    return x, chunk_size


def sizes_of(specs):
    return {axis: both[0] for spec in specs for axis, both in spec.get("sizes", {}).items()}


def test_of_two_kinds_of_sounds_the_encoder_takes_one(tmp_path):
    specs, _ = declare_inputs(SpeechEncoderDecoderModel(), SimpleNamespace(), tmp_path)
    assert [spec["name"] for spec in specs] == ["input_values", "decoder_input_ids"]


@pytest.mark.parametrize(("settings", "chunk"), [({}, 64), ({"chunk_size": 16}, 16)])
def test_an_example_has_several_of_the_parts_that_a_sequence_is_computed_in(
    settings, chunk, tmp_path
):
    specs, _ = declare_inputs(Recurrent(), SimpleNamespace(**settings), tmp_path)
    assert sizes_of(specs) == {"sequence": 2 * chunk + 88}


def test_a_classifier_of_texts_that_takes_images_too_takes_texts_alone(tmp_path):
    config = SimpleNamespace(image_token_id=3, vision_config=SimpleNamespace(image_size=8))
    model = SeerForSequenceClassification()
    specs, notes = declare_inputs(model, config, tmp_path)
    assert [spec["name"] for spec in specs] == ["input_ids"]
    assert notes == [f"SeerForSequenceClassification: {TEXT_ALONE}"]
    with pytest.raises(UnservedError):
        declare_inputs(model, config, tmp_path, "image-to-text")
