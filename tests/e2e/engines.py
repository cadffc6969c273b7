"""Container engines, images and a bundle for tests.

A Docker daemon that already runs is used as it is; where none runs, a private one is started, with data, socket, pid
file and bridge of its own, and stopped by its pid at the end. Podman gets storage, settings and a bridge of its own. So
two runs at once do not meet, and the machine's network is afterwards what it was before. No registry is asked for an
image: they are imported from trees made here, and those made by mmdebstrap are cached between runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTAINERS_CONF = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_config_dir = "{root}/net"
"""
LIMITS = "nofile=20000:20000"
START_SECONDS = 60


class Engine:
    """A running engine: `program` is what a provider is given."""

    def __init__(self, kind: str, program: str, *, private: bool) -> None:
        self.kind = kind
        self.program = program
        self.directory = os.path.dirname(program)
        self._private = private  # its images go with its storage
        self._images: dict[str, str] = {}
        self.foreign: set[str] = set()  # sandboxes that are no test's
        self.foreign = set(self.sandboxes())

    def __call__(self, *args: str, check: bool = True) -> str:
        done = subprocess.run([self.program, *args], capture_output=True, text=True, check=False)
        assert done.returncode == 0 or not check, f"{self.kind} {args}: {done.stdout}{done.stderr}"
        return done.stdout.strip() if check else done.stdout + done.stderr

    def image(self, name: str) -> str:
        """Import the base image, once, and return its name for this engine."""
        if name not in self._images:
            tag = f"localhost/agentix-test/{name}:latest"
            self("import", str(tree(name)), tag)
            self._images[name] = tag
        return self._images[name]

    def variant(self, base: str, name: str, *changes: str) -> str:
        """Return the image with a Dockerfile's instructions applied."""
        tag = f"localhost/agentix-test/{name}:latest"
        if tag not in self._images.values():
            container = self("create", self.image(base), "/nothing")
            try:
                self("commit", *(f"--change={change}" for change in changes), container, tag)
            finally:
                self("rm", container)
            self._images[name] = tag
        return tag

    def sandboxes(self) -> list[str]:
        """The names of all sandboxes, in whatever state, but for those that were there before the tests."""
        names = self("ps", "-a", "--filter", "label=agentix.sandbox", "--format", "{{.Names}}").split()
        return [name for name in names if name not in self.foreign]

    def remove_all(self) -> None:
        for name in self.sandboxes():
            self("rm", "-f", "-v", name, check=False)
        for tag in self._images.values() if not self._private else ():
            self("rmi", "-f", tag, check=False)


started: list[Engine] = []
"""The engines that tests have at the moment."""


@contextmanager
def _directory(prefix: str) -> Iterator[str]:
    """A temporary directory that only its end removes: a forked child that runs exit functions must not."""
    root = tempfile.mkdtemp(prefix=prefix)
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


# ---- docker ----


@contextmanager
def docker() -> Iterator[Engine]:
    """Docker: the daemon that runs, or one of our own."""
    program = shutil.which("docker")
    assert program is not None, "docker is missing; tools/setup.sh installs it"
    if subprocess.run([program, "version"], capture_output=True, check=False).returncode == 0:
        yield from _using(Engine("docker", program, private=False))
        return
    with _directory("agx-docker-") as root:
        with _bridge("d") as (bridge, _), _daemon(Path(root), bridge) as socket:
            before = os.environ.get("DOCKER_HOST")
            os.environ["DOCKER_HOST"] = socket
            try:
                yield from _using(Engine("docker", program, private=True))
            finally:
                os.environ.pop("DOCKER_HOST")
                if before is not None:
                    os.environ["DOCKER_HOST"] = before
        _unmount_below(root)


def _using(engine: Engine) -> Iterator[Engine]:
    started.append(engine)
    try:
        yield engine
    finally:
        started.remove(engine)
        engine.remove_all()


