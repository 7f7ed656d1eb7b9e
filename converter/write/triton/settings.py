"""Settings of a Triton entry, as ``triton={"max_batch_size": "16"}`` gives them.

To add one: a field of `Settings` and a row in `PARSERS`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from converter.options import Options, check_choice
from formats.errors import UsageError

ACCELERATORS = ("tensorrt", "tensorrt-fp16", "openvino")
LAYOUTS = ("model", "repository")
_URI = re.compile(r"[a-z][a-z0-9+.-]*://\S+\Z")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of an entry. None means that convert, or else Triton, decides.

    Attributes:
        max_batch_size: Largest batch that Triton may form of requests; zero for none.
        instances: Copies of the model on each device.
        queue_delay_us: How long a request may wait for others to form a batch, in microseconds.
        preferred_batch_sizes: Sizes of batches that Triton should form.
        version: Number of the version's folder.
        accelerator: ``tensorrt``, ``tensorrt-fp16`` or ``openvino``, or "" for none.
        layout: ``model``, the output is a model; ``repository``, it is a folder of models, one for
            each signature. By default, a repository if several signatures are requested.
        kserve: URI under which KServe finds the repository; an InferenceService is written for it.
    """

    max_batch_size: int | None = None
    instances: int = 1
    queue_delay_us: int | None = None
    preferred_batch_sizes: tuple[int, ...] = ()
    version: int = 1
    accelerator: str = ""
    layout: str = ""
    kserve: str = ""


def _parse_integer(least: int) -> Callable[[str, str], int]:
    def parse(name: str, value: str) -> int:
        if not (value.isascii() and value.isdigit()) or not least <= int(value) < 1 << 31:
            raise UsageError(f"triton: {name}={value}", expected=f"an integer from {least} on")
        return int(value)

    return parse


def _parse_sizes(name: str, value: str) -> tuple[int, ...]:
    parse = _parse_integer(1)
    return tuple(parse(name, size.strip()) for size in value.split(","))


def _parse_choice(choices: tuple[str, ...]) -> Callable[[str, str], str]:
    def parse(name: str, value: str) -> str:
        check_choice(f"triton: {name}", value, choices)
        return value

    return parse


def _parse_uri(name: str, value: str) -> str:
    if not _URI.match(value):
        raise UsageError(f"triton: {name}={value}", expected="a URI: s3://bucket/models, pvc://…")
    return value


PARSERS: dict[str, Callable[[str, str], Any]] = {
    "max_batch_size": _parse_integer(0),
    "instances": _parse_integer(1),
    "queue_delay_us": _parse_integer(0),
    "preferred_batch_sizes": _parse_sizes,
    "version": _parse_integer(1),
    "accelerator": _parse_choice(ACCELERATORS),
    "layout": _parse_choice(LAYOUTS),
    "kserve": _parse_uri,
}


def parse_settings(given: Mapping[str, str]) -> Settings:
    """Parse settings of an entry.

    Raises:
        UsageError: One has an unknown name or a wrong value, or two contradict each other.
    """
    found = {}
    for name, value in given.items():
        check_choice("triton", name, PARSERS)
        found[name] = PARSERS[name](name, value)
    settings = Settings(**found)
    queue = {"queue_delay_us", "preferred_batch_sizes"} & found.keys()
    if settings.max_batch_size == 0 and queue:
        raise UsageError(f"triton: {min(queue)}= with max_batch_size=0, which forms no batches")
    largest = max(settings.preferred_batch_sizes, default=0)
    if settings.max_batch_size is not None and largest > settings.max_batch_size:
        raise UsageError(
            f"triton: a preferred batch size of {largest}",
            expected=f"at most max_batch_size={settings.max_batch_size}",
        )
    if settings.kserve and settings.layout == "model":
        raise UsageError("triton: kserve= with layout=model", expected="layout=repository")
    return settings


def is_repository(options: Options) -> bool:
    """Return whether the output is a folder of models, one for each signature.

    Raises:
        UsageError: As `parse_settings`.
    """
    settings = parse_settings(options.triton)
    if settings.layout:
        return settings.layout == "repository"
    return bool(settings.kserve) or len(options.signatures) > 1
