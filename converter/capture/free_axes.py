"""Have torch.export keep the free axes of a program free.

Imports nothing of the project, as the other files of the child. torch.export refuses a program
whose code bounds an axis, or compares sizes in a way that it cannot decide, and it fixes the sizes
that a few of torch's own functions are given.
"""

import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


def export(
    torch: Any, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], shapes: Any
) -> Any:
    """Return a module as an exported program of these dynamic shapes, or of bounds of them."""
    given = module, tuple(args), dict(kwargs)
    with _free_pools(torch), _free_chunks(torch):
        try:
            return torch.export.export(*given, dynamic_shapes=shapes, strict=False)
        except Exception as e:
            if "Constraints violated" not in str(e):
                raise
            # A bound of an axis, such as a number of positions, is accepted; any other condition
            # becomes an assertion of the program.
            return torch.export.export(
                *given, dynamic_shapes=_refine(torch, str(e), shapes), strict=False,
                prefer_deferred_runtime_asserts_over_guards=True,
            )  # fmt: skip


@contextmanager
def _free_pools(torch: Any) -> Iterator[None]:
    """Have pools of one axis computed as pools of two: without gradients, the former fix the axis.

    Seen in: aten/src/ATen/native/MaxPooling.cpp of torch 2.13, `max_pool1d`
    """
    plain = torch.max_pool1d

    def max_pool1d(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:  # fmt: skip
        sizes = (kernel_size, stride or kernel_size, padding, dilation)
        size, step, around, apart = (n[0] if isinstance(n, Sequence) else n for n in sizes)
        wide = torch.nn.functional.max_pool2d(
            input.unsqueeze(-2), (1, size), (1, step), (0, around), (1, apart), ceil_mode
        )
        return wide.squeeze(-2)

    torch.max_pool1d = max_pool1d
    try:
        yield
    finally:
        torch.max_pool1d = plain


@contextmanager
def _free_chunks(torch: Any) -> Iterator[None]:
    """Have an axis of ``n*size`` cut into n parts: torch divides by sizes, which fixes them."""
    symbols = importlib.import_module("torch.fx.experimental.symbolic_shapes")
    plain = torch.chunk, torch.Tensor.chunk

    def chunk(input: Any, chunks: int, dim: int = 0) -> Any:
        size = input.shape[dim]
        if isinstance(size, int) or not symbols.statically_known_true(size % chunks == 0):
            return plain[0](input, chunks, dim)
        part = size // chunks
        return tuple(input.narrow(dim, i * part, part) for i in range(chunks))

    torch.chunk = torch.Tensor.chunk = chunk
    try:
        yield
    finally:
        torch.chunk, torch.Tensor.chunk = plain


def _refine(torch: Any, message: str, shapes: Any) -> Any:
    """Return dynamic shapes with what a message of torch.export suggests for them, if anything.

    These are bounds, and multiples: an axis that is ``40*_samples``. It also suggests constants,
    with which axes would not be free, and multiples plus a constant, most of which are those of
    the example.
    """
    fixes = re.findall(r"^ *(\w+) = (Dim\(.*\)|\d+\*_\w+)$", message, re.MULTILINE)
    roots = {text.rpartition("*")[2] for _, text in fixes if "Dim" not in text}
    kept = [f"{name} = {text}" for name, text in fixes if not name.startswith("_") or name in roots]
    if not kept:
        return shapes
    said = "\n".join(("Suggested fixes:", *kept))
    return torch.export.dynamic_shapes.refine_dynamic_shapes_from_suggested_fixes(said, shapes)
