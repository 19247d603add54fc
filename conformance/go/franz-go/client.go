package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"highwater/conformance/harness"
)

// client says the scenarios' verbs in the words of franz-go.
type client struct{}

var codecs = map[string]kgo.CompressionCodec{
	"":       kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), harness.Limit)
}

func open(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(harness.Bootstrap...))
	opened, err := kgo.NewClient(options...)
	harness.Must(err)
	return opened
}

func withAdmin(action func(context.Context, *kadm.Client)) {
	opened := open()
	defer opened.Close()
	context, cancel := limited()
	defer cancel()
	action(context, kadm.NewClient(opened))
}

func (client) NullHeaders() bool { return true }

func (client) CreateTopic(topic string, partitions int32, configs map[string]string) {
	values := map[string]*string{}
	for key, value := range configs {
		values[key] = &value
	}
	withAdmin(func(context context.Context, admin *kadm.Client) {
		_, err := admin.CreateTopic(context, partitions, int16(harness.Replicas), values, topic)
		harness.Must(err)
	})
}

func (client) Produce(topic string, records []harness.Record, options harness.ProduceOptions) ([]int64, error) {
	settings := []kgo.Opt{
		kgo.ProducerBatchCompression(codecs[options.Codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(5 * time.Millisecond),
	}
	if !options.Idempotent {
		settings = append(settings, kgo.DisableIdempotentWrite())
	}
	switch options.Acks {
	case "0":
		settings = append(settings, kgo.RequiredAcks(kgo.NoAck()))
	case "1":
		settings = append(settings, kgo.RequiredAcks(kgo.LeaderAck()))
	}
	opened := open(settings...)
	defer opened.Close()
	context, cancel := limited()
	defer cancel()
	batch := make([]*kgo.Record, len(records))
	for i, record := range records {
		batch[i] = &kgo.Record{Topic: topic, Partition: record.Partition, Key: record.Key, Value: record.Value}
		if record.Timestamp > 0 {
			batch[i].Timestamp = time.UnixMilli(record.Timestamp)
		}
		for _, header := range record.Headers {
			batch[i].Headers = append(batch[i].Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
	}
	results := opened.ProduceSync(context, batch...)
	offsets := make([]int64, len(results))
	for i, result := range results {
		offsets[i] = result.Record.Offset
	}
	return offsets, results.FirstErr()
}

func (client) Stream(topic string, recordOf func(int) harness.Record, length time.Duration) harness.Streamed {
	opened := open(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))
	defer opened.Close()
	out := harness.Streamed{Told: map[string]int{}}
	var lock sync.Mutex
	for deadline := time.Now().Add(length); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		lock.Lock()
		number := len(out.Offsets)
		out.Offsets = append(out.Offsets, -2)
		lock.Unlock()
		record := recordOf(number)
		sent := &kgo.Record{Topic: topic, Partition: record.Partition, Value: record.Value}
		opened.Produce(context.Background(), sent, func(done *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				out.Told[err.Error()]++
				return
			}
			out.Offsets[number] = max(done.Offset, -1)
		})
	}
	context, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	harness.Must(opened.Flush(context))
	return out
}

func (client) Consume(topic string, count int, start int64) []harness.Record {
	from := kgo.NewOffset().At(start)
	if start == -2 {
		from = kgo.NewOffset().AtStart()
	}
	opened := open(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(from))
	defer opened.Close()
	context, cancel := limited()
	defer cancel()
	var found []harness.Record
	for len(found) < count {
		fetches := opened.PollFetches(context)
		harness.Must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { found = append(found, received(record)) })
	}
	return found
}

func received(record *kgo.Record) harness.Record {
	out := harness.Record{
		Key: record.Key, Value: record.Value, Partition: record.Partition,
		Timestamp: record.Timestamp.UnixMilli(), Offset: record.Offset,
	}
	for _, header := range record.Headers {
		out.Headers = append(out.Headers, harness.Header{Key: header.Key, Value: header.Value})
	}
	return out
}

func (client) OffsetAt(topic string, timestamp int64) (offset int64) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		listed, err := admin.ListOffsetsAfterMilli(context, timestamp, topic)
		harness.Must(err)
		answer, _ := listed.Lookup(topic, 0)
		offset = answer.Offset
		if answer.Timestamp < 0 { // the end offset stands in for "none"
			offset = -1
		}
	})
	return offset
}

func (client) Ends(topic string, partition int32) (begin, end int64) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		first, err := admin.ListStartOffsets(context, topic)
		harness.Must(err)
		last, err := admin.ListEndOffsets(context, topic)
		harness.Must(err)
		begin, end = first.Offsets()[topic][partition].At, last.Offsets()[topic][partition].At
	})
	return begin, end
}

func (client) Commit(group, topic string, partition int32, offset int64, metadata string) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1, Metadata: metadata})
		harness.Must(admin.CommitAllOffsets(context, group, offsets))
	})
}

func (client) Committed(group, topic string, partition int32) (offset int64, metadata string) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		fetched, err := admin.FetchOffsets(context, group)
		harness.Must(err)
		offset = -1
		if answer, found := fetched.Lookup(topic, partition); found {
			offset, metadata = answer.At, answer.Metadata
		}
	})
	return offset, metadata
}

func (client) IsTooLarge(err error) bool { return errors.Is(err, kerr.MessageTooLarge) }

func (client) UnknownTopicRecognised(topic string) (recognised bool) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		listed, err := admin.ListTopics(context, topic)
		harness.Must(err)
		recognised = errors.Is(listed[topic].Err, kerr.UnknownTopicOrPartition)
	})
	return recognised
}
