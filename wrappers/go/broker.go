// Package highwatertest starts highwater test-broker, a Kafka broker for tests, and ends it, with fault rules over HTTP.
package highwatertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// BinaryVariable names the program highwater.
	BinaryVariable = "HIGHWATER_BIN"

	startTimeout = time.Minute
	stopTimeout  = 30 * time.Second
	httpTimeout  = 30 * time.Second
)

// Options of a test broker. The zero value is one broker without topics and rules.
type Options struct {
	// Topics are NAME or NAME:PARTITIONS each.
	Topics []string
	// Brokers is the number of brokers; 0 means 1.
	Brokers int
	// Settings are configuration keys of the broker.
	Settings map[string]string
	// Faults are the rules at the start.
	Faults []FaultRule
	// Seed of the rules that fire by probability; nil for the program's.
	Seed *uint64
	// DataDir is a folder that is kept; a temporary one otherwise.
	DataDir string
	// Arguments are further arguments of highwater test-broker.
	Arguments []string
	// Binary is the path of highwater; FindBinary finds it otherwise.
	Binary string
}

// FaultRule is a fault rule; all fields are in Highwater's docs/user/testing.md.
type FaultRule map[string]any

// FaultStatus is a rule with its counts.
type FaultStatus struct {
	Name    string `json:"name"`
	Matches uint64 `json:"matches"`
	Faults  uint64 `json:"faults"`
}

// TestBroker is a broker, or several, for one test.
type TestBroker struct {
	// BootstrapServers is where clients connect, host:port.
	BootstrapServers string `json:"bootstrap_servers"`
	// HTTP is the address of metrics and fault rules.
	HTTP string `json:"http"`
	// DataDir is the folder of the data.
	DataDir string `json:"data_dir"`
	// PID is the process id.
	PID int `json:"pid"`
	// Brokers is the number of brokers.
	Brokers int `json:"brokers"`
	// Version of the program.
	Version string `json:"version"`

	// parent is the broker of which this one is a fork, or nil.
	parent *TestBroker

	stdin io.WriteCloser
	done  chan struct{}
	log   *syncBuffer
	kill  func() error
}

// logBytesMax is the number of bytes of the program's last reports that a broker keeps.
const logBytesMax = 1 << 20

// syncBuffer keeps the last reports of the program.
type syncBuffer struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.buffer.Write(p)
	if excess := b.buffer.Len() - logBytesMax; excess > 0 {
		b.buffer.Next(excess)
	}
	return len(p), nil
}

func (b *syncBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.buffer.String()
}

func isProgram(path string) bool {
	status, err := os.Stat(path)
	return err == nil && status.Mode().IsRegular() && status.Mode()&0o111 != 0
}

// FindBinary returns the path of highwater: of HIGHWATER_BIN, of a folder bin beside the test, or of PATH.
func FindBinary() (string, error) {
	if named := os.Getenv(BinaryVariable); named != "" {
		if !isProgram(named) {
			return "", fmt.Errorf("%s names %s, which is not a program", BinaryVariable, named)
		}
		return named, nil
	}
	if packaged := filepath.Join("bin", "highwater"); isProgram(packaged) {
		return filepath.Abs(packaged)
	}
	found, err := exec.LookPath("highwater")
	if err != nil {
		return "", fmt.Errorf("highwater is not installed: set %s to its path, or put it on PATH", BinaryVariable)
	}
	return found, nil
}

// Run starts a broker for a test and stops it when the test ends. It fails the test if the broker does not start.
func Run(t testing.TB, options Options) *TestBroker {
	t.Helper()
	broker, err := Start(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Stop)
	return broker
}

// Start starts a broker and waits until it serves. Stop ends it; it also ends with this process.
func Start(options Options) (*TestBroker, error) {
	binary := options.Binary
	if binary == "" {
		found, err := FindBinary()
		if err != nil {
			return nil, err
		}
		binary = found
	}
	line := []string{"test-broker", "--brokers", strconv.Itoa(max(options.Brokers, 1))}
	if len(options.Topics) > 0 {
		line = append(line, "--topics", strings.Join(options.Topics, ","))
	}
	for key, value := range options.Settings {
		line = append(line, "--set", key+"="+value)
	}
	if options.Seed != nil {
		line = append(line, "--seed", strconv.FormatUint(*options.Seed, 10))
	}
	if options.DataDir != "" {
		line = append(line, "--data-dir", options.DataDir)
	}
	if len(options.Faults) > 0 {
		rules, err := rulesFile(options.Faults)
		if err != nil {
			return nil, err
		}
		defer os.Remove(rules)
		line = append(line, "--faults", rules)
	}
	return start(binary, append(line, options.Arguments...))
}

func rulesFile(rules []FaultRule) (string, error) {
	file, err := os.CreateTemp("", "highwater-rules-*.json")
	if err != nil {
		return "", err
	}
	defer file.Close()
	return file.Name(), json.NewEncoder(file).Encode(map[string]any{"rules": rules})
}

