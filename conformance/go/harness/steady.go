package harness

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Steady is a producer that goes on at a steady rate while brokers are killed, for the laboratory's
// x-failover. What the program reads and writes is said in docs/lab.md.
type Steady interface {
	// Send is called once a record, in their order, and does not wait for answers.
	Send(sequence uint64, partition int32, value []byte)
	// Close waits for what is on its way.
	Close()
}

// Told takes what the library tells of a record, from any goroutine.
type Told struct{ lines *sync.Mutex }

// Acknowledged says where a record is.
func (told Told) Acknowledged(sequence uint64, partition int32, offset int64) {
	told.say("ack %d %d %d %d", sequence, partition, offset, time.Now().UnixMicro())
}

// Failed says that the application was told of a failure.
func (told Told) Failed(sequence uint64, err error) {
	told.say("error %d %s", sequence, strings.Join(strings.Fields(err.Error()), " "))
}

func (told Told) say(format string, arguments ...any) {
	told.lines.Lock()
	defer told.lines.Unlock()
	fmt.Printf(format+"\n", arguments...)
}

func serveSteady(version string, start func(topic string, told Told) Steady) {
	rate, err := strconv.ParseFloat(os.Getenv("RATE"), 64)
	Must(err)
	size, err := strconv.Atoi(os.Getenv("RECORD_BYTES"))
	Must(err)
	told := Told{new(sync.Mutex)}
	producer := start(os.Getenv("TOPIC"), told)
	var partition atomic.Int32
	var ended atomic.Bool
	partition.Store(-1)
	go listen(&partition, &ended)
	told.say("ready %s", version)
	pause := time.Duration(float64(time.Second) / rate)
	due, sequence := time.Now(), uint64(0)
	for !ended.Load() {
		due = due.Add(pause)
		time.Sleep(time.Until(due))
		if to := partition.Load(); to >= 0 {
			producer.Send(sequence, to, steadyValue(sequence, size))
			sequence++
		}
	}
	producer.Close()
}

func listen(partition *atomic.Int32, ended *atomic.Bool) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		number, err := strconv.ParseInt(strings.TrimPrefix(lines.Text(), "partition "), 10, 32)
		Must(err)
		partition.Store(int32(number))
	}
	ended.Store(true)
}

func steadyValue(sequence uint64, size int) []byte {
	value := strconv.FormatUint(sequence, 10) + " "
	return []byte(value + strings.Repeat(".", max(0, size-len(value))))
}
