"""No host but the listed ones is reached from a sandbox: by name, address, redirect, DNS, UDP or an inherited setting."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from cuebook.formats.addresses import BadHost
from cuebook.gate.sandbox import choose
from tests.gate.sandbox.sandboxes import LIMITS, PATH, SANDBOXES, confined, none_left, python, run, token, until
from tests.support.http_servers import Authority, Server, answer, hang, redirect

ATTEMPTS = Path(__file__).with_name("attempts.py")


def any_host(host: str, port: int) -> bool:
    return True


class Datagrams(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.received: list[bytes] = []

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.received.append(data)


@pytest.fixture
async def forbidden() -> AsyncIterator[Server]:
    async with Server(hosts=("127.0.0.1",)) as server:
        yield server


@pytest.fixture
async def datagrams(forbidden: Server) -> AsyncIterator[Datagrams]:
    made = await asyncio.get_running_loop().create_datagram_endpoint(
        Datagrams, local_addr=("127.0.0.1", forbidden.port)
    )
    yield made[1]
    made[0].close()


@pytest.mark.parametrize("name", SANDBOXES)
async def test_nothing_is_reached_but_the_listed_server(
    name: Any, forbidden: Server, datagrams: Datagrams, tmp_path: Path
) -> None:
    async with Server() as allowed, Server(hosts=("::1",)) as forbidden6:
        attempts = (sys.executable, "-I", "-S", str(ATTEMPTS))
        ports = (str(allowed.port), str(forbidden.port), str(forbidden6.port))
        confinement = confined(
            (*attempts, *ports),
            tmp_path,
            readable=(str(ATTEMPTS),),
            network=(f"127.0.0.1:{allowed.port}",),
            limits=LIMITS,
        )
        done = await run(choose(name, any_host), confinement, seconds=60)
        assert done.stdout, done.stderr
        results = json.loads(done.stdout)
        assert (forbidden.connections, forbidden6.connections, datagrams.received) == (0, 0, [])
        assert {seen.target for seen in allowed.requests} == {"/first", "/wanted"}, results
        assert {seen.headers["host"] for seen in allowed.requests} == {f"127.0.0.1:{allowed.port}"}
    assert "hello" in results["request_what_is_allowed"]
    refused = {
        *("tunnel_to_an_address", "tunnel_to_a_name", "tunnel_to_another_name_of_the_allowed_server"),
        "request_an_address",
    }
    assert all(results[one].startswith("HTTP/1.1 403 ") for one in refused), results
    malformed = {"tunnel_to_a_strange_address", "request_with_another_host", "request_without_a_host"}
    assert all(results[one].startswith("HTTP/1.1 400 ") for one in malformed), results
    assert results["look_up_a_name"] is None
    assert results["open_a_raw_socket"] is None


@pytest.mark.needs("curl")
@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_redirect_to_another_server_is_not_followed(name: Any, forbidden: Server, tmp_path: Path) -> None:
    async with Server(redirect(forbidden.url("/elsewhere"))) as allowed:
        argv = ("/usr/bin/env", "curl", "-sS", "-L", allowed.url("/"))
        done = await run(choose(name, any_host), confined(argv, tmp_path, network=(f"127.0.0.1:{allowed.port}",)))
    assert f"127.0.0.1:{forbidden.port} is not one of the hosts of this command" in done.stdout, done
    assert forbidden.connections == 0


@pytest.mark.needs("curl")
@pytest.mark.parametrize("name", SANDBOXES)
async def test_no_inherited_proxy_setting_applies(
    name: Any, forbidden: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = forbidden.url().rstrip("/")
    names = ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "npm_config_proxy")
    for variable in names:
        monkeypatch.setenv(variable, elsewhere)
    async with Server() as allowed:
        env = {"PATH": PATH, **dict.fromkeys(names, elsewhere), "no_proxy": "*", "NO_PROXY": "127.0.0.1"}
        argv = (
            "/usr/bin/env",
            "curl",
            "-sS",
            allowed.url("/"),
            "--next",
            "-sS",
            "-x",
            elsewhere,
            "http://example.com/",
        )
        confinement = confined(argv, tmp_path, env=env, network=(f"127.0.0.1:{allowed.port}",))
        done = await run(choose(name, any_host), confinement)
        assert done.stdout.startswith("hello"), done
        assert len(allowed.requests) == 1
    assert forbidden.connections == 0


@pytest.mark.needs("curl")
@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_tunnel_leads_to_the_host_that_its_tls_handshake_names(name: Any, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with Server(tls=authority.serving("localhost")) as server:
        listed = (f"localhost:{server.port}",)
        url = server.url("/", host="localhost")
        curl = ("/usr/bin/env", "curl", "-sS", "--cacert", str(tmp_path / "ca.pem"))
        named = await run(choose(name, any_host), confined((*curl, url), tmp_path, network=listed))
        assert named.stdout == "hello", named
        code = """
