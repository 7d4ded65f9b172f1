"""The tensor types of ggml: their numbers, names and sizes.

Owns the table and nothing else: how a block is laid out inside belongs to ``cutaway.quant.ggml``. Standard library
only, so that a file's header can be read without torch. Invariant: ids and names are unique; a type is in the table
when its size is known, whether or not it can be decoded.

Source: the names, ids and sizes that ggml publishes through the constants of its ``gguf`` package, version 0.19.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BlockType:
    """How a tensor type packs its values.

    Attributes:
        type_id: number of the type in a GGUF file.
        name: ggml's name, ``Q4_1``.
        block_size: values in one block; a row is a whole number of blocks.
        num_bytes: bytes of one block.
    """

    type_id: int
    name: str
    block_size: int
    num_bytes: int

    def row_bytes(self, num_columns: int) -> int:
        """Bytes of one row of ``num_columns`` values, which must be a whole number of blocks."""
        assert num_columns % self.block_size == 0, f"{num_columns} values are no whole number of {self.name} blocks"
        return num_columns // self.block_size * self.num_bytes


_ALL = (
    BlockType(0, "F32", 1, 4),
    BlockType(1, "F16", 1, 2),
    BlockType(2, "Q4_0", 32, 18),
    BlockType(3, "Q4_1", 32, 20),
    BlockType(6, "Q5_0", 32, 22),
    BlockType(7, "Q5_1", 32, 24),
    BlockType(8, "Q8_0", 32, 34),
    BlockType(9, "Q8_1", 32, 40),
    BlockType(10, "Q2_K", 256, 84),
    BlockType(11, "Q3_K", 256, 110),
    BlockType(12, "Q4_K", 256, 144),
    BlockType(13, "Q5_K", 256, 176),
    BlockType(14, "Q6_K", 256, 210),
    BlockType(15, "Q8_K", 256, 292),
    BlockType(16, "IQ2_XXS", 256, 66),
    BlockType(17, "IQ2_XS", 256, 74),
    BlockType(18, "IQ3_XXS", 256, 98),
    BlockType(19, "IQ1_S", 256, 50),
    BlockType(20, "IQ4_NL", 32, 18),
    BlockType(21, "IQ3_S", 256, 110),
    BlockType(22, "IQ2_S", 256, 82),
    BlockType(23, "IQ4_XS", 256, 136),
    BlockType(24, "I8", 1, 1),
    BlockType(25, "I16", 1, 2),
    BlockType(26, "I32", 1, 4),
    BlockType(27, "I64", 1, 8),
    BlockType(28, "F64", 1, 8),
    BlockType(29, "IQ1_M", 256, 56),
    BlockType(30, "BF16", 1, 2),
    BlockType(34, "TQ1_0", 256, 54),
    BlockType(35, "TQ2_0", 256, 66),
    BlockType(39, "MXFP4", 32, 17),
    BlockType(40, "NVFP4", 64, 36),
    BlockType(41, "Q1_0", 128, 18),
)

BLOCK_TYPES: Mapping[int, BlockType] = {block_type.type_id: block_type for block_type in _ALL}
BLOCK_TYPES_BY_NAME: Mapping[str, BlockType] = {block_type.name: block_type for block_type in _ALL}
