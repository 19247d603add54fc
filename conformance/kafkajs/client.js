// The scenarios' verbs in the words of kafkajs.
'use strict'

const { Kafka, PartitionAssigners, Partitioners, logLevel } = require('kafkajs')
const { REPLICAS, name, waitUntil } = require('./harness')

const kafka = new Kafka({
  clientId: 'conformance',
  brokers: (process.env.BOOTSTRAP || 'unset:1').split(','),
  logLevel: logLevel.NOTHING,
})

/** Runs `action(admin)` with an admin client that is connected before and disconnected after. */
async function withAdmin(action) {
  const admin = kafka.admin()
  await admin.connect()
  try {
    return await action(admin)
  } finally {
    await admin.disconnect()
  }
}

async function makeTopic(word, partitions = 1, configs = {}) {
  const topic = name(word)
  const configEntries = Object.entries(configs).map(([key, value]) => ({ name: key, value }))
  const topics = [{ topic, numPartitions: partitions, replicationFactor: REPLICAS, configEntries }]
  await withAdmin(admin => admin.createTopics({ topics, waitForLeaders: true }))
  return topic
}

/** Sends all messages in one request a partition; returns what the broker answered. */
async function produce(topic, messages, options = {}) {
  const { compression, acks = -1, idempotent = false } = options
  const producer = kafka.producer({
    idempotent,
    maxInFlightRequests: idempotent ? 1 : 5,
    createPartitioner: Partitioners.DefaultPartitioner,
    retry: { retries: 5 },
  })
  await producer.connect()
  try {
    return await producer.send({ topic, messages, compression, acks })
  } finally {
    await producer.disconnect()
  }
}

/** The first `count` messages of a topic, read by a group of one. */
async function consume(topic, count, seek) {
  const consumer = kafka.consumer({ groupId: name('reader'), maxBytesPerPartition: 4 << 20, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const found = []
  // What comes again after a rebalance does not count again.
  const places = new Set()
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      found.push({ partition, ...message })
      places.add(`${partition}:${message.offset}`)
    },
  })
  if (seek) consumer.seek({ topic, ...seek })
  await waitUntil(() => places.size >= count, () => `${places.size} of ${count} messages`)
  await consumer.disconnect()
  return found
}

/** A group member: what it owns, what it read, and its end; `told` hears of what ends it. */
async function startMember(topic, group, { told = () => {} } = {}) {
  const consumer = kafka.consumer({
    groupId: group,
    sessionTimeout: 6000,
    heartbeatInterval: 500,
    maxWaitTimeInMs: 100,
    partitionAssigners: [PartitionAssigners.roundRobin],
  })
  let owned = new Set()
  const seen = []
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned = new Set(payload.memberAssignment[topic] || [])
  })
  consumer.on(consumer.events.REBALANCING, () => (owned = new Set()))
  consumer.on(consumer.events.CRASH, ({ payload }) => told(payload.error.type || payload.error.name))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const eachMessage = async ({ message }) => seen.push(String(message.value))
  await consumer.run({ autoCommitInterval: 500, eachMessage })
  const close = async () => {
    await consumer.disconnect()
    owned = new Set()
  }
  return { owned: () => owned, seen: () => seen, close }
}

module.exports = { consume, kafka, makeTopic, produce, startMember, withAdmin }
