// A Kafka broker for tests: starts `highwater test-broker` and ends it, with fault rules over HTTP.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const os = require('node:os');
const path = require('node:path');

/** Names the program `highwater`. */
const BINARY_VARIABLE = 'HIGHWATER_BIN';
/** Milliseconds until a start is given up. */
const START_TIMEOUT = 60_000;
/** Milliseconds until a broker that was told to end is killed. */
const STOP_TIMEOUT = 30_000;
/** Milliseconds without an answer over HTTP. */
const HTTP_TIMEOUT = 30_000;
/** Characters of the program's reports that are kept. */
const LOG_LENGTH_MAX = 1_000_000;

/** The broker cannot be started, or refuses a fault rule. The message is the program's. */
class HighwaterError extends Error {
  constructor(message) {
    super(message);
    this.name = 'HighwaterError';
  }
}

function isProgram(file) {
  try {
    fs.accessSync(file, fs.constants.X_OK);
    return fs.statSync(file).isFile();
  } catch {
    return false;
  }
}

/** Returns the path of `highwater`: of HIGHWATER_BIN, of this package, or of PATH. */
function findBinary() {
  const named = process.env[BINARY_VARIABLE];
  if (named) {
    if (!isProgram(named)) {
      throw new HighwaterError(`${BINARY_VARIABLE} names ${named}, which is not a program`);
    }
    return named;
  }
  const folders = (process.env.PATH || '').split(path.delimiter).filter((folder) => folder !== '');
  const files = [path.join(__dirname, 'bin'), ...folders].map((folder) => path.join(folder, 'highwater'));
  const found = files.find(isProgram);
  if (!found) {
    throw new HighwaterError(`highwater is not installed: set ${BINARY_VARIABLE} to its path, or put it on PATH`);
  }
  return found;
}

const OPTIONS = ['topics', 'brokers', 'settings', 'faults', 'seed', 'dataDir', 'arguments', 'binary'];

/** Refuses options that have no effect. */
function checkOptions(options) {
  const unknown = Object.keys(options).filter((name) => !OPTIONS.includes(name));
  if (unknown.length > 0) {
    throw new HighwaterError(`unknown option ${unknown.join(', ')}; allowed are ${OPTIONS.join(', ')}`);
  }
  if (options.topics !== undefined && !Array.isArray(options.topics)) {
    throw new HighwaterError("topics is a list; write topics: ['orders:3']");
  }
  if (options.faults !== undefined && !Array.isArray(options.faults)) {
    throw new HighwaterError("faults is a list of rules; for a file write arguments: ['--faults', FILE]");
  }
}

function commandLine(options, rulesFile) {
  const line = ['test-broker', '--brokers', String(options.brokers ?? 1)];
  if (options.topics?.length) line.push('--topics', options.topics.join(','));
  for (const [key, value] of Object.entries(options.settings ?? {})) line.push('--set', `${key}=${value}`);
  if (options.seed !== undefined) line.push('--seed', String(options.seed));
  if (options.dataDir !== undefined) line.push('--data-dir', options.dataDir);
  if (rulesFile) line.push('--faults', rulesFile);
  return line.concat(options.arguments ?? []);
}

/** A broker, or several, for one test. */
class TestBroker {
  #child;
  #parent;
  #ended;
  #log = '';

  /** Starts a broker and waits until it serves. */
  static async start(options = {}) {
    checkOptions(options);
    const binary = options.binary ?? findBinary();
    let folder;
    let rulesFile;
    if (options.faults?.length) {
      folder = fs.mkdtempSync(path.join(os.tmpdir(), 'highwater-rules-'));
      rulesFile = path.join(folder, 'rules.json');
      fs.writeFileSync(rulesFile, JSON.stringify({ rules: options.faults }));
    }
    try {
      const broker = new TestBroker();
      await broker.#start(binary, commandLine(options, rulesFile));
      return broker;
    } finally {
      if (folder) fs.rmSync(folder, { recursive: true });
    }
  }

