// Sends a and b to partition 0 of a topic with kafkajs, reads the topic, and prints the reports: `client.js BOOTSTRAP TOPIC`.
'use strict';

const { Kafka, Partitioners, logLevel } = require('kafkajs');

const SEND_MAX = 60_000;
const READ_MAX = 20_000;
const [bootstrap, topic] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: [bootstrap],
  clientId: 'node',
  logLevel: logLevel.NOTHING,
  requestTimeout: 3000,
});

function within(limit, late, promise) {
  let timer;
  const waits = new Promise((resolve) => {
    timer = setTimeout(() => resolve(late), limit);
  });
  return Promise.race([promise, waits]).finally(() => clearTimeout(timer));
}

async function send(producer, value) {
  try {
    const sent = producer.send({ topic, messages: [{ value, partition: 0 }] }).then(() => 'ok');
    return await within(SEND_MAX, `no report within ${SEND_MAX / 1000} s`, sent);
  } catch (error) {
    return error.type ? `${error.name} (${error.type})` : error.name;
  }
}

async function read() {
  const admin = kafka.admin();
  await admin.connect();
  const [{ high }] = await admin.fetchTopicOffsets(topic);
  await admin.disconnect();
  const values = [];
  if (Number(high) === 0) return values;
  const consumer = kafka.consumer({ groupId: topic });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const all = new Promise((resolve) => {
    const eachMessage = async ({ message }) => {
      values.push(message.value.toString());
      if (values.length >= Number(high)) resolve();
    };
    consumer.run({ eachMessage }).catch((error) => resolve(values.push(error.name)));
  });
  await within(READ_MAX, undefined, all);
  return values;
}

async function main() {
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  const reports = [];
  for (const value of ['a', 'b']) reports.push(await send(producer, value));
  console.log(JSON.stringify({ reports, read: await read() }));
  process.exit(0);
}

main().catch((error) => {
  console.log(JSON.stringify({ reports: [error.name], read: [] }));
  process.exit(0);
});
