"""Stop strings on a stream, against a search in the whole text."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutaway.text.stops import StopMatcher

# Few letters, so that stop strings overlap with themselves, with each other and with the text.
stops_of_few_letters = st.lists(st.text("ab", min_size=1, max_size=5), max_size=4).map(tuple)
stops_of_any_letters = st.lists(st.text(min_size=1, max_size=4), max_size=4).map(tuple)


def first_stop(text, stops):
    """The end of the stop string that is complete first, the longest of those: by looking everywhere."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return end, max(complete, key=len)
    return None


def run(stops, pieces):
    matcher = StopMatcher(stops)
    shown = []
    for piece in pieces:
        text, stop = matcher.push(piece)
        shown.append(text)
        if stop is not None:
            assert matcher.held == "", "nothing is held back behind a match"
            return "".join(shown), stop
        pushed = "".join(pieces[: len(shown)])
        assert "".join(shown) + matcher.held == pushed, "nothing is lost"
        held = max((size for stop in stops for size in range(len(stop)) if pushed.endswith(stop[:size])), default=0)
        assert len(matcher.held) == held, "held back: the longest end that could begin a stop string, and no more"
    return "".join(shown) + matcher.flush(), None


@given(st.lists(st.text("abc", max_size=6), max_size=8), stops_of_few_letters)
def test_a_stream_stops_where_the_whole_text_does(pieces, stops):
    text = "".join(pieces)
    expected = first_stop(text, stops)
    shown, stop = run(stops, pieces)
    if expected is None:
        assert (shown, stop) == (text, None)
    else:
        end, first = expected
        assert (shown, stop) == (text[: end - len(first)], first)


@given(st.text(max_size=30), stops_of_any_letters)
def test_cutting_the_stream_anywhere_changes_nothing(text, stops):
    assert run(stops, [text]) == run(stops, list(text))


@given(st.lists(st.text("abc", max_size=4), max_size=5), st.lists(st.text("abc", max_size=4)), stops_of_few_letters)
def test_what_is_complete_in_skipped_text_does_not_count_but_what_begins_there_does(skipped, pieces, stops):
    matcher = StopMatcher(stops)
    before, text = "".join(skipped), "".join(skipped + pieces)
    ends = [end for end in range(len(before) + 1, len(text) + 1) if text[:end].endswith(stops)] if stops else []
    shown = "".join(map(matcher.skip, skipped))
    may_begin = [size for stop in stops for size in range(len(stop)) if before.endswith(stop[:size])]
    assert shown == before[: len(before) - max(may_begin, default=0)], "no more is held back than could begin one"
    stop = None
    for piece in pieces:
        if stop is None:
            added, stop = matcher.push(piece)
            shown += added
    if ends:
        longest = max((each for each in stops if text[: ends[0]].endswith(each)), key=len)
        assert (shown, stop) == (text[: ends[0] - len(longest)], longest)
    else:
        assert (shown + matcher.flush(), stop) == (text, None)


@given(st.text("ab", max_size=20), st.text("ab", max_size=10), stops_of_few_letters)
def test_nothing_comes_after_a_stop(text, more, stops):
    matcher = StopMatcher(stops)
    shown, stop = matcher.push(text)
    if stop is not None:
        assert matcher.push(more) == ("", stop)
        assert matcher.flush() == ""
        assert stop not in shown


def test_without_stop_strings_everything_is_shown_at_once():
    matcher = StopMatcher(())
    assert matcher.push("a\n\nUser:") == ("a\n\nUser:", None)
    assert matcher.held == ""


def test_the_longest_of_several_that_end_together_wins():
    assert StopMatcher(("b", "ab", "cab")).push("xcab") == ("x", "cab")


def test_a_short_stop_inside_of_a_longer_one_wins_when_it_is_complete_first():
    assert StopMatcher(("abcd", "bc")).push("abcd") == ("a", "bc")


def test_a_false_start_is_shown_once_it_is_one():
    matcher = StopMatcher(("\n\nUser:",))
    assert matcher.push("a\n\nUse") == ("a", None)
    assert matcher.held == "\n\nUse"
    assert matcher.push("d") == ("\n\nUsed", None)


def test_what_is_held_back_is_shown_at_the_end():
    matcher = StopMatcher(("###",))
    assert matcher.push("a##") == ("a", None)
    assert matcher.flush() == "##"
    assert matcher.flush() == ""


def test_a_long_text_of_false_starts_is_taken_in_character_by_character():
    # With a comparison at every place this would be 10**10 steps.
    stop = "a" * 255 + "b"
    matcher = StopMatcher((stop,))
    shown = sum(len(matcher.push("a")[0]) for _ in range(200_000))
    assert shown == 200_000 - 255
    assert matcher.push("b") == ("", stop)


def test_an_empty_stop_string_is_a_bug_of_the_caller():
    with pytest.raises(AssertionError):
        StopMatcher(("",))


def test_the_module_needs_nothing_but_the_standard_library():
    program = (
        "import sys; before = set(sys.modules); import cutaway.text.stops; "
        "print({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{'cutaway'}"