  async #start(binary, line) {
    // The pipe on standard input ends the broker when this process ends, however it does.
    const child = spawn(binary, line, { stdio: ['pipe', 'pipe', 'pipe'] });
    this.#child = child;
    child.stdin.on('error', () => {});
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', (text) => {
      this.#log = (this.#log + text).slice(-LOG_LENGTH_MAX);
    });
    this.#ended = new Promise((resolve) => {
      child.once('error', (error) => {
        this.#log += error.message;
        resolve();
      });
      // Behind the last report of the program.
      child.once('close', resolve);
    });
    const timer = setTimeout(() => child.kill('SIGKILL'), START_TIMEOUT);
    const ready = await Promise.race([firstLine(child.stdout), this.#ended.then(() => undefined)]);
    clearTimeout(timer);
    if (ready === undefined) {
      await this.#ended;
      this.#child = undefined;
      throw new HighwaterError(`the test broker did not start: ${this.log().trim()}`);
    }
    this.#takeFields(JSON.parse(ready));
    // A broker that nobody stops keeps no test run alive.
    child.unref();
    for (const stream of [child.stdin, child.stdout, child.stderr]) stream.unref?.();
  }

  #takeFields(fields) {
    this.bootstrapServers = fields.bootstrap_servers;
    this.http = fields.http;
    this.dataDir = fields.data_dir;
    this.pid = fields.pid;
    this.brokers = fields.brokers;
    this.version = fields.version;
  }

  /** Returns the reports of the program so far; of a fork, the reports of its test broker. */
  log() {
    return this.#parent?.log() ?? this.#log;
  }

  /** Whether the process runs: a rule with the action `kill` ends it. A fork runs until `stop`, or until its broker ends. */
  get isRunning() {
    if (this.#parent) return this.#ended === undefined && this.#parent.isRunning;
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }

  /** Ends the broker, its forks, and their temporary folders. Does nothing if it has ended. */
  async stop() {
    if (this.#parent) {
      if (this.isRunning) this.#ended = this.#parent.#endFork(this.pid);
      return this.#ended;
    }
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined) return;
    child.ref();
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_TIMEOUT);
    child.stdin.end();
    await this.#ended;
    clearTimeout(timer);
  }

  async [Symbol.asyncDispose ?? Symbol('asyncDispose')]() {
    await this.stop();
  }

  /** Keeps the data of this moment under a name: records, topics, groups' offsets. */
  async snapshot(name) {
    await this.#call('PUT', pathOf(name, 'snapshots'));
  }

  /** Removes a snapshot. Its forks go on. */
  async removeSnapshot(name) {
    await this.#call('DELETE', pathOf(name, 'snapshots'));
  }

  /** Starts a broker with the data of a snapshot. It ends by `stop`, or with this broker. */
  async fork(name) {
    const fork = new TestBroker();
    fork.#parent = this;
    fork.#takeFields(await this.#call('POST', `${pathOf(name, 'snapshots')}/forks`));
    return fork;
  }

  async #endFork(pid) {
    const forks = await this.#call('GET', '/forks');
    // A rule with the action `kill` may have ended it.
    if (forks.some((fork) => fork.pid === pid)) await this.#call('DELETE', `/forks/${pid}`);
  }

  /** Returns all rules, each with its counts `matches` and `faults`. */
  async faults() {
    return (await this.#call('GET', '/faults')).rules;
  }

  /** Returns one rule with its counts. */
  async fault(name) {
    return this.#call('GET', pathOf(name));
  }

  /** Returns the seed of the rules that fire by probability. */
  async seed() {
    return (await this.#call('GET', '/faults')).seed;
  }

  /** Sets a rule, in the place of the one of its name. Its counts begin at 0. */
  async setFault(name, rule) {
    await this.#call('PUT', pathOf(name), rule);
  }

  /** Removes a rule. */
  async removeFault(name) {
    await this.#call('DELETE', pathOf(name));
  }

  /** Removes all rules. */
  async clearFaults() {
    await this.#call('DELETE', '/faults');
  }

  #call(method, where, body) {
    return new Promise((resolve, reject) => {
      const request = http.request(this.http + where, { method, agent: false }, (answer) => {
        let text = '';
        answer.setEncoding('utf8');
        answer.on('data', (piece) => (text += piece));
        answer.on('error', reject);
        answer.on('end', () => {
          try {
            const value = text === '' ? undefined : JSON.parse(text);
            if (answer.statusCode < 400) resolve(value);
            else reject(new HighwaterError(value?.error ?? `HTTP ${answer.statusCode}`));
          } catch (error) {
            reject(new HighwaterError(`invalid answer (HTTP ${answer.statusCode}): ${error.message}`));
          }
        });
      });
      request.setTimeout(HTTP_TIMEOUT, () => {
        request.destroy(new HighwaterError(`no answer within ${HTTP_TIMEOUT} ms`));
      });
      request.on('error', reject);
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }
}

function pathOf(name, kind = 'faults') {
  return `/${kind}/${encodeURIComponent(name)}`;
}

/** Resolves to the first line of a stream; never, if the stream ends before. */
function firstLine(stream) {
  return new Promise((resolve) => {
    let text = '';
    stream.setEncoding('utf8');
    stream.on('data', (piece) => {
      text += piece;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(text.slice(0, end));
    });
  });
}

module.exports = { HighwaterError, TestBroker, findBinary };
