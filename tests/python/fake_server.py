"""A stand-in for agentix-runtime: as much of its ways as the providers' shell sees, or their opposite.

Run as `python fake_server.py BEHAVIOUR ...` with the descriptors that a server gets.
"""

import os
import signal
import sys
import time

READY = b"ready http+unix://%2Ffake 0123456789abcdef\n"


def say_ready() -> None:
    os.write(int(os.environ["AGENTIX_READY_FD"]), READY)
    os.close(int(os.environ["AGENTIX_READY_FD"]))


def until_host_is_gone() -> None:
    while os.read(int(os.environ["AGENTIX_LIFELINE_FD"]), 1):
        pass


def live() -> None:
    say_ready()
    until_host_is_gone()


def boom() -> None:
    print("boom", flush=True)
    sys.exit(3)


def refused() -> None:
    os.write(int(os.environ["AGENTIX_READY_FD"]), b"failed the address is in use\n")
    until_host_is_gone()


def refused_and_gone() -> None:
    os.write(int(os.environ["AGENTIX_READY_FD"]), b"failed the address is in use\n")


def silent() -> None:
    until_host_is_gone()


def drops_ready() -> None:
    os.close(int(os.environ["AGENTIX_READY_FD"]))
    until_host_is_gone()


def endless_ready() -> None:
    while True:
        os.write(int(os.environ["AGENTIX_READY_FD"]), b"x" * 4096)


def slow_ready() -> None:
    for byte in READY:
        os.write(int(os.environ["AGENTIX_READY_FD"]), bytes([byte]))
        time.sleep(0.002)
    until_host_is_gone()


def noisy() -> None:
    """Far more than a pipe holds, before and after it is ready."""
    for i in range(20_000):
        os.write(2, b"line %d of much noise before it is ready\n" % i)
    say_ready()
    for i in range(20_000):
        os.write(1, b"line %d of much noise once it is ready\n" % i)
    os.write(1, b"the last line\n")
    until_host_is_gone()


def noisy_and_gone() -> None:
    for i in range(20_000):
        os.write(2, b"line %d of much noise\n" % i)
    print("the last line", flush=True)
    sys.exit(4)


def grandchild() -> None:
    """Ends at once; a grandchild keeps its output open."""
    print("the last words", flush=True)
    pid = os.fork()
    if pid == 0:
        os.closerange(3, 64)
        time.sleep(60)
        os._exit(0)
    with open(os.environ["GRANDCHILD_FILE"], "w") as file:
        file.write(str(pid))
    sys.exit(5)


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    live()


def suicide() -> None:
    say_ready()
    os.kill(os.getpid(), signal.SIGKILL)


def slow_end() -> None:
    signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), print("an orderly end", flush=True), os._exit(0)))
    live()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
