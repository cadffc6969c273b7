"""Where a runtime may be: URLs, names, Unix sockets, TLS; and what the constructor refuses."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from clienttools import BODIES, add, echo, nap, run
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from standin import Behaviour, StandIn

from agentix import RuntimeClient, RuntimeUnreachable

__all__ = ["run"]

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_timeouts_that_are_none(timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        RuntimeClient(URL, timeout=timeout)
    with pytest.raises(ValueError, match="call_deadline"):
        RuntimeClient(URL, call_deadline=timeout)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": None},
        {"timeout": "1"},
        {"timeout": True},
        {"call_deadline": "1"},
        {"http_sync_ms": 1.5},
        {"token": 7},
        {"headers": {"X": 1}},
        {"reconnection": 1},
        {"reconnection_attempts": 1.5},
        {"reconnection_delay": "1"},
        {"cancel_grace": None},
    ],
    ids=str,
)
def test_arguments_of_a_wrong_type(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        RuntimeClient(URL, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"http_sync_ms": -1},
        {"token": ""},
        {"token": "a b"},
        {"token": "a\r\nb"},
        {"token": "\u00e9"},
        {"headers": {"Authorization": "x"}},
        {"headers": {"content-length": "0"}},
        {"headers": {"Agentix-Session": "x"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X": "a\0"}},
        {"headers": {"X": "\u20ac"}},
        {"headers": {"X Y": "a"}},
        {"headers": {"": "a"}},
        {"headers": {"X": "a" * 20_000}},
        {"ssl": ssl.create_default_context()},
        {"reconnection_attempts": -1},
        {"reconnection_delay": -0.1},
        {"reconnection_delay_max": float("inf")},
        {"randomization_factor": 1.5},
        {"cancel_grace": -1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_arguments_of_a_wrong_value(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        RuntimeClient(URL, **options)
    assert "a\r\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8000",
        "ftp://host",
        "ws://host",
        "http://",
        "http://user:secret@host",
        "http://host?x=1",
        "http://host#x",
        "http://host:99999",
        "http://host:0",
        "http://host:x",
        "http://ho st",
        "http://host/a b",
        "http+unix://relative",
        "http+unix://%2Fa%00b",
        "http+unix://%2F" + "a" * 107,
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        RuntimeClient(url)
    assert "secret" not in str(caught.value)


def test_a_token_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTIX_CLIENT_TOKEN_FILE", str(tmp_path / "none"))
    with pytest.raises(ValueError, match="AGENTIX_CLIENT_TOKEN_FILE"):
        RuntimeClient(URL)
    (tmp_path / "none").write_text(" \n")
    with pytest.raises(ValueError, match="AGENTIX_CLIENT_TOKEN_FILE"):
        RuntimeClient(URL)


def test_no_secret_in_the_repr() -> None:
    client = RuntimeClient(URL, token="s3cret", headers={"X-Key": "s3cret"})
    assert "s3cret" not in repr(client) + repr(vars(client))
    assert URL in repr(client)


def test_headers_go_with_every_request(run: Any) -> None:
    async def main() -> None:
        async with StandIn() as server:
            server.functions.update(BODIES)
            async with RuntimeClient(server.url, headers={"X-Route": "one", "X-Other": " two "}) as client:
                assert await client.remote(add, 1, 2) == 3
                await client.health()
            requests = [r for c in server.connections for r in c.requests]
            assert len(requests) == 3
            assert all(r.headers["x-route"] == "one" and r.headers["x-other"] == "two" for r in requests)
            assert server.violations == []

    run(main())


def test_a_host_name(run: Any) -> None:
    async def main() -> None:
        async with StandIn() as server:
            server.functions.update(BODIES)
            async with RuntimeClient(f"http://localhost:{server.port}") as client:
                assert await client.remote(add, 1, 2) == 3
                values = await asyncio.gather(*(client.remote(nap, 0.1, i) for i in range(20)))
                assert values == list(range(20))
            assert server.connections[0].requests[0].headers["host"] == f"localhost:{server.port}"

    run(main())


def test_a_host_name_that_is_none(run: Any) -> None:
    async def main() -> None:
        client = RuntimeClient("http://no-such-host.invalid:1")
        with pytest.raises(RuntimeUnreachable, match=r"no-such-host\.invalid"):
            await client.remote(add, 1, 2)
        await client.close()

    run(main())


def test_a_closed_client_gives_up_opening(run: Any) -> None:
    async def main() -> None:
        client = RuntimeClient("http://localhost:1")
        call = asyncio.create_task(client.remote(add, 1, 2))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(RuntimeUnreachable):
            await call

    run(main())


def test_a_unix_socket(run: Any, tmp_path: Path) -> None:
    async def main() -> None:
        path = tmp_path / "runtime.sock"
        server = await StandIn(token="t").start(unix=str(path))
        server.functions.update(BODIES)
        async with RuntimeClient(f"http+unix://{quote(str(path), safe='')}", token="t") as client:
            assert await client.remote(add, 1, 2) == 3
            blob = bytes(10 << 20)
            assert await client.remote(echo, blob) == blob
            assert await asyncio.gather(*(client.remote(add, i, 0) for i in range(200))) == list(range(200))
        await server.stop()
        assert server.violations == []
        with pytest.raises(RuntimeUnreachable, match="http\\+unix://"):
            await RuntimeClient(f"http+unix://{quote(str(path), safe='')}").remote(add, 1, 2)

    run(main())


def test_a_prefix(run: Any) -> None:
    async def main() -> None:
        async with StandIn() as server:
            client = RuntimeClient(server.url + "/box/7/")
            with pytest.raises(RuntimeUnreachable, match="404"):
                await client.remote(add, 1, 2)
            await client.close()
            assert server.violations == ["GET /box/7/health"]

    run(main())


# ---- TLS ----


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's context around a certificate made for 127.0.0.1."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "agentix test")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "both.pem").write_bytes(private + pem)
    (directory / "cert.pem").write_bytes(pem)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(directory / "both.pem")
    return server, ssl.create_default_context(cafile=str(directory / "cert.pem"))


def test_tls(run: Any, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def main() -> None:
        # Over https the certificate is the proof: the token goes without another one.
        async with StandIn(token="t", ssl=tls[0], behaviour=Behaviour(prove=False)) as server:
            server.functions.update(BODIES)
            async with RuntimeClient(server.url, token="t", ssl=tls[1]) as client:
                assert await client.remote(add, 1, 2) == 3
                assert await asyncio.gather(*(client.remote(add, i, 0) for i in range(50))) == list(range(50))
                blob = bytes(range(256)) * (20 << 12)
                assert await client.remote(echo, blob) == blob
                call = asyncio.create_task(client.remote(nap, 0.3, "value"))
                await asyncio.sleep(0.1)
                server.drop_connections()
                assert await call == "value"
            assert server.violations == []
            assert all(n == 1 for n in server.executions.values())

    run(main())


def test_tls_with_an_unknown_certificate(run: Any, tls: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    async def main() -> None:
        async with StandIn(token="t", ssl=tls[0]) as server:
            client = RuntimeClient(server.url, token="t")
            with pytest.raises(RuntimeUnreachable, match="certificate"):
                await client.remote(add, 1, 2)
            await client.close()
            assert server.connections == [] or all(b"t" not in c.received for c in server.connections)

    run(main())
