//! `cargo xt size`: the largest crates of the shipped program, by the symbols of an unstripped build, and its sections.
//!
//! A symbol belongs to the first crate in its name that is not of the standard library. Generic code of the standard
//! library whose name has no other crate counts as `std`, although other crates instantiate it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use peer::process;

use crate::dist;
use crate::highwater;

/// Longest time of one program of binutils.
const LIMIT: Duration = Duration::from_secs(120);
/// Smallest section in the report, in bytes.
const SECTION_BYTES_MIN: u64 = 10_000;
/// Crates of the standard library, with crates of its own.
const STANDARD: [&str; 9] = [
    "core",
    "alloc",
    "std",
    "addr2line",
    "gimli",
    "miniz_oxide",
    "rustc_demangle",
    "object",
    "compiler_builtins",
];
/// Prefixes of symbols in C and assembly.
const FOREIGN: [(&str, &str); 8] = [
    ("ZSTD", "zstd-sys"),
    ("HUF_", "zstd-sys"),
    ("FSE_", "zstd-sys"),
    ("HIST_", "zstd-sys"),
    ("mi_", "libmimalloc-sys"),
    ("_mi_", "libmimalloc-sys"),
    ("ring_core", "ring"),
    ("x25519", "ring"),
];

/// `cargo xt size`
#[derive(Debug, Args)]
pub struct Arguments {
    /// An unstripped program [default: a static build for this processor, as cargo xt dist builds it]
    #[arg(long)]
    binary: Option<PathBuf>,
    /// Crates in the report
    #[arg(long, default_value_t = 10)]
    count: usize,
}

/// Prints the report.
pub fn run(arguments: &Arguments) -> Result<()> {
    let binary = match &arguments.binary {
        Some(path) => path.clone(),
        None => dist::unstripped_binary(&highwater::target_folder())?,
    };
    let bytes = fs::metadata(&binary).with_context(|| binary.display().to_string())?.len();
    println!("{}: {bytes} bytes with symbols", binary.display());
    let sections = output_of("size", &["-A", "-d"], &binary)?;
    let sections = sections_of(&sections);
    let loaded: u64 = sections.values().sum();
    println!("\n{:>12}  section ({loaded} bytes without symbols)", "bytes");
    print_largest(&sections, usize::MAX, loaded, SECTION_BYTES_MIN);
    let symbols = output_of("nm", &["--defined-only", "--print-size", "--radix=d"], &binary)?;
    let crates = crates_of(&symbols);
    ensure!(!crates.is_empty(), "{} has no symbols; name an unstripped program", binary.display());
    println!("\n{:>12}  crate (code and data with symbols)", "bytes");
    print_largest(&crates, arguments.count, loaded, 0);
    Ok(())
}

/// Standard output of a program of binutils about the binary.
fn output_of(program: &str, arguments: &[&str], binary: &Path) -> Result<String> {
    let outcome = process::run(process::command(program).args(arguments).arg(binary), None, LIMIT)?;
    ensure!(outcome.success(), "{program} of binutils: {}", outcome.story());
    Ok(outcome.text())
}

/// Prints at most `count` entries of at least `least` bytes, the largest first, with their share of `whole`.
fn print_largest(sizes: &BTreeMap<String, u64>, count: usize, whole: u64, least: u64) {
    let mut sorted: Vec<(&String, &u64)> =
        sizes.iter().filter(|(_, size)| **size >= least).collect();
    sorted.sort_by_key(|(_, size)| std::cmp::Reverse(**size));
    for (name, size) in sorted.into_iter().take(count) {
        let permille = size * 1000 / whole.max(1);
        println!("{size:>12}  {name}, {}.{} %", permille / 10, permille % 10);
    }
}

/// Sizes of the sections that a stripped program keeps, from the output of `size -A`.
fn sections_of(text: &str) -> BTreeMap<String, u64> {
    let section = |line: &str| {
        let mut words = line.split_whitespace();
        let (name, size, address) = (words.next()?, words.next()?, words.next()?);
        // Sections without an address hold symbols and debug information; .bss is not in the file.
        let is_kept = name.starts_with('.') && address != "0" && !name.starts_with(".bss");
        is_kept.then_some((name.to_owned(), size.parse().ok()?))
    };
    text.lines().filter_map(section).collect()
}

