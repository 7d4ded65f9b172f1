"""An option value that says what is added to the score of a token: 42=-1.5."""

import click

from cutaway.errors import InvalidValue


class TokenBias(click.ParamType[tuple[int, float]]):
    """A token id and a bias; their limits are checked with those of all settings."""

    name = "id=bias"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        """The id and the bias.

        Raises:
            InvalidValue: it is not of this form.
        """
        token_id, _, bias = str(value).partition("=")
        try:
            return int(token_id), float(bias)
        except ValueError:
            raise InvalidValue(
                "logit_bias", f"{value!r} is not a token id and a number", hint="as in 42=-100"
            ) from None
