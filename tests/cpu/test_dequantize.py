"""Every block type against ggml's own package: the same float32, bit by bit."""

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

from cutaway.errors import UnsupportedModel
from cutaway.quant.block_types import BLOCK_TYPES, BLOCK_TYPES_BY_NAME
from cutaway.quant.ggml import dequantize, is_decodable

SEED = 20_260_830
NUM_ROWS = 7
NUM_BLOCKS = 11

# Where each type keeps its half-precision numbers, which random bytes would make infinite now and then.
HALF_OFFSETS = {
    "F16": (0,),
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ2_XXS": (0,),
    "IQ2_XS": (0,),
    "IQ2_S": (0,),
    "IQ3_XXS": (0,),
    "IQ3_S": (0,),
    "IQ1_S": (0,),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "TQ1_0": (52,),
    "TQ2_0": (64,),
}
SPECIAL_HALVES = np.array([0.0, -0.0, 6e-8, -6e-5, 65504.0, -1.0], dtype=np.float16)


def can_gguf_decode(type_id: GGMLQuantizationType) -> bool:
    try:
        quants.dequantize(np.zeros((1, GGML_QUANT_SIZES[type_id][1]), dtype=np.uint8), type_id)
    except NotImplementedError:
        return False
    return True


DECODABLE = [type_id.name for type_id in GGMLQuantizationType if can_gguf_decode(type_id)]


def random_rows(name: str, num_rows: int, num_blocks: int) -> torch.Tensor:
    """Valid blocks of random content, with ordinary, tiny, huge and signed zero scales."""
    rng = np.random.default_rng(SEED)
    num_bytes = BLOCK_TYPES_BY_NAME[name].num_bytes
    blocks = rng.integers(0, 256, (num_rows * num_blocks, num_bytes), dtype=np.uint8)
    for offset in HALF_OFFSETS.get(name, ()):
        halves = rng.standard_normal(len(blocks)).astype(np.float16)
        special = SPECIAL_HALVES[: len(halves)]
        halves[: len(special)] = rng.permutation(special)
        blocks[:, offset : offset + 2] = halves[:, None].view(np.uint8)
    if name == "IQ1_M":
        # Its half is spread over the upper nibbles of four words; this keeps the exponent ordinary.
        blocks[:, 55] = blocks[:, 55] & 0x0F | 0x30
    if name == "MXFP4":
        blocks[:, 0] = blocks[:, 0] % 251  # beyond it float32 overflows
    if name in ("F32", "BF16"):
        blocks[:, -1] = blocks[:, -1] & 0xBF
    return torch.from_numpy(blocks.reshape(num_rows, num_blocks * num_bytes))


def bits(values: torch.Tensor) -> list[list[int]]:
    return values.contiguous().view(torch.int32).tolist()


def test_the_table_of_types_is_that_of_ggml() -> None:
    table = {block_type.type_id: (block_type.block_size, block_type.num_bytes) for block_type in BLOCK_TYPES.values()}
    assert table == {int(type_id): sizes for type_id, sizes in GGML_QUANT_SIZES.items()}
    assert all(GGMLQuantizationType(type_id).name == block_type.name for type_id, block_type in BLOCK_TYPES.items())


def test_every_type_that_ggml_decodes_is_decodable_and_no_other() -> None:
    assert [name for name in BLOCK_TYPES_BY_NAME if is_decodable(name)] == DECODABLE


@pytest.mark.parametrize("name", DECODABLE)
def test_random_blocks_decode_to_the_same_bits_as_by_ggml(name: str) -> None:
    raw = random_rows(name, NUM_ROWS, NUM_BLOCKS)
    expected = torch.from_numpy(quants.dequantize(raw.numpy(), GGMLQuantizationType[name]))
    decoded = dequantize(raw, name)
    assert decoded.dtype == torch.float32
    assert decoded.shape == (NUM_ROWS, NUM_BLOCKS * BLOCK_TYPES_BY_NAME[name].block_size)
    assert decoded.isfinite().all()
    assert bits(decoded) == bits(expected)


@pytest.mark.parametrize("name", DECODABLE)
@pytest.mark.parametrize(("num_rows", "num_blocks"), [(1, 1), (3, 1), (1, 3)])
def test_decoding_leaves_the_packed_bytes_alone_whatever_their_shape(name: str, num_rows: int, num_blocks: int) -> None:
    raw = random_rows(name, num_rows, num_blocks)
    before = raw.clone()
    decoded = dequantize(raw, name)
    assert torch.equal(raw, before)
    assert bits(decoded) == bits(torch.from_numpy(quants.dequantize(before.numpy(), GGMLQuantizationType[name])))


def test_infinite_and_subnormal_floats_pass_through() -> None:
    numbers = torch.tensor([[torch.inf, -torch.inf, 1e-40, -0.0, 3e38]])
    assert bits(dequantize(numbers.view(torch.uint8), "F32")) == bits(numbers)
    for name, dtype in (("F16", torch.float16), ("BF16", torch.bfloat16)):
        narrow = numbers.to(dtype)
        assert bits(dequantize(narrow.view(torch.uint8), name)) == bits(narrow.float())


@pytest.mark.parametrize("name", ["Q8_1", "Q8_K", "Q1_0", "I8", "I32", "F64", "F8_E4M3", "nonsense"])
def test_a_type_that_cannot_be_decoded_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedModel, match=name) as error:
        dequantize(torch.zeros(1, 292, dtype=torch.uint8), name)
    assert error.value.hint
