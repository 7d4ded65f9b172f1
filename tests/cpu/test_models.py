"""Each architecture against transformers, with tiny random weights in float32, from both file formats."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import MODELS, NOT_AS_GGUF, SIZES, llama, randomize, write_gguf
from transformers import AutoModelForCausalLM, PreTrainedModel

from cutaway.executor.kv import KVStore
from cutaway.kernels.batch import RowSpan, TokenBatch
from cutaway.layers.batch import LayerCache
from cutaway.models.build import load_decoder
from cutaway.models.decoder import Decoder
from cutaway.weights.checkpoint import open_checkpoint

NUM_TOKENS = 41
NUM_BLOCKS = 64

SUBJECTS = [(make, "safetensors") for make in MODELS] + [(make, "gguf") for make in MODELS if make not in NOT_AS_GGUF]


@pytest.fixture(params=SUBJECTS, ids=lambda subject: f"{subject[0].__name__}-{subject[1]}")
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[PreTrainedModel, Decoder]:
    """The same weights in transformers and in Cutaway."""
    make: Callable[[], PreTrainedModel] = request.param[0]
    torch.manual_seed(7)
    theirs = randomize(make())
    path = tmp_path / "model.gguf" if request.param[1] == "gguf" else tmp_path
    if path is tmp_path:
        theirs.save_pretrained(path)
    else:
        write_gguf(theirs, path)
    return theirs, load_decoder(open_checkpoint(path), torch.float32)


def store_for(model: Decoder, num_blocks: int) -> KVStore:
    return KVStore(model.config, 4, 1, [num_blocks] * len(model.config.windows))


def caches_for(model: Decoder, num_blocks: int = NUM_BLOCKS) -> tuple[LayerCache, ...]:
    return tuple(
        LayerCache(*(torch.from_numpy(bits).view(torch.float32) for bits in (layer.key, layer.value)))
        for layer in store_for(model, num_blocks).layers
    )


def rows_of(
    model: Decoder, token_ids: torch.Tensor, start: int, end: int, blocks: Sequence[int], num_blocks: int = NUM_BLOCKS
) -> TokenBatch:
    """A batch of the positions ``start`` to ``end`` of one request, whose positions lie in these blocks of one."""
    slots = [layout.slots(blocks)[:end] for layout in store_for(model, num_blocks).layouts]
    groups = tuple((RowSpan(0, end - start, start, of_group),) for of_group in slots)
    return TokenBatch(token_ids[start:end].numpy(), np.arange(start, end), groups)


def assert_same_logits(ours: Decoder, theirs: PreTrainedModel) -> None:
    token_ids = torch.randint(0, SIZES["vocab_size"], (NUM_TOKENS,))
    blocks = torch.randperm(NUM_BLOCKS)[:NUM_TOKENS].tolist()
    logits = ours.logits(ours(rows_of(ours, token_ids, 0, NUM_TOKENS, blocks), caches_for(ours)))
    expected = theirs(token_ids.unsqueeze(0)).logits[0]
    assert expected.std() > 0.1
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


@torch.inference_mode()
def test_prompt_logits_equal_those_of_transformers(pair: tuple[PreTrainedModel, Decoder]) -> None:
    theirs, ours = pair
    assert_same_logits(ours, theirs)


@torch.inference_mode()
@pytest.mark.parametrize("sizes", [[1] * NUM_TOKENS, [16, 16, 9], [30, 1, 1, 9], [3, 37, 1]], ids=str)
def test_reading_in_pieces_gives_the_same_bits(pair: tuple[PreTrainedModel, Decoder], sizes: list[int]) -> None:
    _, ours = pair
    token_ids = torch.randint(0, SIZES["vocab_size"], (NUM_TOKENS,))
    blocks = torch.randperm(NUM_BLOCKS)[:NUM_TOKENS].tolist()
    whole = ours(rows_of(ours, token_ids, 0, NUM_TOKENS, blocks), caches_for(ours))
    caches, start, pieces = caches_for(ours), 0, []
    for size in sizes:
        pieces.append(ours(rows_of(ours, token_ids, start, start + size, blocks), caches))
        start += size
    assert torch.equal(torch.cat(pieces), whole)


@torch.inference_mode()
def test_a_head_that_is_there_is_used_even_if_the_config_calls_it_tied(tmp_path: Path) -> None:
    torch.manual_seed(7)
    randomize(llama()).save_pretrained(tmp_path)
    config_path = tmp_path / "config.json"
    config_path.write_text(
        config_path.read_text().replace('"tie_word_embeddings": false', '"tie_word_embeddings": true')
    )
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    assert theirs.config.tie_word_embeddings
    assert_same_logits(load_decoder(open_checkpoint(tmp_path), torch.float32), theirs)