import os, socket, ssl, sys
host, _, port = os.environ["https_proxy"].rpartition("/")[2].partition(":")
it = socket.create_connection((host, int(port)))
it.sendall(f"CONNECT localhost:{sys.argv[1]} HTTP/1.1\\r\\n\\r\\n".encode())
assert it.recv(1000).startswith(b"HTTP/1.1 200"), it
context = ssl._create_unverified_context()
try:
    context.wrap_socket(it, server_hostname=sys.argv[2])
except ssl.SSLError as error:
    print(error.reason)
"""
        other = await run(
            choose(name, any_host), confined(python(code, server.port, "other.example"), tmp_path, network=listed)
        )
        assert "ACCESS_DENIED" in other.stdout, other
        assert server.sni == ["localhost"]


@pytest.mark.needs("curl")
@pytest.mark.parametrize("name", SANDBOXES)
async def test_the_certificates_that_we_trust_are_trusted_inside(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates, workspace = tmp_path / "certificates", tmp_path / "workspace"
    certificates.mkdir()
    workspace.mkdir()
    authority = Authority(certificates)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ca.pem"))
    async with Server(tls=authority.serving("localhost")) as server:
        url = server.url("/", host="localhost")
        code = f"import urllib.request as it; print(it.urlopen({url!r}, timeout=20).read().decode())"
        for argv in (("/usr/bin/env", "curl", "-sS", url), python(code)):
            confinement = confined(argv, workspace, network=(f"localhost:{server.port}",))
            done = await run(choose(name, any_host), confinement)
            assert done.stdout.strip() == "hello", done


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_private_address_is_reached_only_by_a_rule(name: Any, forbidden: Server, tmp_path: Path) -> None:
    url = forbidden.url("/")
    code = f"import urllib.request as it; print(it.urlopen({url!r}, timeout=20).read())"
    done = await run(choose(name), confined(python(code), tmp_path, network=(f"127.0.0.1:{forbidden.port}",)))
    assert "403" in done.stderr, done
    assert forbidden.connections == 0


@pytest.mark.parametrize("name", SANDBOXES)
async def test_an_address_of_the_new_protocol_is_a_host_like_any_other(name: Any, tmp_path: Path) -> None:
    async with Server(hosts=("::1",)) as server:
        code = f"import urllib.request as it; print(it.urlopen('http://[::1]:{server.port}/', timeout=20).read())"
        confinement = confined(python(code), tmp_path, network=(f"[0:0::1]:{server.port}",))
        done = await run(choose(name, any_host), confinement)
        assert done.stdout == "b'hello'\n", done


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_wildcard_is_not_a_host(name: Any, tmp_path: Path) -> None:
    for host in ("*.example.com", "example.com/x", "*:443", "ex ample.com"):
        with pytest.raises(BadHost):
            await choose(name).spawn(confined(("/bin/true",), tmp_path, network=(host,)))


@pytest.mark.parametrize("name", SANDBOXES)
async def test_with_hosts_the_streams_the_exit_code_and_the_signals_are_those_of_the_command(
    name: Any, tmp_path: Path
) -> None:
    script = "cat; echo problem >&2; yes | head -n 1; exit 7"
    confinement = confined(("/bin/sh", "-c", script), tmp_path, network=("example.com",))
    done = await run(choose(name), confinement, stdin=b"given\n")
    assert (done.code, done.stdout, done.stderr) == (7, "given\ny\n", "problem\n")
    missing = confined(("/nonexistent/program",), tmp_path, network=("example.com",))
    if name == "bubblewrap":
        gone = await run(choose(name), missing)
        assert gone.code != 0
        assert "could not be started" in gone.stderr


# --- what is left ---


def _connections() -> list[str]:
    """The sockets of this process that are connected to, or listen on, an internet address."""
    ours = {link for link in _links() if link.startswith("socket:")}
    found = []
    for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if f"socket:[{fields[9]}]" in ours:
            found.append(line)
    return found


def _links() -> list[str]:
    found = []
    for entry in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{entry}"))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("name", SANDBOXES)
async def test_killing_a_process_in_the_middle_of_its_requests_leaves_no_connection_and_no_process(
    name: Any, tmp_path: Path
) -> None:
    word = token()
    code = """
import os, socket, sys, time
host, _, port = os.environ["http_proxy"].rpartition("/")[2].partition(":")
kept = []
for number in range(8):
    it = socket.create_connection((host, int(port)))
    it.sendall(f"GET http://127.0.0.1:{sys.argv[1]}/ HTTP/1.1\\r\\n\\r\\n".encode())
    kept.append(it)
kept.append(socket.create_connection((host, int(port))))  # never says anything
print("ready", flush=True)
time.sleep(600)
"""
    async with Server(hang) as server:
        before = len(_links())
        network = (f"127.0.0.1:{server.port}",)
        process = await choose(name, any_host).spawn(
            confined(python(code, server.port, word), tmp_path, network=network)
        )
        await until(lambda: len(server.requests) == 8)
        process.kill()
        await process.wait()
        for descriptor in (process.stdin, process.stdout, process.stderr):
            os.close(descriptor)
        assert await none_left(word) == []
        await until(lambda: server.left.is_set() and len(_links()) <= before + 8)
    await until(lambda: _connections() == [])


@pytest.mark.parametrize("name", SANDBOXES)
async def test_when_the_driver_is_killed_no_process_and_no_port_stays(name: Any, tmp_path: Path) -> None:
    word = token()
    driver = f"""
