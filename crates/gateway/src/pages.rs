//! Pages that another room shows on the gateway's listener: a console. The gateway lets visitors in, keeps time and closes
//! connections; what a page shows is not its business.

use std::fmt::Debug;
use std::pin::Pin;

use bytes::Bytes;
use hyper::Response;

/// A page that is being made.
pub type Making<'a> = Pin<Box<dyn Future<Output = Response<Bytes>> + Send + 'a>>;

/// Pages under paths of their own, to be read and nothing else: GET and HEAD.
pub trait Pages: Debug + Send + Sync {
    /// Whether this path is one of theirs.
    fn has(&self, path: &str) -> bool;

    /// The page under this path. Runs on the gateway's threads.
    fn page<'a>(&'a self, path: &'a str, query: Option<&'a str>) -> Making<'a>;
}
