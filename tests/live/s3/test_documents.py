"""The commands that the documents show for buckets, run as they stand against a bucket."""

import pages
import pytest
import sessions
from repository import FIXTURES
from s3_server import Bucket, Server

pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

TITLE = "Needs an S3 bucket"
PAGES = [page for page in pages.read_pages() if any(b.title == TITLE for b in page.blocks)]
# What they leave in the bucket, and beside it.
LEFT = {
    "docs/registries.md": (["model.onnx", "portable/image.portable/manifest.json"], []),
    "docs/quickstart/mlops.md": (["portable/image.portable/manifest.json"], ["report.html"]),
}


def test_every_page_is_here():
    assert {page.name for page in PAGES} == {*LEFT}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
@pytest.mark.timeout(600)
def test_commands_run_against_a_bucket(page, tmp_path):
    server = Server()
    try:
        server.client().create_bucket(Bucket="bucket")
        bucket = Bucket(server, "bucket")
        for name in ("verify/image.keras", "keras/keras315_functional.keras"):
            bucket.put(f"models/{name.rpartition('/')[2]}", (FIXTURES / name).read_bytes())
        bucket.put("model.pt2", (FIXTURES / "torch_moved/exported-cpu.pt2").read_bytes())
        ran = list(sessions.run(page, tmp_path, title=TITLE, environment=server.environment))
        assert ran
        assert not [one.problem for one in ran if one.problem]
        keys, files = LEFT[page.name]
        assert {*keys} <= {*bucket.below("")}
        assert all((tmp_path / name).is_file() for name in files)
    finally:
        server.stop()
