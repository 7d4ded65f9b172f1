"""Dequantization of ggml's block types to float32, vectorised in torch.

Owns the layouts and the arithmetic. Refuses to know files, names of tensors and models. Invariant: every result is
bit-identical to ``gguf.quants.dequantize``, so products and sums are rounded in the same order (no fused operation).

``raw`` is always uint8 [rows, bytes of a row]; the result is float32 [rows, columns]. Blocks are unpacked in three
steps, each one pass over contiguous memory: small integers as bytes, bytes to float32, float32 times the scale.
A half-precision scale is read by viewing the blocks as float16, which works because their sizes are even numbers.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from cutaway.errors import UnsupportedModel
from cutaway.quant.block_types import BLOCK_TYPES_BY_NAME

# One call should decode about this many values: what it works on then stays in the cache of a core.
CHUNK_VALUES = 128 * 1024

_LOW_NIBBLES = 0x0F0F0F0F0F0F0F0F
_BLOCK_BYTES = {name: block_type.num_bytes for name, block_type in BLOCK_TYPES_BY_NAME.items()}


def is_decodable(type_name: str) -> bool:
    """Whether ``dequantize`` knows the type."""
    return type_name in _DECODERS or type_name in _DECODED_BY_GGUF


def dequantize(raw: Tensor, type_name: str) -> Tensor:
    """Decode whole rows.

    Args:
        raw: uint8 [rows, bytes of a row], a whole number of blocks per row.
        type_name: ggml's name of the type, ``Q4_1``.

    Returns:
        float32 [rows, columns]; it may share memory with ``raw`` when nothing has to be converted.

    Raises:
        UnsupportedModel: the type cannot be decoded.
    """
    if not is_decodable(type_name):
        raise UnsupportedModel(
            f"tensors of type {type_name} cannot be decoded",
            hint="use another quantization of the model, for example Q4_K or Q8_0",
        )
    block_bytes = _BLOCK_BYTES[type_name]
    assert raw.dtype == torch.uint8, f"raw bytes are {raw.dtype}"
    assert raw.shape[-1] % block_bytes == 0, f"a row of {raw.shape[-1]} bytes is no whole number of {type_name} blocks"
    decode = _DECODERS.get(type_name)
    if decode is None:
        return _decode_by_gguf(raw, type_name)
    return decode(raw.reshape(-1, block_bytes)).view(raw.shape[0], -1)


def _decode_f32(blocks: Tensor) -> Tensor:
    """F32: ``float``, as it is."""
    return blocks.view(torch.float32)


def _decode_f16(blocks: Tensor) -> Tensor:
    """F16: ``ggml_half``, IEEE half precision."""
    return blocks.view(torch.float16).float()


def _decode_bf16(blocks: Tensor) -> Tensor:
    """BF16: ``ggml_bf16_t``, the upper half of a float."""
    return blocks.view(torch.bfloat16).float()


def _decode_q4_0(blocks: Tensor) -> Tensor:
    """``block_q4_0``: half d; qs[16], values 0-15 in the low and 16-31 in the high nibbles. x = d (q - 8)."""
    quants = _nibbles(blocks[:, 2:], run=16).sub_(8).view(torch.int8)  # [blocks, 32]
    return quants.float().mul_(_half(blocks, 0))


def _decode_q4_1(blocks: Tensor) -> Tensor:
    """``block_q4_1``: half d, m; qs[16] as in Q4_0. x = d q + m."""
    quants = _nibbles(blocks[:, 4:], run=16)  # [blocks, 32]
    return quants.float().mul_(_half(blocks, 0)).add_(_half(blocks, 1))


def _decode_q5_0(blocks: Tensor) -> Tensor:
    """``block_q5_0``: half d; qh[4], bit i is the fifth bit of value i; qs[16] as in Q4_0. x = d (q - 16)."""
    quants = _nibbles(blocks[:, 6:], run=16).bitwise_or_(_fifth_bits(blocks[:, 2:6]))  # [blocks, 32]
    return quants.sub_(16).view(torch.int8).float().mul_(_half(blocks, 0))


def _decode_q5_1(blocks: Tensor) -> Tensor:
    """``block_q5_1``: half d, m; qh[4] and qs[16] as in Q5_0. x = d q + m."""
    quants = _nibbles(blocks[:, 8:], run=16).bitwise_or_(_fifth_bits(blocks[:, 4:8]))  # [blocks, 32]
    return quants.float().mul_(_half(blocks, 0)).add_(_half(blocks, 1))


def _decode_q8_0(blocks: Tensor) -> Tensor:
    """``block_q8_0``: half d; int8 qs[32]. x = d q."""
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _decode_q4_k(blocks: Tensor) -> Tensor:
    """``block_q4_K``: half d, dmin; scales[12], 6-bit scale and minimum of 8 runs of 32; qs[128].

    Each 32 bytes of qs hold an even run in the low and the next run in the high nibbles. x = (d sc) q - (dmin m).
    """
    quants = _nibbles(blocks[:, 16:], run=32).view(-1, 8, 32)  # [blocks, runs, 32]
    scales, minima = _scales_and_minima(blocks)
    return quants.float().mul_(scales).sub_(minima)


def _decode_q5_k(blocks: Tensor) -> Tensor:
    """``block_q5_K``: as Q4_K, and qh[32] before qs[128]: bit j of qh[l] is the fifth bit of value l of run j."""
    quants = _nibbles(blocks[:, 48:], run=32).view(-1, 8, 32)  # [blocks, runs, 32]
    high = _words(blocks[:, 16:48])
    for run in range(8):
        # Bring bit ``run`` of each byte to bit 4; bits that cross into the neighbouring byte are masked away.
        shifted = high << (4 - run) if run <= 4 else high >> (run - 4)
        quants[:, run].bitwise_or_(shifted.bitwise_and_(0x1010101010101010).view(torch.uint8))
    scales, minima = _scales_and_minima(blocks)
    return quants.float().mul_(scales).sub_(minima)


def _decode_q6_k(blocks: Tensor) -> Tensor:
    """``block_q6_K``: ql[128]; qh[64]; int8 scales[16]; half d. x = (d sc) (q - 32).

    A half block of 128 values are 4 runs of 32: 64 bytes of ql hold runs 0 and 1 in the low, 2 and 3 in the high
    nibbles; bits 2k and 2k+1 of its 32 bytes of qh are the upper two bits of run k. One scale serves 16 values.
    """
    quants = _nibbles(blocks[:, :128], run=64).view(-1, 2, 4, 32)  # [blocks, halves, runs, 32]
    high = _words(blocks[:, 128:192]).view(-1, 2, 4)  # [blocks, halves, 8-byte words]
    for run in range(4):
        shift = 4 - 2 * run
        shifted = high << shift if shift >= 0 else high >> -shift
        quants[:, :, run].bitwise_or_(shifted.bitwise_and_(0x3030303030303030).view(torch.uint8))
    scales = blocks[:, 192:208].view(torch.int8).float().mul_(_half(blocks, 104))  # [blocks, 16]
    signed = quants.sub_(32).view(torch.int8).view(-1, 16, 16)
    return signed.float().mul_(scales.unsqueeze(2))


def _half(blocks: Tensor, index: int) -> Tensor:
    """The ``index``-th half-precision number of each block, as float32 [blocks, 1]."""
    return blocks.view(torch.float16)[:, index : index + 1].float()


def _words(packed: Tensor) -> Tensor:
    """A contiguous copy, seen as int64, so that one operation treats eight bytes."""
    return packed.clone(memory_format=torch.contiguous_format).view(torch.int64)


def _nibbles(packed: Tensor, run: int) -> Tensor:
    """Split bytes into uint8 values: of each ``run`` bytes all the low nibbles, then all the high ones.

    ``packed`` is uint8 [blocks, n]; the result is uint8 [blocks, 2 n].
    """
    words = _words(packed).view(len(packed), -1, 1, run // 8)
    quants = torch.empty(len(packed), words.shape[1], 2, run // 8, dtype=torch.int64)  # [blocks, runs, low/high, words]
    torch.bitwise_and(words, _LOW_NIBBLES, out=quants[:, :, :1])
    torch.bitwise_and(words.bitwise_right_shift_(4), _LOW_NIBBLES, out=quants[:, :, 1:])
    return quants.view(len(packed), -1).view(torch.uint8)


def _fifth_bits(high: Tensor) -> Tensor:
    """Spread 32 bits over 32 bytes, each at bit 4: uint8 [blocks, 4] to uint8 [blocks, 32]."""
    return _FIFTH_BITS.index_select(0, high.reshape(-1).int()).view(torch.uint8).view(-1, 32)


def _fifth_bit_table() -> Tensor:
    """For each byte, its eight bits as eight bytes 0x00 or 0x10, lowest bit first, seen as one int64."""
    bits = torch.arange(256).unsqueeze(1).bitwise_right_shift(torch.arange(8)).bitwise_and_(1)  # [byte, bit]
    return bits.to(torch.uint8).bitwise_left_shift_(4).view(torch.int64).flatten()


_FIFTH_BITS = _fifth_bit_table()


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Scale and minimum of each run of a Q4_K or Q5_K block, as float32 [blocks, 8, 1].

    Of scales[12], bytes 0-3 and 4-7 hold in their low six bits the scales and minima of runs 0-3; bytes 8-11 hold the
    low four bits of the scales (low nibble) and minima (high nibble) of runs 4-7, whose upper two bits are the top
    bits of bytes 0-7.
    """
    packed = blocks[:, 4:16].view(torch.int32)  # [blocks, 3]: four runs at once
    scales, minima, low = packed[:, :1], packed[:, 1:2], packed[:, 2:]
    unpacked = torch.empty(len(blocks), 4, dtype=torch.int32)
    unpacked[:, 0:1] = scales & 0x3F3F3F3F
    unpacked[:, 1:2] = (low & 0x0F0F0F0F) | ((scales >> 2) & 0x30303030)
    unpacked[:, 2:3] = minima & 0x3F3F3F3F
    unpacked[:, 3:4] = ((low >> 4) & 0x0F0F0F0F) | ((minima >> 2) & 0x30303030)
    factors = unpacked.view(torch.uint8).float().view(-1, 2, 8)  # [blocks, scale/minimum, runs]
    factors[:, 0].mul_(_half(blocks, 0))
    factors[:, 1].mul_(_half(blocks, 1))
    return factors[:, 0].unsqueeze(2), factors[:, 1].unsqueeze(2)


