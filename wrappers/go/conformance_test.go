package highwatertest

// The behaviours of ../conformance.json, each a test, with franz-go.

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const limit = time.Minute

func connect(t *testing.T, broker *TestBroker, options ...kgo.Opt) (*kgo.Client, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(broker.BootstrapServers))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, ctx
}

func produce(t *testing.T, broker *TestBroker, topic string, values ...string) {
	t.Helper()
	client, ctx := connect(t, broker)
	for _, value := range values {
		record := &kgo.Record{Topic: topic, Value: []byte(value)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func consume(t *testing.T, broker *TestBroker, topic string, count int) []string {
	t.Helper()
	start := kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())
	client, ctx := connect(t, broker, kgo.ConsumerGroup("g"), kgo.ConsumeTopics(topic), start)
	var values []string
	for len(values) < count {
		fetches := client.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d records: %v", len(values), count, err)
		}
		fetches.EachRecord(func(record *kgo.Record) { values = append(values, string(record.Value)) })
	}
	slices.Sort(values)
	return values
}

// metadata returns the answer to a metadata request for a topic.
func metadata(t *testing.T, broker *TestBroker, topic string) kmsg.MetadataResponseTopic {
	t.Helper()
	client, ctx := connect(t, broker)
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = true
	named := kmsg.NewMetadataRequestTopic()
	named.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, named)
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	return response.Topics[0]
}

func equal[T comparable](t *testing.T, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%v instead of %v", got, want)
	}
}

