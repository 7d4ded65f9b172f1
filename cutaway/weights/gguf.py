"""Opens the tensors of a GGUF checkpoint as a ``WeightSource``.

Owns what GGUF files do differently from the common convention: names, and the order of query and key rows. Refuses to
know the file format (``gguf_header``) and how a block is decoded (``quant``). Norm weights need no treatment: GGUF
files store the factor, also for Gemma.
"""

import re
from collections.abc import Sequence
from functools import partial

from cutaway.errors import CorruptFile
from cutaway.weights.gguf_names import canonical_name
from cutaway.weights.mapped_source import Entry, MappedSource, Rows
from cutaway.weights.metadata import Metadata
from cutaway.weights.tensor_file import FETCH_AGAIN, TensorFile, TensorInfo

_MAX_HEADS = 65_536
_QUERY_OR_KEY = re.compile(r"blk\.(?P<layer>0|[1-9]\d{0,5})\.attn_(?P<part>[qk])\.(?:weight|bias)")


def open_gguf(files: Sequence[TensorFile], metadata: Metadata) -> MappedSource:
    """Open the tensors of a model, given all its files and the metadata of the first.

    Raises:
        CorruptFile: two tensors have the same meaning, or the heads do not divide the rows of a projection.
        ModelError: a file cannot be read any longer.
    """
    architecture = metadata.text("general.architecture")
    entries: dict[str, Entry] = {}
    for file in files:
        for tensor in file.tensors:
            name = canonical_name(architecture, tensor.name)
            if name in entries:
                raise CorruptFile(
                    f"{file.path}: tensors {entries[name].tensor.name!r} and {tensor.name!r} are both {name!r}",
                    hint=FETCH_AGAIN,
                )
            entries[name] = _describe(file, tensor, architecture, metadata)
    return MappedSource(entries)


def split_halves(rows: Rows, head_dim: int) -> Rows:
    """Bring the rows of whole heads from interleaved into half-split order.

    GGUF files of architecture ``llama`` keep the two rows that rotate together side by side; here they lie half a head
    apart: row 2i of a head becomes row i, row 2i + 1 becomes row i + head_dim / 2. Source: the permutation in
    llama.cpp's converter from Hugging Face checkpoints, undone.

    Args:
        rows: [heads * head_dim, ...]
        head_dim: an even number.
    """
    pairs = rows.reshape(-1, head_dim // 2, 2, *rows.shape[1:])  # [heads, head_dim / 2, 2, ...]
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _describe(file: TensorFile, tensor: TensorInfo, architecture: str, metadata: Metadata) -> Entry:
    match = _QUERY_OR_KEY.fullmatch(tensor.name)
    if architecture != "llama" or match is None:
        return Entry(file, tensor)
    head_dim = _head_dim(file, tensor, _num_heads(metadata, match["part"], int(match["layer"])))
    return Entry(file, tensor, partial(split_halves, head_dim=head_dim), rows_together=head_dim)


def _num_heads(metadata: Metadata, part: str, layer: int) -> int:
    """Query or key heads of one layer; without grouping there is but one count, and it may be a list, one a layer."""
    key = "llama.attention.head_count"
    if part == "k" and "llama.attention.head_count_kv" in metadata:
        key = "llama.attention.head_count_kv"
    counts = metadata.integers(key, minimum=1, maximum=_MAX_HEADS)
    if len(counts) == 1:
        return counts[0]
    if layer >= len(counts):
        raise CorruptFile(
            f"{metadata.path}: {key!r} counts the heads of {len(counts)} layers, but there is a layer {layer}",
            hint=FETCH_AGAIN,
        )
    return counts[layer]


def _head_dim(file: TensorFile, tensor: TensorInfo, num_heads: int) -> int:
    num_rows = tensor.shape[0]
    if num_rows % (2 * num_heads):
        raise CorruptFile(
            f"{file.path}: tensor {tensor.name!r} has {num_rows:,} rows, no multiple of twice its {num_heads:,} heads",
            hint=FETCH_AGAIN,
        )
    return num_rows // num_heads