/// Bytes of each crate, from the output of `nm`: address, size, kind and name in each line.
fn crates_of(text: &str) -> BTreeMap<String, u64> {
    // Several names of one address are one function: the linker or the compiler merged equal code.
    let mut at_address: HashMap<&str, (u64, String)> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, size, kind, name] = words[..] else { continue };
        let Ok(size) = size.parse::<u64>() else { continue };
        if !"bB".contains(kind) {
            at_address.entry(address).or_insert_with(|| (size, crate_of(name)));
        }
    }
    let mut sizes = BTreeMap::new();
    for (size, name) in at_address.into_values() {
        *sizes.entry(name).or_default() += size;
    }
    sizes
}

/// The crate of a symbol in the compiler's legacy mangling; `std` or `C` if its name has none.
fn crate_of(symbol: &str) -> String {
    let Some(path) = symbol.strip_prefix("_ZN") else {
        let known = FOREIGN.iter().find(|(prefix, _)| symbol.starts_with(prefix));
        let fallback = if symbol.starts_with("_R") { "std" } else { "C" };
        return known.map_or(fallback, |(_, name)| name).to_owned();
    };
    let names = path_starts(&demangled(path));
    names.into_iter().find(|name| !STANDARD.contains(&&**name)).unwrap_or_else(|| "std".to_owned())
}

/// A legacy path without lengths and escapes.
fn demangled(mut path: &str) -> String {
    let mut parts = Vec::new();
    while let Some(digits) = path.find(|it: char| !it.is_ascii_digit()) {
        let Ok(length) = path[..digits].parse::<usize>() else { break };
        let Some(part) = path.get(digits..digits + length) else { break };
        parts.push(part.trim_start_matches('_'));
        path = &path[digits + length..];
    }
    let mut text = parts.join("::").replace("..", "::");
    for (escape, character) in [
        ("$LT$", "<"),
        ("$GT$", ">"),
        ("$RF$", "&"),
        ("$BP$", "*"),
        ("$C$", ","),
        ("$u20$", " "),
        ("$LP$", "("),
        ("$RP$", ")"),
    ] {
        text = text.replace(escape, character);
    }
    text
}

/// The first name of each path in a type or function name.
fn path_starts(text: &str) -> Vec<String> {
    let is_name = |it: char| it.is_alphanumeric() || it == '_';
    let mut starts = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_name) {
        let is_inner = rest[..begin].ends_with("::");
        let name = &rest[begin..];
        let end = name.find(|it| !is_name(it)).unwrap_or(name.len());
        if !is_inner && name[end..].starts_with("::") {
            starts.push(name[..end].to_owned());
        }
        rest = &name[end..];
    }
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_belongs_to_the_first_crate_outside_the_standard_library() {
        for (symbol, name) in [
            (
                "_ZN12regex_syntax3ast7visitor7Visitor15visit_concat_in17h0d4adbf6c0d36e14E",
                "regex_syntax",
            ),
            (
                "_ZN4core3ptr56drop_in_place$LT$client..producer..queue..QueueState$GT$17h9afcf1863bd94ad7E",
                "client",
            ),
            ("_ZN4core4iter6traits8iterator8Iterator5chain17hb2426319eab548bbE", "std"),
            (
                "_ZN111_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$alloc..vec..spec_from_iter_nested..SpecFromIterNested$LT$T$C$I$GT$$GT$9from_iter17hd346cdb11a4e8d84E",
                "std",
            ),
            (
                "_ZN70_$LT$charming..Chart$u20$as$u20$serde_core..ser..Serialize$GT$9serialize17h0d4adbf6c0d36e14E",
                "charming",
            ),
            ("ZSTD_compressBlock_btopt", "zstd-sys"),
            ("memcpy", "C"),
        ] {
            assert_eq!(crate_of(symbol), name, "{symbol}");
        }
    }

    #[test]
    fn merged_functions_count_once_and_zeroed_memory_not_at_all() {
        let text = "100 8 t _ZN6client3oneE\n100 8 t _ZN6client3twoE\n108 4 T _ZN4wire5threeE\n\
                    200 4096 b _ZN4wire4zeroE\n300 T no_size\n";
        let expected = [("client".to_owned(), 8), ("wire".to_owned(), 4)];
        assert_eq!(crates_of(text), BTreeMap::from(expected));
    }

    #[test]
    fn sections_are_those_that_a_program_is_loaded_from() {
        let text = "highwater  :\nsection size addr\n.text 500 4096\n.bss 70 8192\n.symtab 900 0\nTotal 1470\n";
        assert_eq!(sections_of(text), BTreeMap::from([(".text".to_owned(), 500)]));
    }
}
