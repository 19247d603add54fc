//! `sasl.jaas.config`: a login module, a control flag and options, in the grammar that Kafka's Java clients read
//! (`java.io.StreamTokenizer` with both kinds of comments, and `-`, `_`, `$` in words). Not here: which modules there are.

use super::secret::Secret;
use std::collections::HashMap;
use std::iter::Peekable;
use std::str::Chars;

/// Longer texts are refused unread, in bytes.
const LENGTH_MAX: usize = 64 * 1024;

/// One login, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The class of the login module.
    pub module: String,
    /// The module's options; their values may be passwords.
    pub options: HashMap<String, Secret>,
}

/// Why a text is none. Shows names of options, never values.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JaasError {
    /// Longer than any login.
    #[error("longer than {LENGTH_MAX} bytes")]
    TooLong,
    /// No module.
    #[error("the login module is missing: write MODULE required username=\"…\" password=\"…\";")]
    NoModule,
    /// No control flag, or another word.
    #[error(
        "the login module must be followed by required, requisite, sufficient or optional, without quotes"
    )]
    NoFlag,
    /// An option whose value is missing or cannot be read.
    #[error(
        "option {0} has no value: write {0}=\"…\"; a value that begins with a digit needs the quotes"
    )]
    NoValue(String),
    /// Something that is not an option.
    #[error("after {0}: expected the name of an option, or a semicolon")]
    NoOption(String),
    /// The end is missing.
    #[error("the semicolon at the end is missing")]
    NoEnd,
    /// More logins than one.
    #[error("there are several login modules; a client has one")]
    Several,
}

/// Reads a login.
///
/// # Errors
/// The text has another form, or more than one login.
pub fn parse(text: &str) -> Result<Login, JaasError> {
    if text.len() > LENGTH_MAX {
        return Err(JaasError::TooLong);
    }
    let mut tokens = Tokens(text.chars().peekable());
    let Token::Word(module) = tokens.next() else { return Err(JaasError::NoModule) };
    let flags = ["required", "requisite", "sufficient", "optional"];
    match tokens.next() {
        Token::Word(flag) if flags.iter().any(|known| flag.eq_ignore_ascii_case(known)) => {}
        _ => return Err(JaasError::NoFlag),
    }
    let mut options = HashMap::new();
    let mut last = "the control flag".to_owned();
    loop {
        let name = match tokens.next() {
            Token::Word(name) => name,
            Token::Other(';') => break,
            Token::End => return Err(JaasError::NoEnd),
            Token::Other(_) | Token::Number => return Err(JaasError::NoOption(last)),
        };
        match (tokens.next(), tokens.next()) {
            (Token::Other('='), Token::Word(value)) => {
                options.insert(name.clone(), Secret::new(&value));
            }
            _ => return Err(JaasError::NoValue(name)),
        }
        last = format!("option {name}");
    }
    match tokens.next() {
        Token::End => Ok(Login { module, options }),
        _ => Err(JaasError::Several),
    }
}

#[derive(Debug, PartialEq)]
enum Token {
    /// A word, or a text in quotes.
    Word(String),
    /// Java's tokenizer reads it as a number and keeps no text of it.
    Number,
    Other(char),
    End,
}

/// What begins a number, and may stand within a word.
fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '.' | '-')
}

/// What begins a word. From 160 on every character does.
fn is_word(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$') || u32::from(c) >= 160
}

struct Tokens<'a>(Peekable<Chars<'a>>);

