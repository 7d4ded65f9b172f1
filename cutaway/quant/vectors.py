"""Decoding of vectors, which models hold few and small numbers of, without torch.

Owns what plain numbers look like in a file. Blocks, which hardly any file has in vectors, are left to ggml's own
package. Invariant: the same bits as ``cutaway.quant.ggml`` gives.
"""

import numpy as np
import numpy.typing as npt

from cutaway.errors import UnsupportedModel


def decode_vector(raw: npt.NDArray[np.uint8], type_name: str) -> npt.NDArray[np.float32] | None:
    """The numbers of a vector, or ``None`` if its type cannot be decoded.

    Args:
        raw: uint8 [bytes]; they may begin at any address.
        type_name: ggml's name of the type, ``F32``.

    Returns:
        float32 [numbers], a copy.
    """
    if type_name == "F32":
        return raw.view(np.float32).copy()
    if type_name == "F16":
        return raw.view(np.float16).astype(np.float32)
    if type_name == "BF16":  # the upper half of a float
        return (raw.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    # Imported here because most runs never need it.
    from gguf import GGMLQuantizationType, quants

    try:
        decoded: npt.NDArray[np.float32] = quants.dequantize(raw, GGMLQuantizationType[type_name])
    except (KeyError, NotImplementedError):
        return None
    return decoded


def undecodable(what: str) -> UnsupportedModel:
    """The error for ``what``, which cannot be decoded."""
    return UnsupportedModel(
        f"{what} cannot be decoded", hint="use another quantization of the model, for example Q4_K, Q8_0 or BF16"
    )
