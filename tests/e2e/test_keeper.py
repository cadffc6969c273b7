"""The keeper of a process tree, started as the runtime starts it and looked at from outside: with a cgroup and without,
as root and as nobody, against trees that try to get away. No Python of ours is involved.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import alive, executable, kill, until

WORD = struct.Struct("=HHi")
STARTED, FAILED, EXITED, LEFT, KILL, SIGNAL, LEAVE = range(1, 8)
NOBODY = 65534
GROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/freezer")


class Keeper:
    """One keeper and its tree."""

    def __init__(self, command: str, group: str = "", uid: int = 0, program: str = "/bin/bash") -> None:
        self.directory = tempfile.mkdtemp(prefix="agx-keeper-")
        os.chmod(self.directory, 0o777)  # noqa: S103 - nobody writes there
        binary = shutil.copy(executable(), self.directory)
        os.chmod(binary, 0o755)
        self.control, theirs = socket.socketpair()
        self.control.settimeout(20)
        out, out_w = os.pipe()
        err, err_w = os.pipe()
        inherited = [theirs.fileno(), out, err]

        def settle() -> None:
            os.setsid()
            high = [os.dup2(fd, 100 + i) for i, fd in enumerate(inherited)]
            for i, fd in enumerate(high):
                os.dup2(fd, 3 + i)

        argv = [
            "agentix-keeper",
            f"group={group}",
            "kill_ms=5000",
            "--",
            program,
            self.directory,
            program,
            "-c",
            command,
        ]
        self.process = subprocess.Popen(
            argv,
            executable=binary,
            env={"PATH": os.environ["PATH"], "MARK": "1"},
            stdin=subprocess.DEVNULL,
            stdout=out_w,
            stderr=err_w,
            close_fds=False,
            user=uid or None,
            preexec_fn=settle,
        )
        for fd in (out_w, err_w):
            os.close(fd)
        theirs.close()
        self.out, self.err = out, err

    def say(self, kind: int, value: int = 0) -> None:
        self.control.send(WORD.pack(kind, 0, value))

    def hear(self) -> tuple[int, int, int] | None:
        data = self.control.recv(WORD.size)
        return WORD.unpack(data) if data else None

    def pids(self, n: int) -> list[int]:
        """What the command has written into `pids`."""
        path = Path(self.directory, "pids")
        until(lambda: path.exists() and len(path.read_text().split()) >= n, "the processes have started")
        return [int(word) for word in path.read_text().split()]

    def ours(self) -> list[int]:
        """Every process that was started in our directory, or knows it."""
        found: list[int] = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != self.process.pid:
                try:
                    place = os.readlink(f"/proc/{entry}/cwd")
                except OSError:
                    continue
                if place == self.directory and alive(int(entry)):
                    found.append(int(entry))
        return found

    def end(self) -> None:
        kill(self.process.pid)
        self.process.wait(20)
        for pid in self.ours():
            kill(pid)
        self.control.close()
        for fd in (self.out, self.err):
            os.close(fd)
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture
def keepers() -> Iterator[list[Keeper]]:
    made: list[Keeper] = []
    yield made
    for keeper in made:
        keeper.end()


def group_name() -> str:
    return f"agentix-test-{os.getpid()}-{time.monotonic_ns()}"


ESCAPES = {
    "double fork": "(sleep 60 & echo $! >>pids); sleep 60",
    "session": "setsid sh -c 'echo $$ >>pids; exec sleep 60' & sleep 60",
    "both": "(setsid sh -c 'setsid sh -c \"echo \\$\\$ >>pids; exec sleep 60\" &' &); sleep 60",
    "deaf": "trap '' TERM HUP INT; sh -c 'trap \"\" TERM; echo $$ >>pids; while :; do sleep 1; done'",
    "own environment": "env -i setsid sh -c '(echo $$; exec sleep 60) >>pids &' ; sleep 60",
    "holds the pipes": "sh -c 'echo $$ >>pids; exec sleep 60' <&- & exec sleep 60",
    # Each makes its successor and is gone: whoever is found has left already.
    "runner": "run() { (run &) ; }; export -f run; echo $$ >>pids; run; sleep 60",
    # Many at once, again and again, but never too many for this machine.
    "bomb": "b() { i=0; while [ $i -lt 40 ]; do sleep 60 & i=$((i+1)); done; wait; }; "
    "echo $$ >>pids; while :; do (b &) ; sleep 0.01; [ $(ls /proc | grep -c '^[0-9]') -gt 1500 ] && wait; done",
}


@pytest.mark.parametrize("escape", ESCAPES)
@pytest.mark.parametrize(("grouped", "uid"), [(True, 0), (False, 0), (False, NOBODY)])
def test_nobody_gets_away(keepers: list[Keeper], escape: str, grouped: bool, uid: int) -> None:
    keeper = Keeper(ESCAPES[escape], group_name() if grouped else "", uid)
    keepers.append(keeper)
    word = keeper.hear()
    assert word is not None
    assert word[0] == STARTED
    keeper.pids(1)
    time.sleep(0.1)
    keeper.say(KILL)
    assert keeper.process.wait(20) == 0
    assert keeper.ours() == []
    words = list(iter(keeper.hear, None))
    assert [word[0] for word in words] == [EXITED]


@pytest.mark.parametrize("escape", ["both", "runner"])
@pytest.mark.parametrize("uid", [0, NOBODY])
def test_a_tree_ends_with_whoever_asked_for_it(keepers: list[Keeper], escape: str, uid: int) -> None:
    keeper = Keeper(ESCAPES[escape], "", uid)
    keepers.append(keeper)
    keeper.pids(1)
    keeper.control.close()
    assert keeper.process.wait(20) == 0
    assert keeper.ours() == []


def test_a_keeper_asked_to_terminate_takes_its_tree_along(keepers: list[Keeper]) -> None:
    keeper = Keeper(ESCAPES["double fork"])
    keepers.append(keeper)
    keeper.pids(1)
    keeper.process.send_signal(signal.SIGTERM)
    assert keeper.process.wait(20) == 0
    assert keeper.ours() == []


def test_the_program_dies_with_a_killed_keeper(keepers: list[Keeper]) -> None:
    keeper = Keeper("echo $$ >>pids; exec sleep 60")
    keepers.append(keeper)
    pids = keeper.pids(1)
    keeper.process.kill()
    until(lambda: not alive(pids[0]), "the program ends")


def test_what_is_left_behind_goes_on_without_a_reader(keepers: list[Keeper]) -> None:
    keeper = Keeper("(echo $BASHPID >>pids; while :; do head -c 100000 /dev/zero; sleep 0.05; done) & exit 4")
    keepers.append(keeper)
    assert [keeper.hear(), keeper.hear()][1] == (EXITED, 0, 4 << 8)
    pid = keeper.pids(1)[0]
    keeper.say(LEAVE)
    keeper.control.close()
    os.close(keeper.out)
    keeper.out = os.open("/dev/null", os.O_RDONLY)
    time.sleep(0.5)
    assert alive(pid), "it was not ended by a full pipe, nor by a closed one"
    assert keeper.process.poll() is None
    kill(pid)
    assert keeper.process.wait(20) == 0, "a keeper goes when nothing is left"


def test_says_how_the_program_ended_and_goes(keepers: list[Keeper]) -> None:
    keeper = Keeper("echo $MARK; pwd >&2; kill -7 $$", group_name())
    keepers.append(keeper)
    words = [keeper.hear(), keeper.hear(), keeper.hear()]
    assert words[0] is not None
    assert words[1:] == [(EXITED, 0, 7), None]
    assert keeper.process.wait(20) == 0
    assert os.read(keeper.out, 100) == b"1\n"
    assert os.read(keeper.err, 200).decode().strip() == keeper.directory


def test_makes_a_group_where_that_can_be_done_and_removes_it(keepers: list[Keeper]) -> None:
    name = group_name()
    keeper = Keeper("echo $$ >>pids; sleep 60 & echo $! >>pids; exec sleep 60", name)
    keepers.append(keeper)
    pids = keeper.pids(2)
    places = [Path(place, name) for place in GROUPS if Path(place, name, "cgroup.procs").exists()]
    if can_make_groups():
        assert len(places) == 1
        assert set(pids) <= set(map(int, (places[0] / "cgroup.procs").read_text().split()))
    for pid in pids:
        kill(pid)
    assert keeper.process.wait(20) == 0
    assert not any(place.exists() for place in places)


def can_make_groups() -> bool:
    for place in GROUPS:
        trial = Path(place, group_name())
        if Path(place, "cgroup.procs").exists():
            try:
                trial.mkdir()
                trial.rmdir()
            except OSError:
                continue
            return True
    return False


def test_passes_signals_to_the_group(keepers: list[Keeper]) -> None:
    keeper = Keeper("trap 'exit 9' USR1; echo $$ >>pids; while :; do sleep 0.05; done")
    keepers.append(keeper)
    keeper.pids(1)
    keeper.say(SIGNAL, signal.SIGUSR1)
    assert [keeper.hear(), keeper.hear()][1] == (EXITED, 0, 9 << 8)


@pytest.mark.parametrize(("program", "error"), [("/no/such", 2), ("/etc", 13)])
def test_says_what_cannot_be_executed(keepers: list[Keeper], program: str, error: int) -> None:
    keeper = Keeper("true", program=program)
    keepers.append(keeper)
    assert keeper.hear() == (FAILED, 3, error)
    assert keeper.process.wait(20) == 1


def test_the_program_has_nothing_of_ours(keepers: list[Keeper]) -> None:
    keeper = Keeper("ls /proc/self/fd; grep -E 'Sig(Blk|Ign)' /proc/self/status; ps -o sid= -p $$ | xargs test $$ -eq")
    keepers.append(keeper)
    assert [keeper.hear(), keeper.hear()][1] == (EXITED, 0, 0)
    text = os.read(keeper.out, 4096).decode().split()
    assert text[:4] == ["0", "1", "2", "3"], "the fourth is ls's own"
    said = dict(zip(text[4::2], (int(word, 16) for word in text[5::2]), strict=True))
    ours = int(re.search(r"SigIgn:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16)  # pyright: ignore[reportOptionalSubscript]
    assert said["SigBlk:"] == 0
    assert said["SigIgn:"] & ~ours == 0, "what these tests were started with is passed on"
