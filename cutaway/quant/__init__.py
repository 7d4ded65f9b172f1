"""Block formats of quantized tensors and how they are decoded."""
