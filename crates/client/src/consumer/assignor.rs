//! Who of a group reads what, as Kafka's assignors of the same names decide. Pure: members and
//! partition counts in, assignments out.

use std::collections::BTreeMap;

/// A way to share partitions out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignor {
    /// Topic by topic: each member gets a range of partitions.
    Range,
    /// Partition by partition, in turn.
    RoundRobin,
}

/// The partitions of a member: topics and partition numbers.
pub type Assigned = BTreeMap<String, Vec<i32>>;

/// A member of a group.
#[derive(Debug, Clone)]
pub struct Member {
    /// The member id.
    pub id: String,
    /// The static id, if it has one: it comes first in the order of members.
    pub instance_id: Option<String>,
    /// The topics that it reads.
    pub topics: Vec<String>,
}

impl Assignor {
    /// The name in the protocol and in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Assignor::Range => "range",
            Assignor::RoundRobin => "roundrobin",
        }
    }

    /// The assignor of this name.
    pub fn of_name(name: &str) -> Option<Assignor> {
        [Assignor::Range, Assignor::RoundRobin].into_iter().find(|a| a.name() == name)
    }

    /// Shares the partitions out: an entry for every member, in no particular order of members.
    /// Topics without an entry in `partition_counts` are left out.
    pub fn assign(
        self,
        members: &[Member],
        partition_counts: &BTreeMap<String, i32>,
    ) -> BTreeMap<String, Assigned> {
        let mut members: Vec<&Member> = members.iter().collect();
        // Static members by their static id, then the others by their member id.
        members.sort_by_key(|m| match &m.instance_id {
            Some(instance) => (0, instance.clone(), m.id.clone()),
            None => (1, m.id.clone(), String::new()),
        });
        let mut out: BTreeMap<String, Assigned> =
            members.iter().map(|m| (m.id.clone(), Assigned::new())).collect();
        match self {
            Assignor::Range => assign_ranges(&members, partition_counts, &mut out),
            Assignor::RoundRobin => assign_in_turn(&members, partition_counts, &mut out),
        }
        out
    }
}

fn give(out: &mut BTreeMap<String, Assigned>, member: &Member, topic: &str, partition: i32) {
    let assigned = out.get_mut(&member.id).expect("every member has an entry");
    assigned.entry(topic.to_owned()).or_default().push(partition);
}

fn reads(member: &Member, topic: &str) -> bool {
    member.topics.iter().any(|t| t == topic)
}

fn assign_ranges(
    members: &[&Member],
    partition_counts: &BTreeMap<String, i32>,
    out: &mut BTreeMap<String, Assigned>,
) {
    for (topic, count) in partition_counts {
        let readers: Vec<_> = members.iter().filter(|m| reads(m, topic)).collect();
        if readers.is_empty() {
            continue;
        }
        let share = count / readers.len() as i32;
        let extra = count % readers.len() as i32;
        let mut next = 0;
        for (i, member) in readers.iter().enumerate() {
            let size = share + (i as i32).lt(&extra) as i32;
            (next..next + size).for_each(|partition| give(out, member, topic, partition));
            next += size;
        }
    }
}

fn assign_in_turn(
    members: &[&Member],
    partition_counts: &BTreeMap<String, i32>,
    out: &mut BTreeMap<String, Assigned>,
) {
    let mut turn = 0;
    for (topic, count) in partition_counts {
        if !members.iter().any(|m| reads(m, topic)) {
            continue;
        }
        for partition in 0..*count {
            while !reads(members[turn % members.len()], topic) {
                turn += 1;
            }
            give(out, members[turn % members.len()], topic, partition);
            turn += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: &str, topics: &[&str]) -> Member {
        let topics = topics.iter().map(|t| (*t).to_owned()).collect();
        Member { id: id.to_owned(), instance_id: None, topics }
    }

    fn counts(topics: &[(&str, i32)]) -> BTreeMap<String, i32> {
        topics.iter().map(|(t, n)| ((*t).to_owned(), *n)).collect()
    }

    /// `member: topic partition…; …` in the order of the members.
    fn text(assignments: &BTreeMap<String, Assigned>) -> String {
        let member = |(id, assigned): (&String, &Assigned)| {
            let topics: Vec<_> = assigned.iter().map(|(t, p)| format!("{t}{p:?}")).collect();
            format!("{id}: {}", topics.join(" "))
        };
        assignments.iter().map(member).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn ranges_are_cut_for_each_topic() {
        let members = [member("b", &["t", "u"]), member("a", &["t", "u"])];
        let assigned = Assignor::Range.assign(&members, &counts(&[("t", 3), ("u", 3)]));
        assert_eq!(text(&assigned), "a: t[0, 1] u[0, 1]; b: t[2] u[2]");
    }

    #[test]
    fn turns_go_on_from_topic_to_topic() {
        let members = [member("b", &["t", "u"]), member("a", &["t", "u"])];
        let assigned = Assignor::RoundRobin.assign(&members, &counts(&[("t", 3), ("u", 3)]));
        assert_eq!(text(&assigned), "a: t[0, 2] u[1]; b: t[1] u[0, 2]");
    }

    #[test]
    fn who_does_not_read_a_topic_gets_none_of_it() {
        let members = [member("a", &["t"]), member("b", &["u"]), member("c", &["t", "u"])];
        for assignor in [Assignor::Range, Assignor::RoundRobin] {
            let assigned = assignor.assign(&members, &counts(&[("t", 2), ("u", 2), ("x", 9)]));
            assert!(!assigned["a"].contains_key("u") && !assigned["b"].contains_key("t"));
            let given: usize = assigned.values().flat_map(|a| a.values()).map(Vec::len).sum();
            assert_eq!(given, 4, "{assignor:?}");
        }
    }

    #[test]
    fn static_members_come_first() {
        let mut fixed = member("z", &["t"]);
        fixed.instance_id = Some("node-1".to_owned());
        let assigned = Assignor::Range.assign(&[member("a", &["t"]), fixed], &counts(&[("t", 3)]));
        assert_eq!(text(&assigned), "a: t[2]; z: t[0, 1]");
    }
}
