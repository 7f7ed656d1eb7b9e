"""Products of matrices, determinants and Fourier transforms."""

from converter.write.torch.graph_module.operators import Known, Tensor, integers, operator, torch


@operator("MatMul")
def multiply(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices."""
    return torch.matmul(a, b)


@operator("Gemm")
def multiply_and_add(
    a: Tensor, b: Tensor, c: Tensor | None = None, *, alpha: float = 1.0, beta: float = 1.0,
    transA: int = 0, transB: int = 0,  # noqa: N803 - names of attributes
) -> Tensor:  # fmt: skip
    """Return alpha a b + beta c."""
    left, right = (a.t() if transA else a), (b.t() if transB else b)
    if c is not None and c.ndim == 1 and alpha == beta == 1:
        return torch.addmm(c, left, right)
    product = torch.mm(left, right)
    product = product if alpha == 1 else product * alpha
    if c is None:
        return product
    return product + (c if beta == 1 else c * beta)


@operator("Einsum")
def sum_products(*operands: Tensor, equation: str) -> Tensor:
    """Return sums of products in Einstein's notation."""
    return torch.einsum(equation.replace(" ", ""), *operands)


@operator("Det")
def find_determinant(x: Tensor) -> Tensor:
    """Return the determinants of matrices."""
    return torch.linalg.det(x)


@operator("MatMulInteger")
def multiply_integers(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """Multiply matrices of integers, from which zero points are subtracted."""
    left, right = a.to(torch.int32), b.to(torch.int32)
    if a_zero is not None:
        zero = a_zero.to(torch.int32)
        left = left - (zero[:, None] if zero.ndim == 1 and zero.shape[0] != 1 else zero)
    if b_zero is not None:
        right = right - b_zero.to(torch.int32)
    return torch.matmul(left, right)


@operator("DFT")
def transform(
    x: Tensor, length: Known | None = None, axis_input: Known | None = None, *,
    axis: int | None = None, inverse: int = 0, onesided: int = 0,
) -> Tensor:  # fmt: skip
    """Return the discrete Fourier transform; the last axis has real and imaginary parts.

    One-sided, the numbers are real ones, or come from the half of a transform of such.
    """
    along = integers(axis_input)[0] if axis_input is not None else axis if axis is not None else 1
    along = along % x.ndim
    count = None if length is None else integers(length)[0]
    is_real = isinstance(x.shape[-1], int) and x.shape[-1] == 1
    numbers = torch.complex(x[..., 0], torch.zeros_like(x[..., 0]) if is_real else x[..., 1])
    if inverse and onesided:
        return torch.fft.irfft(numbers, count, along)[..., None]
    made = (torch.fft.ifft if inverse else torch.fft.fft)(numbers, count, along)
    if onesided:
        made = made.narrow(along, 0, made.shape[along] // 2 + 1)
    return torch.view_as_real(made)
