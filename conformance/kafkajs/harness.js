// The registry of scenarios and the command line: `list`, `run NAME`, `member TOPIC GROUP`, `produce`.
// One scenario, one process; exit code 77 means that it cannot run with this client.
'use strict'

const assert = require('node:assert')
const { spawn } = require('node:child_process')
const readline = require('node:readline')

const SKIP = 77
/** How many brokers there are, and how many replicas a topic is to have. */
const BROKERS = Number(process.env.BROKERS || 1)
const REPLICAS = Number(process.env.REPLICAS || 1)
const scenarios = new Map()
let names = 0

class Skip extends Error {}

const scenario = (name, body) => scenarios.set(name, body)

/** A name for a topic or a group that nobody else uses. */
const name = word => `${process.env.RUN || 'run'}-${process.pid}-${word}-${++names}`

const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

/** Waits until `condition()` holds; fails with `what()` when it never does. */
async function waitUntil(condition, what, seconds = 40) {
  const deadline = Date.now() + seconds * 1000
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what()}`)
    await pause(20)
  }
}

/**
 * Waits until `read()` resolves to `wanted`: a broker of Kafka applies a change of metadata a moment
 * after the controller has acknowledged it.
 */
async function eventually(read, wanted, what) {
  let found
  await waitUntil(
    async () => (found = await read()) === wanted,
    () => `${what}: ${found} instead of ${wanted}`
  )
}

/** The error code or type with which `action` fails; null when it does not. */
async function errorOf(action) {
  try {
    await action()
  } catch (error) {
    const inner = (error.errors && error.errors[0]) || error
    return inner.type || (inner.cause && inner.cause.type) || inner.name
  }
  return null
}

/** A group member in a process of its own; `kill` is a crash. */
class MemberProcess {
  constructor(topic, group) {
    const stdio = ['ignore', 'pipe', 'inherit']
    this.process = spawn(process.execPath, [process.argv[1], 'member', topic, group], { stdio })
  }

  async waitForPartitions() {
    for await (const line of readline.createInterface({ input: this.process.stdout })) {
      if (/^owns \d/.test(line)) return
    }
    throw new Error('the member process ended before it owned a partition')
  }

  kill() {
    this.process.kill('SIGKILL')
  }
}

async function serveMember(startMember, topic, group) {
  const member = await startMember(topic, group)
  let said
  for (;;) {
    const owned = [...member.owned()].sort().join(' ')
    if (owned !== said) console.log(`owns ${owned}`)
    said = owned
    await pause(50)
  }
}

async function main(version, startMember, serveSteady) {
  const [command, ...rest] = process.argv.slice(2)
  if (command === 'list') {
    console.log([version, ...scenarios.keys()].join('\n'))
    return
  }
  if (command === 'member') await serveMember(startMember, ...rest)
  if (command === 'produce') {
    await serveSteady(version)
    process.exit(0)
  }
  let code = 0
  try {
    await scenarios.get(rest[0])()
  } catch (error) {
    code = error instanceof Skip ? SKIP : 1
    if (code === SKIP) console.log(error.message)
    else console.error(error)
  }
  // Timers of a client that failed must not keep the process.
  process.exit(code)
}

module.exports = { BROKERS, MemberProcess, REPLICAS, Skip, errorOf, eventually, main, name, pause, scenario, waitUntil }
