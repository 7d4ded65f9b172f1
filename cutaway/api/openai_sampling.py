"""Fields that say how tokens are chosen and what ends an answer, the same on every route of the vendor API.

Owns their tables. Refuses to know the other fields. Invariant: ``SAMPLING_FIELDS`` are the fields of
``SamplingParams``, ``ENDING_FIELDS`` those of ``GenerationRequest`` with the same names.
"""

from collections.abc import Mapping

from cutaway.api.fields import Reader
from cutaway.api.values import number, read_stop
from cutaway.types import SamplingParams

SAMPLING_FIELDS: Mapping[str, Reader] = {name: number(name) for name in SamplingParams.__slots__}
ENDING_FIELDS: Mapping[str, Reader] = {"stop": read_stop}
