"""Text from elsewhere cannot command the terminal that shows it."""

import pytest

from cutaway.printable import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a tomato\n\tis a fruit", "a tomato\n\tis a fruit"),
        ("토마토 🍅 é e\u0301 👨\u200d👩\u200d👧", "토마토 🍅 é e\u0301 👨\u200d👩\u200d👧"),
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("safe\rdanger", "safe\\x0ddanger"),
        ("\x9b31m\x7f\x00", "\\x9b31m\\x7f\\x00"),
        ("user\u202egnp.exe", "user\\u202egnp.exe"),
    ],
    ids=ascii,
)
def test_only_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown
