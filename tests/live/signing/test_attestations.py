"""The libraries of in-toto and CycloneDX accept what we attest."""

import json

import pytest
from repository import FIXTURES

import converter

SOURCES = {
    "m.onnx": (FIXTURES / "keras" / "keras315_functional.keras", "onnx"),
    "m.portable": (FIXTURES / "demo" / "checkpoint.pt", "portable"),
}


@pytest.fixture(params=SOURCES)
def folder(request, tmp_path):
    source, target = SOURCES[request.param]
    converter.convert(source, out=tmp_path / request.param, to=target, attest=tmp_path / "said")
    return tmp_path / "said"


def test_in_toto_reads_the_statement(folder):
    pytest.importorskip("in_toto_attestation", reason="in-toto-attestation is not installed")
    from google.protobuf.json_format import ParseDict
    from in_toto_attestation.predicates.provenance.v1.provenance_pb2 import Provenance
    from in_toto_attestation.v1.statement import Statement

    (path,) = folder.glob("*.intoto.json")
    document = json.loads(path.read_text())
    Statement.copy_from_pb(ParseDict(document, Statement([], "", {}).pb)).validate()
    provenance = ParseDict(document["predicate"], Provenance())
    assert provenance.build_definition.resolved_dependencies[0].digest["sha256"]


def test_cyclonedx_accepts_the_bill_of_materials(folder):
    pytest.importorskip("cyclonedx", reason="cyclonedx-python-lib is not installed")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    (path,) = folder.glob("*.cdx.json")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text()) is None
