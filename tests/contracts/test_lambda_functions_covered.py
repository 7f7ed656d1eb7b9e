"""Every function that only the code of a Lambda calls is called by a row, or is named here."""

import zipfile
from pathlib import Path

import pytest
from repository import ROOT

import converter
from converter.lower.keras import lambda_control, lambda_names
from converter.lower.keras.lowering import lower
from converter.lower.keras.table import BACKEND_FUNCTIONS, TF_CALLED

ARCHIVE = ROOT / "fixtures" / "keras_layers" / "lambdas.zip"

# Function -> why no Keras of today calls it in a Lambda. The other tests of code have some of them.
ABSENT = {
    "keras.backend": {
        "variable": "a variable, which functions of TensorFlow 2 cannot make",
        "zeros": "a variable, which functions of TensorFlow 2 cannot make",
        "ones": "a variable, which functions of TensorFlow 2 cannot make",
        "eye": "a variable, which functions of TensorFlow 2 cannot make",
        "random_normal": "others each time", "dropout": "others each time",
        "random_binomial": "others each time", "random_bernoulli": "others each time",
        "random_uniform": "others each time",
        "pack": "of Keras 1", "lesser": "of Keras 1", "lesser_equal": "of Keras 1",
        "image_dim_ordering": "of Keras 1", "get_variable_shape": "of variables",
        "print_tensor": "prints", "dtype": "text", "is_placeholder": "of TensorFlow 1",
        "is_keras_tensor": "refuses what a function is given", "is_tensor": "of other backends",
        "slice": "of Keras 2.2 alone", "unstack": "of other backends",
        "logsumexp": "of Keras 2.2 alone", "identity": "of Keras 2.2 alone",
        "linear": "an activation", "selu": "an activation", "gelu": "an activation",
        "exponential": "an activation", "swish": "an activation", "silu": "an activation",
    },
    "tensorflow": {
        **dict.fromkeys((
            "neg", "inv", "complex_abs", "sub", "mul", "batch_matmul", "pack", "unpack", "select",
        ), "of TensorFlow 0"),
        **dict.fromkeys(("random_normal", "random.normal", "random_uniform", "dropout"),
                        "others each time"),
        "Variable": "a variable, which functions of TensorFlow 2 cannot make",
        "image.transpose_image": "of TensorFlow 1", "identity_n": "tensors in lists",
        "tuple": "of TensorFlow 1",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def called(tmp_path_factory):
    """Return the names of all functions that the code of the rows calls."""
    found = set()
    row = lambda_names.row

    def watched(path):
        found.add(path.replace("tensorflow1.", "tensorflow."))
        return row(path)

    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch, zipfile.ZipFile(ARCHIVE) as archive:
        patch.setattr(lambda_names, "row", watched)
        for name in archive.namelist():
            if not name.endswith(".npz"):
                source = folder / f"model{Path(name).suffix}"
                source.write_bytes(archive.read(name))
                lower(converter.read(source))
    return found


@pytest.mark.parametrize(
    ("head", "table"), [("keras.backend", BACKEND_FUNCTIONS), ("tensorflow", TF_CALLED)]
)
def test_every_function_is_called_by_a_row(called, head, table):
    names = {path.removeprefix(f"{head}.") for path in called if path.startswith(f"{head}.")}
    bare = {name.removeprefix("nn.").removeprefix("math.") for name in names}
    assert sorted(set(table) - names - bare - set(ABSENT[head])) == []
    assert sorted(set(ABSENT[head]) & (names | bare)) == [], "it is called: remove the entry"


def test_names_lead_to_one_table_each():
    assert not set(lambda_control.CHOICES) & {f"keras.backend.{name}" for name in BACKEND_FUNCTIONS}
    ends = {lambda_names.canonical(path) for path in lambda_names.ALIASES}
    assert not ends & set(lambda_names.ALIASES)
