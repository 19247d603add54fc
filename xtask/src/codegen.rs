//! `cargo xt codegen`: Rust for Kafka's messages, out of the schemas in the official jar.
//!
//! Read [`schema`] first (what a message is), then [`emit`] (what becomes of it).

mod kafka_jar;

/// Options of `cargo xt codegen`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Only say whether the committed files are what would be written
    #[arg(long)]
    check: bool,
}

/// Writes (or checks) the generated files.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let jar = kafka_jar::fetch()?;
    for name in ["FetchRequest"] {
        let text = kafka_jar::schema(&jar, name)?;
        println!("{name}: {} {}", arguments.check, text.len());
    }
    Ok(())
}
