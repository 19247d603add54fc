package harness

import (
	"fmt"
	"slices"
	"time"
)

const partitions = 6

func init() {
	Scenario("group-rebalance", rebalance)
	Scenario("group-crash", crash)
	Scenario("static-members", staticMembers)
	Scenario("cooperative-sticky", cooperative)
	Scenario("committed-offsets", committed)
	Scenario("group-resumes", resumes)
}

// fair: all partitions are owned, none twice, and the load is even.
func fair(members []Member) bool {
	var all []int32
	least, most := partitions, 0
	for _, member := range members {
		owned := member.Owned()
		all = append(all, owned...)
		least, most = min(least, len(owned)), max(most, len(owned))
	}
	slices.Sort(all)
	return len(all) == partitions && len(slices.Compact(all)) == partitions && most-least <= 1
}

func waitForFair(members ...Member) {
	WaitUntil(func() bool { return fair(members) }, func() string {
		text := "fair shares, but"
		for _, member := range members {
			text += fmt.Sprint(" ", member.Owned())
		}
		return text
	})
}

func produceAndWait(client Client, topic, word string, members ...Member) {
	records := values(60, func(i int) string { return fmt.Sprint(word, " ", i) })
	for i := range records {
		records[i].Partition = int32(i % partitions)
	}
	MustProduce(client, topic, records, ProduceOptions{})
	missing := func() int {
		seen := map[string]bool{}
		for _, member := range members {
			for _, value := range member.Seen() {
				seen[value] = true
			}
		}
		count := 0
		for _, record := range records {
			if !seen[string(record.Value)] {
				count++
			}
		}
		return count
	}
	WaitUntil(func() bool { return missing() == 0 }, func() string { return fmt.Sprint(missing(), " records are missing") })
}

func rebalance(client Client) {
	topic, group := MakeTopic(client, "shared", partitions), Name("group")
	first := client.Member(topic, group, MemberOptions{})
	waitForFair(first)
	second, third := client.Member(topic, group, MemberOptions{}), client.Member(topic, group, MemberOptions{})
	waitForFair(first, second, third)
	produceAndWait(client, topic, "three", first, second, third)
	third.Close()
	waitForFair(first, second)
	produceAndWait(client, topic, "two", first, second, third)
	first.Close()
	waitForFair(second)
	produceAndWait(client, topic, "one", first, second, third)
	second.Close()
}

func crash(client Client) {
	topic, group := MakeTopic(client, "crashed", partitions), Name("group")
	victim := StartMemberProcess(topic, group)
	survivor := client.Member(topic, group, MemberOptions{})
	shared := func() bool { return len(survivor.Owned()) > 0 && len(survivor.Owned()) < partitions }
	WaitUntil(shared, func() string { return "the two share" })
	start := time.Now()
	victim.Kill()
	waitForFair(survivor)
	Check(time.Since(start) > 2*time.Second, "the crash was noticed before the session ended")
	produceAndWait(client, topic, "after", survivor)
	survivor.Close()
}

func staticMembers(client Client) {
	topic, group := MakeTopic(client, "static", partitions), Name("group")
	stays := client.Member(topic, group, MemberOptions{Instance: "stays"})
	returns := client.Member(topic, group, MemberOptions{Instance: "returns"})
	waitForFair(stays, returns)
	owned, changes := returns.Owned(), stays.Changes()
	returns.Close()
	again := client.Member(topic, group, MemberOptions{Instance: "returns"})
	WaitUntil(func() bool { return slices.Equal(again.Owned(), owned) }, func() string { return "the same partitions" })
	produceAndWait(client, topic, "after", stays, again)
	Equal(stays.Changes(), changes, "changes of the other member's assignment")
	stays.Close()
	again.Close()
}

func cooperative(client Client) {
	topic, group := MakeTopic(client, "sticky", partitions), Name("group")
	first := client.Member(topic, group, MemberOptions{Cooperative: true})
	waitForFair(first)
	second := client.Member(topic, group, MemberOptions{Cooperative: true})
	waitForFair(first, second)
	Equal(first.Revoked(), partitions/2, "partitions revoked from the first member")
	produceAndWait(client, topic, "two", first, second)
	second.Close()
	waitForFair(first)
	Equal(first.Revoked(), partitions/2, "partitions revoked from the first member at the end")
	first.Close()
}

func committed(client Client) {
	topic, group := MakeTopic(client, "committed", 2), Name("group")
	must := func(partition int32, wantedOffset int64, wantedMetadata string) {
		offset, metadata := client.Committed(group, topic, partition)
		Equal(fmt.Sprint(offset, metadata), fmt.Sprint(wantedOffset, wantedMetadata), "what is committed")
	}
	must(0, -1, "")
	client.Commit(group, topic, 0, 17, "a note")
	client.Commit(group, topic, 1, 3, "")
	must(0, 17, "a note")
	must(1, 3, "")
	client.Commit(group, topic, 0, 5, "")
	must(0, 5, "")
}

func resumes(client Client) {
	topic, group := MakeTopic(client, "resumed", 1), Name("group")
	MustProduce(client, topic, values(10, number), ProduceOptions{})
	first := client.Member(topic, group, MemberOptions{})
	WaitUntil(func() bool { return len(first.Seen()) == 10 }, func() string { return "all ten records" })
	first.Close()
	MustProduce(client, topic, values(5, func(i int) string { return fmt.Sprint(10 + i) }), ProduceOptions{})
	second := client.Member(topic, group, MemberOptions{})
	WaitUntil(func() bool { return len(second.Seen()) >= 5 }, func() string { return "the five new records" })
	Equal(second.Seen(), []string{"10", "11", "12", "13", "14"}, "what the second member reads")
	second.Close()
}
