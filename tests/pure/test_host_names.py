"""Under which names a server answers."""

import pytest

from cutaway.api.host_names import LOOPBACK, allowed_hosts, host_name
from cutaway.errors import InvalidValue


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost", "localhost"),
        ("LocalHost:8000", "localhost"),
        ("localhost.", "localhost"),
        (" localhost:8000 ", "localhost"),
        ("127.0.0.1:8000", "127.0.0.1"),
        ("[::1]:8000", "::1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[FE80::1]:1", "fe80::1"),
        ("evil.example:80", "evil.example"),
        ("", None),
        (":8000", None),
        ("::1", None),
        ("localhost:80:80", None),
        ("localhost:port", None),
        ("evil.example@localhost", "evil.example@localhost"),
        ("localhost/", "localhost/"),
        ("[::1", None),
        ("localhost,evil.example", "localhost,evil.example"),
    ],
)
def test_a_host_is_read_without_its_port(header: str, name: str | None) -> None:
    assert host_name(header) == name


def test_a_server_for_this_machine_answers_to_its_names_only() -> None:
    assert allowed_hosts("127.0.0.1", "127.0.0.1", True, ()) == {*LOOPBACK}
    assert allowed_hosts("MyPC", "127.0.1.1", True, ()) == {*LOOPBACK, "mypc", "127.0.1.1"}
    assert allowed_hosts("::1", "::1", True, ["PC.example.", "[fe80::1]"]) == {*LOOPBACK, "pc.example", "fe80::1"}


def test_a_server_for_others_answers_to_any_name_until_some_are_given() -> None:
    assert allowed_hosts("0.0.0.0", "0.0.0.0", False, ()) is None
    assert allowed_hosts("::", "::", False, ["pc.example"]) == {*LOOPBACK, "::", "pc.example"}


@pytest.mark.parametrize(
    "name", ["", "*", "http://pc.example", "pc.example:80", "pc/x", "pc..x", "-pc", "x" * 254, "피씨"]
)
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidValue, match="no name of a host") as caught:
        allowed_hosts("127.0.0.1", "127.0.0.1", True, [name])
    assert caught.value.name == "allowed-host"
