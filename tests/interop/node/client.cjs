// A stock `socket.io-client` on /rpc that does what it is told: JSON lines in, JSON lines out.
//
//     in   {"do": "connect", "url", "transports", "session", "headers"}   {"do": "emit", "event", "body", "plain"}
//          {"do": "cut"}   {"do": "close"}
//     out  {"told": EVENT, "body"}   {"is": "connected" | "refused" | "disconnected" | "moved", "by", "why"}
//
// Bytes are {"base64": ...} in both. An event goes as msgpack, or as the object itself if it is to be `plain`.
"use strict";
const readline = require("node:readline");
const { encode, decode } = require("@msgpack/msgpack");
const { io } = require("socket.io-client");

const say = (words) => process.stdout.write(JSON.stringify(words) + "\n");
let socket;

function toBytes(value) {
  if (Array.isArray(value)) return value.map(toBytes);
  if (value === null || typeof value !== "object") return value;
  if ("base64" in value) return Buffer.from(value.base64, "base64");
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toBytes(item)]));
}

function toText(value) {
  if (value instanceof Uint8Array) return { base64: Buffer.from(value).toString("base64") };
  if (Array.isArray(value)) return value.map(toText);
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, toText(item)]));
}

const deeds = {
  connect({ url, transports, session, headers }) {
    socket = io(`${url}/rpc`, {
      transports,
      auth: session ? { session } : {},
      extraHeaders: headers || {},
      reconnection: false,
      forceNew: true,
    });
    const by = () => socket.io.engine.transport.name;
    socket.on("connect", () => {
      say({ is: "connected", by: by() });
      socket.io.engine.on("upgrade", () => say({ is: "moved", by: by() }));
      if (by() === transports.at(-1)) say({ is: "moved", by: by() });
    });
    socket.on("connect_error", (error) => say({ is: "refused", why: String(error) }));
    socket.on("disconnect", (why) => say({ is: "disconnected", why }));
    socket.onAny((event, body) => say({ told: event, body: toText(decode(body)) }));
  },
  emit({ event, body, plain }) {
    socket.emit(event, plain ? toBytes(body) : Buffer.from(encode(toBytes(body))));
  },
  cut() {
    const { engine } = socket.io;
    if (engine.transport.ws) engine.transport.ws.terminate();
    else engine._onClose("cut");
  },
  close() {
    if (socket) socket.close();
    setTimeout(() => process.exit(0), 50);
  },
};

readline.createInterface({ input: process.stdin }).on("line", (line) => {
  const words = JSON.parse(line);
  deeds[words.do](words);
});
