package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"highwater/conformance/harness"
)

func init() {
	harness.Scenario("admin-topics", adminTopics)
	harness.Scenario("admin-cluster", adminCluster)
	harness.Scenario("admin-configs", adminConfigs)
	harness.Scenario("admin-groups", adminGroups)
	harness.Scenario("admin-group-offsets", adminGroupOffsets)
	harness.Scenario("admin-delete-records", adminDeleteRecords)
	harness.Scenario("admin-list-offsets", adminListOffsets)
	harness.Scenario("admin-log-dirs", adminLogDirs)
}

func ten(topic string) {
	records := make([]harness.Record, 10)
	for i := range records {
		records[i].Value = []byte{byte('0' + i)}
	}
	harness.MustProduce(client{}, topic, records, harness.ProduceOptions{})
}

func adminTopics(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic := harness.Name("managed")
		made, err := admin.CreateTopic(context, 2, int16(harness.Replicas), nil, topic)
		harness.Must(err)
		harness.Check(made.ID != kadm.TopicID{}, "the topic has no id")
		_, err = admin.CreateTopic(context, 2, int16(harness.Replicas), nil, topic)
		harness.Check(errors.Is(err, kerr.TopicAlreadyExists), "a second creation: %v", err)
		_, err = admin.CreateTopic(context, 1, 9, nil, harness.Name("wide"))
		harness.Check(errors.Is(err, kerr.InvalidReplicationFactor), "nine replicas: %v", err)
		grown, err := admin.UpdatePartitions(context, 4, topic)
		harness.Must(err)
		harness.Must(grown.Error())
		list := func() kadm.TopicDetails {
			listed, err := admin.ListTopics(context)
			harness.Must(err)
			return listed
		}
		harness.Eventually(func() any { return len(list()[topic].Partitions) }, 4, "partitions")
		harness.Equal(list()[topic].ID, made.ID, "the topic's id")
		_, err = admin.DeleteTopic(context, topic)
		harness.Must(err)
		harness.Eventually(func() any { return list().Has(topic) }, false, "the deleted topic is listed")
	})
}

func adminCluster(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		metadata, err := admin.BrokerMetadata(context)
		harness.Must(err)
		harness.Equal(len(metadata.Brokers), harness.Brokers, "brokers")
		harness.Check(metadata.Cluster != "", "the cluster has no id")
		versions, err := admin.ApiVersions(context)
		harness.Must(err)
		harness.Equal(len(versions.Sorted()), harness.Brokers, "brokers that say their versions")
	})
}

func adminConfigs(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic, value := harness.MakeTopic(client{}, "configured", 1), "77000"
		alter := func(change kadm.AlterConfig) {
			answer, err := admin.AlterTopicConfigs(context, []kadm.AlterConfig{change}, topic)
			harness.Must(err)
			harness.Must(answer[0].Err)
		}
		read := func(key string) string {
			answer, err := admin.DescribeTopicConfigs(context, topic)
			harness.Must(err)
			for _, config := range answer[0].Configs {
				if config.Key == key {
					return config.MaybeValue()
				}
			}
			return "absent"
		}
		alter(kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: &value})
		harness.Eventually(func() any { return read("retention.ms") }, "77000", "retention.ms")
		harness.Eventually(func() any { return read("segment.ms") }, "604800000", "segment.ms")
		alter(kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
		harness.Eventually(func() any { return read("retention.ms") }, "604800000", "retention.ms after its deletion")
		compact := "compact"
		alter(kadm.AlterConfig{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: &compact})
		harness.Eventually(func() any { return read("cleanup.policy") }, "delete,compact", "cleanup.policy after an addition")
		alter(kadm.AlterConfig{Op: kadm.SubtractConfig, Name: "cleanup.policy", Value: &compact})
		harness.Eventually(func() any { return read("cleanup.policy") }, "delete", "cleanup.policy after a subtraction")
	})
}

