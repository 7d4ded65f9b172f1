"""The numbers that describe a decoder, whatever its architecture and file format."""

from dataclasses import dataclass

from cutaway.models.rope import RopeConfig


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """What may differ from layer to layer.

    Attributes:
        window: positions that a token sees, itself included; ``None`` for all.
        rope: index into ``ModelConfig.ropes``.
    """

    window: int | None = None
    rope: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes and constants of a decoder.

    Attributes:
        architecture: name in the registry.
        vocab_size: rows of the embedding, and logits.
        hidden_size: width of the residual stream.
        intermediate_size: width of the feed-forward network.
        num_heads, num_kv_heads, head_dim: attention.
        norm_eps: added to the mean square in every norm.
        attention_scale: factor of the dot products.
        context_length: positions that the model was trained for.
        ropes: the rotary frequencies in use, one entry for each kind of layer.
        layers: one entry a layer, first to last.
        tied: the output head is the embedding.
        activation: of the gate in the feed-forward network: ``silu``, or ``gelu`` in its tanh form.
        embedding_scale: factor of the embedded vectors.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    attention_scale: float
    context_length: int
    ropes: tuple[RopeConfig, ...]
    layers: tuple[LayerConfig, ...]
    tied: bool
    activation: str = "silu"
    embedding_scale: float = 1.0

    @property
    def windows(self) -> tuple[int | None, ...]:
        """How far layers see, each distance once: ``LayerConfig.window``. Layers of one window share a cache."""
        return tuple(dict.fromkeys(layer.window for layer in self.layers))

    @property
    def num_row_weights(self) -> int:
        """Weights that every row is multiplied with: all matrices of all layers, without the output head."""
        attention = 2 * self.query_size + 2 * self.kv_size
        return len(self.layers) * self.hidden_size * (attention + 3 * self.intermediate_size)

    @property
    def query_size(self) -> int:
        """Width of all query heads together."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Width of all key heads together, and of all value heads."""
        return self.num_kv_heads * self.head_dim
