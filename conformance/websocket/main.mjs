// A conversation with the gateway by the package `ws`: arguments are the gateway's address and a topic.
import assert from "node:assert";
import { once } from "node:events";
import WebSocket from "ws";

const [host, topic] = process.argv.slice(2);
const count = 200;
const url = (kind, rest = "") => `ws://${host}/ws/v2/${kind}/persistent/public/default/${topic}${rest}`;
const encoded = text => Buffer.from(text).toString("base64");
const decoded = text => Buffer.from(text, "base64").toString();
const all = new Set(Array.from({ length: count }, (_, i) => `v${i}`));

// Opens a socket; `hear` takes each message and says whether that was the last.
async function converse(target, begin, hear) {
  const socket = new WebSocket(target);
  const done = new Promise((resolve, reject) => {
    socket.on("error", reject);
    socket.on("message", data => {
      if (hear(socket, JSON.parse(data))) resolve();
    });
  });
  await Promise.race([once(socket, "open"), done]);
  begin(socket);
  await done;
  socket.close();
  await once(socket, "close");
}

let answers = 0;
await converse(
  url("producer"),
  socket => {
    for (let i = 0; i < count; i++) {
      socket.send(JSON.stringify({ payload: encoded(`v${i}`), key: `k${i % 7}`, context: `${i}` }));
    }
  },
  (_, answer) => {
    assert.deepStrictEqual([answer.result, answer.context], ["ok", `${answers}`]);
    return ++answers === count;
  },
);

const take = (seen, max) => (socket, message) => {
  seen.add(decoded(message.payload));
  socket.send(JSON.stringify({ messageId: message.messageId }));
  return seen.size === count || --max === 0;
};
const read = new Set();
await converse(url("reader", "?messageId=earliest"), () => {}, take(read, Infinity));
assert.deepStrictEqual([...read].sort(), [...all].sort());

const consumed = new Set();
while (consumed.size < count) {
  const query = "/node?subscriptionType=Shared&subscriptionInitialPosition=Earliest";
  await converse(url("consumer", query), () => {}, take(consumed, 60));
}
assert.deepStrictEqual([...consumed].sort(), [...all].sort());
console.log("ok");