func adminGroups(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic, group := harness.MakeTopic(client{}, "grouped", 2), harness.Name("group")
		running := client{}.Member(topic, group, harness.MemberOptions{})
		owned := func() bool { return len(running.Owned()) == 2 }
		harness.WaitUntil(owned, func() string { return "the member owns both partitions" })
		listed, err := admin.ListGroups(context)
		harness.Must(err)
		harness.Equal(listed[group].State, "Stable", "the state in the list")
		described, err := admin.DescribeGroups(context, group)
		harness.Must(err)
		harness.Equal(described[group].State, "Stable", "the state")
		harness.Equal(len(described[group].Members), 1, "members")
		_, err = admin.DeleteGroup(context, group)
		harness.Check(errors.Is(err, kerr.NonEmptyGroup), "deleting a group in use: %v", err)
		running.Close()
		_, err = admin.DeleteGroup(context, group)
		harness.Must(err)
		_, err = admin.DeleteGroup(context, group)
		harness.Check(errors.Is(err, kerr.GroupIDNotFound), "a second deletion: %v", err)
	})
}

func adminGroupOffsets(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic, group := harness.MakeTopic(client{}, "moved", 1), harness.Name("group")
		ten(topic)
		client{}.Commit(group, topic, 0, 4, "")
		lags, err := admin.Lag(context, group)
		harness.Must(err)
		harness.Equal(lags[group].Lag.Total(), 6, "the lag")
		running := client{}.Member(topic, group, harness.MemberOptions{})
		read := func() bool { return len(running.Seen()) == 6 }
		harness.WaitUntil(read, func() string { return "the six records from offset 4 on" })
		running.Close()
		topics := kadm.TopicsSet{}
		topics.Add(topic, 0)
		deleted, err := admin.DeleteOffsets(context, group, topics)
		harness.Must(err)
		harness.Must(deleted.Error())
		offset, _ := client{}.Committed(group, topic, 0)
		harness.Equal(offset, -1, "the offset after its deletion")
	})
}

func adminDeleteRecords(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic := harness.MakeTopic(client{}, "cut", 1)
		ten(topic)
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 4, -1)
		answer, err := admin.DeleteRecords(context, offsets)
		harness.Must(err)
		harness.Equal(answer[topic][0].LowWatermark, 4, "the new start")
		begin, end := client{}.Ends(topic, 0)
		harness.Equal([]int64{begin, end}, []int64{4, 10}, "begin and end")
		harness.Equal(string(client{}.Consume(topic, 6, -2)[0].Value), "4", "the first record")
	})
}

func adminListOffsets(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic := harness.MakeTopic(client{}, "listed", 1)
		for _, stamp := range []int64{1_700_000_000_000, 1_700_000_000_002, 1_700_000_000_001} {
			record := harness.Record{Value: []byte("v"), Timestamp: stamp}
			harness.MustProduce(client{}, topic, []harness.Record{record}, harness.ProduceOptions{})
		}
		greatest, err := admin.ListMaxTimestampOffsets(context, topic)
		harness.Must(err)
		found, _ := greatest.Lookup(topic, 0)
		harness.Equal(found.Offset, 1, "the record with the greatest time stamp")
		end, err := admin.ListCommittedOffsets(context, topic)
		harness.Must(err)
		found, _ = end.Lookup(topic, 0)
		harness.Equal(found.Offset, 3, "the last stable offset")
	})
}

func adminLogDirs(harness.Client) {
	withAdmin(func(context context.Context, admin *kadm.Client) {
		topic := harness.MakeTopic(client{}, "sized", 1)
		ten(topic)
		topics := kadm.TopicsSet{}
		topics.Add(topic, 0)
		answer, err := admin.DescribeAllLogDirs(context, topics)
		harness.Must(err)
		size := int64(0)
		answer.Each(func(folder kadm.DescribedLogDir) { size += folder.Size() })
		harness.Check(size > 60, "ten records take %d bytes", size)
	})
}
