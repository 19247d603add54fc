package harness

import (
	"io"
	"time"
)

// Record is a record on its way in or out. A nil Key or Value is null.
type Record struct {
	Key, Value []byte
	Headers    []Header
	Partition  int32
	Timestamp  int64 // milliseconds; 0: the client's clock
	Offset     int64
}

// Header is one header; a nil Value is null.
type Header struct {
	Key   string
	Value []byte
}

// ProduceOptions say how to produce; the zero value means no codec, acks=all, not idempotent.
type ProduceOptions struct {
	Codec      string
	Acks       string // "0", "1", "" (all)
	Idempotent bool
}

// MemberOptions say what kind of group member it is.
type MemberOptions struct {
	Instance    string
	Cooperative bool
}

// Member is a group member that polls in the background and commits what it read.
type Member interface {
	Owned() []int32
	Seen() []string
	Changes() int // of the assignment
	Revoked() int // partitions taken away while it ran
	// Told is what its user heard of, each with how often.
	Told() map[string]int
	Close()
}

// Streamed is what became of a stream of records.
type Streamed struct {
	Offsets []int64        // of each record; -1: acknowledged somewhere, -2: it failed
	Told    map[string]int // the errors that the user heard of, each with how often
}

// Client is one client library; the shared scenarios call nothing else.
type Client interface {
	CreateTopic(topic string, partitions int32, configs map[string]string)
	// Produce returns the acknowledged offsets, or the first error.
	Produce(topic string, records []Record, options ProduceOptions) ([]int64, error)
	// Stream sends one record after the other for so long, as an idempotent producer.
	Stream(topic string, recordOf func(number int) Record, time time.Duration) Streamed
	// Consume reads `count` records of all partitions from `start` on (-2: the beginning).
	Consume(topic string, count int, start int64) []Record
	// OffsetAt is the first offset at or after a time; -1 when there is none.
	OffsetAt(topic string, timestamp int64) int64
	Ends(topic string, partition int32) (begin, end int64)
	Commit(group, topic string, partition int32, offset int64, metadata string)
	// Committed is -1 without a commit.
	Committed(group, topic string, partition int32) (offset int64, metadata string)
	Member(topic, group string, options MemberOptions) Member
	// NullHeaders says whether the client keeps null and empty header values apart.
	NullHeaders() bool
	// Steady is an idempotent producer with the library's own time-outs, ready to send.
	Steady(topic string, told Told) Steady
	// IsTooLarge and IsUnknownTopic recognise the errors.
	IsTooLarge(err error) bool
	UnknownTopicRecognised(topic string) bool
}

// Dumper is a client that can print a whole topic.
type Dumper interface {
	// Dump writes every value up to what is now the end, a line feed after each.
	Dump(topic string, out io.Writer)
}
