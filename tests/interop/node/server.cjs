// A runtime server of stock parts: npm `socket.io` on Node's own HTTP, by the documents alone, in the plainest way.
//
//     node server.cjs --port=PORT [--transports=polling,websocket] [--post=ok|404|500|reset|none] [--largest=BYTES]
//
// Prints "ready PORT". GET /journal tells what has happened; POST /cut breaks all links off. Targets are run by
// stock_runner.py, since they are Python's. Imports nothing of the project.
"use strict";
const { spawn } = require("node:child_process");
const crypto = require("node:crypto");
const http = require("node:http");
const path = require("node:path");
const readline = require("node:readline");
const { encode, decode } = require("@msgpack/msgpack");
const { Server } = require("socket.io");

const options = { transports: "polling,websocket", post: "ok", largest: String(64 << 20) };
for (const word of process.argv.slice(2)) {
  const [name, value] = word.replace(/^--/, "").split(/=(.*)/s);
  options[name] = value;
}
const instance = crypto.randomBytes(8).toString("hex");
const calls = new Map(); // id -> {session, outcome, acked, post, taken}
const links = new Map(); // session -> socket
const counts = { events: {}, runs: {}, transports: {}, posts: 0 };
const count = (table, key) => (table[key] = (table[key] || 0) + 1);

// ---- the table of calls ----

const runner = spawn(process.env.AGENTIX_TEST_PYTHON, [path.join(__dirname, "..", "stock_runner.py")], {
  stdio: ["pipe", "pipe", "inherit"],
});
const order = (words) => runner.stdin.write(JSON.stringify(words) + "\n");

readline.createInterface({ input: runner.stdout }).on("line", (line) => {
  const { id, value, error } = JSON.parse(line);
  const call = calls.get(id);
  call.outcome = error ? { error } : { value: Buffer.from(value, "base64") };
  if (call.post) call.post();
  else tell(id, call);
});

function begin(id, session, body) {
  const call = { session, outcome: null, acked: false, post: null, taken: false };
  calls.set(id, call);
  count(counts.runs, id);
  order({ id, callable: body.callable, arguments: Buffer.from(body.arguments).toString("base64") });
  return call;
}

const emit = (socket, event, data) => socket.emit(event, Buffer.from(encode(data)));

function tell(id, call) {
  const socket = links.get(call.session);
  if (socket && call.outcome)
    emit(socket, call.outcome.value ? "call:result" : "call:error", { call_id: id, ...call.outcome });
}

function unavailable(socket, id, reason) {
  const error = { type: "ResultUnavailable", message: reason, traceback: null, cancelled: false, returncode: null };
  emit(socket, "call:error", { call_id: id, error: { ...error, reason } });
}

function resume(socket, session, id) {
  const call = calls.get(id);
  if (!call) unavailable(socket, id, "never_seen");
  else if (call.session !== session || call.acked) unavailable(socket, id, "dropped");
  else if (call.outcome) tell(id, call);
  else if (call.post) {
    call.taken = true;
    call.post();
  }
}

function ack(id, session) {
  const call = calls.get(id);
  if (call && call.session === session && call.outcome) call.acked = true;
}

// ---- HTTP ----

function answer(response, status, type, body, fields = {}) {
  response.writeHead(status, { "Content-Type": type, "Content-Length": Buffer.byteLength(body), ...fields });
  response.end(body);
}
const json = (response, value) => answer(response, 200, "application/json", JSON.stringify(value));
const packed = (response, status, value, fields) =>
  answer(response, status, "application/msgpack", Buffer.from(encode(value)), fields);

function reply(response, id, call, wait) {
  const fields = { "Preference-Applied": `wait=${wait}` };
  if (!call.outcome || call.taken) packed(response, 202, { call_id: id }, { ...fields, Location: `/call/${id}` });
  else packed(response, 200, { ok: Boolean(call.outcome.value), ...call.outcome }, fields);
}

function onPost(request, response, raw) {
  const session = request.headers["agentix-session"];
  const wait = /wait=([0-9.]+)/.exec(request.headers.prefer)[1];
  const body = decode(raw);
  for (const id of body.acks || []) ack(id, session);
  const known = calls.get(body.call_id);
  if (known) {
    reply(response, body.call_id, known, wait);
    return;
  }
  const call = begin(body.call_id, session, body);
  const timer = setTimeout(() => call.post(), Number(wait) * 1000);
  call.post = () => {
    clearTimeout(timer);
    call.post = null;
    reply(response, body.call_id, call, wait);
  };
}

function onBody(request, response, body) {
  const route = `${request.method} ${request.url}`;
  if (route === "GET /health") json(response, { status: "ok", version: "stock", instance });
  else if (route === "GET /journal") {
    const acked = [...calls].filter(([, call]) => call.acked).map(([id]) => id);
    json(response, { instance, ...counts, acked, links: links.size });
  } else if (route === "POST /cut") {
    const n = links.size;
    for (const socket of links.values()) socket.conn.close(true);
    json(response, { cut: n });
  } else if (route === "POST /call" && options.post !== "none") {
    counts.posts += 1;
    if (options.post === "reset") request.socket.resetAndDestroy();
    else if (/^[0-9]+$/.test(options.post)) answer(response, Number(options.post), "text/plain", "not today");
    else onPost(request, response, body);
  } else answer(response, 404, "text/plain", "nothing here");
}

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => onBody(request, response, Buffer.concat(parts)));
});

// ---- /rpc ----

if (options.transports) {
  const io = new Server(server, {
    transports: options.transports.split(","),
    maxHttpBufferSize: Number(options.largest),
    destroyUpgrade: false,
  });
  io.of("/rpc").on("connection", (socket) => {
    const { session } = socket.handshake.auth;
    links.set(session, socket);
    count(counts.transports, socket.conn.transport.name);
    socket.onAny((event) => {
      count(counts.events, event);
      count(counts.transports, `events by ${socket.conn.transport.name}`);
    });
    socket.on("call", (data) => {
      const body = decode(data);
      if (calls.has(body.call_id)) resume(socket, session, body.call_id);
      else begin(body.call_id, session, body);
    });
    socket.on("resume", (data) => decode(data).call_ids.forEach((id) => resume(socket, session, id)));
    socket.on("cancel", (data) => {
      const id = decode(data).call_id;
      const call = calls.get(id);
      if (!call || call.session !== session) return;
      if (call.outcome) call.acked = true;
      else order({ cancel: id });
    });
    socket.on("ack", (data) => {
      const body = decode(data);
      for (const id of [...(body.call_ids || []), ...(body.call_id ? [body.call_id] : [])]) ack(id, session);
    });
    socket.on("disconnect", () => {
      if (links.get(session) === socket) links.delete(session);
    });
  });
}
server.listen(Number(options.port), "127.0.0.1", () => console.log("ready", options.port));
