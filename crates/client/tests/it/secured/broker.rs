//! A broker that the test plays, on threads that block: TLS if it is given a server's configuration, a login if it is given
//! a user. Without the login it answers nothing but ApiVersions, as Kafka does.

use super::login::{Lie, Login};
use bytes::Bytes;
use model::ErrorCode;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use wire::api_versions::ApiVersion;
use wire::frame::{RequestHead, write_response};
use wire::metadata::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic};
use wire::{
    ApiKey, ApiVersionsResponse, MetadataRequest, MetadataResponse, Reader,
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
    Writer,
};

/// A user who may log in.
#[derive(Clone)]
pub struct User {
    pub mechanism: &'static str,
    pub password: String,
    pub lie: Lie,
    /// 0 for a session without end.
    pub session_ms: i64,
}

impl User {
    /// `alice`, with this mechanism.
    pub fn alice(mechanism: &'static str) -> User {
        User { mechanism, password: "opensesame".to_owned(), lie: Lie::None, session_ms: 0 }
    }
}

pub struct Broker {
    pub address: String,
    pub port: u16,
    tls: Option<Arc<ServerConfig>>,
    /// Who may log in; may change at any time.
    pub user: Mutex<Option<User>>,
    /// Logins that succeeded, and those that did not.
    pub logins: AtomicU32,
    pub failures: AtomicU32,
    /// Metadata requests.
    pub asked: AtomicU32,
    /// Whether connections are ended as they come.
    pub is_away: AtomicBool,
}

trait Bytewise: Read + Write {}
impl<T: Read + Write> Bytewise for T {}

impl Broker {
    pub fn start(tls: Option<Arc<ServerConfig>>, user: Option<User>) -> Arc<Broker> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let broker = Arc::new(Broker {
            address: format!("localhost:{port}"),
            port,
            tls,
            user: Mutex::new(user),
            logins: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            is_away: AtomicBool::new(false),
        });
        let serving = broker.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let broker = serving.clone();
                std::thread::spawn(move || broker.welcome(stream));
            }
        });
        broker
    }

    fn welcome(&self, tcp: TcpStream) {
        if self.is_away.load(Relaxed) {
            return;
        }
        let served = match &self.tls {
            None => self.serve(&mut { tcp }),
            Some(tls) => {
                let session = ServerConnection::new(tls.clone()).unwrap();
                self.serve(&mut StreamOwned::new(session, tcp))
            }
        };
        // The client is gone, or what it said is nothing that this broker answers.
        drop(served);
    }

    fn serve(&self, stream: &mut dyn Bytewise) -> std::io::Result<()> {
        let mut login: Option<Login> = None;
        let mut is_in = self.user.lock().unwrap().is_none();
        loop {
            let mut length = [0; 4];
            stream.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length) as usize;
            if length > 100 << 20 {
                return Ok(());
            }
            let mut frame = vec![0; length];
            stream.read_exact(&mut frame)?;
            let head = RequestHead::parse(&frame).map_err(std::io::Error::other)?;
            let (api, version, id) = (head.api_key, head.version, head.correlation_id);
            let mut reader = Reader::new(&frame[head.body_from..]);
            let mut writer = Writer::new();
            match api {
                ApiKey::ApiVersions => write_response(&mut writer, &versions(), api, version, id),
                ApiKey::SaslHandshake => {
                    let request = SaslHandshakeRequest::decode(&mut reader, version).unwrap();
                    let response = self.agree(&request, &mut login);
                    is_in = false;
                    write_response(&mut writer, &response, api, version, id)
                }
                ApiKey::SaslAuthenticate => {
                    let request = SaslAuthenticateRequest::decode(&mut reader, version).unwrap();
                    let Some(login) = &mut login else { return Ok(()) };
                    if login.lie == Lie::Silence {
                        // Until the client goes.
                        return stream.read_exact(&mut [0]);
                    }
                    let response = self.let_in(login, &request.auth_bytes, &mut is_in);
                    write_response(&mut writer, &response, api, version, id)
                }
                // Who is not logged in, or is logging in again, may ask for nothing else.
                _ if !is_in => return Ok(()),
                ApiKey::Metadata => {
                    self.asked.fetch_add(1, Relaxed);
                    let request = MetadataRequest::decode(&mut reader, version).unwrap();
                    write_response(&mut writer, &self.metadata(&request), api, version, id)
                }
                _ => return Ok(()),
            }
            .unwrap();
            stream.write_all(writer.bytes())?;
            stream.flush()?;
        }
    }

    fn agree(
        &self,
        request: &SaslHandshakeRequest,
        login: &mut Option<Login>,
    ) -> SaslHandshakeResponse {
        let user = self.user.lock().unwrap().clone();
        let code = match &user {
            None => ErrorCode::IllegalSaslState,
            Some(user) if user.mechanism != request.mechanism => {
                ErrorCode::UnsupportedSaslMechanism
            }
            Some(_) => ErrorCode::None,
        };
        let mechanisms = user.iter().map(|user| user.mechanism.to_owned()).collect();
        *login = user.map(|user| Login::new(user.mechanism, "alice", &user.password, user.lie));
        SaslHandshakeResponse { error_code: code.code(), mechanisms }
    }

    fn let_in(
        &self,
        login: &mut Login,
        message: &[u8],
        is_in: &mut bool,
    ) -> SaslAuthenticateResponse {
        match login.answer(message) {
            Ok((answer, is_last)) => {
                *is_in = is_last;
                self.logins.fetch_add(u32::from(is_last), Relaxed);
                let session_ms = self.user.lock().unwrap().as_ref().map_or(0, |u| u.session_ms);
                SaslAuthenticateResponse {
                    auth_bytes: Bytes::from(answer),
                    session_lifetime_ms: if is_last { session_ms } else { 0 },
                    ..Default::default()
                }
            }
            Err(words) => {
                self.failures.fetch_add(1, Relaxed);
                SaslAuthenticateResponse {
                    error_code: ErrorCode::SaslAuthenticationFailed.code(),
                    error_message: Some(words),
                    ..Default::default()
                }
            }
        }
    }

    /// Every topic has one partition, which this broker leads.
    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let (host, port) = ("localhost".to_owned(), i32::from(self.port));
        let partition = MetadataResponsePartition { leader_id: 1, ..Default::default() };
        let topics = request.topics.iter().flatten().map(|topic| MetadataResponseTopic {
            name: topic.name.clone(),
            partitions: vec![partition.clone()],
            ..Default::default()
        });
        MetadataResponse {
            brokers: vec![MetadataResponseBroker { node_id: 1, host, port, ..Default::default() }],
            controller_id: 1,
            topics: topics.collect(),
            ..Default::default()
        }
    }
}

fn versions() -> ApiVersionsResponse {
    let row = |api: ApiKey, max_version| ApiVersion {
        api_key: api.code(),
        min_version: api.min_version(),
        max_version,
    };
    let api_keys = vec![
        row(ApiKey::ApiVersions, ApiKey::ApiVersions.max_version()),
        row(ApiKey::SaslHandshake, 1),
        row(ApiKey::SaslAuthenticate, 2),
        row(ApiKey::Metadata, 9),
        row(ApiKey::Produce, 9),
    ];
    ApiVersionsResponse { api_keys, ..Default::default() }
}