@contextmanager
def _daemon(root: Path, bridge: str) -> Iterator[str]:
    socket = f"unix://{root}/docker.sock"
    daemon = shutil.which("dockerd") or "/usr/sbin/dockerd"
    assert os.path.exists(daemon), "dockerd is missing; tools/setup.sh installs it"
    places = [f"--data-root={root}/data", f"--exec-root={root}/exec", f"--pidfile={root}/pid", f"--host={socket}"]
    network = [f"--bridge={bridge}", "--iptables=false", "--ip-masq=false", "--ip-forward=false"]
    environ = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}  # it may be a test's own
    with open(root / "log", "wb") as log:
        process = subprocess.Popen(
            [daemon, f"--default-ulimit={LIMITS}", *places, *network],
            stdout=log,
            stderr=log,
            env=environ,
            start_new_session=True,
        )
    try:
        _await_daemon(process, socket, root / "log")
        yield socket
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _await_daemon(process: subprocess.Popen[bytes], socket: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    command = ["docker", f"--host={socket}", "version"]
    while subprocess.run(command, capture_output=True, check=False).returncode:
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            last = "\n".join(log.read_text(errors="replace").splitlines()[-30:])
            raise AssertionError(f"dockerd {'ended' if ended else 'did not start'}; its last words:\n{last}")
        time.sleep(0.2)


# ---- podman ----


@contextmanager
def podman() -> Iterator[Engine]:
    """Podman with storage of its own, behind a program that is called podman too."""
    program = shutil.which("podman")
    assert program is not None, "podman is missing; tools/setup.sh installs it"
    with _directory("agx-podman-") as root:
        wrapper = Path(root, "bin", "podman")
        wrapper.parent.mkdir()
        Path(root, "containers.conf").write_text(CONTAINERS_CONF.replace("{root}", root))
        wrapper.write_text(
            f"#!/bin/sh\nexport CONTAINERS_CONF={root}/containers.conf\n"
            f'exec {program} --root {root}/storage --runroot {root}/run --tmpdir {root}/tmp "$@"\n'
        )
        wrapper.chmod(0o755)
        try:
            with _podmans_network(Path(root)):
                yield from _using(Engine("podman", str(wrapper), private=True))
        finally:
            _unmount_below(root)


@contextmanager
def _podmans_network(root: Path) -> Iterator[None]:
    if os.geteuid() != 0:  # then it makes a namespace of its own for each container
        yield
        return
    with _podmans_rules(), _bridge("p") as (bridge, network):
        _describe_network(root, bridge, network)
        yield


def _describe_network(root: Path, bridge: str, network: str) -> None:
    """What CNI reads; addresses are kept track of below `root` too."""
    ranges = [[{"subnet": f"{network}.0/24", "gateway": f"{network}.1"}]]
    ipam = {"type": "host-local", "dataDir": f"{root}/addresses", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]}
    plugins = [
        {"type": "bridge", "bridge": bridge, "isGateway": True, "ipMasq": True, "hairpinMode": True, "ipam": ipam},
        {"type": "portmap", "capabilities": {"portMappings": True}},
        {"type": "firewall"},
    ]
    (root / "net").mkdir()
    (root / "net" / "podman.conflist").write_text(
        json.dumps({"cniVersion": "0.4.0", "name": "podman", "plugins": plugins})
    )


