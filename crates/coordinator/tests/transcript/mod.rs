//! A transcript's host: holds the log, commits what is appended, and prints what comes out.

mod command;
mod print;

use std::collections::BTreeMap;

use coordinator::records::Record;
use coordinator::{
    Effects, Event, GroupConfig, Loader, RecordBytes, ReplyTo, Request, Shard, WriteId,
};
use model::{ErrorCode, Timestamp, TopicId};

use command::Arguments;

/// One run. Time begins at 0.
struct Host {
    config: GroupConfig,
    now: Timestamp,
    shard: Option<Shard>,
    /// What is committed.
    log: Vec<RecordBytes>,
    /// What is appended and not committed.
    tail: Vec<(WriteId, Vec<RecordBytes>)>,
    /// Appends are committed at once unless the transcript says `hold`.
    is_holding: bool,
    requests: u64,
    /// Requests without an answer.
    open: BTreeMap<ReplyTo, ()>,
    out: String,
}

/// What the transcript looks like when its commands are run anew.
pub fn run(text: &str) -> String {
    let mut host = Host {
        config: GroupConfig::default(),
        now: Timestamp(0),
        shard: None,
        log: Vec::new(),
        tail: Vec::new(),
        is_holding: false,
        requests: 0,
        open: BTreeMap::new(),
        out: String::new(),
    };
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("> ") {
            host.out.push_str(line);
            host.out.push('\n');
            host.command(command);
        } else if line.is_empty() || line.starts_with('#') {
            host.out.push_str(line);
            host.out.push('\n');
        }
    }
    host.out
}

impl Host {
    fn command(&mut self, line: &str) {
        let arguments = Arguments::parse(line);
        match arguments.name() {
            "config" => self.configure(&arguments),
            "wait" => self.wait(arguments.number(0)),
            "hold" => self.is_holding = true,
            "release" => {
                self.is_holding = false;
                self.commit_all();
            }
            "committed" => self.commit_first(),
            "fail" => self.fail(&arguments),
            "restart" => {
                self.unload();
                self.configure(&arguments);
                self.load();
            }
            "topics-deleted" => {
                let topics = arguments.rest(0).map(|name| (name.into(), TopicId::ZERO)).collect();
                self.step(Event::TopicsDeleted { topics });
            }
            _ => {
                self.requests += 1;
                let request = command::request(&arguments, self.requests);
                self.request(request);
            }
        }
    }

    fn say(&mut self, line: &str) {
        self.out.push_str(&command::shorten(line));
        self.out.push('\n');
    }

    fn configure(&mut self, arguments: &Arguments<'_>) {
        assert!(self.shard.is_none(), "a shard keeps its configuration");
        let config = &mut self.config;
        for (name, value) in arguments.named() {
            let number: i64 = value.parse().expect("a number");
            match name {
                "group_size_max" => config.group_size_max = number as usize,
                "initial_rebalance_delay_ms" => config.initial_rebalance_delay_ms = number,
                "offset_metadata_length_max" => {
                    config.offset_metadata_length_max = number as usize;
                }
                "offsets_retention_ms" => config.offsets_retention_ms = number,
                "offsets_retention_check_interval_ms" => {
                    config.offsets_retention_check_interval_ms = number;
                }
                "new_member_join_timeout_ms" => config.new_member_join_timeout_ms = number,
                other => panic!("no configuration {other}"),
            }
        }
    }

    fn shard(&mut self) -> &mut Shard {
        let (config, now) = (&self.config, self.now);
        self.shard.get_or_insert_with(|| Shard::new(config.clone(), now))
    }

    fn request(&mut self, request: Request) {
        let reply_to = ReplyTo(self.requests);
        self.open.insert(reply_to, ());
        self.step(Event::Request { reply_to, request });
        if self.open.contains_key(&reply_to) {
            self.say(&format!("  [{}] waits", reply_to.0));
        }
    }

    fn step(&mut self, event: Event) {
        let mut effects = Effects::default();
        let now = self.now;
        self.shard().step(now, event, &mut effects);
        self.shard().assert_consistent();
        self.carry_out(effects);
        if !self.is_holding {
            self.commit_all();
        }
    }

    fn carry_out(&mut self, effects: Effects) {
        for reply in effects.replies {
            assert!(self.open.remove(&reply.to).is_some(), "{:?} was answered before", reply.to);
            let text = print::response(&reply.response);
            self.say(&format!("  [{}] {text}", reply.to.0));
        }
        for write in effects.writes {
            for record in &write.records {
                let decoded = Record::decode(&record.key, record.value.as_deref());
                let decoded =
                    decoded.expect("it is well-formed").expect("it is of a classic group");
                self.say(&format!("  append {}: {}", write.id.0, print::record(&decoded)));
            }
            self.tail.push((write.id, write.records));
        }
    }

    fn commit_all(&mut self) {
        while !self.tail.is_empty() {
            self.commit_first();
        }
    }

    fn commit_first(&mut self) {
        assert!(!self.tail.is_empty(), "nothing is on its way");
        let (write, records) = self.tail.remove(0);
        self.log.extend(records);
        let was_holding = std::mem::replace(&mut self.is_holding, true);
        self.step(Event::Committed { write });
        self.is_holding = was_holding;
    }

    fn fail(&mut self, arguments: &Arguments<'_>) {
        let error = (-1..=136).filter_map(ErrorCode::from_code);
        let error = error.into_iter().find(|error| error.name() == arguments.word(0));
        let (from, _) = self.tail.first().expect("something is on its way").clone();
        self.tail.clear();
        self.step(Event::AppendFailed { from, error: error.expect("an error's name") });
    }

    /// Goes on to a later time, through all deadlines on the way.
    fn wait(&mut self, ms: i64) {
        let target = self.now.plus_ms(ms);
        while let Some(deadline) = self.shard().next_deadline().filter(|time| *time <= target) {
            self.now = self.now.max(deadline);
            let before = self.out.len();
            self.step(Event::Expire);
            let said = self.out.split_off(before);
            if !said.is_empty() {
                self.say(&format!("  at {} ms:", self.now.0));
                self.out.push_str(&said);
            }
        }
        self.now = target;
    }

    /// This broker does not lead any more.
    fn unload(&mut self) {
        let mut effects = Effects::default();
        self.shard.take().expect("there is a shard").unload(&mut effects);
        self.tail.clear();
        self.carry_out(effects);
        assert!(self.open.is_empty(), "{:?} were never answered", self.open);
    }

    /// Another one takes over: only what is committed is still there.
    fn load(&mut self) {
        let mut loader = Loader::new(self.config.clone());
        for record in &self.log {
            loader.replay(&record.key, record.value.as_deref()).expect("we wrote it");
        }
        let (shard, effects) = loader.finish(self.now, |_, _| Default::default());
        shard.assert_consistent();
        self.shard = Some(shard);
        self.carry_out(effects);
    }
}
