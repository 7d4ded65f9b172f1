"""An option value that says how much memory: 2GB, 500MiB, 1.5G."""

import re

import click

from cutaway.errors import InvalidValue
from cutaway.limits import check_number

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?) ?([kmgt]i?)?b?", re.IGNORECASE)


class ByteSize(click.ParamType[int]):
    """A number of bytes with an optional unit; K, M, G and T are powers of 1,000, Ki, Mi, Gi and Ti of 1,024."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of bytes.

        Raises:
            InvalidValue: it is none, or outside its limits.
        """
        if isinstance(value, int):
            return value
        name = "size" if param is None or param.name is None else param.name
        match = _SIZE.fullmatch(str(value).strip())
        if match is None:
            raise InvalidValue(name, f"{value!r} is no amount of memory", hint="as in 2GB, 500MiB or 1.5G")
        num_bytes = int(float(match[1]) * _FACTORS[(match[2] or "").lower()])
        check_number(name, num_bytes)
        return num_bytes
