"""Self-attention over the paged cache."""

import torch
from torch import Tensor, nn

from cutaway.kernels import reference as kernels
from cutaway.layers.batch import LayerCache, TokenBatch
from cutaway.layers.linear import Linear, RMSNorm


class SelfAttention(nn.Module):
    """Multi-head attention with fewer key-value heads than query heads (Ainslie et al., "GQA", 2023).

    Args:
        qkv: hidden to queries, keys and values, one after another.
        output: concatenated heads back to hidden.
        num_heads, num_kv_heads, head_dim: how the rows of ``qkv`` are cut.
        scale: factor of the dot products.
        window: positions that a token sees, itself included; ``None`` for all.
        query_norm, key_norm: applied to each head before the rotation, where the architecture has them.
    """

    def __init__(
        self,
        qkv: Linear,
        output: Linear,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        scale: float,
        window: int | None = None,
        query_norm: RMSNorm | None = None,
        key_norm: RMSNorm | None = None,
    ) -> None:
        super().__init__()
        self.qkv = qkv
        self.output = output
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.scale = scale
        self.window = window
        self.query_norm = query_norm
        self.key_norm = key_norm

    def forward(self, x: Tensor, batch: TokenBatch, angles: tuple[Tensor, Tensor], cache: LayerCache) -> Tensor:
        """[rows, hidden] to the same shape; stores the rows' keys and values in ``cache``."""
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)  # [rows, heads + 2 * kv_heads, head_dim]
        query, key, value = torch.split(heads, [self.num_heads, self.num_kv_heads, self.num_kv_heads], dim=1)
        if self.query_norm is not None:
            query = self.query_norm(query)
        if self.key_norm is not None:
            key = self.key_norm(key)
        query = kernels.rotate(query, *angles)
        kernels.write_kv(cache.key, batch.slots, kernels.rotate(key, *angles))
        kernels.write_kv(cache.value, batch.slots, value)
        attended = [
            kernels.paged_attention(
                query[span.first_row : span.first_row + span.num_rows],
                cache.key,
                cache.value,
                span.slots,
                span.start,
                self.scale,
                self.window,
            )
            for span in batch.spans
        ]
        output: Tensor = self.output(torch.cat(attended))
        return output
