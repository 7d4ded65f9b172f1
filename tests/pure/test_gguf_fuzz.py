"""GGUF headers, damaged in 20,000 ways: an error of Cutaway or a sound result, and no memory in proportion to a lie."""

import contextlib
import random
import resource
import struct
import tracemalloc
from pathlib import Path

import pytest
from model_bytes import EVERYTHING_METADATA, EVERYTHING_TENSORS, Field, gguf_fields, join, with_field

from cutaway.errors import CutawayError
from cutaway.weights.gguf_header import GGUFHeader, parse_gguf_header
from cutaway.weights.gguf_names import canonical_name
from cutaway.weights.metadata import Metadata

SEED = 20_260_830
NUM_MUTATIONS = 20_000
NUM_TRACED = 2_000
MAX_PEAK_BYTES = 1_000_000
MAX_GROWTH_KIB = 8 * 1024
PATH = Path("fuzzed.gguf")
STATUS = Path("/proc/self/status")

EXTREMES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 31, 32, 33, 255, 256, 2**15, 2**16, 2**24, 2**31 - 1, 2**31]
EXTREMES += [2**32 - 1, 2**32, 2**40, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 8, 2**64 - 1]


def mutate(fields: list[Field], rng: random.Random) -> bytes:
    """Damage one field according to what it means, or the bytes regardless of it, or both."""
    index = rng.randrange(len(fields))
    field = fields[index]
    data = join(fields)
    kind = rng.choice(["field", "field", "field", "cut", "flip", "splice", "swap"])
    if kind == "field" and len(field.data) in (4, 8) and field.kind not in ("text", "data", "padding"):
        layout, bits = ("<I", 32) if len(field.data) == 4 else ("<Q", 64)
        (old,) = struct.unpack(layout, field.data)
        new = rng.choice([rng.choice(EXTREMES), old + 1, old - 1, old * 2, old ^ (1 << rng.randrange(bits))])
        return with_field(fields, index, struct.pack(layout, new % 2**bits))
    if kind == "field":
        return with_field(fields, index, rng.randbytes(rng.choice([0, 1, len(field.data), 40])))
    if kind == "swap":
        other = rng.randrange(len(fields))
        swapped = list(fields)
        swapped[index], swapped[other] = swapped[other], swapped[index]
        return join(swapped)
    position = rng.randrange(len(data))
    if kind == "cut":
        return data[:position]
    if kind == "splice":
        return data[:position] + rng.randbytes(rng.randrange(1, 16)) + data[position + rng.randrange(16) :]
    flipped = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def read_values(metadata: Metadata) -> None:
    """Ask for every value, as readers of a hostile file would."""
    for key in metadata:
        for getter in (metadata.integers, metadata.strings):
            with contextlib.suppress(CutawayError):
                getter(key)


def check_sound(header: GGUFHeader, num_bytes: int) -> None:
    """What was accepted keeps its promises."""
    end = 0
    for tensor in sorted(header.file.tensors, key=lambda tensor: tensor.offset):
        assert end <= tensor.offset < tensor.offset + tensor.num_bytes <= num_bytes
        assert 1 <= len(tensor.shape) <= 4
        assert min(tensor.shape) > 0
        assert canonical_name("llama", tensor.name)
        end = tensor.offset + tensor.num_bytes


def is_refused(data: bytes) -> bool:
    """Read all there is; anything but a sound result or an error of Cutaway comes out."""
    try:
        header = parse_gguf_header(data, PATH)
    except CutawayError as error:
        if not error.message.startswith(str(PATH)) or not error.hint:
            raise AssertionError("the error does not name the file or gives no hint") from error
        return True
    check_sound(header, len(data))
    read_values(header.metadata)
    return False


def resident_kib() -> int:
    """Memory of this process now, in KiB; the peak of its life would hide growth behind what an earlier test took."""
    if not STATUS.exists():  # only Linux says how much it is now
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return next(int(line.split()[1]) for line in STATUS.read_text().splitlines() if line.startswith("VmRSS:"))


def test_damaged_headers_are_refused_or_sound() -> None:
    rng = random.Random(SEED)
    fields = gguf_fields(EVERYTHING_METADATA, EVERYTHING_TENSORS)
    num_refused = 0
    resident_before = resident_kib()
    for number in range(NUM_MUTATIONS):
        data = mutate(fields, rng)
        try:
            num_refused += is_refused(data)
        except BaseException as error:
            pytest.fail(f"seed {SEED}, mutation {number}: {error!r} from {data.hex()}")
    grown = resident_kib() - resident_before
    assert grown < MAX_GROWTH_KIB, f"seed {SEED}: the process grew by {grown:,} KiB"
    assert 0.5 * NUM_MUTATIONS < num_refused < NUM_MUTATIONS, f"seed {SEED}: {num_refused:,} refused"


def test_a_damaged_header_takes_no_memory_in_proportion_to_a_number_in_it() -> None:
    rng = random.Random(SEED)
    fields = gguf_fields(EVERYTHING_METADATA, EVERYTHING_TENSORS)
    tracemalloc.start()
    try:
        for number in range(NUM_TRACED):
            data = mutate(fields, rng)
            is_refused(data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak < MAX_PEAK_BYTES, f"seed {SEED}, mutation {number}: {peak:,} bytes for {data.hex()}"
    finally:
        tracemalloc.stop()
