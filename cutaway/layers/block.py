"""The usual transformer layer."""

from torch import Tensor, nn

from cutaway.layers.attention import SelfAttention
from cutaway.layers.batch import LayerCache, LayerContext
from cutaway.layers.linear import RMSNorm
from cutaway.layers.mlp import GatedMLP


class PreNormLayer(nn.Module):
    """Attention and feed-forward network, each behind a norm and added to the residual stream."""

    def __init__(self, attention_norm: RMSNorm, attention: SelfAttention, mlp_norm: RMSNorm, mlp: GatedMLP) -> None:
        super().__init__()
        self.attention_norm = attention_norm
        self.attention = attention
        self.mlp_norm = mlp_norm
        self.mlp = mlp

    def forward(self, x: Tensor, context: LayerContext, cache: LayerCache) -> Tensor:
        """[rows, hidden] to the same shape."""
        attended: Tensor = x + self.attention(self.attention_norm(x), context, cache)
        mixed: Tensor = attended + self.mlp(self.mlp_norm(attended))
        return mixed
