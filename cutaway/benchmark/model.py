"""The work of a checkpoint's model."""

from math import prod

from cutaway.benchmark.work import ModelWork
from cutaway.models.registry import read_config
from cutaway.weights.checkpoint import Checkpoint


def describe_work(checkpoint: Checkpoint, num_matrix_bytes: int | None, num_value_bytes: int) -> ModelWork:
    """Read headers and configuration.

    Args:
        checkpoint: the model.
        num_matrix_bytes: bytes of a weight in memory; ``None`` if matrices stay as the files have them.
        num_value_bytes: bytes of a number in the cache.

    Raises:
        ModelError: the files are at fault.
    """
    weights = checkpoint.weights()
    try:
        config = read_config(checkpoint, weights)
    finally:
        weights.close()
    tables = ("token_embd.weight", "model.embed_tokens.weight")
    matrices = [
        tensor
        for file in checkpoint.files
        for tensor in file.tensors
        # Of a table that is not the head too, a step reads single rows.
        if len(tensor.shape) == 2 and (config.tied or tensor.name not in tables)
    ]
    return ModelWork(
        num_row_weights=config.num_row_weights,
        num_head_weights=config.vocab_size * config.hidden_size,
        matrix_bytes=sum(
            tensor.num_bytes if num_matrix_bytes is None else prod(tensor.shape) * num_matrix_bytes
            for tensor in matrices
        ),
        query_size=config.query_size,
        windows=tuple(layer.window for layer in config.layers),
        kv_bytes=2 * config.kv_size * num_value_bytes,
    )
