package harness

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// For a cluster whose brokers are killed in turn and started again while it runs.
func init() { Scenario("restarts", restarts) }

const (
	restartedPartitions = 3
	// Long enough for three of them, one every ten seconds.
	restartsLength = 35 * time.Second
)

// Addresses, ports and numbers of connections say nothing to a reader of the table.
var numbers = regexp.MustCompile(`\d+(\.\d+)*(:\d+)?`)

func attempt(action func()) (failure any) {
	defer func() { failure = recover() }()
	action()
	return nil
}

// patiently tries until the action does not fail any more; what it said until then is told.
func patiently(told map[string]int, what string, action func()) {
	deadline := time.Now().Add(Limit)
	for {
		failure := attempt(action)
		if failure == nil {
			return
		}
		Check(time.Now().Before(deadline), "%s: %v", what, failure)
		told[fmt.Sprintf("%s: %v", what, failure)]++
		time.Sleep(200 * time.Millisecond)
	}
}

func tell(told map[string]int) string {
	counted := map[string]int{}
	for what, often := range told {
		counted[numbers.ReplaceAllString(what, "N")] += often
	}
	var words []string
	for _, what := range slices.Sorted(maps.Keys(counted)) {
		words = append(words, fmt.Sprintf("%s (%d)", what, counted[what]))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.ReplaceAll(strings.Join(words, ", "), "\n", " ")
}

func restarts(client Client) {
	told, topic := map[string]int{}, Name("restarted")
	patiently(told, "creating a topic", func() {
		// The first attempt may have happened though nobody said so.
		failure := attempt(func() { client.CreateTopic(topic, restartedPartitions, nil) })
		if failure != nil && !strings.Contains(strings.ToLower(fmt.Sprint(failure)), "exist") {
			panic(failure)
		}
	})
	var member Member
	patiently(told, "joining a group", func() { member = client.Member(topic, Name("group"), MemberOptions{}) })
	recordOf := func(number int) Record {
		return Record{Value: fmt.Append(nil, number), Partition: int32(number % restartedPartitions)}
	}
	streamed := client.Stream(topic, recordOf, restartsLength)
	for what, often := range streamed.Told {
		told["producing: "+what] += often
	}
	acknowledged := 0
	for _, offset := range streamed.Offsets {
		if offset > -2 {
			acknowledged++
		}
	}
	Check(acknowledged > 100, "only %d of %d records were acknowledged: %s", acknowledged, len(streamed.Offsets), tell(told))
	checkLog(client, topic, streamed.Offsets, told)
	again := checkMember(member, streamed.Offsets)
	for what, often := range member.Told() {
		told["in the group: "+what] += often
	}
	fmt.Printf("told: %s; %d of %d acknowledged, %d read again by the group\n", tell(told), acknowledged, len(streamed.Offsets), again)
	member.Close()
}

// checkLog: everything acknowledged is there once, in order, at the offset that the producer was told.
func checkLog(client Client, topic string, offsets []int64, told map[string]int) {
	count := 0
	for partition := range int32(restartedPartitions) {
		patiently(told, "asking for the end", func() {
			begin, end := client.Ends(topic, partition)
			count += int(end - begin)
		})
	}
	var found []Record
	patiently(told, "reading", func() { found = client.Consume(topic, count, -2) })
	last := [restartedPartitions]int{-1, -1, -1}
	places, there := map[string]int{}, map[int]bool{}
	for _, record := range found {
		number, err := strconv.Atoi(string(record.Value))
		Must(err)
		Check(number > last[record.Partition], "%d is behind %d in %d", number, last[record.Partition], record.Partition)
		last[record.Partition], there[number] = number, true
		places[fmt.Sprint(record.Partition, ":", record.Offset)] = number
	}
	for number, offset := range offsets {
		Check(offset == -2 || there[number], "record %d was acknowledged and is lost", number)
		// A broker that has had a batch already may not say where.
		if offset >= 0 {
			place := fmt.Sprint(number%restartedPartitions, ":", offset)
			at, known := places[place]
			Check(known && at == number, "at %s is %d, not %d", place, at, number)
		}
	}
}

// checkMember: a group member sees everything; what it sees again, it sees behind the first time. How much it saw again.
func checkMember(member Member, offsets []int64) int {
	missing := func() int {
		seen := map[string]bool{}
		for _, value := range member.Seen() {
			seen[value] = true
		}
		count := 0
		for number, offset := range offsets {
			if offset > -2 && !seen[fmt.Sprint(number)] {
				count++
			}
		}
		return count
	}
	WaitUntil(func() bool { return missing() == 0 }, func() string { return fmt.Sprint(missing(), " records are not seen by the member") })
	last, first := [restartedPartitions]int{-1, -1, -1}, map[int]bool{}
	for _, value := range member.Seen() {
		number, err := strconv.Atoi(value)
		Must(err)
		if first[number] {
			continue
		}
		partition := number % restartedPartitions
		Check(number > last[partition], "the member sees %d behind %d", number, last[partition])
		first[number], last[partition] = true, number
	}
	return len(member.Seen()) - len(first)
}