func refused(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Fatalf("%q is not in: %v", word, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ruleNames(t *testing.T, broker *TestBroker) []string {
	t.Helper()
	rules, err := broker.Faults()
	must(t, err)
	names := []string{}
	for _, rule := range rules {
		names = append(names, rule.Name)
	}
	return names
}

var checks = map[string]func(t *testing.T){
	"serves": func(t *testing.T) {
		broker := Run(t, Options{Topics: []string{"orders:3", "payments"}})
		counts := []int{len(metadata(t, broker, "orders").Partitions), len(metadata(t, broker, "payments").Partitions)}
		equal(t, counts, []int{3, 1})
		produce(t, broker, "orders", "a", "b")
		equal(t, consume(t, broker, "orders", 2), []string{"a", "b"})
	},
	"fields": func(t *testing.T) {
		broker := Run(t, Options{})
		if !strings.HasPrefix(broker.BootstrapServers, "127.0.0.1:") || !strings.HasPrefix(broker.HTTP, "http://127.0.0.1:") {
			t.Fatalf("%+v", broker)
		}
		status, err := os.Stat(broker.DataDir)
		must(t, err)
		must(t, syscall.Kill(broker.PID, 0))
		if !status.IsDir() || broker.Brokers != 1 || strings.Count(broker.Version, ".") != 2 {
			t.Fatalf("%+v", broker)
		}
	},
	"finds-binary": func(t *testing.T) {
		t.Setenv(BinaryVariable, "/nowhere/highwater")
		_, err := Start(Options{})
		refused(t, err, BinaryVariable, "/nowhere/highwater")
	},
	"stops": func(t *testing.T) {
		broker, err := Start(Options{})
		must(t, err)
		if !broker.IsRunning() {
			t.Fatal("it does not run")
		}
		broker.Stop()
		broker.Stop()
		if _, err := os.Stat(broker.DataDir); !os.IsNotExist(err) || broker.IsRunning() {
			t.Fatalf("left behind: %v", err)
		}
		if err := syscall.Kill(broker.PID, 0); !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("the process is there: %v", err)
		}
	},
	"refused-start": func(t *testing.T) {
		_, err := Start(Options{Topics: []string{"a:0"}})
		refused(t, err, "NAME:PARTITIONS")
	},
	"settings": func(t *testing.T) {
		broker := Run(t, Options{Settings: map[string]string{"auto.create.topics.enable": "false"}})
		err := kerr.ErrorForCode(metadata(t, broker, "new").ErrorCode)
		if !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Fatal(err)
		}
	},
	"sets-fault": func(t *testing.T) {
		broker := Run(t, Options{Topics: []string{"orders"}})
		action := map[string]any{"error": map[string]any{"code": "NOT_LEADER_OR_FOLLOWER"}}
		rule := FaultRule{"api": "Produce", "occurrence": "once", "action": action}
		must(t, broker.SetFault("refused", rule))
		produce(t, broker, "orders", "a")
		status, err := broker.Fault("refused")
		must(t, err)
		equal(t, []uint64{status.Faults}, []uint64{1})
		equal(t, consume(t, broker, "orders", 1), []string{"a"})
	},
	"removes-fault": func(t *testing.T) {
		broker := Run(t, Options{})
		for _, name := range []string{"a", "b/c", "d"} {
			must(t, broker.SetFault(name, FaultRule{"api": "Produce", "action": "close"}))
		}
		must(t, broker.RemoveFault("b/c"))
		equal(t, ruleNames(t, broker), []string{"a", "d"})
		must(t, broker.ClearFaults())
		equal(t, ruleNames(t, broker), []string{})
		refused(t, broker.RemoveFault("unheard-of"), "unheard-of")
	},
	"refuses-fault": func(t *testing.T) {
		broker := Run(t, Options{})
		refused(t, broker.SetFault("x", FaultRule{"action": "explode"}), "explode", "drop_answer")
	},
	"faults-at-start": func(t *testing.T) {
		seed := uint64(11)
		delay := map[string]any{"delay": map[string]any{"ms": 5}}
		rule := FaultRule{"name": "slow", "api": "Fetch", "action": delay}
		broker := Run(t, Options{Faults: []FaultRule{rule}, Seed: &seed})
		equal(t, ruleNames(t, broker), []string{"slow"})
		got, err := broker.Seed()
		must(t, err)
		equal(t, []uint64{got}, []uint64{seed})
	},
	"two-at-once": func(t *testing.T) {
		one, other := Run(t, Options{Topics: []string{"t"}}), Run(t, Options{Topics: []string{"t"}})
		if one.BootstrapServers == other.BootstrapServers || one.DataDir == other.DataDir {
			t.Fatalf("%+v %+v", one, other)
		}
		produce(t, one, "t", "one")
		produce(t, other, "t", "other")
		equal(t, consume(t, one, "t", 1), []string{"one"})
		equal(t, consume(t, other, "t", 1), []string{"other"})
	},
	"snapshots": func(t *testing.T) {
		broker := Run(t, Options{Topics: []string{"t"}})
		produce(t, broker, "t", "a")
		must(t, broker.Snapshot("s"))
		produce(t, broker, "t", "b")
		fork, err := broker.Fork("s")
		must(t, err)
		produce(t, fork, "t", "c")
		equal(t, consume(t, fork, "t", 2), []string{"a", "c"})
		if !fork.IsRunning() || fork.BootstrapServers == broker.BootstrapServers {
			t.Fatalf("%+v", fork)
		}
		left, err := broker.Fork("s")
		must(t, err)
		ended := func(fork *TestBroker) {
			if _, err := os.Stat(fork.DataDir); !os.IsNotExist(err) || fork.IsRunning() {
				t.Fatalf("left behind: %v", err)
			}
			if err := syscall.Kill(fork.PID, 0); !errors.Is(err, syscall.ESRCH) {
				t.Fatalf("the process is there: %v", err)
			}
		}
		fork.Stop()
		fork.Stop()
		ended(fork)
		equal(t, consume(t, broker, "t", 2), []string{"a", "b"})
		broker.Stop()
		left.Stop()
		ended(left)
	},
	"refuses-snapshot": func(t *testing.T) {
		broker := Run(t, Options{})
		must(t, broker.Snapshot("s"))
		refused(t, broker.Snapshot("s"), "\"s\"")
		_, err := broker.Fork("unheard-of")
		refused(t, err, "\"unheard-of\"", "\"s\"")
		must(t, broker.RemoveSnapshot("s"))
		must(t, broker.Snapshot("s"))
	},
}

func TestConformance(t *testing.T) {
	text, err := os.ReadFile("../conformance.json")
	must(t, err)
	var file struct{ Behaviours []struct{ ID string } }
	must(t, json.Unmarshal(text, &file))
	if len(file.Behaviours) == 0 {
		t.Fatal("no behaviour")
	}
	for _, behaviour := range file.Behaviours {
		check, known := checks[behaviour.ID]
		if !known {
			t.Fatalf("no check for %q", behaviour.ID)
		}
		t.Run(behaviour.ID, check)
	}
}
