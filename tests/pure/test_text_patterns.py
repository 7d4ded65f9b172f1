"""Expressions from foreign files are refused when they can explode."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.errors import UnsupportedModel
from cutaway.text.patterns import MAX_PATTERN_CHARS, check_pattern


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a*)*",
        "(?:a+)+",
        "(a|a)*b",
        "(?i:a|ab)+",
        "((a?)b?)*",
        "(a{1,3})*",
        "(?:[^x]+ ?)*$",
        "(x(y+))*",
        "(?<name>a+){2,}",
        r"(\(+)+",
        "([(]+)+",
        "([]a]+)*",
        "([a[b]]+)*",
        r"([\]]+)*",
        "(a+)+?",
        "(?=(a+)+b)",
    ],
)
def test_repeated_choices_are_refused(pattern):
    with pytest.raises(UnsupportedModel, match="exponential"):
        check_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a+b*c?",
        "(abc)+",
        r"(\d{3})+",
        r"(?=(\d{3})+(?!\d))",
        "(?>a+)+",
        "(?:a++)+",
        "(a|b)c",
        "(a|b)?",
        "(?:a+){1,2}",
        r"\(a+\)+",
        "[(a+)+]",
        "[[a+]b]+",
        "[^]]+",
        "a|b|c+",
        r"\p{L}+|\p{N}{1,3}",
        "",
        ")",
        "(",
        "[",
        "+",
    ],
)
def test_everything_else_passes(pattern):
    check_pattern(pattern)


@given(st.text("()[]{}*+?|\\^<>=!:a1,-# ", max_size=40))
def test_no_expression_whatever_breaks_the_check(pattern):
    with suppress(UnsupportedModel):
        check_pattern(pattern)


def test_absurdly_long_expressions_are_refused():
    with pytest.raises(UnsupportedModel, match="10,000"):
        check_pattern("a" * (MAX_PATTERN_CHARS + 1))
