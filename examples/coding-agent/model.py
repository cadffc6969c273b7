"""A model service on the host, with a script in place of a model: Chat Completions, whole or as a stream."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "the-key-that-never-enters-the-sandbox"
SCRIPT = ["cat answer.txt", "echo 42 > answer.txt", "cat answer.txt"]


def next_message(body: dict) -> dict:
    """Go on with the script; what the agent's shell is called is for the agent to say."""
    results = [said["content"] for said in body["messages"] if said["role"] == "tool"]
    if len(results) == len(SCRIPT):
        return {"role": "assistant", "content": f"The answer is {str(results[-1]).split()[0]} now."}
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    name = next((name for name in names if name in ("shell", "Bash", "bash")), None)
    if name is None:  # not about the task: agents ask for a title and the like, too
        return {"role": "assistant", "content": "A task"}
    arguments = json.dumps({"command": SCRIPT[len(results)], "description": "next"})
    call = {"id": f"call_{len(results)}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Service(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["authorization"] != f"Bearer {KEY}":
            self.send_error(401)
            return
        message = next_message(body)
        reason = "tool_calls" if message.get("tool_calls") else "stop"
        about = {"id": "c", "created": 1, "model": body["model"]}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            reply = {**about, "object": "chat.completion", "choices": [choice], "usage": usage}
            self.reply("application/json", json.dumps(reply))
            return
        for index, call in enumerate(message.get("tool_calls", [])):
            call["index"] = index
        chunks = [[{"index": 0, "delta": message, "finish_reason": None}]]
        chunks += [[{"index": 0, "delta": {}, "finish_reason": reason}], []]
        events = [{**about, "object": "chat.completion.chunk", "choices": choices} for choices in chunks]
        events[-1]["usage"] = usage
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        self.reply("text/event-stream", text + "data: [DONE]\n\n")

    def reply(self, kind: str, text: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving() -> Iterator[str]:
    """Serve on a port of loopback; gives the API's URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
