// `main.js produce`: a producer that goes on at a steady rate while brokers are killed, for the laboratory's x-failover.
// What it reads and writes is said in docs/lab.md.
//
// kafkajs numbers an idempotent producer's requests right only one at a time: what has come due while one is on its
// way goes into the next.
'use strict'

const readline = require('node:readline')
const { Partitioners } = require('kafkajs')
const { kafka } = require('./client')
const { pause } = require('./harness')

const microseconds = () => Math.round((performance.timeOrigin + performance.now()) * 1000)
const say = line => process.stdout.write(`${line}\n`)

async function serveSteady(version) {
  const { TOPIC: topic, RATE, RECORD_BYTES } = process.env
  const producer = kafka.producer({
    idempotent: true,
    maxInFlightRequests: 1,
    createPartitioner: Partitioners.DefaultPartitioner,
  })
  await producer.connect()
  say(`ready ${version}`)
  let partition = null
  let ended = false
  const input = readline.createInterface({ input: process.stdin })
  input.on('line', line => (partition = Number(line.replace('partition ', ''))))
  input.on('close', () => (ended = true))
  let [due, sequence] = [performance.now(), 0]
  while (!ended) {
    const messages = []
    for (; due <= performance.now(); due += 1000 / Number(RATE)) {
      if (partition === null) continue
      messages.push({ partition, value: `${sequence++} `.padEnd(Number(RECORD_BYTES), '.') })
    }
    if (messages.length > 0) await send(producer, topic, messages)
    await pause(Math.max(0, due - performance.now()))
  }
  await producer.disconnect()
}

/** All messages in one request a partition; each is told of. */
async function send(producer, topic, messages) {
  const sequenceOf = message => message.value.split(' ')[0]
  let answers
  try {
    answers = await producer.send({ topic, messages, acks: -1 })
  } catch (error) {
    const words = String(error).replace(/\s+/g, ' ')
    messages.forEach(message => say(`error ${sequenceOf(message)} ${words}`))
    return
  }
  const now = microseconds()
  const next = new Map(answers.map(answer => [answer.partition, Number(answer.baseOffset)]))
  for (const message of messages) {
    const offset = next.get(message.partition) ?? -1
    if (offset >= 0) next.set(message.partition, offset + 1)
    say(`ack ${sequenceOf(message)} ${message.partition} ${offset} ${now}`)
  }
}

module.exports = { serveSteady }
