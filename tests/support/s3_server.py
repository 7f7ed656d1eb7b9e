"""A moto server on loopback, in this process: it can be stopped and started again as it was."""

import itertools
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

COUNT = itertools.count(1)


class Server:
    def __init__(self):
        self.port = 0
        self.start()

    def start(self):
        import logging

        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=self.port, verbose=False)
        self._server.start()
        self.port = self._server.get_host_and_port()[1]

    def stop(self):
        self._server.stop()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self):
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "SECRETtesting",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service="s3"):
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            aws_access_key_id="testing",
            aws_secret_access_key="SECRETtesting",
            region_name="us-east-1",
        )

    def bucket(self):
        name = f"bucket-{next(COUNT)}"
        self.client().create_bucket(Bucket=name)
        return Bucket(self, name)

    def demand_permissions(self, after):
        """Answer only who may, after so many more calls."""
        data = str(after).encode()
        plain = {"Content-Type": "text/plain"}
        request = Request(f"{self.url}/moto-api/reset-auth", data, plain, method="POST")
        urlopen(request, timeout=10).read()


class Bucket:
    def __init__(self, server, name):
        self.name = name
        self._s3 = server.client()

    @property
    def url(self):
        return f"s3://{self.name}"

    def put(self, key, data):
        self._s3.put_object(Bucket=self.name, Key=key, Body=data)

    def load(self, folder, at):
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                self.put(f"{at}/{path.relative_to(folder).as_posix()}", path.read_bytes())

    def below(self, prefix):
        pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        keys = [o["Key"] for page in pages for o in page.get("Contents", ())]
        return {
            k[len(prefix) :]: self._s3.get_object(Bucket=self.name, Key=k)["Body"].read()
            for k in keys
        }

    def times(self, prefix):
        found = self._s3.list_objects_v2(Bucket=self.name, Prefix=prefix)
        return {o["Key"]: (o["LastModified"], o["ETag"]) for o in found.get("Contents", ())}

    def remove(self, key):
        self._s3.delete_object(Bucket=self.name, Key=key)

    def uploads(self):
        return self._s3.list_multipart_uploads(Bucket=self.name).get("Uploads", [])

    def abandon(self, key):
        """Begin an upload in parts, and leave it."""
        begun = self._s3.create_multipart_upload(Bucket=self.name, Key=key)
        self._s3.upload_part(
            Bucket=self.name, Key=key, PartNumber=1, UploadId=begun["UploadId"], Body=b"1"
        )


def command(*arguments, cwd, timeout=100):
    """Run the program; return its exit code, its output and what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "converter", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    return done.returncode, done.stdout, done.stderr


def wait_for(happened, seconds=60):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)
