#!/usr/bin/env python3
"""Stands in for `apptainer`: the options and words that backends use, on user and mount namespaces of this machine.

It takes what the real program (1.3) takes and refuses what that would refuse; what it does not know of the real one's
options it refuses too. An image is a tar behind a mark; a "registry" is a directory of tars ($APPTAINER_TEST_REGISTRY).
As with the real one, a parent stays, hands signals on, and its death ends what runs inside. It imports nothing of what
it is a peer of.
"""

import ctypes
import os
import signal
import subprocess
import sys
import tempfile

MARK = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)

EXEC_SWITCHES = {
    "--userns", "-u", "--no-init", "--writable-tmpfs", "--cleanenv", "-e", "--contain", "-c", "--containall", "-C",
    "--no-home", "--nv", "--rocm", "--pid", "-p", "--ipc", "-i", "--no-privs", "--keep-privs", "--fakeroot", "-f",
    "--compat", "--no-umask", "--no-eval",
}  # fmt: skip
EXEC_VALUES = {
    "--bind", "-B", "--mount", "--pwd", "--cwd", "--home", "-H", "--env", "--env-file", "--cpus", "--memory",
    "--pids-limit", "--no-mount", "--workdir", "-W", "--hostname", "--scratch", "-S", "--overlay", "-o",
}  # fmt: skip
PULL_SWITCHES = {"--force", "-F", "--disable-cache", "--no-https", "--no-cleanup"}
PULL_VALUES = {"--arch", "--dir", "--name", "--library"}

ROOT = r"""
set -eu
root=$1 image=$2 path=$PATH
PATH=/usr/sbin:/usr/bin:/sbin:/bin
shift 2
mount -t tmpfs -o mode=755 tmpfs "$root"
tail -c +"$1" "$image" | tar -x --no-same-owner -C "$root" -f -
shift
mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/etc"
mount --rbind /proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
cp /etc/resolv.conf /etc/hosts "$root/etc/" 2>/dev/null || true
if [ "$1" = shared ]; then
  mount --rbind /tmp "$root/tmp"
  mkdir -p "$root$HOME"
  mount --rbind "$HOME" "$root$HOME"
else
  mkdir -p "$root$HOME"
fi
shift
while [ "$1" != -- ]; do
  if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$root${2%/*}"; [ -e "$root$2" ] || : >"$root$2"; fi
  mount --rbind "$1" "$root$2"
  [ "$3" != ro ] || mount -o remount,bind,ro "$root$2"
  shift 3
done
shift
PATH=$path
exec /usr/bin/setpriv --pdeathsig KILL /usr/sbin/chroot "$root" "$@"
"""


def fail(message, code=255):
    print(f"FATAL:   {message}", file=sys.stderr)
    sys.exit(code)


def usage(command, message):
    print(f'Error for command "{command}": {message}', file=sys.stderr)
    sys.exit(1)


def parse(command, words, switches, values):
    """Options up to the first word that is none; then the rest."""
    found = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        name, equals, value = word.partition("=")
        if name in switches and not equals:
            found.append((name, True))
        elif name in values:
            if not equals:
                if not words:
                    usage(command, f"flag needs an argument: {name}")
                value = words.pop(0)
            found.append((name, value))
        else:
            usage(command, f"unknown flag: {name}")
    return found, words


# ---- pull ----


def pull(words):
    options, rest = parse("pull", words, PULL_SWITCHES, PULL_VALUES)
    if not 1 <= len(rest) <= 2:
        usage("pull", "accepts between 1 and 2 arg(s)")
    source, target = rest[-1], rest[0]
    if not source.startswith("docker://"):
        fail(f"While pulling image: unsupported transport type: {source.partition(':')[0]}")
    if len(rest) == 1:
        target = source.rsplit("/", 1)[-1].replace(":", "_") + ".sif"
    if os.path.exists(target) and ("--force", True) not in options:
        fail(f'Image file already exists: "{target}" - will not overwrite')
    registry = os.environ.get("APPTAINER_TEST_REGISTRY", "/nowhere")
    tar = os.path.join(registry, source.removeprefix("docker://").replace("/", "_") + ".tar")
    log(["pull", source, dict(options).get("--arch", "")])
    try:
        with open(tar, "rb") as content:
            data = content.read()
    except OSError:
        fail(f"While making image from oci registry: error fetching image: reading manifest {source}: manifest unknown")
    print("INFO:    Converting OCI blobs to SIF format", file=sys.stderr)
    with open(target, "wb") as image:
        image.write(MARK)
        image.write(data)


