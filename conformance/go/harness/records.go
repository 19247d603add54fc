package harness

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"
)

func init() {
	Scenario("round-trip", roundTrip)
	for _, codec := range []string{"gzip", "snappy", "lz4", "zstd"} {
		Scenario("codec-"+codec, func(client Client) { codecRoundTrip(client, codec) })
	}
	Scenario("acks", everyAcks)
	Scenario("idempotence", idempotence)
	Scenario("headers", headers)
	Scenario("null-and-empty", nullAndEmpty)
	Scenario("large-message", largeMessage)
	Scenario("timestamps", timestamps)
	Scenario("seek-by-time", seekByTime)
	Scenario("begin-and-end", beginAndEnd)
	Scenario("auto-create", autoCreate)
	Scenario("error-too-large", tooLarge)
	Scenario("error-unknown-topic", unknownTopic)
}

// MakeTopic creates a topic that nobody else uses.
func MakeTopic(client Client, word string, partitions int32) string {
	topic := Name(word)
	client.CreateTopic(topic, partitions, nil)
	return topic
}

// MustProduce produces and fails on an error.
func MustProduce(client Client, topic string, records []Record, options ProduceOptions) {
	offsets, err := client.Produce(topic, records, options)
	Must(err)
	Equal(len(offsets), len(records), "acknowledged records")
}

func essence(record Record) string {
	show := func(value []byte) string {
		if value == nil {
			return "null"
		}
		return fmt.Sprintf("%q", value)
	}
	text := fmt.Sprintf("%d %s=%s", record.Partition, show(record.Key), show(record.Value))
	for _, header := range record.Headers {
		text += fmt.Sprintf(" %s:%s", header.Key, show(header.Value))
	}
	return text
}

// thereAndBack produces and consumes, and compares partition by partition, in order.
func thereAndBack(client Client, topic string, records []Record, options ProduceOptions) []Record {
	MustProduce(client, topic, records, options)
	found := client.Consume(topic, len(records), -2)
	byPartition := func(a, b Record) int { return int(a.Partition - b.Partition) }
	in, out := slices.Clone(records), slices.Clone(found)
	slices.SortStableFunc(in, byPartition)
	slices.SortStableFunc(out, byPartition)
	for i := range in {
		Check(essence(in[i]) == essence(out[i]), "record %d: %.300s instead of %.300s", i, essence(out[i]), essence(in[i]))
	}
	return found
}

func values(count int, value func(int) string) []Record {
	records := make([]Record, count)
	for i := range records {
		records[i] = Record{Value: []byte(value(i))}
	}
	return records
}

func number(i int) string { return fmt.Sprint(i) }

func roundTrip(client Client) {
	records := values(300, number)
	for i := range records {
		records[i].Key = fmt.Appendf(nil, "key %d", i%10)
		records[i].Partition = int32(i % 3)
	}
	found := thereAndBack(client, MakeTopic(client, "trip", 3), records, ProduceOptions{})
	next := [3]int64{}
	for _, record := range found {
		Equal(record.Offset, next[record.Partition], "offset")
		next[record.Partition]++
	}
}

func codecRoundTrip(client Client, codec string) {
	padding := strings.Repeat("x", 200)
	records := values(2000, func(i int) string { return fmt.Sprintf("record %d %s", i, padding) })
	thereAndBack(client, MakeTopic(client, codec, 1), records, ProduceOptions{Codec: codec})
}

func everyAcks(client Client) {
	topic := MakeTopic(client, "acks", 1)
	for _, acks := range []string{"0", "1", ""} {
		_, err := client.Produce(topic, []Record{{Value: []byte("acks " + acks)}}, ProduceOptions{Acks: acks})
		Must(err)
	}
	client.Consume(topic, 3, -2)
}

func idempotence(client Client) {
	records := values(5000, number)
	thereAndBack(client, MakeTopic(client, "once", 1), records, ProduceOptions{Idempotent: true})
}

func headers(client Client) {
	list := []Header{{"a", []byte("1")}, {"b", []byte{}}, {"a", []byte("2")}, {"utf8-ü", []byte{0, 255}}}
	if client.NullHeaders() {
		list = append(list, Header{"none", nil})
	}
	records := []Record{{Value: []byte("v"), Headers: list}, {Value: []byte("w")}}
	thereAndBack(client, MakeTopic(client, "headers", 1), records, ProduceOptions{})
}

func nullAndEmpty(client Client) {
	k, empty := []byte("k"), []byte{}
	records := []Record{{Key: k}, {Value: k}, {Key: empty, Value: empty}, {Key: k, Value: empty}, {Key: empty, Value: k}, {}}
	thereAndBack(client, MakeTopic(client, "nulls", 1), records, ProduceOptions{})
}

func largeMessage(client Client) {
	block := make([]byte, 9000)
	for i := range block {
		block[i] = byte(uint32(i) * 2654435761 >> 24)
	}
	records := []Record{{Value: bytes.Repeat(block, 100)}, {Value: []byte("small")}}
	thereAndBack(client, MakeTopic(client, "large", 1), records, ProduceOptions{})
}

func timestamps(client Client) {
	topic, start := MakeTopic(client, "stamps", 1), time.Now().UnixMilli()-5000
	records := values(10, number)
	for i := range records {
		records[i].Timestamp = start + int64(i)
	}
	MustProduce(client, topic, records, ProduceOptions{})
	for i, record := range client.Consume(topic, 10, -2) {
		Equal(record.Timestamp, start+int64(i), "time stamp")
	}
}

func seekByTime(client Client) {
	topic, start := MakeTopic(client, "times", 1), time.Now().UnixMilli()-100_000
	for i := range int64(5) {
		record := Record{Value: []byte{byte(i)}, Timestamp: start + i*1000}
		MustProduce(client, topic, []Record{record}, ProduceOptions{})
	}
	for time, wanted := range map[int64]int64{0: 0, 1: 1, 1000: 1, 4000: 4, 4001: -1} {
		Equal(client.OffsetAt(topic, start+time), wanted, fmt.Sprint("the offset at start + ", time))
	}
	Equal(client.Consume(topic, 1, 3)[0].Value, []byte{3}, "the record after the seek")
}

func beginAndEnd(client Client) {
	topic := MakeTopic(client, "ends", 1)
	begin, end := client.Ends(topic, 0)
	Equal([]int64{begin, end}, []int64{0, 0}, "an empty partition")
	MustProduce(client, topic, values(7, number), ProduceOptions{})
	begin, end = client.Ends(topic, 0)
	Equal([]int64{begin, end}, []int64{0, 7}, "after seven records")
}

func autoCreate(client Client) {
	thereAndBack(client, Name("auto"), values(1, number), ProduceOptions{})
}

func tooLarge(client Client) {
	topic := Name("small")
	client.CreateTopic(topic, 1, map[string]string{"max.message.bytes": "10000"})
	_, err := client.Produce(topic, []Record{{Value: make([]byte, 50_000)}}, ProduceOptions{})
	Check(err != nil && client.IsTooLarge(err), "the error is %v", err)
	thereAndBack(client, topic, values(1, number), ProduceOptions{})
}

func unknownTopic(client Client) {
	Check(client.UnknownTopicRecognised(Name("absent")), "no such error for a topic that is not there")
}
