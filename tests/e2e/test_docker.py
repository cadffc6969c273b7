"""The docker and podman backends on real engines: what runs where, what is said if it cannot, what is left: nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import box_bundle
import engines
import pytest
from agentix.provider.docker import DockerProvider, DockerProviderConfig, PodmanProvider
from containers import PATIENCE, host, left, provider_of, running, until

sys.path.insert(0, str(box_bundle.BOX / "src"))

import box_targets as t

from agentix import RemoteCallError, SandboxConfig, SandboxResource
from agentix.provider import providers

pytestmark = pytest.mark.usefixtures("places", "nothing_left")


# ---- the canonical path ----


@pytest.mark.parametrize("image", ["bookworm", "bullseye", "busybox", "scratch"])
def test_the_canonical_path(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, image: str) -> None:
    config = SandboxConfig(image=engine.image(image), bundle=bundle.directory)

    async def main() -> None:
        provider = provider_of(engine)
        async with provider.session(config) as sandbox:
            result = await sandbox.remote(t.run, seed=42)
            assert result["seed"] == 42
            assert result["python"] == "/nix/runtime/venv/bin/python"
            assert result["host"] != os.uname().nodename
            assert re.fullmatch(r"agentix-[0-9a-f]{8}", sandbox.sandbox_id)
            assert sandbox.runtime_url.startswith("http://127.0.0.1:")
            await check_the_bundle(sandbox)
            if image in engines.SUITES:
                await check_the_image(sandbox)
        assert engine.sandboxes() == []

        sandbox = await provider.create(config)
        try:
            assert (await sandbox.remote(t.run, seed=1))["seed"] == 1
        finally:
            await sandbox.aclose()
            await provider.delete(sandbox.sandbox_id)

    run(main())


async def check_the_bundle(sandbox: Any) -> None:
    """Python, numpy, TLS, time zones and bash are the bundle's, and map no file of the image's."""
    solution, _ = await sandbox.remote(t.solve)
    assert solution == [0.8, 1.4]
    certificate, key = certificate_for("box.test")
    assert await sandbox.remote(t.handshake, certificate, key) == ("TLSv1.3", "over TLS")
    assert await sandbox.remote(t.summer_time) == "2024-07-01T12:00:00+02:00"
    code, out, _ = await sandbox.remote(t.command, ["bash", "-c", "type bash; echo $((6 * 7))"])
    assert (code, out) == (0, "bash is /nix/runtime/bin/bash\n42\n")
    code_files = [path for path in await sandbox.remote(t.own_maps) if ".so" in path or "/bin/" in path]
    assert [path for path in code_files if not path.startswith("/nix/")] == []
    assert (await sandbox.remote(t.write, "/nix/x")).startswith("OSError: Read-only")


async def check_the_image(sandbox: Any) -> None:
    """The image's own programs run, started by the worker, with the image's own libraries."""
    for program in ("/bin/bash", "/bin/cat"):
        files = await sandbox.remote(t.mapped, [program])
        assert [path for path in files if path.startswith("/nix/")] == []
        assert any("/libc" in path for path in files), files
    script = (
        "set -e; cd $(mktemp -d); git init -q .; git config user.name a; git config user.email a@b; "
        "git commit -q --allow-empty -m first; "
        "git log --format=%s; ldd $(command -v git) | grep -c /nix || true"
    )
    code, out, err = await sandbox.remote(t.command, ["/bin/bash", "-c", script])
    assert (code, out) == (0, "first\n0\n"), err
    code, out, err = await sandbox.remote(t.command, ["apt-get", "--version"])
    assert (code, out.startswith("apt ")) == (0, True), err
    code, _, err = await sandbox.remote(t.command, ["apt-cache", "policy", "git"])
    assert code == 0, err
    code, _, err = await sandbox.remote(t.command, ["su", "nobody", "-s", "/bin/sh", "-c", "id"])
    assert code == 0, err


def certificate_for(name: str) -> tuple[bytes, bytes]:
    from datetime import UTC, datetime, timedelta

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM), key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_a_bundle_as_a_tar_is_deployed_once(
    run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle, tmp_path: Path
) -> None:
    async def main() -> None:
        provider = provider_of(docker_engine, bundle_cache_dir=str(tmp_path / "cache"))
        config = SandboxConfig(image=docker_engine.image("busybox"), bundle=str(bundle.tar))
        sandboxes = await asyncio.gather(*(provider.create(config) for _ in range(3)))
        for sandbox in sandboxes:
            assert (await sandbox.remote(t.run, seed=2))["seed"] == 2
            await sandbox.aclose()
            await provider.delete(sandbox.sandbox_id)
        assert [path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith("sha256-")] == [
            Path(bundle.directory).name
        ]
        deployed = await provider.deploy_bundle(bundle.tar, name="mine:1")
        assert deployed.bundle == str(tmp_path / "cache" / Path(bundle.directory).name)
        assert deployed.metadata["name"] == "mine:1"
        assert deployed.platform == "linux/amd64" if os.uname().machine == "x86_64" else True

    run(main())


def test_registered_by_both_names() -> None:
    assert providers().get("docker") is DockerProvider
    assert providers().get("podman") is PodmanProvider
    assert providers().sources()["docker"].label().startswith("agentix-provider-docker@")


# ---- images with settings of their own ----

VARIANTS = {
    "entry-bash": ('ENTRYPOINT ["/bin/bash"]',),
    "entry-false": ('ENTRYPOINT ["/bin/false"]', 'CMD ["-x"]'),
    "health": ("HEALTHCHECK CMD /bin/false",),
    "workdir": ("WORKDIR /nope",),
    "user": ("USER 1000",),
    "env": (
        "ENV PYTHONHOME=/x",
        "ENV LD_LIBRARY_PATH=/x",
        "ENV PATH=/x",
        "ENV PYTHONPATH=/y",
        "ENV LD_PRELOAD=/x/none.so",
    ),
    "expose": ("EXPOSE 8000",),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_images_with_settings(
    run: Any,
    docker_engine: engines.Engine,
    engine: engines.Engine,
    bundle: box_bundle.Bundle,
    variant: str,
    tmp_path: Path,
) -> None:
    if variant == "health":  # which only docker's commit can add
        image = docker_engine.variant("bookworm", variant, *VARIANTS[variant])
        if engine is not docker_engine:
            docker_engine("save", "--output", str(tmp_path / "image.tar"), image)
            engine("load", "--input", str(tmp_path / "image.tar"))
    else:
        image = engine.variant("bookworm", variant, *VARIANTS[variant])

    async def main() -> None:
        async with provider_of(engine).session(SandboxConfig(image=image, bundle=bundle.directory)) as sandbox:
            assert (await sandbox.remote(t.run, seed=3))["python"] == "/nix/runtime/venv/bin/python"
            assert (await sandbox.remote(t.solve))[0] == [0.8, 1.4]
            if variant == "user":
                assert (await sandbox.remote(t.whoami))[0] == 1000
            if variant == "env":
                environ = await sandbox.remote(t.environ)
                assert environ["AGENTIX_SAVED_PYTHONPATH"] == "/y"
                assert environ["AGENTIX_SAVED_LD_PRELOAD"] == "/x/none.so"
                assert "LD_PRELOAD" not in environ

    run(main())


# ---- networks ----


def test_without_a_network(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        for image in (engine.image("busybox"), engine.variant("busybox", "busybox-user", "USER 1000")):
            provider = provider_of(engine, network="none")
            async with provider.session(SandboxConfig(image=image, bundle=bundle.directory)) as sandbox:
                assert sandbox.runtime_url.startswith("http+unix://")
                assert await sandbox.remote(t.interfaces) == ["lo"]
                found = await provider.get(sandbox.sandbox_id)
                assert (await found.remote(t.run, seed=4))["seed"] == 4
                await found.aclose()

    run(main())


def test_the_hosts_network(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
        async with provider_of(engine, network="host").session(config) as sandbox:
            assert sandbox.runtime_url.startswith("http://127.0.0.1:")
            assert (await sandbox.remote(t.run, seed=5))["host"] == os.uname().nodename
            port = int(sandbox.runtime_url.rpartition(":")[2])
            assert listeners(port) == {"127.0.0.1"}

    run(main())


def listeners(port: int) -> set[str]:
    """The addresses on which this machine listens for the port."""
    found: set[str] = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        address, number = line.split()[1].split(":")
        if line.split()[3] == "0A" and int(number, 16) == port:
            found.add(socket.inet_ntoa(bytes.fromhex(address)[::-1]))
    return found


def test_hello_world(engine: engines.Engine) -> None:
    """The example, as its README says, but for the image."""
    example = Path(__file__).parents[2] / "examples" / "hello-world" / "host.py"
    options = [engine.kind, "--engine", engine.program, "--image", engine.image("busybox")]
    done = subprocess.run([sys.executable, str(example), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "numpy in the sandbox fits a line: {'slope': 1.98" in done.stdout
    assert "the worker was killed: returncode -9" in done.stdout
    assert done.stdout.rstrip().endswith("sandbox removed")


def test_another_network(run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    docker_engine("network", "create", "agentix-test")
    try:

        async def main() -> None:
            config = SandboxConfig(image=docker_engine.image("busybox"), bundle=bundle.directory)
            async with provider_of(docker_engine, network="agentix-test").session(config) as sandbox:
                assert (await sandbox.remote(t.run, seed=6))["seed"] == 6
                port = int(sandbox.runtime_url.rpartition(":")[2])
                assert listeners(port) <= {"127.0.0.1"}

        run(main())
    finally:
        docker_engine("network", "rm", "agentix-test")


def test_published_on_all_addresses(run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        config = SandboxConfig(image=docker_engine.image("busybox"), bundle=bundle.directory)
        async with provider_of(docker_engine, publish_host="").session(config) as sandbox:
            assert sandbox.runtime_url.startswith("http://127.0.0.1:")
            assert (await sandbox.remote(t.run, seed=7))["seed"] == 7

    run(main())


# ---- environment, resources, privileges ----


def test_environments_arrive_as_they_are(
    run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {
        "A": "x\nB=evil",
        "K": "-----BEGIN\nline\n",
        "E": "",
        "Q": "a'b\"c $HOME #",
        "S": "  led and trailed  ",
        "C": "ends in a return\r",
        "U": "\u00e4\u4e2d",
        "L": "x" * 100_000,
        "H": "#no comment",
        "W": "a*",
    }
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@proxy.test")
    monkeypatch.setenv("AGX_OF_THE_HOST", "1")
    monkeypatch.setenv("PYTHONPATH", "/of/the/host")
    monkeypatch.setenv("PYTHONSTARTUP", "/of/the/host")
    monkeypatch.setenv("PYTHONHOME", "")

    async def main() -> None:
        given = {**env, "N": os.fsdecode(b"\xff\xfe")}
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory, env=given)
        async with provider_of(engine).session(config) as sandbox:
            assert await sandbox.remote(t.variable, "N") == b"\xff\xfe"
            environ = await sandbox.remote(t.environ)
            assert {name: environ.get(name) for name in env} == env
            code, out, _ = await sandbox.remote(t.command, ["bash", "-c", 'printf %s "$A|$K|$Q"'])
            assert (code, out) == (0, "|".join((env["A"], env["K"], env["Q"])))
            assert environ.keys().isdisjoint({"B", "HTTP_PROXY", "AGX_OF_THE_HOST", "PYTHONPATH", "PYTHONSTARTUP"})
            assert not [path for path in await sandbox.remote(t.paths) if not path.startswith("/nix/")]
            assert not await sandbox.remote(t.importable, "agx_canary")

    run(main())


@pytest.mark.parametrize("name", ["", "A B", "A=B", "A\nB", "-x"])
def test_bad_names_of_variables(name: str) -> None:
    with pytest.raises(ValueError, match="env"):
        SandboxConfig(image="a", bundle="b", env={name: "x"})


def test_resources_and_privileges(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        resource = SandboxResource(cpu=1.5, memory="256m")
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory, resource=resource)
        async with provider_of(engine).session(config) as sandbox:
            assert await sandbox.remote(t.memory_limit) == 256 << 20
            status = await sandbox.remote(t.status)
            assert status["NoNewPrivs"] == "1"
            assert int(status["CapEff"], 16) == sum(1 << bit for bit in (0, 1, 3, 5, 6, 7))
            assert int(status["CapBnd"], 16) == sum(1 << bit for bit in (0, 1, 3, 5, 6, 7))
            facts = engine(
                "inspect", "--format", "{{.HostConfig.NanoCpus}} {{.HostConfig.PidsLimit}}", sandbox.sandbox_id
            )
            assert facts == "1500000000 4096"
        settings: dict[str, Any] = {"cap_add": (), "no_new_privileges": False, "pids_limit": None, "read_only": True}
        async with provider_of(engine, **settings).session(config) as sandbox:
            status = await sandbox.remote(t.status)
            assert (status["NoNewPrivs"], int(status["CapEff"], 16)) == ("0", 0)
            assert (await sandbox.remote(t.write, "/bin/x")).startswith("OSError: Read-only")

    run(main())


def test_options_of_the_caller(run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        config = SandboxConfig(image=docker_engine.image("busybox"), bundle=bundle.directory)
        async with provider_of(docker_engine, run_args="--hostname 'box-1' --label x=y").session(config) as sandbox:
            assert (await sandbox.remote(t.run, seed=8))["host"] == "box-1"

    run(main())


# ---- secrets ----


def test_secrets_are_in_no_command_line(
    run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, places: Path
) -> None:
    seen: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.is_set():
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdigit():
                        seen.add((entry / "cmdline").read_bytes().decode(errors="replace"))
            time.sleep(0.01)

    async def main() -> None:
        env = {"SECRET": "canary-one", "MORE": "canary\ntwo"}
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory, env=env)
        async with provider_of(engine).session(config) as sandbox:
            assert (await sandbox.remote(t.environ))["SECRET"] == "canary-one"
            assert sandbox.token is not None
            assert not any(sandbox.token in line for line in seen)
            directory = places / sandbox.sandbox_id
            assert [mode_of(directory), mode_of(places)] == [0o700, 0o700]
            assert not (directory / "env").exists()
            assert sandbox.token not in repr(sandbox)
            assert await asyncio.to_thread(status_without_token, sandbox.runtime_url) == 401

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run(main())
    finally:
        stop.set()
        watcher.join()
    assert any("--env-file" in line for line in seen)
    assert not [line for line in seen if "canary-" in line or "canary\n" in line]


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def status_without_token(url: str) -> int:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{url}/call", b"", method="POST"))
    refused.value.close()
    return refused.value.code


# ---- failures ----


def failing(run: Any, provider: DockerProvider, config: SandboxConfig, kind: type[BaseException] = RuntimeError) -> str:
    """What create says, and that it says it soon."""

    async def main() -> str:
        with pytest.raises(kind) as caught:
            await provider.create(config)
        return str(caught.value)

    return run(main())


def test_a_container_that_ends_early(run: Any, engine: engines.Engine, tmp_path: Path) -> None:
    broken = box_bundle.with_bootstrap(tmp_path, "echo boom; exit 3")
    config = SandboxConfig(image=engine.image("busybox"), bundle=broken)
    start = time.monotonic()
    text = failing(run, provider_of(engine), config)
    assert time.monotonic() - start < 50  # 5 s on a machine that has nothing else to do
    assert "the container ended with exit code 3 before its runtime was ready\nboom" in text


def test_a_runtime_that_never_answers(run: Any, engine: engines.Engine, tmp_path: Path) -> None:
    broken = box_bundle.with_bootstrap(tmp_path, "echo thinking; exec /nix/busybox sleep 1000")
    config = SandboxConfig(image=engine.image("busybox"), bundle=broken)
    text = failing(run, provider_of(engine, health_timeout=1.0), config)
    assert "the runtime was not ready after 1.0 s\nthinking" in text


def test_a_port_that_is_taken(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        port = str(sock.getsockname()[1])
        for network in ("host", None):
            env = {"AGENTIX_BIND_PORT": port}
            config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory, env=env)
            text = failing(run, provider_of(engine, network=network, health_timeout=10), config)
            assert "in use" in text or "already allocated" in text


def test_an_image_that_does_not_exist(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    config = SandboxConfig(image="localhost/agentix-test/nosuch:latest", bundle=bundle.directory)
    text = failing(run, provider_of(engine, pull="never"), config)
    assert "nosuch" in text
    assert "exit code 125" in text


def test_a_daemon_that_is_down(
    run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = SandboxConfig(image=docker_engine.image("busybox"), bundle=bundle.directory)
    with monkeypatch.context() as patch:
        patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
        assert "Cannot connect to the Docker daemon" in failing(run, provider_of(docker_engine), config)


def test_an_engine_or_a_bundle_that_is_missing(run: Any, docker_engine: engines.Engine, tmp_path: Path) -> None:
    image = docker_engine.image("busybox")
    missing = DockerProvider(DockerProviderConfig(container_engine="agx-no-such-engine"))
    text = failing(run, missing, SandboxConfig(image=image, bundle=str(tmp_path)))
    assert "container engine 'agx-no-such-engine' not found on PATH" in text
    provider = provider_of(docker_engine)
    assert "is no deployed bundle" in failing(run, provider, SandboxConfig(image=image, bundle=str(tmp_path)))
    nowhere = SandboxConfig(image=image, bundle=str(tmp_path / "nowhere"))
    assert "there is no bundle at" in failing(run, provider, nowhere, FileNotFoundError)
    (tmp_path / "a.tar").write_bytes(b"no tar")
    assert "was not deployed" in failing(run, provider, SandboxConfig(image=image, bundle=str(tmp_path / "a.tar")))


# ---- cancelling ----


def test_cancelling_at_any_moment(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        provider = provider_of(engine)
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
        moments = random.Random(69)
        for _ in range(10):
            task = asyncio.ensure_future(provider.create(config))
            await asyncio.sleep(moments.uniform(0, 0.8))
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                sandbox = await task  # it was quicker
                await sandbox.aclose()
                await provider.delete(sandbox.sandbox_id)
            assert engine.sandboxes() == []

    run(main())


def test_errors_of_the_body_and_timeouts(run: Any, docker_engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    async def main() -> None:
        provider = provider_of(docker_engine)
        config = SandboxConfig(image=docker_engine.image("busybox"), bundle=bundle.directory)
        with pytest.raises(ZeroDivisionError):
            async with provider.session(config):
                raise ZeroDivisionError
        assert docker_engine.sandboxes() == []
        with pytest.raises(RemoteCallError, match="FileNotFoundError"):
            async with provider.session(config) as sandbox:
                await sandbox.remote(t.command, ["/no/such"])
        assert docker_engine.sandboxes() == []
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(8), provider.session(config) as sandbox:
                await sandbox.remote(t.nap, 1000)

    run(main())


@pytest.mark.parametrize("delay", [0.3, 0.6, 0.9, None])
def test_interrupting_the_host(docker_engine: engines.Engine, bundle: box_bundle.Bundle, delay: float | None) -> None:
    body = "print('go', flush=True)\nasync with provider.session(config) as s:\n"
    body += "    await s.remote(t.run, 1)\n    print('up', flush=True)\n    await s.remote(t.nap, 1000)"
    process = host(docker_engine, bundle, body)
    assert process.stdout is not None
    assert process.stdout.readline() == "go\n"
    if delay is None:
        assert process.stdout.readline() == "up\n"
    else:
        time.sleep(delay)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE)[0].endswith("interrupted\n")
    assert docker_engine.sandboxes() == []


# ---- other processes ----


def test_ids_that_are_nobodys(run: Any, docker_engine: engines.Engine) -> None:
    async def main() -> None:
        provider = provider_of(docker_engine)
        foreign = docker_engine(
            "run", "-d", "--name", "agentix-0badf00d", docker_engine.image("busybox"), "/bin/sleep", "99"
        )
        try:
            for name in ("agentix-00000000", "nope", "agentix-0badf00d"):
                with pytest.raises(KeyError, match=name):
                    await provider.get(name)
                await provider.delete(name)
            assert docker_engine("inspect", "--format", "{{.State.Running}}", foreign) == "true"
        finally:
            docker_engine("rm", "-f", foreign)
        for bad in ("--all", "-f", "a b", "", "../x", "a\nb"):
            with pytest.raises(ValueError, match="sandbox id"):
                await provider.get(bad)
            with pytest.raises(ValueError, match="sandbox id"):
                await provider.delete(bad)

    run(main())


def test_a_killed_host(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, places: Path) -> None:
    body = "for i in range(2):\n    s = await provider.create(config)\n    print(s.sandbox_id, flush=True)\n"
    body += "await asyncio.sleep(1000)"
    process = host(engine, bundle, body, lease=3)
    assert process.stdout is not None
    ids = {process.stdout.readline().strip() for _ in range(2)}
    process.kill()
    process.communicate()
    assert set(engine.sandboxes()) >= ids

    async def main() -> None:
        config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
        async with provider_of(engine).session(config) as sandbox:  # which is not bothered
            assert (await sandbox.remote(t.run, seed=12))["seed"] == 12
        await until(lambda: not running(engine))  # the lease
        provider = provider_of(engine)  # the next one tidies up
        while ids & {*await asyncio.to_thread(engine.sandboxes), *left(places)}:  # or goes on, if the engine was busy
            async with provider.session(config):
                await asyncio.sleep(1)

    run(main())


# ---- many ----


async def cycles(engine: engines.Engine, bundle: box_bundle.Bundle, places: Path, count: int) -> None:
    provider = provider_of(engine)
    config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)
    await provider.delete((await provider.create(config)).sandbox_id)
    await asyncio.sleep(0.5)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(count):
        sandbox = await provider.create(config)
        await sandbox.aclose()
        await provider.delete(sandbox.sandbox_id)
    assert len(os.listdir("/proc/self/fd")) <= before
    assert left(places) == []
    assert engine.sandboxes() == []
    assert engine("volume", "ls", "-q") == ""


def test_one_after_another(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle, places: Path) -> None:
    run(cycles(engine, bundle, places, 5))


@pytest.mark.long
def test_a_hundred_one_after_another(engine: engines.Engine, bundle: box_bundle.Bundle, places: Path) -> None:
    asyncio.run(asyncio.wait_for(cycles(engine, bundle, places, 100), 600))


async def parallel(engine: engines.Engine, bundle: box_bundle.Bundle, count: int) -> None:
    provider = provider_of(engine)
    config = SandboxConfig(image=engine.image("busybox"), bundle=bundle.directory)

    async def one(seed: int) -> tuple[str, str]:
        async with provider.session(config) as sandbox:
            result = await sandbox.remote(t.run, seed=seed)
            assert result["seed"] == seed
            return sandbox.runtime_url, result["host"]

    results = await asyncio.gather(*map(one, range(count)))
    assert len({host for _, host in results}) == count


def test_a_few_at_once(run: Any, engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    run(parallel(engine, bundle, 6))


@pytest.mark.long
def test_twenty_at_once(engine: engines.Engine, bundle: box_bundle.Bundle) -> None:
    asyncio.run(asyncio.wait_for(parallel(engine, bundle, 20), 300))
