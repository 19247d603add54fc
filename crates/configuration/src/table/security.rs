//! Authentication, authorization and encryption. Facts only: what the broker makes of a value is
//! in `broker_config`.

use super::SECURE;
use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::string("authorizer.class.name", "")
        .refused("there is no authorizer yet, and to ignore one would open the cluster")
        .doc("Decides who may do what."),
    Key::list("config.providers", "")
        .cluster_wide()
        .refused("values are never read from elsewhere")
        .doc("Java classes that resolve references inside values."),
    Key::long("delegation.token.expiry.check.interval.ms", "3600000")
        .at_least(1)
        .ignored(SECURE)
        .doc("How often expired delegation tokens are removed."),
    Key::long("delegation.token.expiry.time.ms", "86400000")
        .at_least(1)
        .ignored(SECURE)
        .doc("How long a delegation token is valid before it is renewed."),
    Key::long("delegation.token.max.lifetime.ms", "604800000")
        .at_least(1)
        .ignored(SECURE)
        .doc("How long a delegation token can be renewed."),
    Key::null("delegation.token.secret.key", Kind::Password)
        .ignored(SECURE)
        .doc("The secret that signs delegation tokens."),
    Key::class(
        "principal.builder.class",
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    )
    .per_broker()
    .refused("a principal builder is a Java class, which Highwater cannot load")
    .doc("Makes a user's name of what the connection proved."),
    Key::null("security.providers", Kind::String)
        .ignored(SECURE)
        .doc("Java classes that provide algorithms."),
    Key::null("sasl.client.callback.handler.class", Kind::Class)
        .ignored(SECURE)
        .doc("Java class that answers callbacks of the broker's own logins."),
    Key::list("sasl.enabled.mechanisms", "GSSAPI")
        .per_broker()
        .ignored(SECURE)
        .doc("SASL mechanisms that clients may use."),
    Key::null("sasl.jaas.config", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("The broker's login in JAAS's format."),
    Key::string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit")
        .per_broker()
        .ignored(SECURE)
        .doc("Where kinit is."),
    Key::long("sasl.kerberos.min.time.before.relogin", "60000")
        .per_broker()
        .ignored(SECURE)
        .doc("Shortest pause between two renewals of a Kerberos ticket."),
    Key::list("sasl.kerberos.principal.to.local.rules", "DEFAULT")
        .per_broker()
        .ignored(SECURE)
        .doc("Rules that make short names of Kerberos principals."),
    Key::null("sasl.kerberos.service.name", Kind::String)
        .per_broker()
        .ignored(SECURE)
        .doc("The Kerberos service name of the brokers."),
    Key::double("sasl.kerberos.ticket.renew.jitter", "0.05")
        .per_broker()
        .ignored(SECURE)
        .doc("Random part of the time at which a ticket is renewed."),
    Key::double("sasl.kerberos.ticket.renew.window.factor", "0.8")
        .per_broker()
        .ignored(SECURE)
        .doc("Part of a ticket's life after which it is renewed."),
    Key::null("sasl.login.callback.handler.class", Kind::Class)
        .ignored(SECURE)
        .doc("Java class that answers callbacks of a login."),
    Key::null("sasl.login.class", Kind::Class).ignored(SECURE).doc("Java class that logs in."),
    Key::null("sasl.login.connect.timeout.ms", Kind::Int)
        .ignored(SECURE)
        .doc("How long the connection to an identity provider may take."),
    Key::null("sasl.login.read.timeout.ms", Kind::Int)
        .ignored(SECURE)
        .doc("How long the answer of an identity provider may take."),
    Key::short("sasl.login.refresh.buffer.seconds", "300")
        .per_broker()
        .ignored(SECURE)
        .doc("Time that must be left of a credential when it is renewed."),
    Key::short("sasl.login.refresh.min.period.seconds", "60")
        .per_broker()
        .ignored(SECURE)
        .doc("Shortest pause between two renewals of a credential."),
    Key::double("sasl.login.refresh.window.factor", "0.8")
        .per_broker()
        .ignored(SECURE)
        .doc("Part of a credential's life after which it is renewed."),
    Key::double("sasl.login.refresh.window.jitter", "0.05")
        .per_broker()
        .ignored(SECURE)
        .doc("Random part of that time."),
    Key::long("sasl.login.retry.backoff.max.ms", "10000")
        .ignored(SECURE)
        .doc("Longest pause between tries to log in."),
    Key::long("sasl.login.retry.backoff.ms", "100")
        .ignored(SECURE)
        .doc("First pause between tries to log in."),
    Key::string("sasl.mechanism.controller.protocol", "GSSAPI")
        .ignored(SECURE)
        .doc("SASL mechanism towards controllers."),
    Key::string("sasl.mechanism.inter.broker.protocol", "GSSAPI")
        .per_broker()
        .ignored(SECURE)
        .doc("SASL mechanism between brokers."),
    Key::string("sasl.oauthbearer.assertion.algorithm", "RS256")
        .one_of_any_case(&["ES256", "RS256"])
        .ignored(SECURE)
        .doc("Algorithm that signs the assertion sent to the identity provider."),
    Key::null("sasl.oauthbearer.assertion.claim.aud", Kind::String)
        .ignored(SECURE)
        .doc("Audience in the assertion."),
    Key::int("sasl.oauthbearer.assertion.claim.exp.seconds", "300")
        .between(0, 86400)
        .ignored(SECURE)
        .doc("How far ahead the assertion expires."),
    Key::null("sasl.oauthbearer.assertion.claim.iss", Kind::String)
        .ignored(SECURE)
        .doc("Issuer in the assertion."),
    Key::boolean("sasl.oauthbearer.assertion.claim.jti.include", "false")
        .ignored(SECURE)
        .doc("Whether the assertion has an id of its own."),
    Key::int("sasl.oauthbearer.assertion.claim.nbf.seconds", "60")
        .between(0, 3600)
        .ignored(SECURE)
        .doc("How far back the assertion begins to be valid."),
    Key::null("sasl.oauthbearer.assertion.claim.sub", Kind::String)
        .ignored(SECURE)
        .doc("Subject in the assertion."),
    Key::null("sasl.oauthbearer.assertion.file", Kind::String)
        .ignored(SECURE)
        .doc("File with a ready-made assertion."),
    Key::null("sasl.oauthbearer.assertion.private.key.file", Kind::String)
        .ignored(SECURE)
        .doc("File with the key that signs the assertion."),
    Key::null("sasl.oauthbearer.assertion.private.key.passphrase", Kind::Password)
        .ignored(SECURE)
        .doc("Passphrase of that key."),
    Key::null("sasl.oauthbearer.assertion.template.file", Kind::String)
        .ignored(SECURE)
        .doc("File with headers and claims for the assertion."),
    Key::null("sasl.oauthbearer.client.credentials.client.id", Kind::String)
        .ignored(SECURE)
        .doc("The broker's id at the identity provider."),
    Key::null("sasl.oauthbearer.client.credentials.client.secret", Kind::Password)
        .ignored(SECURE)
        .doc("The broker's secret at the identity provider."),
    Key::int("sasl.oauthbearer.clock.skew.seconds", "30")
        .ignored(SECURE)
        .doc("Difference between clocks that is forgiven when a token is checked."),
    Key::list("sasl.oauthbearer.expected.audience", "")
        .ignored(SECURE)
        .doc("Audiences of which a token must name one."),
    Key::null("sasl.oauthbearer.expected.issuer", Kind::String)
        .ignored(SECURE)
        .doc("Issuer that a token must name."),
    Key::long("sasl.oauthbearer.jwks.endpoint.refresh.ms", "3600000")
        .ignored(SECURE)
        .doc("How often the identity provider's keys are read again."),
    Key::long("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", "10000")
        .ignored(SECURE)
        .doc("Longest pause between tries to read those keys."),
    Key::long("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "100")
        .ignored(SECURE)
        .doc("First pause between tries to read those keys."),
    Key::null("sasl.oauthbearer.jwks.endpoint.url", Kind::String)
        .ignored(SECURE)
        .doc("Where those keys are read."),
    Key::class(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
    )
    .ignored(SECURE)
    .doc("Java class that gets tokens."),
    Key::class(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
    )
    .ignored(SECURE)
    .doc("Java class that checks tokens."),
    Key::null("sasl.oauthbearer.scope", Kind::String)
        .ignored(SECURE)
        .doc("Scope that is asked of the identity provider."),
    Key::string("sasl.oauthbearer.scope.claim.name", "scope")
        .ignored(SECURE)
        .doc("The claim that holds the scope."),
    Key::string("sasl.oauthbearer.sub.claim.name", "sub")
        .ignored(SECURE)
        .doc("The claim that holds the subject."),
    Key::null("sasl.oauthbearer.token.endpoint.url", Kind::String)
        .ignored(SECURE)
        .doc("Where tokens are asked for."),
    Key::null("sasl.server.callback.handler.class", Kind::Class)
        .ignored(SECURE)
        .doc("Java class that answers callbacks when clients log in."),
    Key::int("sasl.server.max.receive.size", "524288")
        .ignored(SECURE)
        .doc("Largest message that is read before a client has logged in."),
    Key::boolean("ssl.allow.dn.changes", "false")
        .ignored(SECURE)
        .doc("Whether a new certificate may have another subject."),
    Key::boolean("ssl.allow.san.changes", "false")
        .ignored(SECURE)
        .doc("Whether a new certificate may have other alternative names."),
    Key::list("ssl.cipher.suites", "")
        .per_broker()
        .ignored(SECURE)
        .doc("Cipher suites that may be used; none named: all."),
    Key::string("ssl.client.auth", "none")
        .one_of(&["required", "requested", "none"])
        .per_broker()
        .ignored(SECURE)
        .doc("Whether clients must, may or need not show a certificate."),
    Key::list("ssl.enabled.protocols", "TLSv1.2,TLSv1.3")
        .per_broker()
        .ignored(SECURE)
        .doc("TLS versions that may be used."),
    Key::string("ssl.endpoint.identification.algorithm", "https")
        .per_broker()
        .ignored(SECURE)
        .doc("How a server's name is checked against its certificate; empty: not at all."),
    Key::null("ssl.engine.factory.class", Kind::Class)
        .per_broker()
        .ignored(SECURE)
        .doc("Java class that makes TLS engines."),
    Key::null("ssl.key.password", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("Password of the private key."),
    Key::string("ssl.keymanager.algorithm", "SunX509")
        .per_broker()
        .ignored(SECURE)
        .doc("Algorithm that manages keys."),
    Key::null("ssl.keystore.certificate.chain", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("The certificate chain itself, in PEM."),
    Key::null("ssl.keystore.key", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("The private key itself, in PEM."),
    Key::null("ssl.keystore.location", Kind::String)
        .per_broker()
        .ignored(SECURE)
        .doc("File with the private key and its certificates."),
    Key::null("ssl.keystore.password", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("Password of that file."),
    Key::string("ssl.keystore.type", "JKS")
        .per_broker()
        .ignored(SECURE)
        .doc("Format of that file."),
    Key::string("ssl.principal.mapping.rules", "DEFAULT")
        .ignored(SECURE)
        .doc("Rules that make short names of certificate subjects."),
    Key::string("ssl.protocol", "TLSv1.3")
        .per_broker()
        .ignored(SECURE)
        .doc("TLS version that is offered."),
    Key::null("ssl.provider", Kind::String)
        .per_broker()
        .ignored(SECURE)
        .doc("Java provider of TLS."),
    Key::null("ssl.secure.random.implementation", Kind::String)
        .per_broker()
        .ignored(SECURE)
        .doc("Source of randomness for TLS."),
    Key::string("ssl.trustmanager.algorithm", "PKIX")
        .per_broker()
        .ignored(SECURE)
        .doc("Algorithm that decides which certificates to trust."),
    Key::null("ssl.truststore.certificates", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("Trusted certificates themselves, in PEM."),
    Key::null("ssl.truststore.location", Kind::String)
        .per_broker()
        .ignored(SECURE)
        .doc("File with the trusted certificates."),
    Key::null("ssl.truststore.password", Kind::Password)
        .per_broker()
        .ignored(SECURE)
        .doc("Password of that file."),
    Key::string("ssl.truststore.type", "JKS")
        .per_broker()
        .ignored(SECURE)
        .doc("Format of that file."),
];
