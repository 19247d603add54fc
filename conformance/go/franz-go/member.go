package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"highwater/conformance/harness"
)

// member is a group member that polls in the background.
type member struct {
	client           *kgo.Client
	static           bool
	stop             context.CancelFunc
	done             chan struct{}
	lock             sync.Mutex
	owned            map[int32]bool
	seen             []string
	told             map[string]int
	changes, revoked int
	closing          bool
}

func (client) Member(topic, group string, options harness.MemberOptions) harness.Member {
	made := &member{owned: map[int32]bool{}, told: map[string]int{}, done: make(chan struct{}), static: options.Instance != ""}
	settings := []kgo.Opt{
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.AutoCommitInterval(500 * time.Millisecond),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.OnPartitionsAssigned(made.assigned),
		kgo.OnPartitionsRevoked(made.lost),
		kgo.OnPartitionsLost(made.lost),
	}
	if options.Instance != "" {
		settings = append(settings, kgo.InstanceID(options.Instance))
	}
	if options.Cooperative {
		settings = append(settings, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	made.client = open(settings...)
	context, stop := context.WithCancel(context.Background())
	made.stop = stop
	go made.poll(context)
	return made
}

func (m *member) poll(context context.Context) {
	defer close(m.done)
	for context.Err() == nil {
		fetches := m.client.PollFetches(context)
		m.lock.Lock()
		fetches.EachError(func(_ string, _ int32, err error) {
			if context.Err() == nil {
				m.told[err.Error()]++
			}
		})
		fetches.EachRecord(func(record *kgo.Record) { m.seen = append(m.seen, string(record.Value)) })
		m.lock.Unlock()
	}
}

func (m *member) assigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partitions := range topics {
		for _, partition := range partitions {
			m.owned[partition] = true
		}
	}
	m.changes++
}

func (m *member) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partitions := range topics {
		for _, partition := range partitions {
			delete(m.owned, partition)
			if !m.closing {
				m.revoked++
			}
		}
	}
	if !m.closing {
		m.changes++
	}
}

func (m *member) Owned() []int32 {
	m.lock.Lock()
	defer m.lock.Unlock()
	owned := []int32{}
	for partition := range m.owned {
		owned = append(owned, partition)
	}
	slices.Sort(owned)
	return owned
}

func (m *member) Seen() []string {
	m.lock.Lock()
	defer m.lock.Unlock()
	return slices.Clone(m.seen)
}

func (m *member) Told() map[string]int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return maps.Clone(m.told)
}

func (m *member) Changes() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.changes
}

func (m *member) Revoked() int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.revoked
}

// Close commits and, unless the member is static, leaves the group.
func (m *member) Close() {
	m.lock.Lock()
	m.closing = true
	m.lock.Unlock()
	m.stop()
	<-m.done
	context, cancel := limited()
	defer cancel()
	harness.Must(m.client.CommitUncommittedOffsets(context))
	m.client.Close()
	m.lock.Lock()
	defer m.lock.Unlock()
	clear(m.owned)
}
