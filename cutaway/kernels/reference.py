"""The readable kernels, in torch: the ground truth that every faster kernel is tested against.

Invariant: **a row's result depends on that row alone**, bit for bit, however many rows come with it. Libraries choose
another order of summation for another number of rows, so every product here has one fixed shape: rows are taken in
tiles of a constant height, the last one padded, and attention is shown keys in whole chunks. (The effect and this
cure: Thinking Machines, "Defeating Nondeterminism in LLM Inference", 2025.)

Tensors are contiguous and on the CPU. ``dtype`` is float32 or bfloat16; sums inside norms and attention are float32.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from torch import Tensor

from cutaway.kernels.batch import RowSpan

# Elementwise work below this size is not dealt out to threads (the smallest such limit in torch is that of GELU).
UNCUT_ELEMENTS = 16_384

# Positions in one attention call, and the multiple of keys that it is shown. Tiles begin at multiples of their height,
# so a position has its place in a tile and the keys that it is shown for good, whatever a step computes beside it.
ATTENTION_TILE_ROWS = 8
ATTENTION_CHUNK_KEYS = 128


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Consecutive rows of one request that attend together.

    Attributes:
        first_row, num_rows: which rows of the batch.
        place: where the first of them stands in the tile.
        first_key, end_key: which of the span's keys they are shown, in whole chunks.
        mask: [tile rows * group, keys], 0 where a row sees a key, else -inf; repeated for each query head of a group.
    """

    first_row: int
    num_rows: int
    place: int
    first_key: int
    end_key: int
    mask: Tensor


@dataclass(frozen=True, slots=True)
class AttentionSpan:
    """The tiles of one request, and the slots of all keys that they are shown, in whole chunks."""

    slots: Tensor
    tiles: tuple[AttentionTile, ...]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply each row of ``x`` [rows, in] with ``weight`` [out, in] and add ``bias`` [out]; returns [rows, out]."""
    num_rows = x.shape[0]
    tile, multiply = _TILED_PRODUCTS[x.dtype]
    padding = -num_rows % tile
    if padding:
        x = F.pad(x, (0, 0, 0, padding))
    products = [multiply(rows, weight) for rows in torch.split(x, tile)]
    products[-1] = products[-1][: tile - padding]
    output = torch.cat(products)
    return output if bias is None else output + bias


def _multiply_transposed(rows: Tensor, weight: Tensor) -> Tensor:
    return torch.mm(weight, rows.t()).t()


# How many rows one product takes, and how it is called. With bfloat16, 16 rows cost what one row costs, and oneDNN is
# up to twice as fast when the weights are the left factor; with float32 each row is paid for.
_TILED_PRODUCTS: Mapping[torch.dtype, tuple[int, Callable[[Tensor, Tensor], Tensor]]] = {
    torch.bfloat16: (16, _multiply_transposed),
    torch.float32: (2, F.linear),
}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row of ``x`` [..., width] to unit root mean square, times ``weight`` [width] (float32).

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    # Contiguous, because torch sums up strided rows in an order that depends on how many there are.
    return F.rms_norm(x.float().contiguous(), weight.shape, weight, eps).to(x.dtype)


def rotary_angles(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine as ``rotate`` takes them, float32 [rows, 1, head_dim] each.

    Args:
        positions: [rows].
        frequencies: float32 [head_dim / 2], the angle per position of each pair of channels.
    """
    angles = positions.float().unsqueeze(1) * frequencies
    cos, sin = _in_pieces(torch.cos, angles), _in_pieces(torch.sin, angles)
    return torch.cat((cos, cos), dim=-1).unsqueeze(1), torch.cat((-sin, sin), dim=-1).unsqueeze(1)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn ``x`` [rows, heads, head_dim] by the angles of its positions.

    The two halves of a head rotate together, as in Hugging Face checkpoints: (a, b) becomes
    (a cos - b sin, b cos + a sin). Source: Su et al., "RoFormer", 2021, section 3.4.2.

    Args:
        x: heads of all rows.
        cos: [rows, 1, head_dim], the same in both halves.
        sin: [rows, 1, head_dim], negative in the first half.
    """
    wide = x.float()
    return (wide * cos + wide.roll(x.shape[-1] // 2, dims=-1) * sin).to(x.dtype)


def silu_mul(gate_up: Tensor) -> Tensor:
    """SwiGLU's product: the first half of each row of ``gate_up`` [rows, 2 * width], activated, times the second."""
    return _in_pieces(lambda gate, up: F.silu(gate) * up, *gate_up.chunk(2, dim=-1))


def gelu_mul(gate_up: Tensor) -> Tensor:
    """GeGLU's product, with the tanh form of GELU: first half of each row activated, times the second half."""
    return _in_pieces(lambda gate, up: F.gelu(gate, approximate="tanh") * up, *gate_up.chunk(2, dim=-1))


