package main

import (
	"errors"
	"slices"

	"github.com/IBM/sarama"

	"highwater/conformance/harness"
)

func init() {
	harness.Scenario("newest-versions", newestVersions)
	harness.Scenario("admin-topics", adminTopics)
	harness.Scenario("admin-cluster", adminCluster)
	harness.Scenario("admin-configs", adminConfigs)
	harness.Scenario("admin-groups", adminGroups)
	harness.Scenario("admin-group-offsets", adminGroupOffsets)
	harness.Scenario("admin-delete-records", adminDeleteRecords)
	harness.Scenario("admin-log-dirs", adminLogDirs)
}

func ten(topic string) {
	records := make([]harness.Record, 10)
	for i := range records {
		records[i].Value = []byte{byte('0' + i)}
	}
	harness.MustProduce(client{}, topic, records, harness.ProduceOptions{})
}

// newestVersions: sarama takes its versions from a setting, not from what the broker offers.
func newestVersions(harness.Client) {
	config := config()
	config.Version = sarama.MaxVersion
	config.Producer.Return.Successes = true
	opened, err := sarama.NewClient(harness.Bootstrap, config)
	harness.Must(err)
	defer opened.Close()
	topic := harness.MakeTopic(client{}, "newest", 1)
	producer, err := sarama.NewSyncProducerFromClient(opened)
	harness.Must(err)
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder("v")})
	harness.Must(err)
	consumer, err := sarama.NewConsumerFromClient(opened)
	harness.Must(err)
	reader, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	harness.Must(err)
	harness.Equal(string((<-reader.Messages()).Value), "v", "what came back")
	harness.Must(reader.Close())
}

func adminTopics(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		topic := harness.Name("managed")
		detail := &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: int16(harness.Replicas)}
		harness.Must(admin.CreateTopic(topic, detail, false))
		err := admin.CreateTopic(topic, detail, false)
		harness.Check(errors.Is(err, sarama.ErrTopicAlreadyExists), "a second creation: %v", err)
		harness.Must(admin.CreatePartitions(topic, 4, nil, false))
		partitions := func() any {
			described, err := admin.DescribeTopics([]string{topic})
			harness.Must(err)
			return len(described[0].Partitions)
		}
		harness.Eventually(partitions, 4, "partitions")
		harness.Must(admin.DeleteTopic(topic))
		listed := func() any {
			topics, err := admin.ListTopics()
			harness.Must(err)
			_, still := topics[topic]
			return still
		}
		harness.Eventually(listed, false, "the deleted topic is listed")
	})
}

func adminCluster(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		brokers, controller, err := admin.DescribeCluster()
		harness.Must(err)
		harness.Equal(len(brokers), harness.Brokers, "brokers")
		isController := func(broker *sarama.Broker) bool { return broker.ID() == controller }
		harness.Check(slices.ContainsFunc(brokers, isController), "the controller %d is no broker", controller)
	})
}

func adminConfigs(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		topic, value := harness.MakeTopic(client{}, "configured", 1), "77000"
		read := func(key string) string {
			resource := sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{key}}
			entries, err := admin.DescribeConfig(resource)
			harness.Must(err)
			harness.Equal(len(entries), 1, "entries of one key")
			return entries[0].Value
		}
		set := map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value},
		}
		harness.Must(admin.IncrementalAlterConfig(sarama.TopicResource, topic, set, false))
		harness.Eventually(func() any { return read("retention.ms") }, "77000", "retention.ms")
		harness.Eventually(func() any { return read("segment.ms") }, "604800000", "segment.ms")
		harness.Must(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{}, false))
		harness.Eventually(func() any { return read("retention.ms") }, "604800000", "retention.ms after the whole set was replaced")
	})
}

func adminGroups(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		topic, group := harness.MakeTopic(client{}, "grouped", 2), harness.Name("group")
		running := client{}.Member(topic, group, harness.MemberOptions{})
		owned := func() bool { return len(running.Owned()) == 2 }
		harness.WaitUntil(owned, func() string { return "the member owns both partitions" })
		listed, err := admin.ListConsumerGroups()
		harness.Must(err)
		harness.Equal(listed[group], "consumer", "the type in the list")
		described, err := admin.DescribeConsumerGroups([]string{group})
		harness.Must(err)
		harness.Equal(described[0].State, "Stable", "the state")
		err = admin.DeleteConsumerGroup(group)
		harness.Check(errors.Is(err, sarama.ErrNonEmptyGroup), "deleting a group in use: %v", err)
		running.Close()
		harness.Must(admin.DeleteConsumerGroup(group))
		err = admin.DeleteConsumerGroup(group)
		harness.Check(errors.Is(err, sarama.ErrGroupIDNotFound), "a second deletion: %v", err)
	})
}

func adminGroupOffsets(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		topic, group := harness.MakeTopic(client{}, "moved", 1), harness.Name("group")
		ten(topic)
		client{}.Commit(group, topic, 0, 4, "")
		running := client{}.Member(topic, group, harness.MemberOptions{})
		read := func() bool { return len(running.Seen()) == 6 }
		harness.WaitUntil(read, func() string { return "the six records from offset 4 on" })
		running.Close()
		harness.Must(admin.DeleteConsumerGroupOffset(group, topic, 0))
		offset, _ := client{}.Committed(group, topic, 0)
		harness.Equal(offset, -1, "the offset after its deletion")
	})
}

func adminDeleteRecords(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		topic := harness.MakeTopic(client{}, "cut", 1)
		ten(topic)
		harness.Must(admin.DeleteRecords(topic, map[int32]int64{0: 4}))
		begin, end := client{}.Ends(topic, 0)
		harness.Equal([]int64{begin, end}, []int64{4, 10}, "begin and end")
		harness.Equal(string(client{}.Consume(topic, 6, -2)[0].Value), "4", "the first record")
	})
}

func adminLogDirs(harness.Client) {
	withAdmin(func(admin sarama.ClusterAdmin) {
		topic := harness.MakeTopic(client{}, "sized", 1)
		ten(topic)
		brokers, _, err := admin.DescribeCluster()
		harness.Must(err)
		answer, err := admin.DescribeLogDirs([]int32{brokers[0].ID()})
		harness.Must(err)
		size := int64(0)
		for _, folder := range answer[brokers[0].ID()] {
			for _, found := range folder.Topics {
				if found.Topic == topic {
					size += found.Partitions[0].Size
				}
			}
		}
		harness.Check(size > 60, "ten records take %d bytes", size)
	})
}
