//! What becomes of the keys, without a connection.

use super::*;
use std::collections::HashMap;

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required \
                     username=\"alice\" password=\"opensesame\";";

fn read(pairs: &[(&str, &str)]) -> Result<Security, InvalidSecurity> {
    let pairs: HashMap<&str, &str> = pairs.iter().copied().collect();
    Security::read(|key| pairs.get(key).copied())
}

fn refused(pairs: &[(&str, &str)]) -> String {
    let error = read(pairs).expect_err("these keys are refused").to_string();
    assert!(!error.contains("opensesame"), "{error}");
    error
}

/// A folder with a certificate, its key, and the key in a form with a password.
fn folder() -> (tempfile::TempDir, rcgen::CertifiedKey<rcgen::KeyPair>) {
    let folder = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = made.signing_key.serialize_pem();
    std::fs::write(folder.path().join("ca.pem"), made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("both.pem"), key.clone() + &made.cert.pem()).unwrap();
    std::fs::write(folder.path().join("key.pem"), &key).unwrap();
    let locked = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY") + &made.cert.pem();
    std::fs::write(folder.path().join("locked.pem"), locked).unwrap();
    std::fs::write(folder.path().join("store.jks"), [0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]).unwrap();
    (folder, made)
}

#[test]
fn the_protocol_says_what_is_read() {
    assert_eq!(read(&[]).unwrap().protocol(), "PLAINTEXT");
    // Kafka's clients read no key of a protocol that is not spoken.
    assert_eq!(read(&[("sasl.jaas.config", "nonsense")]).unwrap().protocol(), "PLAINTEXT");
    let login = [("sasl.mechanism", "PLAIN"), ("sasl.jaas.config", PLAIN)];
    let plain = read(&[login[0], login[1], ("security.protocol", "sasl_plaintext")]).unwrap();
    assert_eq!(plain.protocol(), "SASL_PLAINTEXT");
    let error = refused(&[("security.protocol", "TLS")]);
    assert!(error.starts_with("security.protocol: invalid \"TLS\""), "{error}");
}

#[test]
fn logins_are_refused_with_the_reason() {
    let with = |mechanism: &str, jaas: &str| {
        refused(&[
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", mechanism),
            ("sasl.jaas.config", jaas),
        ])
    };
    let kerberos =
        refused(&[("security.protocol", "SASL_SSL"), ("ssl.truststore.location", "/none")]);
    assert!(kerberos.contains("/none"), "{kerberos}");
    assert!(with("GSSAPI", PLAIN).contains("use PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"));
    assert!(with("OAUTHBEARER", PLAIN).contains("OAUTHBEARER is not spoken here"));
    assert!(with("PLAIN", "").contains("the login module is missing"));
    assert!(
        with("PLAIN", "com.example.Login required username=a password=opensesame;")
            .contains("PlainLoginModule")
    );
    let module = LOGIN_MODULES[1];
    assert!(
        with("SCRAM-SHA-512", &format!("{module} required username=a;"))
            .contains("password is missing")
    );
    let token = format!("{module} required username=a password=opensesame tokenauth=true;");
    assert!(with("SCRAM-SHA-512", &token).contains("delegation tokens"));
    let accents = format!("{module} required username=a password=\"öpensesame\";");
    assert!(with("SCRAM-SHA-256", &accents).contains("printable ASCII"));
    let class = refused(&[
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.login.callback.handler.class", "com.example.Handler"),
    ]);
    assert!(class.contains("a Java class cannot be loaded"), "{class}");
}

#[test]
fn stores_are_read_as_pem() {
    let (folder, made) = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let ssl = ("security.protocol", "SSL");
    let (ca, both) = (path("ca.pem"), path("both.pem"));
    let trust = ("ssl.truststore.location", ca.as_str());
    for kind in [None, Some(("ssl.truststore.type", "PEM"))] {
        let pairs: Vec<_> = [ssl, trust].into_iter().chain(kind).collect();
        assert_eq!(read(&pairs).unwrap().protocol(), "SSL");
    }
    assert!(read(&[ssl, trust, ("ssl.keystore.location", &both)]).is_ok());
    let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let inline = [
        ssl,
        ("ssl.truststore.certificates", certificate.as_str()),
        ("ssl.keystore.key", key.as_str()),
        ("ssl.keystore.certificate.chain", certificate.as_str()),
    ];
    assert!(read(&inline).is_ok());
    assert!(refused(&inline[..3]).contains("without a certificate"));
    assert!(refused(&[inline[0], inline[1], inline[3]]).contains("without a key"));
}

#[test]
fn stores_that_are_not_read_name_the_command_that_helps() {
    let (folder, _) = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let ssl = ("security.protocol", "SSL");
    let (jks, ca, key, locked) =
        (path("store.jks"), path("ca.pem"), path("key.pem"), path("locked.pem"));
    let trust = ("ssl.truststore.location", ca.as_str());
    for (pairs, words) in [
        (vec![("ssl.truststore.location", jks.as_str())], "keytool -list -rfc -keystore"),
        (vec![trust, ("ssl.truststore.type", "PKCS12")], "keytool -list -rfc -keystore"),
        (vec![trust, ("ssl.truststore.password", "opensesame")], "has no password"),
        (vec![("ssl.truststore.location", key.as_str())], "there is no certificate"),
        (vec![("ssl.truststore.location", "/there/is/none.pem")], "cannot read /there/is/none.pem"),
        (vec![("ssl.truststore.certificates", "-----BEGIN CERTIFICATE-----\nx")], "PEM"),
        (vec![trust, ("ssl.keystore.location", jks.as_str())], "openssl pkcs12 -in"),
        (vec![trust, ("ssl.keystore.location", locked.as_str())], "openssl pkey -in"),
        (vec![trust, ("ssl.keystore.location", key.as_str())], "there is no certificate"),
        (vec![trust, ("ssl.keystore.location", ca.as_str())], "there is no private key"),
        (vec![trust, ("ssl.enabled.protocols", "TLSv1.1")], "TLSv1.1 is not spoken"),
        (vec![trust, ("ssl.cipher.suites", "TLS_X")], "cipher suites are not chosen"),
        (vec![trust, ("ssl.endpoint.identification.algorithm", "dns")], "write https"),
    ] {
        let pairs: Vec<_> = std::iter::once(ssl).chain(pairs).collect();
        let error = refused(&pairs);
        assert!(error.contains(words), "{pairs:?}: {error}");
    }
}

#[test]
fn nothing_that_is_printed_shows_a_password_or_a_key() {
    let (folder, made) = folder();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let security = read(&[
        ("security.protocol", "SASL_SSL"),
        ("ssl.truststore.location", &path("ca.pem")),
        ("ssl.keystore.location", &path("both.pem")),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.jaas.config", PLAIN),
    ]);
    let connection = crate::ConnectionConfig { security: security.unwrap(), ..Default::default() };
    let config = crate::ClusterConfig { connection, ..crate::ClusterConfig::new("a:1") };
    let shown = format!("{config:?} {config:#?}");
    assert!(shown.contains("alice"), "{shown}");
    assert!(!shown.contains("opensesame"), "{shown}");
    let key = made.signing_key.serialize_pem();
    assert!(key.lines().all(|line| !shown.contains(line)), "{shown}");
}