import asyncio, sys
from pathlib import Path
from cuebook.gate.sandbox import choose
from cuebook.kernel.ports import Confinement
from cuebook.gate.sandbox import orphans

INSIDE = '''
import os, socket, sys, time
host, _, port = os.environ["http_proxy"].rpartition("/")[2].partition(":")
it = socket.create_connection((host, int(port)))
it.sendall(("GET http://127.0.0.1:" + sys.argv[1] + "/ HTTP/1.1\\\\r\\\\n\\\\r\\\\n").encode())
time.sleep(600)
'''

async def main():
    box = choose({name!r}, lambda host, port: True)
    argv = (sys.executable, "-I", "-S", "-c", INSIDE, sys.argv[1], {word!r})
    await box.spawn(Confinement(argv=argv, cwd={str(tmp_path)!r}, network=("127.0.0.1:" + sys.argv[1],)))
    await asyncio.sleep(600)

asyncio.run(main())
"""
    async with Server(hang) as server:
        ours = await asyncio.create_subprocess_exec(sys.executable, "-c", driver, str(server.port))
        await until(lambda: len(server.requests) == 1)
        ours.send_signal(signal.SIGKILL)
        await ours.wait()
        await server.left.wait()
    assert await none_left(word) == []


@pytest.mark.parametrize("name", SANDBOXES)
async def test_a_flood_of_connections_is_held_back_and_the_next_request_is_served(name: Any, tmp_path: Path) -> None:
    code = """
import os, socket, sys
host, _, port = os.environ["http_proxy"].rpartition("/")[2].partition(":")
kept = []
for number in range(300):
    try:
        it = socket.socket()
        it.settimeout(0.2)
        it.connect((host, int(port)))
    except OSError:
        break
    kept.append(it)
for it in kept:
    it.close()
import urllib.request
print(urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=20).read().decode())
"""
    async with Server() as server:
        confinement = confined(python(code, server.port), tmp_path, network=(f"127.0.0.1:{server.port}",))
        done = await run(choose(name, any_host), confinement, seconds=60)
        assert done.stdout == "hello\n", done
        assert server.connections == 1


def test_a_pair_of_sockets_is_connected_to_itself_and_leaves_no_port_open() -> None:
    from cuebook.gate.sandbox.network.sockets import connected_pair

    one, other = connected_pair()
    with one, other:
        one.sendall(b"hello")
        assert other.recv(10) == b"hello"
        with socket.socket() as third, pytest.raises(ConnectionRefusedError):
            third.connect(other.getsockname())


async def test_an_answer_of_many_pieces_arrives_whole(tmp_path: Path) -> None:
    body = os.urandom(3_000_000)
    async with Server(answer(body)) as server:
        code = f"import urllib.request as it; print(len(it.urlopen({server.url('/')!r}, timeout=20).read()))"
        confinement = confined(python(code), tmp_path, network=(f"127.0.0.1:{server.port}",))
        done = await run(choose("auto", any_host), confinement)
        assert done.stdout == "3000000\n", done


@pytest.mark.needs("landlock")
async def test_idle_sockets_lead_nowhere(tmp_path: Path) -> None:
    """Landlock allows no local sockets. A program that insists gets some that are connected to nothing."""
    code = """
import os, select, socket, sys
one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
one.connect(sys.argv[1])
one.sendall(b"hello?")
two = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
two.bind("named")
two.listen()
print(os.path.exists("named"), select.select([one, two], [], [], 0.3)[0])
kept = [one, two]
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    try:
        while True:
            kept.append(socket.socket(socket.AF_UNIX, kind))
    except OSError as error:
        print(error.strerror)
tcp = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
tcp.bind(("127.0.0.1", 0))
tcp.listen()
tcp.sendall(f"GET http://127.0.0.1:{sys.argv[2]}/ HTTP/1.1\\r\\nHost: 127.0.0.1:{sys.argv[2]}\\r\\n\\r\\n".encode())
print(tcp.recv(12))
"""
    outside = tmp_path / "outside"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(outside))
        listening.listen()
        listening.setblocking(False)
        async with Server() as server:
            confinement = confined(
                python(code, outside, server.port), tmp_path, network=(f"127.0.0.1:{server.port}",), idle_sockets=True
            )
            done = await run(choose("landlock", any_host), confinement)
        assert done.stdout.splitlines() == [
            "False []",
            "Address family not supported by protocol",
            "Too many open files in system",
            "b'HTTP/1.1 200'",
        ], done
        with pytest.raises(BlockingIOError):
            listening.accept()
