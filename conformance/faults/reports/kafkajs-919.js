const { Kafka } = require('kafkajs');
const { TestBroker } = require('../../../wrappers/node');
TestBroker.start({ topics: ['t'] }).then(async (broker) => {
  const producer = new Kafka({ brokers: [broker.bootstrapServers], requestTimeout: 500, retry: { retries: 2 }, logLevel: 0 }).producer();
  await producer.connect();
  await broker.setFault('silent', { api: 'Produce', occurrence: 'once', action: 'withhold_answer' });
  for (const value of ['a', 'b', 'c']) console.log(value, await producer.send({ topic: 't', messages: [{ value }] }).then(() => 'sent', (error) => error.name));
  await broker.stop();
  process.exit();
});
