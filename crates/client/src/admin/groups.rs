//! Groups: listing, describing, deleting, and their offsets.

use super::{Admin, Each, each};
use crate::cluster::CoordinatorKind;
use crate::error::{ClientError, check};
use crate::offsets::{self, CommittedOffset, Committer, FoundOffset, OffsetSpec};
use model::{ErrorCode, TopicPartition};
use std::collections::HashMap;
use wire::describe_groups::DescribedGroup;
use wire::list_groups::ListedGroup;
use wire::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use wire::{
    ConsumerGroupDescribeRequest, DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest,
    OffsetDeleteRequest, consumer_group_describe,
};

impl Admin {
    /// All groups of the cluster. While a broker still reads its log of groups, all brokers are asked again.
    pub async fn list_groups(&self) -> Result<Vec<ListedGroup>, ClientError> {
        self.cluster.retry(|| self.list_groups_once()).await
    }

    async fn list_groups_once(&self) -> Result<Vec<ListedGroup>, ClientError> {
        let mut out = Vec::new();
        for (broker, response) in self.call_all(&ListGroupsRequest::default()).await? {
            check(response.error(), None, || format!("listing the groups of broker {broker}"))?;
            out.extend(response.groups);
        }
        out.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        Ok(out)
    }

    /// A classic group: its state and its members.
    pub async fn describe_group(&self, group_id: &str) -> Result<DescribedGroup, ClientError> {
        let request =
            DescribeGroupsRequest { groups: vec![group_id.to_owned()], ..Default::default() };
        let error = |r: &wire::DescribeGroupsResponse| {
            r.groups.first().map_or(ErrorCode::None, DescribedGroup::error)
        };
        let kind = CoordinatorKind::Group;
        let response = self.cluster.call_coordinator(kind, group_id, &request, error).await?;
        let group = response.groups.into_iter().next();
        let group = group.ok_or_else(|| super::missing("an answer"))?;
        check(group.error(), group.error_message.as_deref(), || format!("group {group_id}"))?;
        Ok(group)
    }

    /// A group of the new protocol (KIP-848).
    pub async fn describe_consumer_group(
        &self,
        group_id: &str,
    ) -> Result<consumer_group_describe::DescribedGroup, ClientError> {
        let group_ids = vec![group_id.to_owned()];
        let request = ConsumerGroupDescribeRequest { group_ids, ..Default::default() };
        let error = |r: &wire::ConsumerGroupDescribeResponse| {
            r.groups.first().map_or(ErrorCode::None, |group| group.error())
        };
        let kind = CoordinatorKind::Group;
        let response = self.cluster.call_coordinator(kind, group_id, &request, error).await?;
        let group = response.groups.into_iter().next();
        let group = group.ok_or_else(|| super::missing("an answer"))?;
        check(group.error(), group.error_message.as_deref(), || format!("group {group_id}"))?;
        Ok(group)
    }

    /// Deletes groups that have no members, and their offsets.
    pub async fn delete_groups(&self, group_ids: &[&str]) -> Result<Each<()>, ClientError> {
        let mut out = Vec::new();
        for group_id in group_ids {
            let groups_names = vec![(*group_id).to_owned()];
            let request = DeleteGroupsRequest { groups_names };
            let error = |r: &wire::DeleteGroupsResponse| {
                r.results.first().map_or(ErrorCode::None, |result| result.error())
            };
            let kind = CoordinatorKind::Group;
            let response = self.cluster.call_coordinator(kind, group_id, &request, error).await?;
            out.extend(
                response
                    .results
                    .iter()
                    .map(|r| each(r.group_id.clone(), r.error(), r.error_message.as_deref(), ())),
            );
        }
        Ok(out)
    }

    /// What a group has committed.
    pub async fn group_offsets(
        &self,
        group_id: &str,
    ) -> Result<HashMap<TopicPartition, CommittedOffset>, ClientError> {
        offsets::committed_offsets(&self.cluster, group_id, None).await
    }

    /// Sets offsets of a group that has no members.
    pub async fn alter_group_offsets(
        &self,
        group_id: &str,
        offsets: &HashMap<TopicPartition, CommittedOffset>,
    ) -> Result<Each<()>, ClientError> {
        let administrator = Committer::administrator();
        let answers =
            offsets::commit_offsets(&self.cluster, group_id, &administrator, offsets).await?;
        let row = |(p, code): (TopicPartition, ErrorCode)| each(p.to_string(), code, None, ());
        Ok(answers.into_iter().map(row).collect())
    }

    /// Makes a group forget offsets of topics that it does not read now.
    pub async fn delete_group_offsets(
        &self,
        group_id: &str,
        partitions: &[TopicPartition],
    ) -> Result<Each<()>, ClientError> {
        let partition = |partition_index| OffsetDeleteRequestPartition { partition_index };
        let topic = |(name, indexes): (String, Vec<i32>)| OffsetDeleteRequestTopic {
            name,
            partitions: indexes.into_iter().map(partition).collect(),
        };
        let topics = Admin::by_topic(partitions).into_iter().map(topic).collect();
        let request = OffsetDeleteRequest { group_id: group_id.to_owned(), topics };
        let kind = CoordinatorKind::Group;
        let error = |r: &wire::OffsetDeleteResponse| r.error();
        let response = self.cluster.call_coordinator(kind, group_id, &request, error).await?;
        check(response.error(), None, || format!("offsets of group {group_id}"))?;
        let rows = response.topics.iter().flat_map(|t| {
            let name = |index| TopicPartition::new(&*t.name, index).to_string();
            t.partitions.iter().map(move |p| each(name(p.partition_index), p.error(), None, ()))
        });
        Ok(rows.collect())
    }

    /// Looks offsets of partitions up: first, last, or by time.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetSpec)],
    ) -> Result<HashMap<TopicPartition, FoundOffset>, ClientError> {
        offsets::list_offsets(&self.cluster, wanted, false).await
    }
}
