"""Each kernel against float64 arithmetic written out, and each row against itself in other company."""

import math

import pytest
import torch
from torch import Tensor

from cutaway.kernels import reference as kernels
from cutaway.kernels.batch import RowSpan

DTYPES = [torch.float32, torch.bfloat16]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
HEADS = [(9, 3, 64), (14, 2, 64), (4, 1, 256), (6, 6, 16)]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def close(ours: Tensor, exact: Tensor, dtype: torch.dtype) -> None:
    scale = exact.abs().max().item()
    torch.testing.assert_close(ours.double(), exact, atol=TOLERANCE[dtype] * scale, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_out", "num_in"), [(960, 576), (40, 48), (1, 1), (300, 1536)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_linear(dtype: torch.dtype, num_out: int, num_in: int, with_bias: bool) -> None:
    weight = torch.randn(num_out, num_in, dtype=dtype)
    bias = torch.randn(num_out, dtype=dtype) if with_bias else None
    x = torch.randn(37, num_in, dtype=dtype)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    whole = kernels.linear(x, weight, bias)
    close(whole, exact, dtype)
    for rows in (slice(0, 1), slice(5, 6), slice(30, 37), slice(3, 20)):
        assert torch.equal(kernels.linear(x[rows], weight, bias), whole[rows])
    order = torch.randperm(37)
    assert torch.equal(kernels.linear(x[order], weight, bias), whole[order])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(33, 576), (33, 9, 64)], ids=str)
def test_rms_norm(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=dtype) * 3
    weight = torch.randn(shape[-1])
    wide = x.double()
    exact = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight.double()
    whole = kernels.rms_norm(x, weight, 1e-5)
    close(whole, exact, dtype)
    for row in (0, 7, 32):
        assert torch.equal(kernels.rms_norm(x[row : row + 1], weight, 1e-5), whole[row : row + 1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotate_turns_each_pair_of_channels_by_its_angle(dtype: torch.dtype) -> None:
    x = torch.randn(21, 5, 16, dtype=dtype)
    frequencies = torch.rand(8)
    cos, sin = kernels.rotary_angles(torch.arange(21), frequencies)
    angles = torch.arange(21).view(21, 1, 1) * frequencies
    first, second = x.double().chunk(2, -1)
    pairs = torch.complex(first, second) * torch.polar(torch.ones_like(angles).double(), angles.double())
    close(kernels.rotate(x, cos, sin), torch.cat([pairs.real, pairs.imag], -1), dtype)
    close(kernels.rotate(x, cos, sin).double().norm(dim=-1), x.double().norm(dim=-1), dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gated_products(dtype: torch.dtype) -> None:
    gate_up = torch.randn(19, 64, dtype=dtype) * 2
    gate, up = gate_up.double().chunk(2, -1)
    close(kernels.silu_mul(gate_up), gate / (1 + torch.exp(-gate)) * up, dtype)
    gelu = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
    close(kernels.gelu_mul(gate_up), gelu * up, dtype)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES)
def test_elementwise_rows_are_the_same_wherever_threads_cut_the_batch(dtype: torch.dtype, num_threads: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        gate_up = torch.randn(777, 2 * 97, dtype=dtype)
        for kernel in (kernels.silu_mul, kernels.gelu_mul):
            assert torch.equal(torch.cat([kernel(row) for row in gate_up.split(1)]), kernel(gate_up))
        positions, frequencies = torch.arange(777), torch.rand(67)
        for whole, *rows in zip(
            kernels.rotary_angles(positions, frequencies),
            *(kernels.rotary_angles(position, frequencies) for position in positions.split(1)),
            strict=True,
        ):
            assert torch.equal(torch.cat(rows), whole)
    finally:
        torch.set_num_threads(before)


def test_write_kv_writes_its_slots_and_no_others() -> None:
    cache = torch.zeros(10, 2, 4)
    values = torch.randn(3, 2, 4)
    kernels.write_kv(cache, torch.tensor([7, 2, 9]), values)
    assert torch.equal(cache[[7, 2, 9]], values)
    assert not cache[[0, 1, 3, 4, 5, 6, 8]].any()


def exact_attention(query: Tensor, keys: Tensor, values: Tensor, window: int | None) -> Tensor:
    """Causal attention of a whole request in float64; all three [tokens, heads, head_dim]."""
    num_tokens, num_heads, head_dim = query.shape
    group = num_heads // keys.shape[1]
    keys = keys.double().repeat_interleave(group, 1)
    values = values.double().repeat_interleave(group, 1)
    scores = torch.einsum("qhd,khd->hqk", query.double(), keys) / math.sqrt(head_dim)
    distance = torch.arange(num_tokens).unsqueeze(1) - torch.arange(num_tokens)
    hidden = distance < 0
    if window is not None:
        hidden |= distance >= window
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, values).flatten(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim"), HEADS)
@pytest.mark.parametrize("window", [None, 1, 7, 130, 512], ids=str)
def test_attention_alone_in_pieces_and_in_company(
    dtype: torch.dtype, num_heads: int, num_kv_heads: int, head_dim: int, window: int | None
) -> None:
    num_tokens, num_slots = 700, 1024
    slots = torch.randperm(num_slots)[:num_tokens]
    key_cache, value_cache = torch.zeros(2, num_slots, num_kv_heads, head_dim, dtype=dtype)
    keys, values = torch.randn(2, num_tokens, num_kv_heads, head_dim, dtype=dtype)
    kernels.write_kv(key_cache, slots, keys)
    kernels.write_kv(value_cache, slots, values)
    query = torch.randn(num_tokens, num_heads, head_dim, dtype=dtype)

    def attend(*pieces: tuple[int, int]) -> Tensor:
        """Attend from pieces of the request, as if they were requests of one batch."""
        spans, first_row = [], 0
        for start, end in pieces:
            spans.append(RowSpan(first_row, end - start, start, slots[:end].numpy()))
            first_row += end - start
        planned = kernels.plan_attention(spans, window, num_heads // num_kv_heads, dtype)
        rows = torch.cat([query[start:end] for start, end in pieces])
        return kernels.attend(rows, key_cache, value_cache, planned, head_dim**-0.5)

    whole = attend((0, num_tokens))
    close(whole, exact_attention(query, keys, values, window), dtype)
    for piece in ((0, 1), (1, 2), (15, 17), (100, 101), (127, 130), (255, 513), (511, 512), (512, 513), (699, 700)):
        assert torch.equal(attend(piece), whole[piece[0] : piece[1]]), piece
    together = attend((300, 301), (0, 77), (512, 513), (77, 300))
    assert torch.equal(together, torch.cat([whole[300:301], whole[:77], whole[512:513], whole[77:300]]))


def test_a_neighbour_of_infinities_changes_nothing() -> None:
    key_cache, value_cache = torch.randn(2, 64, 1, 8)
    slots = torch.arange(20)
    query = torch.randn(20, 2, 8)
    planned = kernels.plan_attention([RowSpan(0, 20, 0, slots.numpy())], None, 2, torch.float32)
    before = kernels.attend(query, key_cache, value_cache, planned, 1.0)
    for cache in (key_cache, value_cache):
        cache[20:] = math.nan
    assert torch.equal(kernels.attend(query, key_cache, value_cache, planned, 1.0), before)
