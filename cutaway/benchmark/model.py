"""The work of a checkpoint's model."""

from math import prod

from cutaway.benchmark.work import ModelWork
from cutaway.engine.arithmetic import NUMBER_BYTES
from cutaway.engine.load import choose_dtype
from cutaway.engine.native import choose_native
from cutaway.engine.options import EngineOptions
from cutaway.kernels.native import packed_bytes
from cutaway.models.registry import read_config
from cutaway.weights.checkpoint import Checkpoint


def describe_work(checkpoint: Checkpoint, options: EngineOptions) -> ModelWork:
    """Read headers and configuration, for an engine with these options.

    Raises:
        ModelError: the files are at fault.
        InvalidValue: native kernels were asked for, and cannot run the model.
    """
    weights = checkpoint.weights()
    try:
        config = read_config(checkpoint, weights)
        is_native = choose_native(config, weights, options) is None
    finally:
        weights.close()
    number_bytes = NUMBER_BYTES["bfloat16" if is_native else choose_dtype(options.dtype)]
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
            packed_bytes(tensor.storage, *tensor.shape) if is_native else prod(tensor.shape) * number_bytes
            for tensor in matrices
        ),
        query_size=config.query_size,
        windows=tuple(layer.window for layer in config.layers),
        kv_bytes=2 * config.kv_size * number_bytes,
    )
