"""What the docker and podman backends tell an engine, argument by argument, with a fake one that writes it down."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from agentix.provider.docker import DockerProvider, DockerProviderConfig, PodmanProvider

from agentix import SandboxConfig, SandboxResource
from agentix.provider._places import Ports

FAKE = """#!{python}
import json, os, sys
files = {{}}
for option, value in zip(sys.argv, sys.argv[1:]):
    if option == "--env-file":
        files["env"] = open(value).read()
        files["mode"] = os.stat(value).st_mode & 0o777
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1:], files]) + "\\n")
answers = json.load(open({answers!r}))
text, code = answers.get(sys.argv[1], ["", 0])
if isinstance(text, list):
    count = sum(json.loads(line)[0][0] == sys.argv[1] for line in open({log!r}))
    text, code = text[min(count, len(text)) - 1]
print(text)
sys.exit(code)
"""
RUNNING = "agentix-container\trunning\t0\tfalse\tid\tx"


class Fake:
    """An engine's client that answers as it is told."""

    def __init__(self, root: Path, name: str = "docker") -> None:
        self.program = root / name
        self.log = root / "log"
        self.answers = root / "answers"
        self.program.write_text(FAKE.format(python=sys.executable, log=str(self.log), answers=str(self.answers)))
        self.program.chmod(0o755)
        self.answer(inspect=[RUNNING, 0])
        self.log.touch()
        bootstrap = root / "bundle" / "nix" / "runtime" / "bootstrap.sh"
        bootstrap.parent.mkdir(parents=True)
        bootstrap.touch()
        self.bundle = str(root / "bundle")

    def answer(self, **answers: Any) -> None:
        self.answers.write_text(json.dumps(answers))

    def calls(self) -> list[list[str]]:
        return [json.loads(line)[0] for line in self.log.read_text().splitlines()]

    def run(self) -> tuple[list[str], str]:
        """The argv of the first `run`, and the environment that went by file."""
        for line in self.log.read_text().splitlines():
            argv, files = json.loads(line)
            if argv[0] == "run":
                assert files["mode"] == 0o600
                return argv, files["env"]
        raise AssertionError("there was no run")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    root = Path(tempfile.mkdtemp(prefix="agx-"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root))
    fake = Fake(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    yield fake
    try:
        left = [path.name for path in root.glob("agentix-*/*") if not path.name.startswith("host-")]
        assert left == []
    finally:
        shutil.rmtree(root)


def attempt(provider: DockerProvider, config: SandboxConfig) -> str:
    """Create a sandbox, which fails here since nothing answers; return what it said."""

    async def main() -> str:
        with pytest.raises(RuntimeError) as caught:
            await provider.create(config)
        return str(caught.value)

    return asyncio.run(asyncio.wait_for(main(), 60))


def after(argv: list[str], option: str) -> str | None:
    return argv[argv.index(option) + 1] if option in argv else None


def pairs(argv: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(argv) if name == option]


def quick(**settings: Any) -> DockerProviderConfig:
    return DockerProviderConfig(health_timeout=0.1, **settings)


# ---- values that would be options ----


@pytest.mark.parametrize("image", ["--privileged", "-v=/:/host", "--env-file=/etc/hostname", " alpine", "", "a b"])
def test_images(fake: Fake, image: str) -> None:
    with pytest.raises(ValueError, match=r"SandboxConfig\.image"):
        SandboxConfig(image=image, bundle=fake.bundle)
    config = SandboxConfig(image="alpine", bundle=fake.bundle)
    config.image = image
    with pytest.raises(ValueError, match=r"SandboxConfig\.image"):
        asyncio.run(DockerProvider().create(config))
    assert fake.calls() == []


def test_platforms_and_engines(fake: Fake) -> None:
    with pytest.raises(ValueError, match="platform"):
        SandboxConfig(image="a", bundle=fake.bundle, platform="linux/amd64 --privileged")
    for engine in ("docker --host=tcp://x", "", "-x", "a\nb"):
        with pytest.raises(ValueError, match="container_engine"):
            DockerProviderConfig(container_engine=engine)
    assert fake.calls() == []


@pytest.mark.parametrize("name", ["a:b", "a b", "a,b", 'a"b'])
def test_paths_of_bundles(fake: Fake, tmp_path: Path, name: str) -> None:
    bundle = tmp_path / name
    shutil.copytree(fake.bundle, bundle)
    config = SandboxConfig(image="alpine", bundle=str(bundle))
    if name in ("a,b", 'a"b'):
        with pytest.raises(ValueError, match="mount"):
            asyncio.run(DockerProvider(quick()).create(config))
        assert [argv for argv in fake.calls() if argv[0] == "run"] == []
    else:
        attempt(DockerProvider(quick()), config)
        argv, _ = fake.run()
        assert f"type=bind,source={bundle}/nix,destination=/nix,readonly" in pairs(argv, "--mount")


@pytest.mark.parametrize(
    "settings",
    [
        {"network": "-x"},
        {"network": "a b"},
        {"publish_host": "example"},
        {"publish_host": "-p"},
        {"run_args": "'unclosed"},
        {"run_args": ("a\0b",)},
        {"gpu_args": ("a\0b",)},
        {"pull": "sometimes"},
        {"health_timeout": 0},
        {"lease": 0},
        {"cap_add": ("--privileged",)},
        {"pids_limit": 0},
        {"bundle_cache_dir": ""},
    ],
)
def test_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(settings))):
        DockerProviderConfig(**settings)


