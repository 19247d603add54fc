package main

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"highwater/conformance/harness"
)

// flushLimit is how long what is on its way may take at the end.
const flushLimit = 20 * time.Second

type steady struct {
	client *kgo.Client
	topic  string
	told   harness.Told
}

// Steady has the library's defaults: acks=all, idempotent.
func (client) Steady(topic string, told harness.Told) harness.Steady {
	opened := open(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	context, cancel := limited()
	defer cancel()
	harness.Must(opened.Ping(context))
	return steady{opened, topic, told}
}

func (producer steady) Send(sequence uint64, partition int32, value []byte) {
	record := &kgo.Record{Topic: producer.topic, Partition: partition, Value: value}
	producer.client.Produce(context.Background(), record, func(sent *kgo.Record, err error) {
		if err != nil {
			producer.told.Failed(sequence, err)
		} else {
			producer.told.Acknowledged(sequence, sent.Partition, sent.Offset)
		}
	})
}

func (producer steady) Close() {
	context, cancel := context.WithTimeout(context.Background(), flushLimit)
	defer cancel()
	_ = producer.client.Flush(context) // what is left is told of as it ends
	producer.client.Close()
}
