//! Topics that are made, deleted and made again under the same names, on a disk that has no room now and then, with kills and power
//! failures: what was acknowledged of a topic that is wanted is there, and nothing else is under its name (C1, C12, S15).

use super::deleting::folders_of;
use super::*;

/// A name, what has it, and what was acknowledged of that.
struct Topic {
    name: TopicPartition,
    id: Option<TopicId>,
    partition: Option<Arc<Partition>>,
    /// Records that were acknowledged.
    end: i64,
    /// How often it was made so far.
    made: u8,
}

struct Life {
    random: fastrand::Rng,
    disk: SimDisk,
    logs: Logs,
    topics: Vec<Topic>,
    /// What was left undone when a process ended is a stray, or was put aside.
    may_leave_strays: bool,
    image_index: u64,
    what: String,
}

fn begin(disk: &SimDisk, topics: &[Topic], image_index: u64, what: &str) -> Logs {
    let logs = start(disk, &["data"]).unwrap_or_else(|cause| panic!("{what}: {cause}"));
    let wanted = topics.iter().filter_map(|topic| {
        let partition = topic.name.partition;
        topic.id.map(|topic_id| (Key { topic_id, partition }, topic.name.clone()))
    });
    let partitions = wanted.collect();
    let assigned = Assigned { partitions, image_index: Some(image_index), log_dirs: Vec::new() };
    logs.settle(assigned).unwrap_or_else(|cause| panic!("{what}: {cause}"));
    logs
}

impl Life {
    fn new(seed: u64) -> Life {
        let topic = |number| Topic {
            name: TopicPartition::new("t", number),
            id: None,
            partition: None,
            end: 0,
            made: 0,
        };
        let (disk, topics) = (SimDisk::new(), vec![topic(0), topic(1)]);
        let logs = begin(&disk, &topics, 1, "at first");
        Life {
            random: fastrand::Rng::with_seed(seed),
            disk,
            logs,
            topics,
            may_leave_strays: false,
            image_index: 1,
            what: format!("seed {seed}"),
        }
    }

    fn step(&mut self) {
        let at = self.random.usize(..self.topics.len());
        let chosen = self.random.u8(..12);
        self.what = format!("{}, {chosen}({at})", self.what);
        match chosen {
            0 | 1 => self.make(at),
            2 | 3 => self.append(at),
            4 | 5 => self.delete(at),
            6 => self.logs.empty_trash(&mut |_| true),
            7 => self.logs.checkpoint(NOW),
            8 => self.logs.sync_journals(),
            9 => self.fail_soon(),
            10 => self.begin_again(),
            _ => self.open_again(),
        }
        if !self.logs.offline().is_empty() {
            self.begin_again();
        }
    }

    /// One of the next operations finds no room.
    fn fail_soon(&mut self) {
        let errno = if self.random.bool() { Errno::NOSPC } else { Errno::DQUOT };
        let at = self.disk.operation_count() + self.random.u64(..5);
        self.disk.fail_at(at, errno);
    }

    fn make(&mut self, at: usize) {
        if self.topics[at].id.is_some() {
            return;
        }
        let topic = &mut self.topics[at];
        topic.made += 1;
        // Some come back as the same one: a replica that left.
        let number = if self.random.u8(..3) == 0 { 1 } else { topic.made };
        topic.id = Some(Uuid([at as u8 * 64 + number; 16]));
        self.image_index += 1;
        self.open(at);
    }

    fn open(&mut self, at: usize) {
        let topic = &self.topics[at];
        let (Some(topic_id), None) = (topic.id, &topic.partition) else { return };
        let wanted = Wanted {
            name: topic.name.clone(),
            topic_id,
            config: Arc::default(),
            durability: Durability::Fsync,
            epoch: LeaderEpoch(1),
        };
        let opened = match self.logs.open(&[wanted], self.image_index, 1, NOW).remove(0) {
            Ok(opened) => opened,
            Err(cause) => {
                let is_told = cause.is_full() || !self.logs.offline().is_empty();
                assert!(is_told, "{}: {cause}", self.what);
                return;
            }
        };
        let (settings, queue) = (Arc::new(Settings::default()), opened.sync_queue);
        let name = topic.name.clone();
        let high = opened.high_watermark;
        let partition = Partition::new(name, topic_id, ME, opened.log, settings, high, queue);
        self.logs.register(&partition);
        partition.assign(Assignment::alone(ME, LeaderEpoch(1)), Moment::START);
        self.check(at, &partition);
        self.topics[at].partition = Some(partition);
    }

