// The behaviours of ../../conformance.json, each a test, with kafkajs.
'use strict';

const assert = require('node:assert/strict');
const { randomUUID } = require('node:crypto');
const fs = require('node:fs');
const path = require('node:path');
const { test } = require('node:test');
const { Kafka, Partitioners, logLevel } = require('kafkajs');
const { HighwaterError, TestBroker } = require('..');

const FILE = path.join(__dirname, '..', '..', 'conformance.json');
const { behaviours } = JSON.parse(fs.readFileSync(FILE, 'utf8'));

function kafka(broker) {
  return new Kafka({ brokers: [broker.bootstrapServers], clientId: 'conformance', logLevel: logLevel.NOTHING });
}

async function produce(broker, topic, ...values) {
  const producer = kafka(broker).producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  for (const value of values) await producer.send({ topic, messages: [{ value }] });
  await producer.disconnect();
}

async function consume(broker, topic, count) {
  const consumer = kafka(broker).consumer({ groupId: randomUUID() });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const values = [];
  await new Promise((resolve, reject) => {
    const eachMessage = async ({ message }) => {
      values.push(message.value.toString());
      if (values.length === count) resolve();
    };
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
  return values.sort();
}

async function partitions(broker, topic) {
  const admin = kafka(broker).admin();
  await admin.connect();
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  await admin.disconnect();
  return topics[0].partitions.length;
}

/** Runs a check with a broker, which is stopped in any case. */
function withBroker(options, check) {
  return async () => {
    const broker = await TestBroker.start(options);
    try {
      await check(broker);
    } finally {
      await broker.stop();
    }
  };
}

const refusedBy = (...words) => (error) => {
  assert.ok(error instanceof HighwaterError, error);
  for (const word of words) assert.ok(error.message.includes(word), `${word}: ${error.message}`);
  return true;
};

const checks = {
  'serves': withBroker({ topics: ['orders:3', 'payments'] }, async (broker) => {
    assert.equal(await partitions(broker, 'orders'), 3);
    assert.equal(await partitions(broker, 'payments'), 1);
    await produce(broker, 'orders', 'a', 'b');
    assert.deepEqual(await consume(broker, 'orders', 2), ['a', 'b']);
  }),

  'fields': withBroker({}, async (broker) => {
    assert.match(broker.bootstrapServers, /^127\.0\.0\.1:\d+$/);
    assert.match(broker.http, /^http:\/\/127\.0\.0\.1:\d+$/);
    assert.ok(fs.statSync(broker.dataDir).isDirectory());
    assert.ok(process.kill(broker.pid, 0));
    assert.equal(broker.brokers, 1);
    assert.match(broker.version, /^\d+\.\d+\.\d+/);
  }),

  'finds-binary': async () => {
    const named = process.env.HIGHWATER_BIN;
    process.env.HIGHWATER_BIN = '/nowhere/highwater';
    try {
      await assert.rejects(TestBroker.start(), refusedBy('HIGHWATER_BIN', '/nowhere/highwater'));
    } finally {
      process.env.HIGHWATER_BIN = named;
    }
  },

  'stops': async () => {
    const broker = await TestBroker.start();
    assert.ok(broker.isRunning);
    await broker.stop();
    await broker.stop();
    assert.ok(!broker.isRunning && !fs.existsSync(broker.dataDir));
    assert.throws(() => process.kill(broker.pid, 0), { code: 'ESRCH' });
  },

  'refused-start': async () => {
    await assert.rejects(TestBroker.start({ topics: ['a:0'] }), refusedBy('NAME:PARTITIONS'));
  },

  'settings': withBroker({ settings: { 'auto.create.topics.enable': 'false' } }, async (broker) => {
    const admin = kafka(broker).admin({ retry: { retries: 0 } });
    await admin.connect();
    const unknown = { type: 'UNKNOWN_TOPIC_OR_PARTITION' };
    await assert.rejects(admin.fetchTopicMetadata({ topics: ['new'] }), unknown);
    await admin.disconnect();
  }),

  'sets-fault': withBroker({ topics: ['orders'] }, async (broker) => {
    const action = { error: { code: 'NOT_LEADER_OR_FOLLOWER' } };
    await broker.setFault('refused', { api: 'Produce', occurrence: 'once', action });
    await produce(broker, 'orders', 'a');
    assert.equal((await broker.fault('refused')).faults, 1);
    assert.deepEqual(await consume(broker, 'orders', 1), ['a']);
  }),

  'removes-fault': withBroker({}, async (broker) => {
    for (const name of ['a', 'b/c', 'd']) await broker.setFault(name, { action: 'close', api: 'Produce' });
    await broker.removeFault('b/c');
    assert.deepEqual((await broker.faults()).map((rule) => rule.name), ['a', 'd']);
    await broker.clearFaults();
    assert.deepEqual(await broker.faults(), []);
    await assert.rejects(broker.removeFault('unheard-of'), refusedBy('unheard-of'));
  }),

  'refuses-fault': withBroker({}, async (broker) => {
    await assert.rejects(broker.setFault('x', { action: 'explode' }), refusedBy('explode', 'drop_answer'));
  }),

  'faults-at-start': withBroker(
    { faults: [{ name: 'slow', api: 'Fetch', action: { delay: { ms: 5 } } }], seed: 11 },
    async (broker) => {
      assert.deepEqual((await broker.faults()).map((rule) => rule.name), ['slow']);
      assert.equal(await broker.seed(), 11);
    },
  ),

  'two-at-once': withBroker({ topics: ['t'] }, (one) =>
    withBroker({ topics: ['t'] }, async (other) => {
      assert.notEqual(one.bootstrapServers, other.bootstrapServers);
      assert.notEqual(one.dataDir, other.dataDir);
      await produce(one, 't', 'one');
      await produce(other, 't', 'other');
      assert.deepEqual(await consume(one, 't', 1), ['one']);
      assert.deepEqual(await consume(other, 't', 1), ['other']);
    })(),
  ),

  'snapshots': withBroker({ topics: ['t'] }, async (broker) => {
    await produce(broker, 't', 'a');
    await broker.snapshot('s');
    await produce(broker, 't', 'b');
    const fork = await broker.fork('s');
    await produce(fork, 't', 'c');
    assert.deepEqual(await consume(fork, 't', 2), ['a', 'c']);
    assert.ok(fork.isRunning && fork.bootstrapServers !== broker.bootstrapServers);
    await fork.stop();
    await fork.stop();
    assert.ok(!fork.isRunning && !fs.existsSync(fork.dataDir));
    assert.throws(() => process.kill(fork.pid, 0), { code: 'ESRCH' });
    assert.deepEqual(await consume(broker, 't', 2), ['a', 'b']);
    const left = await broker.fork('s');
    await broker.stop();
    await left.stop();
    assert.ok(!left.isRunning && !fs.existsSync(left.dataDir));
  }),

  'refuses-snapshot': withBroker({}, async (broker) => {
    await broker.snapshot('s');
    await assert.rejects(broker.snapshot('s'), refusedBy('"s"'));
    await assert.rejects(broker.fork('unheard-of'), refusedBy('"unheard-of"', '"s"'));
    await broker.removeSnapshot('s');
    await broker.snapshot('s');
  }),
};

for (const { id } of behaviours) {
  test(id, () => checks[id]());
}

test('unknown and malformed options are refused', async () => {
  await assert.rejects(TestBroker.start({ topic: ['orders'] }), refusedBy('unknown option topic', 'topics'));
  await assert.rejects(TestBroker.start({ topics: 'orders' }), refusedBy("topics: ['orders:3']"));
  await assert.rejects(TestBroker.start({ faults: 'faults.toml' }), refusedBy("'--faults', FILE"));
});
