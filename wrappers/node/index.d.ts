/** A fault rule; all fields are in Highwater's docs/user/testing.md. */
export interface FaultRule {
  name?: string;
  api?: string;
  topic?: string;
  partition?: number;
  client_id?: string;
  occurrence?: 'always' | 'once' | { nth: number } | { every: number } | { probability: number };
  count_by?: 'client_partition' | 'rule';
  limit?: number;
  action: string | Record<string, unknown>;
}

/** A rule with its counts. */
export interface FaultStatus extends FaultRule {
  name: string;
  matches: number;
  faults: number;
}

export interface TestBrokerOptions {
  /** `NAME` or `NAME:PARTITIONS` each. */
  topics?: string[];
  brokers?: number;
  /** Configuration keys of the broker. */
  settings?: Record<string, string>;
  faults?: FaultRule[];
  /** Seed of the rules that fire by probability. */
  seed?: number;
  /** A folder that is kept; a temporary one otherwise. */
  dataDir?: string;
  /** Further arguments of `highwater test-broker`. */
  arguments?: string[];
  /** Path of `highwater`. */
  binary?: string;
}

/** The broker cannot be started, or refuses a fault rule. The message is the program's. */
export class HighwaterError extends Error {}

/** A broker, or several, for one test. */
export class TestBroker {
  private constructor();
  static start(options?: TestBrokerOptions): Promise<TestBroker>;
  /** Clients connect here, `host:port`. */
  readonly bootstrapServers: string;
  /** Address of metrics and fault rules. */
  readonly http: string;
  readonly dataDir: string;
  readonly pid: number;
  readonly brokers: number;
  readonly version: string;
  readonly isRunning: boolean;
  log(): string;
  stop(): Promise<void>;
  snapshot(name: string): Promise<void>;
  removeSnapshot(name: string): Promise<void>;
  fork(name: string): Promise<TestBroker>;
  faults(): Promise<FaultStatus[]>;
  fault(name: string): Promise<FaultStatus>;
  seed(): Promise<number>;
  setFault(name: string, rule: FaultRule): Promise<void>;
  removeFault(name: string): Promise<void>;
  clearFaults(): Promise<void>;
}

/** Returns the path of `highwater`: of HIGHWATER_BIN, of this package, or of PATH. */
export function findBinary(): string;
