"""A store in memory that speaks as much of fsspec's language as `FsspecStore` does, and fails."""

import errno
import itertools
from contextlib import contextmanager
from pathlib import Path

from converter.stores.fsspec_store import FsspecStore

CLOCK = itertools.count(1)


class Files:
    """Paths to bytes; ``faults`` are raised, one at each call of the operation they are for."""

    def __init__(self):
        self.files = {}
        self.calls = []
        self.faults = []  # (operation, part of the path, exception), each for one call
        self.read_bytes = 0

    def __setitem__(self, path, data):
        self.files[path] = (data, next(CLOCK))

    def __getitem__(self, path):
        return self.files[path][0]

    def __contains__(self, path):
        return path in self.files

    def below(self, folder):
        begin = f"{folder}/"
        return {p[len(begin) :]: d for p, (d, _) in self.files.items() if p.startswith(begin)}

    def load(self, folder, at):
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                self[f"{at}/{path.relative_to(folder).as_posix()}"] = path.read_bytes()

    def _call(self, operation, path):
        self.calls.append((operation, path))
        for fault in self.faults:
            if fault[0] == operation and fault[1] in path:
                self.faults.remove(fault)
                raise fault[2]

    def _info(self, path):
        data, state = self.files[path]
        return {"name": path, "size": len(data), "type": "file", "ETag": f'"{state}"'}

    def find(self, path, maxdepth=None, detail=True, prefix=""):
        self._call("find", path)
        below = {f"{path}/{n}": n for n in self.below(path)}
        return {
            p: self._info(p)
            for p, n in below.items()
            if n.startswith(prefix) and not (maxdepth and "/" in n)
        }

    def info(self, path):
        self._call("info", path)
        if path in self.files:
            return self._info(path)
        if self.below(path):
            return {"name": path, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def cat_file(self, path, start, end):
        self._call("cat", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        self.read_bytes += end - start
        return self[path][start:end]

    def cat_ranges(self, paths, starts, ends, on_error):
        found = []
        for one in zip(paths, starts, ends, strict=True):
            try:
                found.append(self.cat_file(*one))
            except OSError as e:
                found.append(e)
        return found

    def get_file(self, path, local, **more):
        self._call("get", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        self.read_bytes += len(self[path])
        Path(local).write_bytes(self[path])

    def put_file(self, local, path, **more):
        self._call("put", path)
        self[path] = Path(local).read_bytes()

    def rm_file(self, path):
        self._call("rm", path)
        if path not in self.files:
            raise FileNotFoundError(path)
        del self.files[path]

    def mv(self, old, new):
        self._call("mv", new)
        self.files[new] = self.files.pop(old)

    def makedirs(self, path, exist_ok):
        self._call("makedirs", path)

    def store(self, url):
        return FsspecStore(self, url.partition("://")[2], url)


@contextmanager
def opened(monkeypatch):
    """Let every URL lead into one new store."""
    files = Files()
    with monkeypatch.context() as patch:
        for module in ("registries.urls", "destinations.url", "destinations.upload_one"):
            patch.setattr(f"converter.{module}.open_store", files.store)
        patch.setattr("converter.stores.fsspec_store.PAUSE_SECONDS", 0.001)
        yield files


def passing():
    return OSError(errno.EBUSY, "Please reduce your request rate")
