"""The shell that all architectures share: embed, layer after layer, norm, head."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from cutaway.kernels.batch import TokenBatch
from cutaway.kernels.reference import plan_attention
from cutaway.layers.batch import LayerCache, LayerContext
from cutaway.layers.linear import Embedding, Linear, RMSNorm
from cutaway.layers.rotary import Rotary
from cutaway.models.config import LayerConfig, ModelConfig


class Decoder(nn.Module):
    """A decoder-only transformer over a flat batch and a paged cache.

    Args:
        config: its numbers.
        embed: token ids to vectors.
        rotaries: one for each entry of ``config.ropes``.
        layers: modules called as ``layer(x, context, cache)``, one for each entry of ``config.layers``.
        norm: applied after the last layer.
        head: hidden to logits.
    """

    def __init__(
        self,
        config: ModelConfig,
        embed: Embedding,
        rotaries: Sequence[Rotary],
        layers: Sequence[nn.Module],
        norm: RMSNorm,
        head: Linear,
    ) -> None:
        super().__init__()
        self.config = config
        self.embed = embed
        self.rotaries = nn.ModuleList(rotaries)
        self.layers = nn.ModuleList(layers)
        self.norm = norm
        self.head = head

    def forward(self, batch: TokenBatch, caches: Sequence[LayerCache]) -> Tensor:
        """Hidden states after the last norm, [rows, hidden]; stores keys and values of all rows in ``caches``."""
        contexts = {kind: self._context(kind, batch) for kind in dict.fromkeys(self.config.layers)}
        x: Tensor = self.embed(torch.from_numpy(batch.token_ids))
        for layer, kind, cache in zip(self.layers, self.config.layers, caches, strict=True):
            x = layer(x, contexts[kind], cache)
        hidden: Tensor = self.norm(x)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of every token, float32 [rows, vocab], from hidden states [rows, hidden]."""
        logits: Tensor = self.head(hidden)
        return logits.float()

    def _context(self, kind: LayerConfig, batch: TokenBatch) -> LayerContext:
        """What the layers of a kind share in this step."""
        cos, sin = self.rotaries[kind.rope](torch.from_numpy(batch.positions))
        rows = batch.groups[self.config.windows.index(kind.window)]
        slots = torch.from_numpy(np.concatenate([span.slots[span.start :] for span in rows]))
        num_sharing = self.config.num_heads // self.config.num_kv_heads
        spans = plan_attention(rows, kind.window, num_sharing, self.embed.weight.dtype)
        return LayerContext(slots, cos, sin, spans)
