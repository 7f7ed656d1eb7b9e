"""``convert.json``: the record of a conversion in outputs whose formats have no place for one.

Neither TensorFlow nor torch reads it.
"""

import json
from collections.abc import Mapping, Sequence

from converter.version import VERSION
from formats.core.bundle import JSON, Metadata

FILE = "convert.json"


def encode_record(
    source: str,
    target: Mapping[str, JSON],
    metadata: Metadata,
    warnings: Sequence[str],
    reached: JSON,
    more: Mapping[str, JSON],
) -> bytes:
    """Return the content of the record.

    Args:
        source: Name of the source.
        target: What the output is for: its device, and its format where that is not obvious.
        metadata: Of the output; says what was changed and what was left out.
        warnings: Of the conversion.
        reached: The level of verification that was reached.
        more: What only this target records.
    """
    document: dict[str, JSON] = {
        "convert": VERSION,
        "source": source,
        **target,
        "normalisations": [
            {"name": n.name, "count": n.count, "detail": n.detail} for n in metadata.normalisations
        ],
        "left_out": [{"name": x.name, "reason": x.reason} for x in metadata.left_out],
        "warnings": list(warnings),
        "verified": reached,
        **more,
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"
