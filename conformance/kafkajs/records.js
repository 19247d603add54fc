// Scenarios about records: what goes in comes out, whatever the codec, the key, the headers.
'use strict'

const assert = require('node:assert')
const { randomBytes } = require('node:crypto')
const codecs = require('./codecs')
const { consume, kafka, makeTopic, produce, withAdmin } = require('./client')
const { errorOf, name, scenario } = require('./harness')

const text = bytes => (bytes === null ? null : bytes.toString('latin1'))
const essence = message => [text(message.key), text(message.value)]

scenario('round-trip', async () => {
  const topic = await makeTopic('trip', 3)
  const messages = Array.from({ length: 300 }, (_, i) => ({ key: `k${i % 10}`, value: `v${i}`, partition: i % 3 }))
  await produce(topic, messages)
  const found = await consume(topic, 300)
  for (const partition of [0, 1, 2]) {
    const here = list => list.filter(message => message.partition === partition)
    const wanted = here(messages).map(({ key, value }) => [key, value])
    assert.deepStrictEqual(here(found).map(essence), wanted)
    assert.deepStrictEqual(here(found).map(({ offset }) => Number(offset)), wanted.map((_, i) => i))
  }
})

for (const [codec, compression] of Object.entries(codecs)) {
  scenario(`codec-${codec}`, async () => {
    const topic = await makeTopic(codec)
    const messages = Array.from({ length: 1000 }, (_, i) => ({ key: `k${i}`, value: `v${i} ${'x'.repeat(200)}` }))
    await produce(topic, messages, { compression })
    const found = await consume(topic, 1000)
    assert.deepStrictEqual(found.map(essence), messages.map(({ key, value }) => [key, value]))
  })
}

scenario('acks', async () => {
  const topic = await makeTopic('acks')
  for (const acks of [0, 1, -1]) await produce(topic, [{ value: `acks ${acks}` }], { acks })
  const values = (await consume(topic, 3)).map(({ value }) => String(value))
  assert.deepStrictEqual(values.sort(), ['acks -1', 'acks 0', 'acks 1'])
})

scenario('idempotence', async () => {
  const topic = await makeTopic('once')
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  for (let i = 0; i < 50; i++) await producer.send({ topic, messages: [{ value: `${i}` }, { value: `${i}'` }] })
  await producer.disconnect()
  const values = (await consume(topic, 100)).map(({ value }) => String(value))
  assert.deepStrictEqual(values, Array.from({ length: 50 }, (_, i) => [`${i}`, `${i}'`]).flat())
})

scenario('headers', async () => {
  const topic = await makeTopic('headers')
  const headers = { a: ['1', '2'], b: '', 'utf8-ü': Buffer.from([0, 255]) }
  await produce(topic, [{ value: 'v', headers }, { value: 'w' }])
  const [first, second] = await consume(topic, 2)
  assert.deepStrictEqual(first.headers.a.map(String), ['1', '2'])
  assert.strictEqual(String(first.headers.b), '')
  assert.deepStrictEqual([...first.headers['utf8-ü']], [0, 255])
  assert.deepStrictEqual(Object.keys(second.headers), [])
})

scenario('null-and-empty', async () => {
  const topic = await makeTopic('nulls')
  const pairs = [['k', null], [null, 'v'], ['', ''], ['k', ''], ['', 'v'], [null, null]]
  await produce(topic, pairs.map(([key, value]) => ({ key, value })))
  assert.deepStrictEqual((await consume(topic, pairs.length)).map(essence), pairs)
})

scenario('large-message', async () => {
  const topic = await makeTopic('large')
  const value = randomBytes(900_000)
  await produce(topic, [{ value }])
  const [found] = await consume(topic, 1)
  assert.ok(found.value.equals(value), 'the bytes came back changed')
})

scenario('timestamps', async () => {
  const topic = await makeTopic('stamps')
  const now = Date.now() - 5000
  await produce(topic, [0, 1, 2].map(i => ({ value: `${i}`, timestamp: `${now + i}` })))
  const stamps = (await consume(topic, 3)).map(({ timestamp }) => Number(timestamp))
  assert.deepStrictEqual(stamps, [now, now + 1, now + 2])
})

scenario('seek-by-time', async () => {
  const topic = await makeTopic('times')
  const start = Date.now() - 100_000
  for (let i = 0; i < 5; i++) await produce(topic, [{ value: `${i}`, timestamp: `${start + i * 1000}` }])
  for (const [time, wanted] of [[start, 0], [start + 1, 1], [start + 4000, 4], [start + 4001, 5]]) {
    const [{ offset }] = await withAdmin(admin => admin.fetchTopicOffsetsByTimestamp(topic, time))
    assert.strictEqual(Number(offset), wanted, `the offset at start + ${time - start}`)
  }
  const found = await consume(topic, 1, { partition: 0, offset: '3' })
  assert.strictEqual(String(found[0].value), '3')
})

scenario('begin-and-end', async () => {
  const topic = await makeTopic('ends')
  await produce(topic, Array.from({ length: 7 }, (_, i) => ({ value: `${i}` })))
  const [ends] = await withAdmin(admin => admin.fetchTopicOffsets(topic))
  assert.deepStrictEqual([ends.low, ends.high], ['0', '7'])
})

scenario('auto-create', async () => {
  const topic = name('auto')
  await produce(topic, [{ value: 'hello' }])
  assert.strictEqual(String((await consume(topic, 1))[0].value), 'hello')
})

scenario('error-too-large', async () => {
  const topic = await makeTopic('small', 1, { 'max.message.bytes': '10000' })
  const error = await errorOf(() => produce(topic, [{ value: 'x'.repeat(50_000) }]))
  assert.strictEqual(error, 'MESSAGE_TOO_LARGE')
})

scenario('error-unknown-topic', async () => {
  const error = await errorOf(() => withAdmin(admin => admin.fetchTopicOffsets(name('absent'))))
  assert.strictEqual(error, 'UNKNOWN_TOPIC_OR_PARTITION')
})