@contextmanager
def _podmans_rules() -> Iterator[None]:
    """CNI never removes its chains: whoever is the last of the runs that found none does."""
    with open(_cache() / ".podman", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        theirs = any("CNI-" in rule for _, rule in _rules())
        try:
            yield
        finally:
            if not theirs and _alone(lock.fileno()):
                _remove_rules("CNI-")


def _alone(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _rules() -> list[tuple[str, str]]:
    """Each chain and rule of the machine, in the words of iptables-save, with its table."""
    found: list[tuple[str, str]] = []
    table = ""
    for line in _run_root("iptables-save").splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith((":", "-A ")):
            found.append((table, line))
    return found


def _remove_rules(word: str) -> None:
    ours = [(table, line) for table, line in _rules() if word in line]
    for table, line in ours:
        if line.startswith("-A "):
            _run_root("iptables", "-t", table, "-D", *shlex.split(line)[1:])
    for table, line in ours:
        if line.startswith(f":{word}"):
            _run_root("iptables", "-t", table, "-X", line[1:].split()[0])


def _run_root(program: str, *args: str) -> str:
    """Run a program that may be in a directory for root only."""
    path = shutil.which(program) or f"/usr/sbin/{program}"
    return subprocess.run([path, *args], capture_output=True, text=True, check=True).stdout


# ---- what both need ----


@contextmanager
def _bridge(letter: str) -> Iterator[tuple[str, str]]:
    """A bridge of ours, and the first three numbers of its addresses."""
    name = f"agx-{letter}{os.getpid()}"
    taken = _run_root("ip", "-4", "address")
    numbers = [(os.getpid() + n) % 256 for n in range(256)]
    network = next(net for net in (f"10.213.{n}" for n in numbers) if f"inet {net}." not in taken)
    # With an address of its own. Else it has the lowest of its ports', and whenever that changes the containers go on
    # sending to the one they know: their calls stand still for a minute.
    address = "02:" + ":".join(f"{byte:02x}" for byte in os.urandom(5))
    _run_root("ip", "link", "add", name, "address", address, "type", "bridge")
    try:
        _run_root("ip", "address", "add", f"{network}.1/24", "dev", name)  # which nobody else takes from now on
        _run_root("ip", "link", "set", name, "up")
        yield name, network
    finally:
        _run_root("ip", "link", "delete", name)


def _unmount_below(root: str) -> None:
    with open("/proc/mounts") as file:
        points = [line.split()[1] for line in file if line.split()[1].startswith(f"{root}/")]
    for point in sorted(points, reverse=True):
        subprocess.run(["umount", "-l", point], check=False, capture_output=True)


# ---- images ----

SUITES = {"bookworm": ["git"], "bullseye": ["git"]}
# As the images of SWE-bench have it: Python by that name, pytest, and what installs a project without a network.
PYTHON = ["python-is-python3", "python3-pip", "python3-pytest", "python3-setuptools", "python3-wheel"]


def tree(name: str) -> Path:
    """Return the tar of an image's tree."""
    if name in SUITES:
        return _debian(name, SUITES[name])
    if name == "testbed":
        return _debian("bookworm", ["git", "patch", *PYTHON])
    path = _cache() / f"{name}.tar"
    if not path.exists():
        with tempfile.TemporaryDirectory() as root:
            {"busybox": _busybox, "scratch": _scratch}[name](Path(root))
            _pack(Path(root), path)
    return path


def _cache() -> Path:
    home = Path(os.environ.get("AGENTIX_TEST_CACHE") or Path.home() / ".cache" / "agentix" / "test-images")
    home.mkdir(parents=True, exist_ok=True)
    return home


def _debian(suite: str, packages: list[str]) -> Path:
    recipe = ["--variant=apt", f"--include={','.join(packages)}", suite]
    key = hashlib.sha256(" ".join(recipe).encode()).hexdigest()[:12]
    path = _cache() / f"{suite}-{key}.tar"
    if not path.exists():
        half = path.with_suffix(f".{os.getpid()}.tar")
        done = subprocess.run(["mmdebstrap", *recipe, str(half)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"mmdebstrap {suite}: {done.stderr[-2000:]}"
        half.rename(path)
    return path


def _busybox(root: Path) -> None:
    """A static busybox and nothing else: no libc."""
    (root / "bin").mkdir()
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in ("sh", "ls", "cat", "env", "id", "sleep"):
        (root / "bin" / name).symlink_to("busybox")
    (root / "tmp").mkdir(mode=0o1777)


def _scratch(root: Path) -> None:
    """No program at all."""
    (root / "tmp").mkdir(mode=0o1777)


def _pack(root: Path, path: Path) -> None:
    half = path.with_suffix(f".{os.getpid()}.tar")
    with tarfile.open(half, "w") as tar:
        tar.add(root, ".")
    half.rename(path)
