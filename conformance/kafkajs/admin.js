// kafkajs's admin client.
'use strict'

const assert = require('node:assert')
const { ConfigResourceTypes } = require('kafkajs')
const { consume, makeTopic, produce, startMember, withAdmin } = require('./client')
const { BROKERS, REPLICAS, errorOf, eventually, name, scenario, waitUntil } = require('./harness')

scenario('admin-topics', () =>
  withAdmin(async admin => {
    const topic = name('managed')
    const topics = [{ topic, numPartitions: 2, replicationFactor: REPLICAS }]
    assert.strictEqual(await admin.createTopics({ topics }), true)
    assert.strictEqual(await admin.createTopics({ topics }), false, 'a second creation succeeded')
    await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
    const metadata = () => admin.fetchTopicMetadata({ topics: [topic] })
    await eventually(async () => (await metadata()).topics[0].partitions.length, 4, 'partitions')
    assert.ok((await admin.listTopics()).includes(topic))
    await admin.deleteTopics({ topics: [topic] })
    await eventually(async () => (await admin.listTopics()).includes(topic), false, 'the deleted topic is listed')
  }))

scenario('admin-cluster', () =>
  withAdmin(async admin => {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    assert.strictEqual(brokers.length, BROKERS)
    assert.ok(brokers.some(({ nodeId }) => nodeId === controller), `${controller} is no broker`)
    assert.ok(clusterId)
  }))

scenario('admin-configs', () =>
  withAdmin(async admin => {
    const topic = await makeTopic('configured')
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
    const value = async key => {
      const answer = await admin.describeConfigs({ resources: [resource], includeSynonyms: true })
      return answer.resources[0].configEntries.find(entry => entry.configName === key).configValue
    }
    const configEntries = [{ name: 'retention.ms', value: '77000' }]
    await admin.alterConfigs({ resources: [{ ...resource, configEntries }] })
    await eventually(() => value('retention.ms'), '77000', 'retention.ms')
    assert.strictEqual(await value('segment.ms'), '604800000')
    await admin.alterConfigs({ resources: [{ ...resource, configEntries: [] }] })
    await eventually(() => value('retention.ms'), '604800000', 'retention.ms after the whole set was replaced')
  }))

scenario('admin-groups', () =>
  withAdmin(async admin => {
    const [topic, group] = [await makeTopic('grouped', 2), name('group')]
    const member = await startMember(topic, group)
    await waitUntil(() => member.owned().size === 2, () => 'the member owns both partitions')
    assert.ok((await admin.listGroups()).groups.some(({ groupId }) => groupId === group))
    const { groups } = await admin.describeGroups([group])
    assert.strictEqual(groups[0].state, 'Stable')
    assert.strictEqual(groups[0].members.length, 1)
    assert.strictEqual(await errorOf(() => admin.deleteGroups([group])), 'KafkaJSDeleteGroupsError')
    await member.close()
    await admin.deleteGroups([group])
    assert.ok(!(await admin.listGroups()).groups.some(({ groupId }) => groupId === group))
  }))

scenario('admin-group-offsets', () =>
  withAdmin(async admin => {
    const [topic, groupId] = [await makeTopic('moved'), name('group')]
    await produce(topic, Array.from({ length: 10 }, (_, i) => ({ value: `${i}` })))
    await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '4' }] })
    const member = await startMember(topic, groupId)
    await waitUntil(() => member.seen().length === 6, () => 'the six messages from offset 4 on')
    await member.close()
    await admin.resetOffsets({ groupId, topic, earliest: true })
    const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic], resolveOffsets: true })
    assert.strictEqual(partitions[0].offset, '0')
  }))

scenario('admin-delete-records', () =>
  withAdmin(async admin => {
    const topic = await makeTopic('cut')
    await produce(topic, Array.from({ length: 10 }, (_, i) => ({ value: `${i}` })))
    // Without a look at the topic before, this client does not know who leads it.
    await admin.fetchTopicOffsets(topic)
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '4' }] })
    const [{ low, high }] = await admin.fetchTopicOffsets(topic)
    assert.deepStrictEqual([low, high], ['4', '10'])
    assert.strictEqual(String((await consume(topic, 6))[0].value), '4')
  }))