impl Tokens<'_> {
    fn next(&mut self) -> Token {
        loop {
            let Some(c) = self.0.next() else { return Token::End };
            match c {
                '/' => self.skip_comment(),
                '"' | '\'' => return Token::Word(self.quoted(c)),
                _ if c <= ' ' => {}
                _ if is_numeric(c) => return self.number(c),
                _ if is_word(c) => return Token::Word(self.word(c)),
                _ => return Token::Other(c),
            }
        }
    }

    fn word(&mut self, first: char) -> String {
        let mut word = String::from(first);
        while let Some(c) = self.0.next_if(|c| is_word(*c) || is_numeric(*c)) {
            word.push(c);
        }
        word
    }

    /// Digits with one point at most; a minus that nothing follows is itself.
    fn number(&mut self, first: char) -> Token {
        let (mut digits, mut points) = (first.is_ascii_digit(), first == '.');
        while let Some(c) = self.0.next_if(|c| c.is_ascii_digit() || *c == '.' && !points) {
            digits |= c.is_ascii_digit();
            points |= c == '.';
        }
        if digits || points { Token::Number } else { Token::Other(first) }
    }

    /// A slash begins a comment in any case: to the end of the line, or `/* … */`.
    fn skip_comment(&mut self) {
        if self.0.next_if_eq(&'*').is_some() {
            while let Some(c) = self.0.next() {
                if c == '*' && self.0.next_if_eq(&'/').is_some() {
                    return;
                }
            }
            return;
        }
        while self.0.next_if(|c| !matches!(c, '\n' | '\r')).is_some() {}
    }

    /// Ends with the quote, with the line, or with the text; a backslash begins an escape of C's.
    fn quoted(&mut self, quote: char) -> String {
        let mut text = String::new();
        while let Some(c) = self.0.next_if(|c| !matches!(c, '\n' | '\r')) {
            match c {
                _ if c == quote => break,
                '\\' => text.extend(self.escaped()),
                _ => text.push(c),
            }
        }
        text
    }

    fn escaped(&mut self) -> Option<char> {
        let c = self.0.next()?;
        Some(match c {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '0'..='7' => self.octal(c),
            _ => c,
        })
    }

    /// Up to three digits, of which the first is 3 at most then: 255 is the largest.
    fn octal(&mut self, first: char) -> char {
        let digit = |c: char| c as u8 - b'0';
        let mut value = digit(first);
        let more = if first <= '3' { 2 } else { 1 };
        for _ in 0..more {
            let Some(c) = self.0.next_if(|c| matches!(c, '0'..='7')) else { break };
            value = value * 8 + digit(c);
        }
        char::from(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Vec<(String, String)> {
        let login = parse(text).unwrap();
        let mut options: Vec<_> =
            login.options.iter().map(|(k, v)| (k.clone(), v.reveal().to_owned())).collect();
        options.sort();
        options
    }

    fn one(value: &str) -> String {
        options(&format!("M required p={value};")).remove(0).1
    }

    #[test]
    fn a_login_has_a_module_and_options() {
        let text = "org.apache.kafka.common.security.scram.ScramLoginModule required \
                    username=\"alice\" password='it is \"secret\"' ;";
        assert_eq!(
            parse(text).unwrap().module,
            "org.apache.kafka.common.security.scram.ScramLoginModule"
        );
        let expected = [("password", "it is \"secret\""), ("username", "alice")];
        assert_eq!(options(text), expected.map(|(k, v)| (k.to_owned(), v.to_owned())));
        assert_eq!(options("M REQUIRED;"), []);
    }

    /// What OpenJDK's StreamTokenizer makes of it, set up as Kafka does.
    #[test]
    fn quotes_escapes_and_comments_are_javas() {
        for (written, read) in [
            (r#""a\"b""#, "a\"b"),
            (r#""a\\b""#, "a\\b"),
            (r#""\101\1012\377\400""#, "AA2\u{ff} 0"),
            (r#""\t\q""#, "\tq"),
            ("\"a;b=c\"", "a;b=c"),
            ("\"größe 密\"", "größe 密"),
            ("/* a ; */ word // rest ;\n", "word"),
            ("'/* no comment */'", "/* no comment */"),
            ("a.b-c_d$1", "a.b-c_d$1"),
            ("\"\"", ""),
        ] {
            assert_eq!(one(written), read, "{written}");
        }
    }

    #[test]
    fn what_is_no_login_says_why_and_shows_no_value() {
        let cases = [
            ("", JaasError::NoModule),
            ("/* only a comment", JaasError::NoModule),
            ("M", JaasError::NoFlag),
            ("M perhaps a=b;", JaasError::NoFlag),
            ("M required a=b", JaasError::NoEnd),
            ("M required password=123secret;", JaasError::NoValue("password".into())),
            ("M required password;", JaasError::NoValue("password".into())),
            ("M required password=;", JaasError::NoValue("password".into())),
            ("M required password=-;", JaasError::NoValue("password".into())),
            ("M required a=b , c=d;", JaasError::NoOption("option a".into())),
            ("M required a=b; N required;", JaasError::Several),
        ];
        for (text, error) in cases {
            assert_eq!(parse(text), Err(error), "{text}");
        }
        // A lone slash begins a comment, as in Java: the end is in it.
        assert_eq!(parse("M required p=a/b;"), Err(JaasError::NoEnd));
        assert_eq!(parse(&" ".repeat(LENGTH_MAX + 1)), Err(JaasError::TooLong));
    }

    #[test]
    fn a_login_hides_its_passwords() {
        let login = parse("M required username=alice password=opensesame;").unwrap();
        let shown = format!("{login:?}");
        assert!(shown.contains("password") && !shown.contains("opensesame"), "{shown}");
    }
}
