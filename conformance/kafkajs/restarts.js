// A scenario for a cluster whose brokers are killed in turn and started again while it runs.
'use strict'

const assert = require('node:assert')
const { consume, kafka, makeTopic, startMember, withAdmin } = require('./client')
const { name, pause, scenario, waitUntil } = require('./harness')

const PARTITIONS = 3
// Long enough for three of them, one every ten seconds.
const SECONDS = 35

const count = (told, what) => told.set(what, (told.get(what) || 0) + 1)
const tell = told => [...told].map(([what, often]) => (often > 1 ? `${what} (${often})` : what)).sort().join(', ') || 'nothing'

/** What `action` resolves to, as soon as it does not fail any more; what it said until then is told. */
async function patiently(told, what, action, seconds = 40) {
  const deadline = Date.now() + seconds * 1000
  for (;;) {
    try {
      return await action()
    } catch (error) {
      if (Date.now() > deadline) throw error
      count(told, `${what}: ${error.type || error.name}`)
      await pause(200)
    }
  }
}

/** Sends one message after the other, idempotently; what became of each (null: it failed). */
async function stream(topic, told) {
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  const answers = []
  const deadline = Date.now() + SECONDS * 1000
  while (Date.now() < deadline) {
    const number = answers.length
    const messages = [{ value: `${number}`, partition: number % PARTITIONS }]
    try {
      const [{ partition, baseOffset }] = await producer.send({ topic, messages, acks: -1 })
      answers.push({ partition, offset: Number(baseOffset) })
    } catch (error) {
      count(told, `producing: ${error.type || error.name}`)
      answers.push(null)
    }
    await pause(10)
  }
  await producer.disconnect()
  return answers
}

const ascending = list => [...list].sort((a, b) => a - b)
const numbersOf = (found, index) => found.filter(({ partition }) => partition === index).map(({ value }) => Number(value))

scenario('restarts', async () => {
  const told = new Map()
  const topic = await patiently(told, 'creating a topic', () => makeTopic('restarted', PARTITIONS))
  const member = await startMember(topic, name('group'), { told: what => count(told, `in the group: ${what}`) })
  const answers = await stream(topic, told)
  const acknowledged = answers.map((_, number) => number).filter(number => answers[number] !== null)
  assert.ok(acknowledged.length > 100, `only ${acknowledged.length} of ${answers.length} were acknowledged: ${tell(told)}`)
  const ends = await patiently(told, 'asking for the end', () => withAdmin(admin => admin.fetchTopicOffsets(topic)))
  const total = ends.reduce((sum, { low, high }) => sum + Number(high) - Number(low), 0)
  const found = await patiently(told, 'reading', () => consume(topic, total))
  const places = new Map(found.map(({ partition, offset, value }) => [`${partition}:${offset}`, Number(value)]))
  // A group of one reads from its last commit on when a coordinator moves: what comes again is the same record.
  const once = [...places].map(([place, value]) => ({ partition: Number(place.split(':')[0]), offset: Number(place.split(':')[1]), value }))
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const here = once.filter(record => record.partition === partition).sort((a, b) => a.offset - b.offset)
    const there = numbersOf(here, partition)
    assert.strictEqual(new Set(there).size, there.length, `records of ${partition} are there twice`)
    assert.deepStrictEqual(there, ascending(there), `order in ${partition}`)
    const lost = acknowledged.filter(number => number % PARTITIONS === partition && !there.includes(number))
    assert.strictEqual(lost.length, 0, `lost in ${partition}: ${lost.slice(0, 20)} (${lost.length})`)
  }
  for (const number of acknowledged) {
    const { partition, offset } = answers[number]
    // A broker that has had a batch already may not say where.
    if (offset >= 0) assert.strictEqual(places.get(`${partition}:${offset}`), number, `what is at ${partition}:${offset}`)
  }
  await checkMember(member, acknowledged)
  const again = member.seen().length - new Set(member.seen()).size
  console.log(`told: ${tell(told)}; ${acknowledged.length} of ${answers.length} acknowledged, ${again} read again by the group`)
  await member.close()
})

/** A group member sees everything; what it sees again, it sees behind the first time. */
async function checkMember(member, acknowledged) {
  const missing = () => {
    const seen = new Set(member.seen().map(Number))
    return acknowledged.filter(number => !seen.has(number))
  }
  await waitUntil(() => missing().length === 0, () => `not seen by the member: ${missing().slice(0, 20)} (${missing().length})`, 80)
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const seen = [...new Set(member.seen().map(Number))].filter(number => number % PARTITIONS === partition)
    assert.deepStrictEqual(seen, ascending(seen), `order in which the member sees ${partition}`)
  }
}
