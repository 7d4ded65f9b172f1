"""The readable kernels, in torch: the ground truth that every faster kernel is tested against.

Invariant: **a row's result depends on that row alone**, bit for bit, however many rows come with it. BLAS libraries
choose another summation order for another number of rows, so every matrix product here has one fixed shape: rows are
taken in tiles of a constant height, the last one padded with zeros, and attention reads keys in chunks of a constant
length. (The effect and this cure: Thinking Machines, "Defeating Nondeterminism in LLM Inference", 2025.)

Tensors are contiguous and on the CPU. ``dtype`` is float32 or bfloat16; sums inside norms and attention are float32.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own spelling
from torch import Tensor

# Rows in one matrix product. On bfloat16 hardware 16 rows cost what one row costs; float32 pays for each row.
LINEAR_TILE_ROWS = {torch.bfloat16: 16, torch.float32: 2}

# Query tokens and keys in one attention product.
ATTENTION_TILE_TOKENS = 8
ATTENTION_CHUNK_TOKENS = 256


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply each row of ``x`` [rows, in] with ``weight`` [out, in] and add ``bias`` [out]; returns [rows, out]."""
    num_rows = x.shape[0]
    tile = LINEAR_TILE_ROWS[x.dtype]
    padding = -num_rows % tile
    if padding:
        x = F.pad(x, (0, 0, 0, padding))
    if x.shape[0] == tile:
        return F.linear(x, weight, bias)[:num_rows]
    return torch.cat([F.linear(rows, weight, bias) for rows in torch.split(x, tile)])[:num_rows]


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale each row of ``x`` [..., width] to unit root mean square, times ``weight`` [width] (float32).

    Source: Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019, equation 4.
    """
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps) * weight).to(x.dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn ``x`` [tokens, heads, head_dim] by the angles of its positions; ``cos`` and ``sin`` [tokens, head_dim / 2].

    The two halves of a head rotate together, as in Hugging Face checkpoints. Source: Su et al., "RoFormer:
    Enhanced Transformer with Rotary Position Embedding", 2021, section 3.4.2.
    """
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)  # [tokens, 1, head_dim / 2]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype)


def silu_mul(gate_up: Tensor) -> Tensor:
    """SwiGLU's product: the first half of each row of ``gate_up`` [rows, 2 * width], activated, times the second."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def gelu_mul(gate_up: Tensor) -> Tensor:
    """GeGLU's product, with the tanh form of GELU: first half of each row activated, times the second half."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


def write_kv(cache: Tensor, slots: Tensor, values: Tensor) -> None:
    """Store ``values`` [tokens, kv_heads, head_dim] at ``slots`` of ``cache`` [num_slots, kv_heads, head_dim]."""
    cache.index_copy_(0, slots, values)


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slots: Tensor,
    start: int,
    scale: float,
    window: int | None,
) -> Tensor:
    """Attend from consecutive tokens of one request to everything before them, themselves included.

    Tiles of queries meet chunks of keys; a running maximum and sum join the chunks (Dao et al., "FlashAttention",
    2022, algorithm 1). Chunks start at multiples of their length whatever the query is, so the order of summation
    for a token is the same in a prompt read whole, in pieces, or one token at a time.

    Args:
        query: [tokens, heads, head_dim], the tokens at positions ``start``, ``start + 1`` …
        key_cache: [num_slots, kv_heads, head_dim].
        value_cache: same shape.
        slots: [start + tokens], the slot of each position of the request.
        start: position of the first query token.
        scale: factor of the dot products.
        window: a token sees the last ``window`` positions, itself included; ``None`` for all.

    Returns:
        [tokens, heads * head_dim]
    """
    num_tokens, num_heads, head_dim = query.shape
    num_kv_heads = key_cache.shape[1]
    group = num_heads // num_kv_heads  # query heads that share a KV head; they stand beside each other
    tile = ATTENTION_TILE_TOKENS
    padded = F.pad(query.float() * scale, (0, 0, 0, 0, 0, -num_tokens % tile))
    tiles = padded.view(-1, tile, num_kv_heads, group, head_dim).transpose(1, 2)
    chunks = _Chunks(key_cache, value_cache, slots)
    outputs = [
        _attend(rows.reshape(num_kv_heads, tile * group, head_dim), start + index * tile, chunks, window)
        for index, rows in enumerate(tiles)
    ]
    joined = torch.stack(outputs).view(-1, num_kv_heads, tile, group, head_dim).transpose(1, 2)
    return joined.reshape(-1, num_heads * head_dim)[:num_tokens].to(query.dtype)


class _Chunks:
    """The keys and values of one request, gathered from the cache chunk by chunk, each chunk once."""

    def __init__(self, key_cache: Tensor, value_cache: Tensor, slots: Tensor) -> None:
        self.key_cache, self.value_cache, self.slots = key_cache, value_cache, slots
        self.num_known = slots.shape[0]
        self.read: dict[int, tuple[Tensor, Tensor]] = {}

    def __getitem__(self, chunk: int) -> tuple[Tensor, Tensor]:
        """Keys [kv_heads, head_dim, chunk] and values [kv_heads, chunk, head_dim] in float32, padded with zeros."""
        if chunk not in self.read:
            slots = self.slots[chunk * ATTENTION_CHUNK_TOKENS : (chunk + 1) * ATTENTION_CHUNK_TOKENS]
            padding = (0, 0, 0, 0, 0, ATTENTION_CHUNK_TOKENS - slots.shape[0])
            keys = F.pad(self.key_cache.index_select(0, slots).float(), padding)
            values = F.pad(self.value_cache.index_select(0, slots).float(), padding)
            self.read[chunk] = keys.permute(1, 2, 0).contiguous(), values.transpose(0, 1).contiguous()
        return self.read[chunk]


def _attend(query: Tensor, first: int, chunks: _Chunks, window: int | None) -> Tensor:
    """Attend from one tile of tokens, the first at position ``first``.

    Args:
        query: [kv_heads, tile * group, head_dim], scaled.
        first: position of the tile's first token.
        chunks: keys and values of the request.
        window: as in ``paged_attention``.

    Returns:
        the shape of ``query``.
    """
    num_rows = query.shape[1]
    tile, length = ATTENTION_TILE_TOKENS, ATTENTION_CHUNK_TOKENS
    positions = torch.arange(first, first + tile).repeat_interleave(num_rows // tile).unsqueeze(1)
    last = min(first + tile, chunks.num_known) - 1
    oldest = 0 if window is None else max(0, first - window + 1)
    best = query.new_full((query.shape[0], num_rows, 1), torch.finfo(torch.float32).min)
    total = torch.zeros_like(best)
    output = torch.zeros_like(query)
    for chunk in range(oldest // length, last // length + 1):
        keys, values = chunks[chunk]
        seen = torch.arange(chunk * length, (chunk + 1) * length)
        hidden = seen > positions
        if window is not None:
            hidden |= seen <= positions - window
        scores = torch.bmm(query, keys).masked_fill_(hidden, -math.inf)  # [kv_heads, tile * group, chunk]
        highest = torch.maximum(best, scores.amax(dim=-1, keepdim=True))
        weights = torch.exp(scores - highest)
        shrink = torch.exp(best - highest)
        total = total * shrink + weights.sum(dim=-1, keepdim=True)
        output = output * shrink + torch.bmm(weights, values)
        best = highest
    return output / total