def test_types_of_settings() -> None:
    for settings in ({"run_args": 1}, {"gpu_args": (1,)}, {"network": 1}, {"read_only": 1}, {"container_engine": None}):
        with pytest.raises(TypeError):
            DockerProviderConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        DockerProvider("docker")  # type: ignore[arg-type]


# ---- the whole run ----


def test_each_value_has_its_slot(fake: Fake) -> None:
    resource = SandboxResource(cpu=4, memory="16g", gpu=2)
    config = SandboxConfig(
        image="reg.test/a:1", bundle=fake.bundle, platform="linux/amd64", env={"KEY": "s3cret"}, resource=resource
    )
    text = attempt(DockerProvider(quick(pull="always", lease=None, run_args=("--shm-size", "1g"))), config)
    assert "the runtime was not ready after 0.1 s" in text
    argv, env = fake.run()
    assert argv[:2] == ["run", "-d"]
    assert argv[-2:] == ["--", "reg.test/a:1"]
    name = after(argv, "--name")
    assert name is not None
    assert name.startswith("agentix-")
    assert after(argv, "--platform") == "linux/amd64"
    assert after(argv, "--entrypoint") == "/nix/runtime/bootstrap.sh"
    assert after(argv, "--cpus") == "4"
    assert after(argv, "--memory") == "16g"
    assert after(argv, "--gpus") == "2"
    assert after(argv, "--pull") == "always"
    assert after(argv, "--shm-size") == "1g"
    assert after(argv, "--pids-limit") == "4096"
    assert after(argv, "--cap-drop") == "ALL"
    assert after(argv, "--security-opt") == "no-new-privileges"
    assert pairs(argv, "--cap-add") == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SETUID", "SETGID", "KILL"]
    labels = dict(label.split("=", 1) for label in pairs(argv, "--label"))
    assert labels["agentix.sandbox"] == name
    assert labels["agentix.lease"] == "0.000"
    assert labels["agentix.host"].split(":")[1] == str(os.getpid())
    published = after(argv, "-p")
    assert published is not None
    host, outer, inner = published.split(":")
    assert (host, outer) == ("127.0.0.1", inner)
    assert f"AGENTIX_BIND_PORT={inner}\n" in env
    assert "AGENTIX_BIND_HOST=0.0.0.0\n" in env
    assert "KEY=s3cret\n" in env
    assert "AGENTIX_LEASE" not in env
    assert "--network" not in argv
    assert not [part for part in argv if "s3cret" in part]
    assert ["rm", "-f", "-v", name] in fake.calls()


@pytest.mark.parametrize(
    ("cpu", "shown"), [(4, "4"), (4.0, "4"), (0.5, "0.5"), (1.25, "1.25"), (0.000001, "0.000001"), (100, "100")]
)
def test_cpus(fake: Fake, cpu: float, shown: str) -> None:
    config = SandboxConfig(image="a", bundle=fake.bundle, resource=SandboxResource(cpu=cpu, memory=1 << 30))
    attempt(DockerProvider(quick()), config)
    argv, _ = fake.run()
    assert after(argv, "--cpus") == shown
    assert after(argv, "--memory") == str(1 << 30)
    assert after(argv, "--gpus") is None


def test_devices(fake: Fake) -> None:
    config = SandboxConfig(image="a", bundle=fake.bundle, resource=SandboxResource(gpu=3))
    attempt(DockerProvider(quick(gpu_args="--device 'nvidia.com/gpu={gpu}' --shm-size=1g")), config)
    argv, _ = fake.run()
    assert after(argv, "--device") == "nvidia.com/gpu=3"
    assert "--shm-size=1g" in argv
    assert "--gpus" not in argv


