//! A command as a shell reads it: what is printed can be copied and pasted.

use std::path::{Path, PathBuf};

/// Words as one command for a POSIX shell.
pub fn command(words: &[&str]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// What to type to run this very program from any folder: the bare name that was typed, if `PATH` leads to it,
/// or its path.
pub fn this_program(typed: Option<&str>, program: &Path, path: &str) -> String {
    let leads_here = |name: &&str| {
        let found = std::env::split_paths(path).map(|folder| folder.join(name));
        let found: Option<PathBuf> = found.into_iter().find(|file| file.is_file());
        !name.contains('/')
            && found.and_then(|file| file.canonicalize().ok()) == program.canonicalize().ok()
    };
    typed.filter(leads_here).map_or_else(|| program.display().to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        let words = ["highwater", "start", "/data/broker-1/server.properties"];
        assert_eq!(command(&words), "highwater start /data/broker-1/server.properties");
        assert_eq!(command(&["a b", "it's", "", "$x", "ä"]), r"'a b' 'it'\''s' '' '$x' ä");
        assert_eq!(command(&["~/x", "a*"]), "'~/x' 'a*'");
    }

    #[test]
    fn a_bare_name_is_kept_where_it_leads_to_this_program() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let program = folder.path().join("highwater");
        std::fs::write(&program, "").unwrap();
        let (here, there) = (folder.path().to_str().unwrap(), other.path().to_str().unwrap());
        let path = format!("{there}:{here}");
        assert_eq!(this_program(Some("highwater"), &program, &path), "highwater");
        let whole = program.to_str().unwrap();
        assert_eq!(this_program(Some("highwater"), &program, there), whole);
        assert_eq!(this_program(Some("./highwater"), &program, &path), whole);
        assert_eq!(this_program(None, &program, &path), whole);
        std::fs::write(other.path().join("highwater"), "").unwrap();
        assert_eq!(this_program(Some("highwater"), &program, &path), whole, "another one");
    }
}
