package main

import (
	"context"
	"io"

	"github.com/twmb/franz-go/pkg/kgo"

	"highwater/conformance/harness"
)

// Dump prints all values of a topic of one partition.
func (c client) Dump(topic string, out io.Writer) {
	begin, end := c.Ends(topic, 0)
	opened := open(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	defer opened.Close()
	for next := begin; next < end; {
		fetches := opened.PollFetches(context.Background())
		harness.Must(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			_, err := out.Write(append(record.Value, '\n'))
			harness.Must(err)
			next = record.Offset + 1
		})
	}
}
