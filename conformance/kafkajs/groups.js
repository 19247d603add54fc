// Scenarios about consumer groups: several members, rebalances, a crash, offsets.
'use strict'

const assert = require('node:assert')
const { kafka, makeTopic, produce, startMember, withAdmin } = require('./client')
const { MemberProcess, Skip, name, scenario, waitUntil } = require('./harness')

const PARTITIONS = 6

const shares = members => members.map(member => [...member.owned()].sort())

function fair(members) {
  const owned = shares(members)
  const all = new Set(owned.flat())
  const sizes = owned.map(list => list.length)
  const whole = all.size === PARTITIONS && owned.flat().length === PARTITIONS
  return whole && Math.max(...sizes) - Math.min(...sizes) <= 1
}

const waitForFair = (...members) =>
  waitUntil(() => fair(members), () => `fair shares, but ${JSON.stringify(shares(members))}`)

async function produceAndWait(topic, word, members) {
  const messages = Array.from({ length: 60 }, (_, i) => ({ value: `${word} ${i}`, partition: i % PARTITIONS }))
  await produce(topic, messages)
  const missing = () => {
    const seen = new Set(members.flatMap(member => member.seen()))
    return messages.filter(({ value }) => !seen.has(value))
  }
  await waitUntil(() => missing().length === 0, () => `${missing().length} messages are missing`)
}

scenario('group-rebalance', async () => {
  const [topic, group] = [await makeTopic('shared', PARTITIONS), name('group')]
  const first = await startMember(topic, group)
  await waitForFair(first)
  const [second, third] = [await startMember(topic, group), await startMember(topic, group)]
  await waitForFair(first, second, third)
  await produceAndWait(topic, 'three', [first, second, third])
  await third.close()
  await waitForFair(first, second)
  await produceAndWait(topic, 'two', [first, second, third])
  await first.close()
  await waitForFair(second)
  await produceAndWait(topic, 'one', [first, second, third])
  await second.close()
})

scenario('group-crash', async () => {
  const [topic, group] = [await makeTopic('crashed', PARTITIONS), name('group')]
  const victim = new MemberProcess(topic, group)
  await victim.waitForPartitions()
  const survivor = await startMember(topic, group)
  const shared = () => survivor.owned().size > 0 && survivor.owned().size < PARTITIONS
  await waitUntil(shared, () => 'the two share')
  const start = Date.now()
  victim.kill()
  await waitForFair(survivor)
  assert.ok(Date.now() - start > 2000, 'the crash was noticed before the session ended')
  await produceAndWait(topic, 'after', [survivor])
  await survivor.close()
})

scenario('static-members', async () => {
  throw new Skip('this client has no static members')
})

scenario('cooperative-sticky', async () => {
  throw new Skip('this client has no cooperative rebalances')
})

scenario('committed-offsets', async () => {
  const [topic, groupId] = [await makeTopic('committed', 2), name('group')]
  const fetch = async () => {
    const [{ partitions }] = await withAdmin(admin => admin.fetchOffsets({ groupId, topics: [topic] }))
    return partitions.sort((a, b) => a.partition - b.partition).map(({ offset, metadata }) => [offset, metadata])
  }
  assert.deepStrictEqual((await fetch()).map(([offset]) => offset), ['-1', '-1'])
  const consumer = kafka.consumer({ groupId, maxWaitTimeInMs: 100 })
  await consumer.connect()
  await consumer.subscribe({ topic })
  await consumer.run({ autoCommit: false, eachMessage: async () => {} })
  await new Promise(resolve => consumer.on(consumer.events.FETCH, resolve))
  await consumer.commitOffsets([
    { topic, partition: 0, offset: '17', metadata: 'a note' },
    { topic, partition: 1, offset: '3' },
  ])
  await consumer.disconnect()
  assert.deepStrictEqual((await fetch())[0], ['17', 'a note'])
  assert.strictEqual((await fetch())[1][0], '3')
})

scenario('group-resumes', async () => {
  const [topic, group] = [await makeTopic('resumed'), name('group')]
  const values = (from, to) => Array.from({ length: to - from }, (_, i) => `${from + i}`)
  await produce(topic, values(0, 10).map(value => ({ value })))
  const first = await startMember(topic, group)
  await waitUntil(() => first.seen().length === 10, () => 'all ten messages')
  await first.close()
  await produce(topic, values(10, 15).map(value => ({ value })))
  const second = await startMember(topic, group)
  await waitUntil(() => second.seen().length >= 5, () => 'the five new messages')
  assert.deepStrictEqual(second.seen(), values(10, 15))
  await second.close()
})
