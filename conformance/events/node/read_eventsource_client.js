// eventsource-client: an iterator; it comes again by itself.
const { createEventSource } = require("eventsource-client");
const { fetch } = require("./fetch");

async function main() {
  let left = Number(process.env.COUNT);
  const events = createEventSource({ url: process.env.URL, fetch });
  for await (const { data } of events) {
    console.log(data);
    left -= 1;
    if (left === 0) break;
  }
  events.close();
}

main();
