"""Self-attention over the paged cache."""

import torch
from torch import Tensor, nn

from cutaway.kernels import reference as kernels
from cutaway.layers.batch import LayerCache, LayerContext
from cutaway.layers.linear import Linear, RMSNorm


class SelfAttention(nn.Module):
    """Multi-head attention with fewer key-value heads than query heads (Ainslie et al., "GQA", 2023).

    Args:
        qkv: hidden to queries, keys and values, one after another.
        output: concatenated heads back to hidden.
        num_heads, num_kv_heads, head_dim: how the rows of ``qkv`` are cut.
        scale: factor of the dot products.
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
        query_norm: RMSNorm | None = None,
        key_norm: RMSNorm | None = None,
    ) -> None:
        super().__init__()
        self.qkv = qkv
        self.output = output
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.scale = scale
        self.query_norm = query_norm
        self.key_norm = key_norm

    def forward(self, x: Tensor, context: LayerContext, cache: LayerCache) -> Tensor:
        """[rows, hidden] to the same shape; stores the rows' keys and values in ``cache``."""
        heads = self.qkv(x).view(x.shape[0], -1, self.head_dim)  # [rows, heads + 2 * kv_heads, head_dim]
        queries_and_keys, value = torch.split(heads, [self.num_heads + self.num_kv_heads, self.num_kv_heads], dim=1)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = torch.split(queries_and_keys, [self.num_heads, self.num_kv_heads], dim=1)
            queries_and_keys = torch.cat((self.query_norm(query), self.key_norm(key)), dim=1)
        rotated = kernels.rotate(queries_and_keys, context.cos, context.sin)
        query, key = torch.split(rotated, [self.num_heads, self.num_kv_heads], dim=1)
        kernels.write_kv(cache.key, context.slots, key)
        kernels.write_kv(cache.value, context.slots, value)
        output: Tensor = self.output(kernels.attend(query, cache.key, cache.value, context.spans, self.scale))
        return output
