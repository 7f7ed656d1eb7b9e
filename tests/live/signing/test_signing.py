"""OpenSSF Model Signing's own tool agrees with a bundle's resources, signs it and checks it."""

import json
import shutil

import pytest
from repository import ROOT

import converter

FIXTURE = ROOT / "fixtures/demo/checkpoint.pt"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def bundle(tmp_path):
    pytest.importorskip("model_signing", reason="model-signing is not installed")
    return converter.convert(FIXTURE, out=tmp_path / "m.portable").path


def test_its_digests_are_ours(bundle):
    from model_signing import hashing

    found = (
        hashing.Config()
        .use_file_serialization(hashing_algorithm="blake3")
        .set_ignored_paths(paths=[bundle / "manifest.json"])
        .hash(bundle)
    )
    manifest = json.loads((bundle / "manifest.json").read_text())
    theirs = [
        (d.identifier, d.digest.algorithm, d.digest.digest_hex)
        for d in found.resource_descriptors()
    ]
    assert theirs == [(r["name"], r["algorithm"], r["digest"]) for r in manifest["resources"]]


def test_it_signs_and_checks_a_bundle(bundle, tmp_path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from model_signing import hashing, signing, verifying

    key = ec.generate_private_key(ec.SECP256R1())
    private, public, signature = (tmp_path / n for n in ("key.pem", "key.pub", "model.sig"))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    public.write_bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    config = hashing.Config().use_file_serialization(hashing_algorithm="blake3")
    signing.Config().use_elliptic_key_signer(private_key=private).set_hashing_config(config).sign(
        bundle, signature
    )
    check = verifying.Config().use_elliptic_key_verifier(public_key=public)
    check.set_hashing_config(config).verify(bundle, signature)
    shutil.copy(FIXTURE, bundle / "extra")
    with pytest.raises(ValueError, match="mismatch"):
        check.set_hashing_config(config).verify(bundle, signature)
