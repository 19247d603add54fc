//! Numbered records that a command-line tool sends for as long as brokers are killed, and what must be true of them
//! afterwards: what was acknowledged is there once, in order, and where the producer was told.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use peer::process::Guarded;

use super::scenario::Context;

/// How many partitions the topic has.
pub const PARTITIONS: u32 = 3;
/// How many records are sent.
pub const RECORDS: u32 = 3_500;
/// How many each second: all of them take long enough for three kills, one every ten seconds.
pub const PER_SECOND: u32 = 100;
/// How long sending may take, brokers that are away included.
pub const SEND_LIMIT: Duration = Duration::from_secs(150);
/// How long reading may take then.
const READ_LIMIT: Duration = Duration::from_secs(80);
/// How often a reader's output is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// A record's number, and its partition and offset if they were told.
pub type Told = (u32, Option<(u32, u64)>);

/// A record that a reader wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Read {
    /// Its partition.
    pub partition: u32,
    /// Its offset.
    pub offset: u64,
    /// Its value.
    pub number: u32,
}

impl Read {
    /// Of a line `PARTITION OFFSET NUMBER`, columns by any space, with words before the two first, such as
    /// `Partition:`.
    pub fn of(line: &str) -> Option<Read> {
        let mut columns = line.split_whitespace().map(|c| c.rsplit(':').next().unwrap_or(c));
        let read = Read {
            partition: columns.next()?.parse().ok()?,
            offset: columns.next()?.parse().ok()?,
            number: columns.next()?.parse().ok()?,
        };
        columns.next().is_none().then_some(read)
    }
}

/// Makes the topic, however often that has to be asked while brokers are away.
pub fn make_topic(context: &Context<'_>) -> Result<String> {
    let topic = context.name("restarted");
    let partitions = PARTITIONS.to_string();
    let make = ["--create", "--if-not-exists", "--topic", &topic, "--partitions", &partitions];
    let began = Instant::now();
    loop {
        let outcome = context.try_tool("kafka-topics", &make, b"")?;
        if outcome.success() {
            return Ok(topic);
        }
        ensure!(began.elapsed() < READ_LIMIT, "the topic cannot be made: {}", outcome.story());
    }
}

/// A tool that reads the topic from its beginning, alongside, into a file.
pub struct Reader {
    process: Guarded,
    output: std::path::PathBuf,
}

impl Reader {
    /// Starts it; it writes lines for [`Read::of`].
    pub fn start(context: &Context<'_>, mut tool: std::process::Command) -> Result<Reader> {
        let output = context.folder().join(context.name("read"));
        let file = fs::File::create(&output)?;
        tool.stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
        Ok(Reader { process: Guarded::spawn(&mut tool)?, output })
    }

    /// Waits until it has read every one of `told`, stops it, and checks all that it read. How many it read again.
    pub fn check(mut self, told: &[Told]) -> Result<usize> {
        let began = Instant::now();
        while missing(told, &read(&self.output)?).is_some() && began.elapsed() < READ_LIMIT {
            ensure!(self.process.is_running(), "the reader ended before it had read everything");
            thread::sleep(LOOK);
        }
        self.process.stop(LOOK * 25)?;
        judge(told, &read(&self.output)?)
    }
}

fn read(output: &Path) -> Result<Vec<Read>> {
    let text = fs::read_to_string(output)?;
    // The last line may not be whole yet.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| Read::of(line).with_context(|| format!("no record: {line}"))).collect()
}

/// The first that is not there.
fn missing(told: &[Told], found: &[Read]) -> Option<u32> {
    let there: BTreeSet<u32> = found.iter().map(|read| read.number).collect();
    told.iter().map(|(number, _)| *number).find(|number| !there.contains(number))
}

/// Checks what was found against what was told; says how many records were read more than once, from the same place.
pub fn judge(told: &[Told], found: &[Read]) -> Result<usize> {
    ensure!(told.len() > 100, "only {} records were acknowledged", told.len());
    let (mut places, mut numbers) = (BTreeMap::new(), BTreeMap::new());
    let mut last: BTreeMap<u32, u32> = BTreeMap::new();
    let mut again = 0;
    for read in found {
        let place = (read.partition, read.offset);
        if let Some(before) = places.insert(place, read.number) {
            ensure!(before == read.number, "{place:?} was {before}, and is {}", read.number);
            again += 1;
            continue;
        }
        if let Some(other) = numbers.insert(read.number, place) {
            anyhow::bail!("record {} is there twice: at {other:?} and {place:?}", read.number);
        }
        if let Some(before) = last.insert(read.partition, read.number) {
            ensure!(before < read.number, "{} is behind {before} at {place:?}", read.number);
        }
    }
    if let Some(number) = missing(told, found) {
        anyhow::bail!("record {number} was acknowledged and is lost");
    }
    for (number, place) in told {
        if let Some(place) = place {
            let at = places.get(place);
            ensure!(at == Some(number), "{place:?} is {at:?}, not {number}");
        }
    }
    Ok(again)
}

/// What is told more often than once, in few words.
pub fn tell(counted: &BTreeMap<String, usize>) -> String {
    let word = |(what, count): (&String, &usize)| match count {
        1 => what.clone(),
        _ => format!("{what} ({count})"),
    };
    let words: Vec<String> = counted.iter().map(word).collect();
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Vec<Told> {
        (0..300).map(|number| (number, Some((number % 3, u64::from(number / 3))))).collect()
    }

    fn found() -> Vec<Read> {
        let read = |(number, place): Told| {
            let (partition, offset) = place.unwrap();
            Read { partition, offset, number }
        };
        told().into_iter().map(read).collect()
    }

    #[test]
    fn lines_of_both_tools_are_read() {
        let wanted = Read { partition: 2, offset: 17, number: 5 };
        assert_eq!(Read::of("2 17 5"), Some(wanted));
        assert_eq!(Read::of("Partition:2\tOffset:17\t5"), Some(wanted));
        assert_eq!(Read::of("2 17"), None);
        assert_eq!(Read::of("2 17 5 6"), None);
    }

    #[test]
    fn everything_once_in_its_place_holds_and_may_be_read_again() {
        assert_eq!(judge(&told(), &found()).unwrap(), 0);
        let mut again = found();
        again.extend(found().split_off(200));
        assert_eq!(judge(&told(), &again).unwrap(), 100);
        let somewhere: Vec<Told> = told().into_iter().map(|(number, _)| (number, None)).collect();
        judge(&somewhere, &found()).unwrap();
    }

    #[test]
    fn lost_doubled_reordered_and_moved_records_are_found() {
        let fails = |change: &dyn Fn(&mut Vec<Read>), words: &str| {
            let mut found = found();
            change(&mut found);
            let failure = judge(&told(), &found).unwrap_err().to_string();
            assert!(failure.contains(words), "{failure}");
        };
        fails(
            &|found| found.retain(|read| read.number != 150),
            "record 150 was acknowledged and is lost",
        );
        fails(&|found| found.push(Read { partition: 0, offset: 999, number: 3 }), "there twice");
        fails(&|found| found.swap(0, 3), "is behind 3");
        fails(&|found| found[299].offset += 1, "is None, not 299");
        fails(&|found| found.push(Read { number: 7, ..found[0] }), "was 0, and is 7");
        let few = judge(&told()[..100], &found()).unwrap_err().to_string();
        assert!(few.contains("only 100"), "{few}");
    }
}
