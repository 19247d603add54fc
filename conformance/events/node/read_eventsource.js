// eventsource: the standard's own interface; it comes again by itself.
const { EventSource } = require("eventsource");
const { fetch } = require("./fetch");

let left = Number(process.env.COUNT);
const events = new EventSource(process.env.URL, { fetch });
events.onmessage = event => {
  console.log(event.data);
  left -= 1;
  if (left === 0) events.close();
};
events.onerror = error => console.error(`error ${error.code}: ${error.message}`);