func start(binary string, line []string) (*TestBroker, error) {
	command := exec.Command(binary, line...)
	broker := &TestBroker{done: make(chan struct{}), log: &syncBuffer{}}
	command.Stderr = broker.log
	// The end of this pipe ends the broker, also when this process is killed.
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	broker.stdin = stdin
	broker.kill = command.Process.Kill
	timer := time.AfterFunc(startTimeout, func() { _ = broker.kill() })
	ready, readErr := bufio.NewReader(stdout).ReadBytes('\n')
	timer.Stop()
	go func() {
		defer close(broker.done)
		_ = command.Wait()
	}()
	if readErr == nil {
		readErr = json.Unmarshal(ready, broker)
	}
	if readErr != nil {
		broker.Stop()
		return nil, fmt.Errorf("the test broker did not start: %s", strings.TrimSpace(broker.Log()))
	}
	return broker, nil
}

// Log returns the reports of the program so far; of a fork, the reports of its test broker.
func (b *TestBroker) Log() string {
	if b.parent != nil {
		return b.parent.Log()
	}
	return b.log.String()
}

// IsRunning returns whether the process runs: a rule with the action kill ends it.
func (b *TestBroker) IsRunning() bool {
	if b.parent != nil {
		var forks []TestBroker
		isKnown := b.parent.IsRunning() && b.parent.call(http.MethodGet, "/forks", nil, &forks) == nil
		return isKnown && slices.ContainsFunc(forks, func(fork TestBroker) bool { return fork.PID == b.PID })
	}
	select {
	case <-b.done:
		return false
	default:
		return true
	}
}

// Stop ends the broker, its forks, and their temporary folders. It does nothing if the broker has ended.
func (b *TestBroker) Stop() {
	if b.parent != nil {
		if b.IsRunning() {
			_ = b.parent.call(http.MethodDelete, "/forks/"+strconv.Itoa(b.PID), nil, nil)
		}
		return
	}
	_ = b.stdin.Close()
	select {
	case <-b.done:
	case <-time.After(stopTimeout):
		_ = b.kill()
		<-b.done
	}
}

// Snapshot keeps the data of this moment under a name: records, topics, groups' offsets.
func (b *TestBroker) Snapshot(name string) error {
	return b.call(http.MethodPut, snapshotPath(name), nil, nil)
}

// RemoveSnapshot removes a snapshot. Its forks go on.
func (b *TestBroker) RemoveSnapshot(name string) error {
	return b.call(http.MethodDelete, snapshotPath(name), nil, nil)
}

// Fork starts a broker with the data of a snapshot. It ends by Stop, or with this broker.
func (b *TestBroker) Fork(name string) (*TestBroker, error) {
	fork := &TestBroker{parent: b}
	if err := b.call(http.MethodPost, snapshotPath(name)+"/forks", nil, fork); err != nil {
		return nil, err
	}
	return fork, nil
}

func snapshotPath(name string) string {
	return "/snapshots/" + url.PathEscape(name)
}

type faultList struct {
	Seed  uint64        `json:"seed"`
	Rules []FaultStatus `json:"rules"`
}

// Faults returns all rules with their counts.
func (b *TestBroker) Faults() ([]FaultStatus, error) {
	var list faultList
	err := b.call(http.MethodGet, "/faults", nil, &list)
	return list.Rules, err
}

// Seed returns the seed of the rules that fire by probability.
func (b *TestBroker) Seed() (uint64, error) {
	var list faultList
	err := b.call(http.MethodGet, "/faults", nil, &list)
	return list.Seed, err
}

// Fault returns one rule with its counts.
func (b *TestBroker) Fault(name string) (FaultStatus, error) {
	var status FaultStatus
	err := b.call(http.MethodGet, pathOf(name), nil, &status)
	return status, err
}

// SetFault sets a rule, in the place of the one of its name. Its counts begin at 0.
func (b *TestBroker) SetFault(name string, rule FaultRule) error {
	return b.call(http.MethodPut, pathOf(name), rule, nil)
}

// RemoveFault removes a rule.
func (b *TestBroker) RemoveFault(name string) error {
	return b.call(http.MethodDelete, pathOf(name), nil, nil)
}

// ClearFaults removes all rules.
func (b *TestBroker) ClearFaults() error {
	return b.call(http.MethodDelete, "/faults", nil, nil)
}

func pathOf(name string) string {
	return "/faults/" + url.PathEscape(name)
}

// client uses no proxy of the environment: the broker is on this machine.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (b *TestBroker) call(method, path string, body, answer any) error {
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), httpTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, b.HTTP+path, sent)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= http.StatusBadRequest {
		var refusal struct{ Error string }
		if json.Unmarshal(text, &refusal) != nil {
			return errors.New(response.Status)
		}
		return errors.New(refusal.Error)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