def _in_pieces(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """Apply an elementwise function that uses exp or the like to a few rows of ``operands`` [rows, width] at a time.

    torch deals a large tensor out to threads and may cut it inside a row. What is left over at a cut is computed with
    other instructions, which round such functions differently. Pieces below ``UNCUT_ELEMENTS`` are not cut.
    """
    num_rows = max(1, UNCUT_ELEMENTS // operands[0].shape[1])
    if operands[0].shape[0] <= num_rows:
        return function(*operands)
    pieces = zip(*(torch.split(operand, num_rows) for operand in operands), strict=True)
    return torch.cat([function(*rows) for rows in pieces])


def write_kv(cache: Tensor, slots: Tensor, values: Tensor) -> None:
    """Store ``values`` [tokens, kv_heads, head_dim] at ``slots`` of ``cache`` [num_slots, kv_heads, head_dim]."""
    cache.index_copy_(0, slots, values)


def attend(
    query: Tensor, key_cache: Tensor, value_cache: Tensor, spans: Sequence[AttentionSpan], scale: float
) -> Tensor:
    """Attend from the rows of a batch to everything that they see of their own requests.

    Args:
        query: [rows, heads, head_dim], rotated.
        key_cache: [num_slots, kv_heads, head_dim]; every slot that a span names holds finite numbers.
        value_cache: same shape.
        spans: what each row sees; together they cover all rows in order.
        scale: factor of the dot products.

    Returns:
        [rows, heads * head_dim]
    """
    num_heads, head_dim = query.shape[1:]
    num_kv_heads = key_cache.shape[1]
    # The query heads that share a key-value head stand beside each other, and attend together like rows of one head.
    by_group = query.view(-1, num_kv_heads, num_heads // num_kv_heads, head_dim)
    outputs = []
    for span in spans:
        keys = key_cache.index_select(0, span.slots).transpose(0, 1).unsqueeze(0)  # [1, kv_heads, keys, head_dim]
        values = value_cache.index_select(0, span.slots).transpose(0, 1).unsqueeze(0)
        for tile in span.tiles:
            rows = by_group[tile.first_row : tile.first_row + tile.num_rows]
            rows = F.pad(rows, (0, 0, 0, 0, 0, 0, tile.place, ATTENTION_TILE_ROWS - tile.place - tile.num_rows))
            attended = F.scaled_dot_product_attention(
                rows.transpose(0, 1).flatten(1, 2).unsqueeze(0),  # [1, kv_heads, tile rows * group, head_dim]
                keys[:, :, tile.first_key : tile.end_key],
                values[:, :, tile.first_key : tile.end_key],
                attn_mask=tile.mask,
                scale=scale,
            )
            in_tile = attended.view(num_kv_heads, ATTENTION_TILE_ROWS, -1, head_dim).transpose(0, 1)
            outputs.append(in_tile[tile.place : tile.place + tile.num_rows])
    return torch.cat(outputs).flatten(1)


def plan_attention(
    spans: Sequence[RowSpan], window: int | None, group: int, dtype: torch.dtype
) -> tuple[AttentionSpan, ...]:
    """Cut the rows of a batch into tiles, and say what each tile sees; once a step for all layers with one window.

    Args:
        spans: the rows of each request.
        window: a row sees the last ``window`` positions, its own included; ``None`` for all.
        group: query heads that share a key-value head.
        dtype: of queries and cache.
    """
    planned = []
    for span in spans:
        tiles = []
        position, end = span.start, span.start + span.num_rows
        oldest, _ = _shown_keys(position - position % ATTENTION_TILE_ROWS, window)
        shown = span.slots[oldest:]
        # Hidden keys are multiplied with zero, so they must be finite: the request's own first one is.
        slots = torch.from_numpy(np.concatenate((shown, shown[:1].repeat(-len(shown) % ATTENTION_CHUNK_KEYS))))
        while position < end:
            place = position % ATTENTION_TILE_ROWS
            num_rows = min(ATTENTION_TILE_ROWS - place, end - position)
            first_key, end_key = _shown_keys(position - place, window)
            mask = _mask(position - place, first_key, end_key, window, dtype).repeat_interleave(group, dim=0)
            first_row = span.first_row + position - span.start
            tiles.append(AttentionTile(first_row, num_rows, place, first_key - oldest, end_key - oldest, mask))
            position += num_rows
        planned.append(AttentionSpan(slots, tuple(tiles)))
    return tuple(planned)


def _shown_keys(first: int, window: int | None) -> tuple[int, int]:
    """Which keys the tile at the positions from ``first`` on is shown: whole chunks, from what its first row sees."""
    oldest = 0 if window is None else max(0, first - window + 1)
    end = first + ATTENTION_TILE_ROWS
    return oldest - oldest % ATTENTION_CHUNK_KEYS, end + -end % ATTENTION_CHUNK_KEYS


def _mask(first: int, first_key: int, end_key: int, window: int | None, dtype: torch.dtype) -> Tensor:
    """What the tile at the positions from ``first`` on sees: 0 for a visible key, -inf else; [tile rows, keys]."""
    positions = torch.arange(first, first + ATTENTION_TILE_ROWS).unsqueeze(1)
    keys = torch.arange(first_key, end_key)
    hidden = keys > positions
    if window is not None:
        hidden |= keys <= positions - window
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, -math.inf)