    /// That all is there that was acknowledged, and nothing of another topic.
    fn check(&self, at: usize, partition: &Partition) {
        let topic = &self.topics[at];
        let (_, end) = ends(partition);
        assert!(end >= topic.end, "{}: {end} of {} records", self.what, topic.end);
        let dir = PathBuf::from(format!("data/{}", topic.name));
        let id = topic.id.unwrap().0[0];
        for name in self.disk.list(&dir).unwrap().iter().filter(|name| name.ends_with(".log")) {
            let bytes = self.disk.read(&dir.join(name)).unwrap();
            let others = bytes.windows(3).filter(|three| three.starts_with(b"<<"));
            let others = others.filter(|three| three[2] != id).count();
            assert_eq!(others, 0, "{}: records of another topic", self.what);
        }
    }

    fn append(&mut self, at: usize) {
        let Some(partition) = self.topics[at].partition.clone() else { return };
        let id = self.topics[at].id.unwrap().0[0];
        let mut batch = BatchBuilder::new();
        batch.add(NOW, None, Some(&[b'<', b'<', id]));
        let how = Append { acks: Acks::All, now: NOW, internal: false };
        if let Err(cause) = partition.append(&mut batch.finish(), how) {
            if let PartitionError::Storage(cause) = cause
                && cause.is_fatal()
            {
                self.logs.fail(&partition, &cause);
            }
            return;
        }
        let Some(sync) = partition.begin_sync(Urgency::Now) else { return };
        match sync.run() {
            Ok(Some(synced)) => {
                self.topics[at].end = synced.up_to.0;
                self.logs.note_synced(0, &[(partition, synced)]);
            }
            Ok(None) => {}
            Err(cause) => self.logs.fail(&partition, &cause),
        }
    }

    fn delete(&mut self, at: usize) {
        let topic = &mut self.topics[at];
        let Some(topic_id) = topic.id.take() else { return };
        topic.end = 0;
        if let Some(partition) = topic.partition.take() {
            partition.mark_deleted();
        }
        self.image_index += 1;
        let delay_ms = if self.random.bool() { 0 } else { 3_600_000 };
        self.logs.delete(&[Gone { topic_id, name: topic.name.clone(), delay_ms }]);
    }

    fn open_again(&mut self) {
        (0..self.topics.len()).for_each(|at| self.open(at));
    }

    /// The process is killed, or the power fails, and there is another one.
    fn begin_again(&mut self) {
        self.may_leave_strays |=
            !self.logs.offline().is_empty() || !self.logs.undeleted.lock().is_empty();
        self.disk = match self.random.u64(..3) {
            0 => self.disk.snapshot(),
            crash => self.disk.after_crash(crash),
        };
        self.topics.iter_mut().for_each(|topic| topic.partition = None);
        self.logs = begin(&self.disk, &self.topics, self.image_index, &self.what);
        self.open_again();
    }

    /// In the end there is room, and everything is done that was left.
    fn end(mut self) {
        self.begin_again();
        for _ in 0..2 {
            self.logs.empty_trash(&mut |_| true);
            self.open_again();
        }
        for at in 0..self.topics.len() {
            let topic = &self.topics[at];
            assert_eq!(topic.partition.is_some(), topic.id.is_some(), "{}", self.what);
            let partition = topic.partition.clone();
            partition.inspect(|partition| self.check(at, partition));
        }
        if !self.may_leave_strays {
            let live = self.topics.iter().filter(|topic| topic.id.is_some());
            let live: Vec<String> = live.map(|topic| topic.name.to_string()).collect();
            let has_records = |name: &String| {
                let files = self.disk.list(&Path::new("data").join(name)).unwrap();
                files.iter().any(|file| file.ends_with(".log"))
            };
            let is_stray = |name: &String| {
                !live.contains(name) && !name.ends_with("-delete") && has_records(name)
            };
            let strays: Vec<String> =
                folders_of(&self.disk, "t-").into_iter().filter(is_stray).collect();
            assert_eq!(strays, Vec::<String>::new(), "{}", self.what);
        }
    }
}

#[test]
fn names_that_are_used_again_and_again_keep_what_was_acknowledged() {
    for seed in 0..400 {
        let mut life = Life::new(seed);
        (0..60).for_each(|_| life.step());
        life.end();
    }
}
