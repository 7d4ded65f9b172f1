"""What a way of computing costs in quality: perplexity of a bundled text, and divergence from float32.

Perplexity is defined as by llama.cpp's ``llama-perplexity``, so that figures may stand side by side. The text is cut
into windows without overlap, and what is left over is not read. Each window is read by itself; where a model's texts
begin with BOS, BOS is put before the text and in the place of the first token of each window. The second half of a
window is scored: logits at positions from ``context // 2`` to the last but one, each against the token that follows.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bench.peers.perplexity import perplexity
from bench.report import report_figure
from cutaway.config import load_settings
from cutaway.executor.kv import KVStore
from cutaway.executor.model import Model
from cutaway.executor.torch_model import TorchModel
from cutaway.hub.catalog import BUILT_IN
from cutaway.hub.resolve import ensure
from cutaway.hub.store import ModelStore
from cutaway.kernels import native, reference
from cutaway.kernels.batch import RowSpan, TokenBatch
from cutaway.machine import read_cpu
from cutaway.models.build import load_decoder
from cutaway.models.native import load_native
from cutaway.text.load import load_text
from cutaway.text.tokenizer import Tokenizer
from cutaway.weights.checkpoint import open_checkpoint

TEXT = Path(__file__).parent / "texts" / "austen-persuasion.txt"
CONTEXT = 512
BLOCK_SIZE = 16

# What others give for a model file, a text file and a context: a line is printed for each.
PEERS: Mapping[str, Callable[[Path, Path, int], float]] = {"llama.cpp": perplexity}


@dataclass(frozen=True, slots=True)
class Variant:
    """A model in one way of computing, and how many bytes a number of its keys and values has."""

    model: Model
    number_bytes: int


@dataclass(frozen=True, slots=True)
class Window:
    """A piece of a text.

    Attributes:
        token_ids: [context] int64, what the model reads.
        first: the first position that is scored.
    """

    token_ids: Tensor
    first: int

    @property
    def targets(self) -> Tensor:
        """[scored] int64, the tokens that the scored positions should foresee."""
        return self.token_ids[self.first + 1 :]


@dataclass(frozen=True, slots=True)
class Scores:
    """How well a text was foreseen, [scored] each.

    Attributes:
        loss: negative log-probability of the token that came, in nats.
        divergence: Kullback-Leibler, from the exact distribution to this one, in nats.
        agrees: whether the most likely token is the exact distribution's.
    """

    loss: Tensor
    divergence: Tensor
    agrees: Tensor

    @property
    def perplexity(self) -> float:
        """Exponential of the mean loss."""
        return self.loss.mean().exp().item()

    def ratio_to(self, exact: "Scores") -> tuple[float, float]:
        """This perplexity over the exact one, and the standard error of that from the choice of text."""
        difference = self.loss - exact.loss
        ratio = difference.mean().exp().item()
        return ratio, ratio * difference.std().item() / len(difference) ** 0.5


def cut_windows(tokenizer: Tokenizer, text: str, context: int) -> list[Window]:
    """The whole windows of a text."""
    bos = [] if tokenizer.bos_id is None else [tokenizer.bos_id]
    # As llama.cpp reads a file: without the last line break.
    token_ids = [*bos, *tokenizer.encode(text.removesuffix("\n")).token_ids]
    starts = range(0, len(token_ids) - context + 1, context)
    return [
        Window(torch.tensor([*bos, *token_ids[start + len(bos) : start + context]]), context // 2) for start in starts
    ]


@torch.inference_mode()
def log_probabilities(variant: Variant, window: Window) -> Tensor:
    """The distributions at the scored positions, float32 [scored, vocab]."""
    model, num_rows = variant.model, len(window.token_ids)
    windows = model.config.windows
    store = KVStore(model.config, variant.number_bytes, BLOCK_SIZE, [-(-num_rows // BLOCK_SIZE)] * len(windows))
    slots = [layout.slots(range(layout.num_blocks))[:num_rows] for layout in store.layouts]
    groups = tuple((RowSpan(0, num_rows, 0, of_group),) for of_group in slots)
    batch = TokenBatch(window.token_ids.numpy(), np.arange(num_rows), groups)
    # The reference kernels take a few rows at a time to fix the order of sums: far slower, and no closer.
    with patch.multiple(reference, linear=functional.linear, ATTENTION_TILE_ROWS=reference.ATTENTION_CHUNK_KEYS):
        logits = model.compute(batch, store.layers, range(window.first, num_rows - 1))
    return torch.from_numpy(logits).log_softmax(-1)


def score(ours: Tensor, exact: Tensor, targets: Tensor) -> Scores:
    """Scores of the distributions of one window, [scored, vocab] each."""
    return Scores(
        loss=-ours.gather(1, targets.unsqueeze(1)).squeeze(1).double(),
        divergence=functional.kl_div(ours, exact, log_target=True, reduction="none").sum(-1).double(),
        agrees=ours.argmax(-1) == exact.argmax(-1),
    )


def compare(
    exact: Variant, others: Mapping[str, Variant], windows: Sequence[Window]
) -> tuple[Scores, dict[str, Scores]]:
    """Score the exact way and the others, window by window: distributions of a whole text would not fit in memory."""
    exact_parts: list[Scores] = []
    parts: dict[str, list[Scores]] = {name: [] for name in others}
    for window in windows:
        expected = log_probabilities(exact, window)
        exact_parts.append(score(expected, expected, window.targets))
        for name, variant in others.items():
            parts[name].append(score(log_probabilities(variant, window), expected, window.targets))
    return _join(exact_parts), {name: _join(scores) for name, scores in parts.items()}


def _join(parts: Sequence[Scores]) -> Scores:
    return Scores(
        torch.cat([part.loss for part in parts]),
        torch.cat([part.divergence for part in parts]),
        torch.cat([part.agrees for part in parts]),
    )


def measure(model_name: str, context: int, num_windows: int | None) -> None:
    """Print a line for each way of computing."""
    settings = load_settings()
    path = ensure(model_name, ModelStore(settings.cache_dir, settings.index_url)).path
    checkpoint = open_checkpoint(path)
    windows = cut_windows(load_text(checkpoint)[0], TEXT.read_text(encoding="utf-8"), context)[:num_windows]
    if not windows:
        raise SystemExit(f"{TEXT.name} has no window of {context:,} tokens")
    num_threads = read_cpu().num_usable_cores
    others = {
        "bfloat16": Variant(TorchModel(load_decoder(checkpoint, torch.bfloat16)), 2),
        "native": Variant(load_native(checkpoint, native.instruction_sets()[0], num_threads), 2),
    }
    if (fast := native.fast_set()) is not None:
        others["native, fast"] = Variant(load_native(checkpoint, fast, num_threads), 2)
    exact, scores = compare(Variant(TorchModel(load_decoder(checkpoint, torch.float32)), 4), others, windows)
    facts = {"model": model_name, "text": TEXT.name, "context": context, "windows": len(windows)}
    for name, each in {"float32": exact, **scores}.items():
        ratio, error = each.ratio_to(exact)
        report_figure(
            "perplexity",
            each.perplexity,
            by=name,
            over_float32=round(ratio, 5),
            standard_error=round(error, 5),
            divergence=round(each.divergence.mean().item(), 6),
            same_choice=round(each.agrees.double().mean().item(), 4),
            scored=len(each.loss),
            **facts,
        )
    if num_windows is None:
        for name, measure_peer in PEERS.items():
            value = measure_peer(path, TEXT, context)
            report_figure("perplexity", value, by=name, over_float32=round(value / exact.perplexity, 5), **facts)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=list(BUILT_IN), metavar="NAME")
    parser.add_argument("--context", type=int, default=CONTEXT, help="tokens of a window")
    parser.add_argument("--windows", type=int, help="score only so many, and ask no peer")
    arguments = parser.parse_args()
    if arguments.context < 4 or (arguments.windows is not None and arguments.windows < 1):
        parser.error("--context is at least 4, --windows at least 1")
    torch.set_num_threads(read_cpu().num_usable_cores)
    for model_name in arguments.model:
        measure(model_name, arguments.context, arguments.windows)


if __name__ == "__main__":
    main()
