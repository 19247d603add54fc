package main

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"highwater/conformance/harness"
)

// member is a group member; it owns the partitions whose claims run.
type member struct {
	group            sarama.ConsumerGroup
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
	config := config()
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Offsets.AutoCommit.Interval = 500 * time.Millisecond
	config.Consumer.Group.InstanceId = options.Instance
	if options.Cooperative {
		strategies := []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		config.Consumer.Group.Rebalance.GroupStrategies = strategies
	}
	opened, err := sarama.NewConsumerGroup(harness.Bootstrap, group, config)
	harness.Must(err)
	running, stop := context.WithCancel(context.Background())
	made := &member{group: opened, stop: stop, done: make(chan struct{}), owned: map[int32]bool{}, told: map[string]int{}}
	go func() {
		defer close(made.done)
		for running.Err() == nil {
			if err := opened.Consume(running, []string{topic}, made); err != nil {
				made.lock.Lock()
				made.told[err.Error()]++
				made.lock.Unlock()
				time.Sleep(100 * time.Millisecond)
			}
		}
	}()
	return made
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.own(claim.Partition(), true)
	defer m.own(claim.Partition(), false)
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			m.lock.Lock()
			m.seen = append(m.seen, string(message.Value))
			m.lock.Unlock()
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) own(partition int32, gained bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	if gained {
		m.owned[partition] = true
	} else {
		delete(m.owned, partition)
	}
	if !m.closing {
		m.changes++
		if !gained {
			m.revoked++
		}
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

func (m *member) Close() {
	m.lock.Lock()
	m.closing = true
	m.lock.Unlock()
	m.stop()
	<-m.done
	harness.Must(m.group.Close())
}
