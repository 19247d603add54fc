package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/IBM/sarama"

	"highwater/conformance/harness"
)

// client says the scenarios' verbs in the words of sarama.
type client struct{}

var codecs = map[string]sarama.CompressionCodec{
	"":       sarama.CompressionNone,
	"gzip":   sarama.CompressionGZIP,
	"snappy": sarama.CompressionSnappy,
	"lz4":    sarama.CompressionLZ4,
	"zstd":   sarama.CompressionZSTD,
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.ClientID = "conformance"
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = false
	return config
}

func withAdmin(action func(sarama.ClusterAdmin)) {
	admin, err := sarama.NewClusterAdmin(harness.Bootstrap, config())
	harness.Must(err)
	defer admin.Close()
	action(admin)
}

func withClient(action func(sarama.Client)) {
	opened, err := sarama.NewClient(harness.Bootstrap, config())
	harness.Must(err)
	defer opened.Close()
	action(opened)
}

func (client) NullHeaders() bool { return true }

func (client) CreateTopic(topic string, partitions int32, configs map[string]string) {
	detail := &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: int16(harness.Replicas)}
	detail.ConfigEntries = map[string]*string{}
	for key, value := range configs {
		detail.ConfigEntries[key] = &value
	}
	withAdmin(func(admin sarama.ClusterAdmin) { harness.Must(admin.CreateTopic(topic, detail, false)) })
}

// encoder keeps null and empty apart.
func encoder(value []byte) sarama.Encoder {
	if value == nil {
		return nil
	}
	return sarama.ByteEncoder(value)
}

func (client) Produce(topic string, records []harness.Record, options harness.ProduceOptions) ([]int64, error) {
	config := config()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Compression = codecs[options.Codec]
	config.Producer.MaxMessageBytes = 1_000_000
	config.Producer.RequiredAcks = sarama.WaitForAll
	switch options.Acks {
	case "0":
		config.Producer.RequiredAcks = sarama.NoResponse
	case "1":
		config.Producer.RequiredAcks = sarama.WaitForLocal
	}
	if options.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	producer, err := sarama.NewSyncProducer(harness.Bootstrap, config)
	harness.Must(err)
	defer producer.Close()
	batch := make([]*sarama.ProducerMessage, len(records))
	for i, record := range records {
		batch[i] = message(topic, record)
	}
	if err := producer.SendMessages(batch); err != nil {
		return nil, err
	}
	offsets := make([]int64, len(batch))
	for i, sent := range batch {
		offsets[i] = sent.Offset
	}
	return offsets, nil
}

func message(topic string, record harness.Record) *sarama.ProducerMessage {
	made := &sarama.ProducerMessage{
		Topic: topic, Partition: record.Partition, Key: encoder(record.Key), Value: encoder(record.Value),
	}
	if record.Timestamp > 0 {
		made.Timestamp = time.UnixMilli(record.Timestamp)
	}
	for _, header := range record.Headers {
		made.Headers = append(made.Headers, sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
	}
	return made
}

func (client) Stream(topic string, recordOf func(int) harness.Record, length time.Duration) harness.Streamed {
	config := config()
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(harness.Bootstrap, config)
	harness.Must(err)
	defer producer.Close()
	out := harness.Streamed{Told: map[string]int{}}
	for deadline := time.Now().Add(length); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		_, offset, err := producer.SendMessage(message(topic, recordOf(len(out.Offsets))))
		if err != nil {
			out.Told[err.Error()]++
			offset = -2
		}
		out.Offsets = append(out.Offsets, offset)
	}
	return out
}

func (client) Consume(topic string, count int, start int64) []harness.Record {
	consumer, err := sarama.NewConsumer(harness.Bootstrap, config())
	harness.Must(err)
	defer consumer.Close()
	partitions, err := consumer.Partitions(topic)
	harness.Must(err)
	messages := make(chan *sarama.ConsumerMessage)
	done := make(chan struct{})
	defer close(done)
	for _, partition := range partitions {
		reader, err := consumer.ConsumePartition(topic, partition, start)
		harness.Must(err)
		defer reader.AsyncClose()
		go forward(reader, messages, done)
	}
	var found []harness.Record
	for deadline := time.After(harness.Limit); len(found) < count; {
		select {
		case message := <-messages:
			found = append(found, received(message))
		case <-deadline:
			panic(fmt.Errorf("%d of %d records came", len(found), count))
		}
	}
	return found
}

func forward(reader sarama.PartitionConsumer, messages chan<- *sarama.ConsumerMessage, done <-chan struct{}) {
	for message := range reader.Messages() {
		select {
		case messages <- message:
		case <-done:
			return
		}
	}
}

func received(message *sarama.ConsumerMessage) harness.Record {
	record := harness.Record{
		Key: message.Key, Value: message.Value, Partition: message.Partition,
		Timestamp: message.Timestamp.UnixMilli(), Offset: message.Offset,
	}
	for _, header := range message.Headers {
		record.Headers = append(record.Headers, harness.Header{Key: string(header.Key), Value: header.Value})
	}
	return record
}

func (client) OffsetAt(topic string, timestamp int64) (offset int64) {
	withClient(func(opened sarama.Client) {
		answer, err := opened.GetOffset(topic, 0, timestamp)
		harness.Must(err)
		offset = answer
	})
	return offset
}

func (client) Ends(topic string, partition int32) (begin, end int64) {
	withClient(func(opened sarama.Client) {
		var err error
		begin, err = opened.GetOffset(topic, partition, sarama.OffsetOldest)
		harness.Must(err)
		end, err = opened.GetOffset(topic, partition, sarama.OffsetNewest)
		harness.Must(err)
	})
	return begin, end
}

func (client) Commit(group, topic string, partition int32, offset int64, metadata string) {
	withClient(func(opened sarama.Client) {
		manager, err := sarama.NewOffsetManagerFromClient(group, opened)
		harness.Must(err)
		managed, err := manager.ManagePartition(topic, partition)
		harness.Must(err)
		managed.ResetOffset(offset, metadata) // no-op upwards
		managed.MarkOffset(offset, metadata)
		manager.Commit()
		harness.Must(managed.Close())
		harness.Must(manager.Close())
	})
}

func (client) Committed(group, topic string, partition int32) (offset int64, metadata string) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		answer, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {partition}})
		harness.Must(err)
		block := answer.GetBlock(topic, partition)
		offset, metadata = block.Offset, block.Metadata
	})
	return offset, metadata
}

func (client) IsTooLarge(err error) bool {
	var all sarama.ProducerErrors
	if errors.As(err, &all) {
		return errors.Is(all[0].Err, sarama.ErrMessageSizeTooLarge)
	}
	return errors.Is(err, sarama.ErrMessageSizeTooLarge)
}

func (client) UnknownTopicRecognised(topic string) (recognised bool) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		recognised = errors.Is(admin.DeleteTopic(topic), sarama.ErrUnknownTopicOrPartition)
	})
	return recognised
}
