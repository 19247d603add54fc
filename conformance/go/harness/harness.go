// Package harness is what both Go clients share: the registry of scenarios and the command line.
//
// `list` prints version and scenarios, `run NAME` runs one (0: held, 77: cannot run, else: did not
// hold), `member TOPIC GROUP` is a group member in a process of its own, to be killed;
// `dump TOPIC` prints a topic, `produce` is a producer under which brokers are killed.
package harness

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const skipCode = 77

// Limit is how long anything may take.
const Limit = 40 * time.Second

// Bootstrap is where the cluster is.
var Bootstrap = strings.Split(os.Getenv("BOOTSTRAP"), ",")

// Brokers is how many there are, Replicas how many replicas a topic is to have.
var Brokers, Replicas = numberOf("BROKERS"), numberOf("REPLICAS")

func numberOf(variable string) int {
	if number, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return number
	}
	return 1
}

type scenario struct {
	name string
	body func(Client)
}

type skip string

var (
	scenarios []scenario
	names     atomic.Int64
)

// Scenario registers a function under the name that the table shows.
func Scenario(name string, body func(Client)) {
	scenarios = append(scenarios, scenario{name, body})
}

// Name makes a name for a topic or a group that nobody else uses.
func Name(word string) string {
	return fmt.Sprintf("%s-%d-%s-%d", os.Getenv("RUN"), os.Getpid(), word, names.Add(1))
}

// Skip ends a scenario that cannot run with this client.
func Skip(why string) { panic(skip(why)) }

// Must fails on an error.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// Check fails unless the condition holds.
func Check(condition bool, format string, arguments ...any) {
	if !condition {
		panic(fmt.Errorf(format, arguments...))
	}
}

// Equal fails unless both print alike.
func Equal(found, wanted any, what string) {
	a, b := fmt.Sprintf("%v", found), fmt.Sprintf("%v", wanted)
	Check(a == b, "%s: %.400s instead of %.400s", what, a, b)
}

// WaitUntil waits until the condition holds; fails with what() when it never does.
func WaitUntil(condition func() bool, what func() string) {
	deadline := time.Now().Add(Limit)
	for !condition() {
		Check(time.Now().Before(deadline), "not in time: %s", what())
		time.Sleep(20 * time.Millisecond)
	}
}

// Eventually waits until what read returns prints like wanted: a broker of Kafka applies a change of
// metadata a moment after the controller has acknowledged it.
func Eventually(read func() any, wanted any, what string) {
	var found any
	same := func() bool { found = read(); return fmt.Sprint(found) == fmt.Sprint(wanted) }
	WaitUntil(same, func() string { return fmt.Sprintf("%s: %v instead of %v", what, found, wanted) })
}

// MemberProcess is a group member in a process of its own; Kill is a crash.
type MemberProcess struct{ command *exec.Cmd }

// StartMemberProcess returns once the process owns at least one partition.
func StartMemberProcess(topic, group string) MemberProcess {
	command := exec.Command(os.Args[0], "member", topic, group)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	Must(err)
	Must(command.Start())
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if len(lines.Text()) > len("owns []") {
			return MemberProcess{command}
		}
	}
	panic("the member process ended before it owned a partition")
}

// Kill ends the process as kill -9 does.
func (process MemberProcess) Kill() {
	Must(process.command.Process.Kill())
	_ = process.command.Wait()
}

func serveMember(client Client, topic, group string) {
	member := client.Member(topic, group, MemberOptions{})
	said := ""
	for {
		if owned := fmt.Sprint(member.Owned()); owned != said {
			fmt.Println("owns", owned)
			said = owned
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Version is the version of a module that this program was built with.
func Version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == module {
			return strings.TrimPrefix(dependency.Version, "v")
		}
	}
	return ""
}

// Main is the program's command line.
func Main(version string, client Client) {
	switch arguments := os.Args[1:]; arguments[0] {
	case "list":
		fmt.Println(version)
		for _, scenario := range scenarios {
			fmt.Println(scenario.name)
		}
	case "member":
		serveMember(client, arguments[1], arguments[2])
	case "dump":
		out := bufio.NewWriterSize(os.Stdout, 1<<20)
		client.(Dumper).Dump(arguments[1], out)
		Must(out.Flush())
	case "produce":
		serveSteady(version, client.Steady)
	case "run":
		at := slices.IndexFunc(scenarios, func(one scenario) bool { return one.name == arguments[1] })
		os.Exit(run(scenarios[at], client))
	}
}

func run(scenario scenario, client Client) (code int) {
	defer func() {
		switch why := recover().(type) {
		case nil:
		case skip:
			fmt.Println(string(why))
			code = skipCode
		default:
			fmt.Fprintln(os.Stderr, why)
			code = 1
		}
	}()
	scenario.body(client)
	return 0
}
