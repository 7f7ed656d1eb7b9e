"""What a conversion's options ask of the comparison of its graphs."""

from converter.options import Options
from converter.verification.graphs import Options as Verification

ANY_NUMBER = 1 << 31


def verification_of(options: Options, signature: str | None = None) -> Verification:
    """Return how the graph of a signature is compared with its source.

    On a device it is compared where that was asked for, or where the device is here; unasked, what
    its runtime leaves on the CPU by design (text, sizes) is counted, and is no failure.
    """
    how = options.comparison
    is_asked = "device" in (options.verify, options.require)
    allowed = how.allow_cpu_nodes if is_asked or how.allow_cpu_nodes else ANY_NUMBER
    return Verification(
        how.atol, how.rtol, how.inputs, how.seed, how.samples,
        trust=options.trust, signature=signature, arch=options.arch, specs=options.inputs,
        device=options.device if is_asked or options.verify == "auto" else None,
        allow_tf32=how.allow_tf32, allow_cpu_nodes=allowed, example=how.example,
    )  # fmt: skip
