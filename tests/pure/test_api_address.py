"""The address of a server, as a socket of this machine."""

import socket

import pytest

from cutaway.api.address import is_local, listen, open_socket, url_of
from cutaway.errors import InvalidValue


def test_a_free_port_is_found_and_is_the_servers_alone() -> None:
    with open_socket("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
        assert url_of(bound) == f"http://127.0.0.1:{port}"
        assert is_local(bound)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=10)
        listen(bound)
        with pytest.raises(InvalidValue, match=f"port: {port} of 127.0.0.1 cannot be used") as caught:
            open_socket("127.0.0.1", port)
        assert caught.value.name == "port"
        socket.create_connection(("127.0.0.1", port), timeout=10).close()


def test_of_two_servers_that_start_together_the_second_is_told() -> None:
    with open_socket("127.0.0.1", 0) as first, open_socket("127.0.0.1", first.getsockname()[1]) as second:
        listen(first)
        with pytest.raises(InvalidValue, match="cannot be used"):
            listen(second)


def test_a_name_of_this_machine_is_an_address_of_version_4_if_it_has_one() -> None:
    with open_socket("localhost", 0) as bound:
        assert bound.family == socket.AF_INET
        assert is_local(bound)


def test_all_addresses_of_this_machine_are_not_local() -> None:
    with open_socket("0.0.0.0", 0) as bound:
        assert not is_local(bound)


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_address_of_version_6_stands_in_brackets() -> None:
    try:
        bound = open_socket("::1", 0)
    except InvalidValue:
        pytest.skip("no IPv6 here")
    with bound:
        assert url_of(bound) == f"http://[::1]:{bound.getsockname()[1]}"
        assert is_local(bound)


@pytest.mark.parametrize("host", ["no host", "x" * 70, "", "\x00", "203.0.113.7", "256.1.1.1"])
def test_what_is_no_address_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        open_socket(host, 0).close()
    assert caught.value.name == "host"
