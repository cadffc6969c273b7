"""The floor's other process, and the few lines of protocol that both of its ends speak.

It imports only what is built into the interpreter, because its start is the floor of the starts: `pickle` and `socket`
are wrappers in Python around `_pickle` and `_socket`, and reading them takes longer than everything else here.

    python -S -E floor_worker.py FD
"""

import _pickle
import _socket
import sys

LENGTH_BYTES = 4


def receive_exactly(sock: _socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, got = memoryview(data), 0
    while got < size:
        read = sock.recv_into(view[got:])
        if not read:
            raise EOFError("the other process closed the socket")
        got += read
    return data


def receive(sock: _socket.socket):  # whatever was sent; naming its type would take an import
    size = int.from_bytes(receive_exactly(sock, LENGTH_BYTES), "little")
    return _pickle.loads(receive_exactly(sock, size))


def send(sock: _socket.socket, value: object) -> None:
    data = _pickle.dumps(value, 5)
    sock.sendall(len(data).to_bytes(LENGTH_BYTES, "little"))
    sock.sendall(data)


def serve(fd: int) -> None:
    sys.path.insert(0, __file__.rpartition("/")[0] + "/targets")
    import bench_target

    sock = _socket.socket(fileno=fd)
    send(sock, "ready")
    try:
        while True:
            name, args = receive(sock)
            send(sock, getattr(bench_target, name)(*args))
    except EOFError:
        pass


if __name__ == "__main__":
    serve(int(sys.argv[1]))
