"""The process of a test broker, and its fault rules over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any, Iterable, Mapping, Optional, Sequence

#: Names the program ``highwater``.
BINARY_VARIABLE = "HIGHWATER_BIN"
#: Seconds until a start is given up.
START_TIMEOUT = 60.0
#: Seconds until a broker gets SIGTERM that runs although its pipe is closed.
CLOSE_TIMEOUT = 5.0
#: Seconds until a broker that was told to end is killed.
STOP_TIMEOUT = 30.0
#: Seconds until a request over HTTP is given up.
HTTP_TIMEOUT = 30.0


class HighwaterError(Exception):
    """The broker cannot be started, or refuses a fault rule. The message is the program's."""


def _cause(error: urllib.error.HTTPError) -> str:
    """The words of an answer with an error code: of JSON, or of plain text for a request that is not served as such."""
    text = error.read().decode(errors="replace").strip()
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code}: {text}" if text else f"{error.code} {error.reason}"


def find_binary() -> str:
    """Returns the path of ``highwater``: of HIGHWATER_BIN, of this package, or of PATH."""
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        if not os.access(named, os.X_OK) or os.path.isdir(named):
            raise HighwaterError(f"{BINARY_VARIABLE} names {named}, which is not a program")
        return named
    packaged = Path(__file__).parent / "bin" / "highwater"
    if packaged.is_file():
        return str(packaged)
    found = shutil.which("highwater")
    if found is None:
        raise HighwaterError(
            f"highwater is not installed: set {BINARY_VARIABLE} to its path, or put it on PATH"
        )
    return found


class TestBroker:
    """A broker, or several, for one test. Use it as a context manager, or call :meth:`stop`."""

    __test__ = False  # pytest collects classes whose names begin with Test.

    #: Clients connect here, ``host:port``.
    bootstrap_servers: str
    #: Address of metrics and fault rules.
    http: str
    #: Folder of the data.
    data_dir: str
    #: Process id.
    pid: int
    #: Number of brokers.
    brokers: int
    #: Version of the program.
    version: str

    def __init__(
        self,
        topics: Iterable[str] = (),
        *,
        brokers: int = 1,
        settings: Optional[Mapping[str, str]] = None,
        faults: Sequence[Mapping[str, Any]] = (),
        seed: Optional[int] = None,
        data_dir: Optional[str] = None,
        arguments: Sequence[str] = (),
        binary: Optional[str] = None,
    ) -> None:
        """Starts the broker and waits until it serves.

        :param topics: ``NAME`` or ``NAME:PARTITIONS`` each.
        :param settings: configuration keys of the broker.
        :param faults: fault rules.
        :param seed: seed of the rules that fire by probability.
        :param data_dir: a folder that is kept; a temporary one otherwise.
        :param arguments: further arguments of ``highwater test-broker``.
        """
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._parent: Optional["TestBroker"] = None
        if isinstance(topics, (str, bytes)):
            raise HighwaterError("topics is a list; write topics=['orders:3']")
        if isinstance(faults, (str, bytes, os.PathLike, Mapping)):
            raise HighwaterError(
                "faults is a list of rules; for a file write arguments=['--faults', FILE]"
            )
        command = [binary or find_binary(), "test-broker", "--brokers", str(brokers)]
        names = list(topics)
        if names:
            command += ["--topics", ",".join(names)]
        for key, value in (settings or {}).items():
            command += ["--set", f"{key}={value}"]
        if seed is not None:
            command += ["--seed", str(seed)]
        if data_dir is not None:
            command += ["--data-dir", data_dir]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as rules:
            if faults:
                json.dump({"rules": list(faults)}, rules)
                rules.flush()
                command += ["--faults", rules.name]
            self._start(command + list(arguments))

    def _start(self, command: Sequence[str]) -> None:
        # A file, not a pipe: nothing waits for a reader.
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        timer = threading.Timer(START_TIMEOUT, self._process.kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None
            raise HighwaterError(f"the test broker did not start: {self.log()}")
        self._take_fields(json.loads(line))

    def _take_fields(self, ready: Mapping[str, Any]) -> None:
        self.bootstrap_servers = ready["bootstrap_servers"]
        self.http = ready["http"]
        self.data_dir = ready["data_dir"]
        self.pid = ready["pid"]
        self.brokers = ready["brokers"]
        self.version = ready["version"]

    def log(self) -> str:
        """Returns what the program has reported so far; of a fork, the reports of its test broker."""
        if self._parent is not None:
            return self._parent.log()
        size = self._errors.seek(0, os.SEEK_END)
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace").strip()

    def stop(self) -> None:
        """Ends the broker, its forks, and their temporary folders. Does nothing if it has ended."""
        if self._parent is not None:
            if self.is_running():
                self._parent._call("DELETE", f"/forks/{self.pid}")
            return
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.stdin.close()
        except OSError:
            pass  # The process has closed its end.
        try:
            process.wait(CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            # A forked process (multiprocessing) holds the pipe open. Not earlier: a signal during a stop kills the brokers.
            process.terminate()
        try:
            process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def is_running(self) -> bool:
        """Whether the process runs: a rule with the action ``kill`` ends it."""
        if self._parent is not None:
            running = self._parent.is_running() and self._parent._call("GET", "/forks")
            return bool(running) and any(fork["pid"] == self.pid for fork in running)
        return self._process is not None and self._process.poll() is None

    def snapshot(self, name: str) -> None:
        """Keeps the data of this moment under a name: records, topics, groups' offsets."""
        self._call("PUT", self._path(name, "snapshots"))

    def remove_snapshot(self, name: str) -> None:
        """Removes a snapshot. Its forks go on."""
        self._call("DELETE", self._path(name, "snapshots"))

    def fork(self, name: str) -> "TestBroker":
        """Starts a broker with the data of a snapshot. It ends by :meth:`stop`, or with this broker."""
        fork = TestBroker.__new__(TestBroker)
        fork._process, fork._parent = None, self
        fork._take_fields(self._call("POST", self._path(name, "snapshots") + "/forks"))
        return fork

    def __enter__(self) -> "TestBroker":
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def faults(self) -> list[dict[str, Any]]:
        """Returns all rules, each with its counts ``matches`` and ``faults``."""
        return self._call("GET", "/faults")["rules"]

    def fault(self, name: str) -> dict[str, Any]:
        """Returns one rule with its counts."""
        return self._call("GET", self._path(name))

    def seed(self) -> int:
        """Returns the seed of the rules that fire by probability."""
        return self._call("GET", "/faults")["seed"]

    def set_fault(self, name: str, rule: Mapping[str, Any]) -> None:
        """Sets a rule, in the place of the one of its name. Its counts begin at 0."""
        self._call("PUT", self._path(name), rule)

    def remove_fault(self, name: str) -> None:
        """Removes a rule."""
        self._call("DELETE", self._path(name))

    def clear_faults(self) -> None:
        """Removes all rules."""
        self._call("DELETE", "/faults")

    @staticmethod
    def _path(name: str, kind: str = "faults") -> str:
        return f"/{kind}/" + urllib.parse.quote(name, safe="")

    def _call(self, method: str, path: str, body: Optional[Mapping[str, Any]] = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http + path, data=data, method=method)
        # Requests to an address of this machine bypass the proxy of the environment.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=HTTP_TIMEOUT) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            raise HighwaterError(_cause(error)) from None
        return json.loads(text) if text else None
