"""Prints the reports of three clients to each rule of rules.json, before a test broker and before Apache Kafka.

    table.py HIGHWATER KAFKA_BOOTSTRAP KAFKA_JARS

KAFKA_JARS is a folder with Kafka's client. NODE_PATH names kafkajs. `cargo xt faults` calls this program.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).parent
LIMIT = 180
CLIENTS = ["Java", "librdkafka", "kafkajs"]


class Target:
    """A broker with fault rules over HTTP."""

    def __init__(self, name, bootstrap, http, process):
        self.name, self.bootstrap, self.http, self.process = name, bootstrap, http, process

    def set_rule(self, topic, rule):
        plan = json.dumps({"rules": [{"name": "rule", "topic": topic, **rule}]}).encode()
        request = urllib.request.Request(self.http + "/faults", data=plan, method="PUT")
        urllib.request.urlopen(request, timeout=30).read()

    def faults(self):
        with urllib.request.urlopen(self.http + "/faults", timeout=30) as answer:
            return sum(rule["faults"] for rule in json.load(answer)["rules"])


def test_broker(highwater):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([highwater, "test-broker"], **pipes)
    ready = json.loads(process.stdout.readline())
    return Target("test broker", ready["bootstrap_servers"], ready["http"], process)


def proxy(highwater, kafka):
    rules = FOLDER / "none.toml"
    command = [highwater, "--log-level", "error", "proxy", "-b", kafka, "--listen", "127.0.0.1:0"]
    command += ["--metrics-listener", "127.0.0.1:0", "--faults", rules]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    lines = [process.stdout.readline() for _ in range(3)]
    bootstrap = lines[0].split()[1]
    http = lines[2].split()[1].removesuffix("/metrics")
    return Target("Kafka 4.3.1", bootstrap, http, process)


def client(name, jars, target, topic):
    commands = {
        "Java": ["java", "-cp", f"{jars}/*", str(FOLDER / "Client.java")],
        "librdkafka": [sys.executable, str(FOLDER / "client.py")],
        "kafkajs": ["node", str(FOLDER / "client.js")],
    }
    command = [*commands[name], target.bootstrap, topic]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT} s"
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return f"failed: {run.stderr.strip().splitlines()[-1:]}"
    found = json.loads(lines[-1])
    return ", ".join(found["reports"]) + "; " + (" ".join(found["read"]) or "nothing")


def cell(highwater, jars, target, rule, name, number):
    topic = f"t{number}-{name.lower()}"
    create = [highwater, "topic", "create", topic, "--partitions", "1", "-b", target.bootstrap]
    subprocess.run(create, check=True, capture_output=True)
    target.set_rule(topic, rule)
    found = client(name, jars, target, topic)
    return found if target.faults() > 0 else found + " (no fault)"


def main():
    highwater, kafka, jars = sys.argv[1:4]
    targets = [test_broker(highwater), proxy(highwater, kafka)]
    print("| rule | " + " | ".join(CLIENTS) + " |")
    print("| --- " * (len(CLIENTS) + 1) + "|")
    same = 0
    for number, row in enumerate(json.loads((FOLDER / "rules.json").read_text())):
        cells = []
        for name in CLIENTS:
            one, other = (cell(highwater, jars, target, row["rule"], name, number) for target in targets)
            same += one == other
            cells.append(one if one == other else f"test broker: {one}<br>Kafka: {other}")
        print(f"| {row['name']} | " + " | ".join(cells) + " |", flush=True)
    count = (number + 1) * len(CLIENTS)
    print(f"\n{same} of {count} cells are the same before both.")
    for target in targets:
        if target.process.stdin:
            target.process.stdin.close()
        else:
            target.process.terminate()
        target.process.wait(30)


if __name__ == "__main__":
    main()
