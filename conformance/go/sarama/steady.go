package main

import (
	"sync"

	"github.com/IBM/sarama"

	"highwater/conformance/harness"
)

type steady struct {
	producer sarama.AsyncProducer
	topic    string
	telling  *sync.WaitGroup
}

// Steady has the library's defaults but for acks=all, idempotence and what that asks for.
func (client) Steady(topic string, told harness.Told) harness.Steady {
	config := config()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewAsyncProducer(harness.Bootstrap, config)
	harness.Must(err)
	telling := new(sync.WaitGroup)
	telling.Go(func() {
		for sent := range producer.Successes() {
			told.Acknowledged(sent.Metadata.(uint64), sent.Partition, sent.Offset)
		}
	})
	telling.Go(func() {
		for failed := range producer.Errors() {
			told.Failed(failed.Msg.Metadata.(uint64), failed.Err)
		}
	})
	return steady{producer, topic, telling}
}

// Send may wait: sarama takes no more than 256 records ahead.
func (producer steady) Send(sequence uint64, partition int32, value []byte) {
	producer.producer.Input() <- &sarama.ProducerMessage{
		Topic: producer.topic, Partition: partition, Value: sarama.ByteEncoder(value), Metadata: sequence,
	}
}

func (producer steady) Close() {
	producer.producer.AsyncClose()
	producer.telling.Wait()
}