def test_networks(fake: Fake) -> None:
    config = SandboxConfig(image="a", bundle=fake.bundle)
    expected = {"host": ("AGENTIX_BIND_HOST=127.0.0.1", False), "mine": ("AGENTIX_BIND_HOST=0.0.0.0", True)}
    expected["none"] = ("AGENTIX_BIND_SOCKET=/run/agentix/socket/s", False)
    for network, (line, published) in expected.items():
        fake.log.write_text("")
        attempt(DockerProvider(quick(network=network)), config)
        argv, env = fake.run()
        assert after(argv, "--network") == network
        assert line in env.splitlines()
        assert ("-p" in argv) == published
    fake.log.write_text("")
    attempt(DockerProvider(quick(publish_host="")), config)
    published_as = after(fake.run()[0], "-p")
    assert published_as is not None
    assert len(set(published_as.split(":"))) == 1


def test_podman(fake: Fake, tmp_path: Path) -> None:
    shutil.copy(fake.program, tmp_path / "podman")
    config = SandboxConfig(image="a", bundle=fake.bundle)
    attempt(PodmanProvider(quick(container_engine="podman")), config)
    argv, _ = fake.run()
    assert "--http-proxy=false" in argv
    assert next(argv for argv in fake.calls() if argv[0] == "rm")[1:5] == ["-f", "-v", "-t", "0"]
    assert PodmanProvider()._config.container_engine == "podman"
    own = DockerProviderConfig(container_engine="mine")
    assert PodmanProvider(own)._config is own
    assert isinstance(DockerProviderConfig(container_engine="podman").to_provider(), DockerProvider)


# ---- the engine's answers ----


def test_a_registry_that_hiccups(fake: Fake) -> None:
    hiccup = ["docker: received unexpected HTTP status: 503 Service Unavailable", 125]
    fake.answer(run=[[hiccup, ["id", 0]], 0], inspect=[RUNNING, 0])
    attempt(DockerProvider(quick()), SandboxConfig(image="a", bundle=fake.bundle))
    assert len([argv for argv in fake.calls() if argv[0] == "run"]) == 2


def test_a_missing_image_is_not_asked_for_again(fake: Fake) -> None:
    fake.answer(run=["docker: Error response from daemon: pull access denied for a", 125])
    text = attempt(DockerProvider(quick()), SandboxConfig(image="a", bundle=fake.bundle))
    assert "pull access denied for a" in text
    assert len([argv for argv in fake.calls() if argv[0] == "run"]) == 1


def test_a_taken_port_is_replaced(fake: Fake) -> None:
    taken = ["Bind for 127.0.0.1:1 failed: port is already allocated", 125]
    fake.answer(run=[[taken, taken, ["id", 0]], 0], inspect=[RUNNING, 0])
    attempt(DockerProvider(quick()), SandboxConfig(image="a", bundle=fake.bundle))
    ports = [after(argv, "-p") for argv in fake.calls() if argv[0] == "run"]
    assert len(ports) == len(set(ports)) == 3


def test_a_name_that_is_anothers_is_left_alone(fake: Fake) -> None:
    fake.answer(run=['Conflict. The container name "/x" is already in use by container "y"', 125])
    attempt(DockerProvider(quick()), SandboxConfig(image="a", bundle=fake.bundle))
    assert [argv for argv in fake.calls() if argv[0] == "rm"] == []


def test_control_bytes_of_a_container_are_escaped(fake: Fake) -> None:
    ended = "agentix-container\texited\t3\tfalse\tid\tx"
    fake.answer(inspect=[ended, 0], logs=["\x1b[2J\x07 boom", 0])
    text = attempt(DockerProvider(quick()), SandboxConfig(image="a", bundle=fake.bundle))
    assert "\\x1b[2J\\x07 boom" in text


def test_ports_are_handed_out_once() -> None:
    ports = Ports()
    found = [port for _ in range(200) for port in ports.take("127.0.0.1", 4)]
    assert len(found) == len(set(found)) == 800
    ports.give_back(found)
    with pytest.raises(RuntimeError, match="no port can be published"):
        ports.take("::2", 1)  # nobody's


def test_a_squatter_on_the_port_learns_nothing(fake: Fake) -> None:
    """It answers as a runtime would, but cannot prove that it knows the token."""
    body = b'{"status":"ok","version":"0.1.0","instance":"mine"}'
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async def main() -> str:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = str(server.sockets[0].getsockname()[1])
            config = SandboxConfig(image="a", bundle=fake.bundle, env={"AGENTIX_BIND_PORT": port})
            with pytest.raises(RuntimeError) as caught:
                await DockerProvider(DockerProviderConfig(health_timeout=1)).create(config)
            return str(caught.value)

    assert "the runtime was not ready after 1.0 s" in asyncio.run(asyncio.wait_for(main(), 60))
    assert asked
    assert not [head for head in asked if b"authorization" in head.lower()]
