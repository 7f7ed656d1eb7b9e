"""Models of other libraries, and the tools that convert or run them.

What is not read is named, and so is the tool that serves it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Library(NamedTuple):
    """A library whose models are not read.

    Attributes:
        name: Its name.
        hint: The tool for its models, as a sentence without its full stop, or "".
        version: Attribute of its pickled objects that records its version, or "".
    """

    name: str
    hint: str = ""
    version: str = ""


ONNX_TOOLS = "onnxmltools converts its models to ONNX, where the library is installed"
SERVICE = "It calls a service, and has no weights of its own"
# Top module of a library, which is also its flavor in MLflow -> the library.
LIBRARIES: Mapping[str, Library] = {
    "sklearn": Library(
        "scikit-learn", "skl2onnx converts its models to ONNX, where scikit-learn is installed",
        "_sklearn_version",
    ),
    "xgboost": Library("XGBoost", ONNX_TOOLS),
    "lightgbm": Library("LightGBM", ONNX_TOOLS),
    "catboost": Library("CatBoost", "CatBoost itself exports ONNX: save_model(format='onnx')"),
    "spark": Library("Spark ML", "onnxmltools converts its pipelines to ONNX, where Spark is"),
    "h2o": Library("H2O", "H2O exports a MOJO, which its own runtime scores"),
    "paddle": Library("PaddlePaddle", "paddle2onnx converts its models to ONNX"),
    "mxnet": Library("MXNet", "MXNet itself exports ONNX: mxnet.onnx.export_model"),
    "fastai": Library("fastai", "Its learner has a torch module: save learner.model.state_dict()"),
    "statsmodels": Library("statsmodels"),
    "pandas": Library("pandas"),
    "scipy": Library("SciPy"),
    "spacy": Library("spaCy", "spaCy loads it: spacy.load"),
    "gensim": Library("gensim"),
    "prophet": Library("Prophet"),
    "pmdarima": Library("pmdarima"),
    "langchain": Library("LangChain", SERVICE),
    "llama_index": Library("LlamaIndex", SERVICE),
    "openai": Library("OpenAI", SERVICE),
    "dspy": Library("DSPy", SERVICE),
    "joblib": Library("joblib", "Load it with joblib and save its arrays"),
}  # fmt: skip

# First bytes of a file -> what it is, and the tool for it.
MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"GGUF", "a GGUF file", "llama.cpp runs it. Convert the checkpoint that it was made from"),
    (b"CBM1", "a CatBoost model", LIBRARIES["catboost"].hint),
    (b"tree\nversion=v", "a LightGBM model", ONNX_TOOLS),
    (b'{"learner":', "an XGBoost model", ONNX_TOOLS),
    (b"{L\x00\x00\x00\x00\x00\x00\x00\x07learner", "an XGBoost model", ONNX_TOOLS),
    (b"binf", "an old XGBoost model", "XGBoost before 3.1 loads it: save it again as JSON"),
    (b"ptrt", "a TensorRT engine", "It runs on one kind of GPU. Build it again from its ONNX file"),
    (b"ftrt", "a TensorRT engine", "It runs on one kind of GPU. Build it again from its ONNX file"),
    (b"7767517\n", "an ncnn model", "ncnn runs it. Convert the model that it was made from"),
    (b"\xba\x16\x4f\x2f", "a fastText model", "fasttext loads it: fasttext.load_model"),
    (b"Caffe2", "a Caffe2 file", "Caffe2 is part of torch before 2.5"),
)  # fmt: skip
# Bytes 4 to 7 of a file with a FlatBuffer.
FLATBUFFERS: Mapping[bytes, tuple[str, str]] = {
    b"TFL3": (
        "a TensorFlow Lite model",
        "tf2onnx converts it to ONNX: tf2onnx.convert.from_tflite",
    ),
    b"ET12": ("an ExecuTorch program", "ExecuTorch runs it. Convert the exported program (.pt2)"),
    b"ORTM": ("a model in onnxruntime's own format", "Convert the ONNX file that it was made from"),
}
# Start of an XML document's first element -> what it is, and the tool for it.
XML: tuple[tuple[bytes, str, str], ...] = (
    (b"<net ", "an OpenVINO model", "OpenVINO runs it. Convert the model that it was made from"),
    (b"<pmml", "a PMML model", "It is for scoring engines of PMML, such as JPMML"),
)
# Files of a folder, all of which it has -> what it is, and the tool for it.
FOLDERS: tuple[tuple[frozenset[str], str, str], ...] = (
    (frozenset({"Manifest.json", "Data"}), "a Core ML package",
     "Core ML runs it. Convert the model that it was made from"),
    (frozenset({"config.cfg", "meta.json", "vocab"}), "a spaCy pipeline", LIBRARIES["spacy"].hint),
    (frozenset({"metadata", "stages"}), "a Spark ML pipeline", LIBRARIES["spark"].hint),
)  # fmt: skip

MODELS = frozenset(
    [found for _, found, _ in (*MAGIC, *XML, *FOLDERS)]
    + [found for found, _ in FLATBUFFERS.values()]
)


def find_tool(flavors: Iterable[str]) -> str:
    """Return the hint of the first library that has one, of some flavors of MLflow; or ""."""
    return next((LIBRARIES[f].hint for f in flavors if f in LIBRARIES and LIBRARIES[f].hint), "")
