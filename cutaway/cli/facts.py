"""What can be said about model files at a glance, remembered so that it need not be found out each time.

Owns a small file beside the models. Reading the header of a model with a large vocabulary takes a tenth of a second,
which ``cutaway models`` should not spend again for every model at every call. Invariants: what is remembered belongs
to a path, size and time of change, and counts for nothing else; what cannot be remembered is found out again, so
losing the file costs time only; problems are never remembered.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

from cutaway.errors import CutawayError
from cutaway.hub.store import ModelStore, StoredModel


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """What the headers of a model say.

    Attributes:
        architecture: as the files spell it.
        quantization: stored types of the matrices, most weights first.
        num_weights: weights of all tensors together.
        num_read_weights: weights that computing one token reads: all but the table of embeddings, of which it takes
            one row, unless the table is the output head too.
        num_read_bytes: the same in bytes, as they are stored.
        context_length: positions that it was trained for; ``None`` if the files do not say.
    """

    architecture: str
    quantization: str
    num_weights: int
    num_read_weights: int
    num_read_bytes: int
    context_length: int | None


def read_facts(store: ModelStore, models: Iterable[StoredModel]) -> dict[str, HeaderFacts | CutawayError]:
    """The facts of each model by name, or the error that its files cause."""
    memory = store.models_dir / ".facts.json"
    known = _remembered(memory)
    found: dict[str, HeaderFacts | CutawayError] = {}
    remembered: dict[str, object] = {}
    for model in models:
        try:
            key = _key(model.path)
            facts = _facts_from(known.get(key)) or inspect_model(model.path)
        except CutawayError as error:
            found[model.name] = error
            continue
        except OSError as error:
            found[model.name] = CutawayError(f"{model.path}: {error.strerror or error}")
            continue
        found[model.name] = facts
        remembered[key] = asdict(facts)
    if remembered != known:
        _remember(memory, remembered)
    return found


def inspect_model(path: Path) -> HeaderFacts:
    """Read the headers.

    Raises:
        CutawayError: the files cannot be read or are not sound.
    """
    from cutaway.weights.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(path)
    key = f"{checkpoint.architecture}.context_length" if checkpoint.format == "gguf" else "max_position_embeddings"
    tensors = {tensor.name: tensor for file in checkpoint.files for tensor in file.tensors}
    has_head = any(name in tensors for name in ("output.weight", "lm_head.weight"))
    tables = ("token_embd.weight", "model.embed_tokens.weight")
    read = [tensor for name, tensor in tensors.items() if not (has_head and name in tables)]
    return HeaderFacts(
        architecture=checkpoint.architecture,
        quantization=checkpoint.quantization,
        num_weights=sum(prod(tensor.shape) for tensor in tensors.values()),
        num_read_weights=sum(prod(tensor.shape) for tensor in read),
        num_read_bytes=sum(tensor.num_bytes for tensor in read),
        context_length=checkpoint.metadata.integer(key, minimum=1) if key in checkpoint.metadata else None,
    )


def _key(path: Path) -> str:
    """Path, size and time of change of everything there; changes whenever the files do."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    states = [file.stat() for file in files]
    return "|".join([os.fspath(path), *(f"{state.st_size}.{state.st_mtime_ns}" for state in states)])


def _facts_from(value: object) -> HeaderFacts | None:
    match value:
        case {
            "architecture": str(architecture),
            "quantization": str(quantization),
            "num_weights": int(num_weights),
            "num_read_weights": int(num_read_weights),
            "num_read_bytes": int(num_read_bytes),
            "context_length": int() | None as context_length,
        }:
            return HeaderFacts(
                architecture, quantization, num_weights, num_read_weights, num_read_bytes, context_length
            )
        case _:
            return None


def _remembered(memory: Path) -> dict[str, object]:
    try:
        value = json.loads(memory.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _remember(memory: Path, facts: dict[str, object]) -> None:
    temporary = memory.with_name(f"{memory.name}.{os.getpid()}")
    with contextlib.suppress(OSError):  # a folder that cannot be written only makes the next call slower
        temporary.write_text(json.dumps(facts))
        temporary.replace(memory)
