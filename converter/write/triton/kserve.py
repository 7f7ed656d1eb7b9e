"""KServe's InferenceService of a model repository, for its Triton runtime.

Spec: https://kserve.github.io/website/docs/model-serving/predictive-inference/frameworks/triton/overview
"""

import re

FILE = "inferenceservice.yaml"
LONGEST = 63  # characters of a name in Kubernetes
TEMPLATE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: {name}
spec:
  predictor:
    model:
      modelFormat:
        name: triton
      protocolVersion: v2
      runtime: kserve-tritonserver
      storageUri: {uri}
"""
GPU = """\
      resources:
        limits:
          nvidia.com/gpu: "1"
"""


def describe_service(name: str, uri: str, *, needs_gpu: bool) -> str:
    """Return the InferenceService, as YAML.

    Args:
        name: Any name; characters that Kubernetes does not allow become dashes.
        uri: Where KServe downloads the repository from.
        needs_gpu: Whether the service asks for a GPU.
    """
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:LONGEST].rstrip("-")
    if not plain[:1].isalpha():
        plain = f"model-{plain}"[:LONGEST].rstrip("-")
    quoted = "'" + uri.replace("'", "''") + "'"
    return TEMPLATE.format(name=plain, uri=quoted) + (GPU if needs_gpu else "")