_DECODERS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "F32": _decode_f32,
    "F16": _decode_f16,
    "BF16": _decode_bf16,
    "Q4_0": _decode_q4_0,
    "Q4_1": _decode_q4_1,
    "Q5_0": _decode_q5_0,
    "Q5_1": _decode_q5_1,
    "Q8_0": _decode_q8_0,
    "Q4_K": _decode_q4_k,
    "Q5_K": _decode_q5_k,
    "Q6_K": _decode_q6_k,
}

_DECODED_BY_GGUF = frozenset(
    {
        "Q2_K",
        "Q3_K",
        "IQ1_S",
        "IQ1_M",
        "IQ2_XXS",
        "IQ2_XS",
        "IQ2_S",
        "IQ3_XXS",
        "IQ3_S",
        "IQ4_NL",
        "IQ4_XS",
        "TQ1_0",
        "TQ2_0",
        "MXFP4",
        "NVFP4",
    }
)


def _decode_by_gguf(raw: Tensor, type_name: str) -> Tensor:
    # Rare types: ggml's own package decodes them in NumPy. Imported here because most runs never need it.
    from gguf import GGMLQuantizationType, quants

    decoded = quants.dequantize(raw.numpy(), GGMLQuantizationType[type_name])
    return torch.from_numpy(decoded)
