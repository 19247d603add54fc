// launchdarkly-eventsource: it comes again by itself if its user says that an error is not the end.
const { EventSource } = require("launchdarkly-eventsource");

let left = Number(process.env.COUNT);
const events = new EventSource(process.env.URL, { errorFilter: () => true });
events.onmessage = event => {
  console.log(event.data);
  left -= 1;
  if (left === 0) events.close();
};
events.onerror = error => console.error(`error ${error.status}: ${error.message}`);