def log(words):
    """Tell a test what was asked for."""
    if path := os.environ.get("APPTAINER_TEST_LOG"):
        with open(path, "a") as file:
            file.write(repr(words) + "\n")


# ---- exec ----


def binds(options):
    for name, value in options:
        if name in ("--bind", "-B"):
            for part in value.split(","):
                source, _, rest = part.partition(":")
                target, _, mode = (rest or source).partition(":")
                if mode not in ("", "ro", "rw"):
                    fail(f"bind option {mode!r} is not valid")
                if not os.path.exists(source):
                    fail(f"container creation failed: mount {source}->{target} error: source doesn't exist")
                yield source, target, mode or "rw"


def environment(options):
    names = {name for name, _ in options}
    clean = names & {"--cleanenv", "-e", "--containall", "-C"}
    env = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": os.environ.get("HOME", "/root"),
    }
    env |= {} if clean else dict(os.environ)
    env |= {"LANG": "C", "APPTAINER_CONTAINER": "image.sif", "APPTAINER_NAME": "image.sif"}
    for key, value in os.environ.items():
        for prefix in ("SINGULARITYENV_", "APPTAINERENV_"):
            if key.startswith(prefix):
                env[key.removeprefix(prefix)] = value
    return {key: value for key, value in env.items() if not key.startswith(("APPTAINERENV_", "SINGULARITYENV_"))}


def execute(words):
    options, rest = parse("exec", words, EXEC_SWITCHES, EXEC_VALUES)
    if len(rest) < 2:
        usage("exec", "requires at least 2 arg(s), only received " + str(len(rest)))
    image, command = rest[0], rest[1:]
    if not os.path.exists(image):
        fail(f"could not open image {image}: failed to retrieve path for {image}: no such file or directory")
    with open(image, "rb") as file:
        if file.read(len(MARK)) != MARK:
            fail(f"could not open image {image}: image format not recognized")
    names = {name for name, _ in options}
    if not names & {"--userns", "-u", "--fakeroot", "-f"} and os.geteuid() != 0:
        fail("starter-suid doesn't exist: installation issue; use --userns")
    shared = "private" if names & {"--contain", "-c", "--containall", "-C"} else "shared"
    root = os.path.join(tempfile.gettempdir(), f"apptainer-test-session-{os.geteuid()}")
    os.makedirs(
        root, mode=0o700, exist_ok=True
    )  # like the real one's it stays; what is mounted there only its own processes see
    mounts = [word for bind in binds(options) for word in bind]
    script = ["sh", "-c", ROOT, "sh", root, image, str(len(MARK) + 1), shared, *mounts, "--", *command]
    run(["unshare", "--user", "--map-root-user", "--mount", "--propagation", "private", *script], environment(options))


def run(words, env):
    """Start it, hand signals on, and end as it does."""
    held = dict.fromkeys(FORWARDED)
    child = []

    def forward(number, _frame):
        if child:
            child[0].send_signal(number)
        else:
            held[number] = True

    for number in FORWARDED:
        signal.signal(number, forward)
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def die_with_parent():
        libc.prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    child.append(subprocess.Popen(words, env=env, preexec_fn=die_with_parent))
    for number, missed in held.items():
        if missed:
            child[0].send_signal(number)
    code = child[0].wait()
    sys.exit(code if code >= 0 else 128 - code)


def main():
    words = sys.argv[1:]
    commands = {"exec": execute, "pull": pull}
    if words[:1] == ["--version"]:
        print("apptainer version 1.3.6")
    elif not words or words[0] not in commands:
        usage("apptainer", f"unknown command {words[:1]}")
    else:
        commands[words[0]](words[1:])


main()
