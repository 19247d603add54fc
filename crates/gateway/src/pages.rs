//! Pages that another room shows on the gateway's listener: a console. The gateway lets visitors in, keeps time and closes
//! connections; what a page shows, and what a form that is sent to it does, is not its business.

use std::fmt::Debug;
use std::pin::Pin;

use bytes::Bytes;
use hyper::Response;

use serving::operation::By;

use crate::inside::Inside;

/// A page that is being made.
pub type Making<'a> = Pin<Box<dyn Future<Output = Response<Bytes>> + Send + 'a>>;

/// Pages under paths of their own: GET and HEAD to read them, POST to send a form.
pub trait Pages: Debug + Send + Sync {
    /// Whether this path is one of theirs.
    fn has(&self, path: &str) -> bool;

    /// The page under this path, for somebody who may look. Runs on the gateway's threads.
    fn page<'a>(
        &'a self,
        path: &'a str,
        query: Option<&'a str>,
        by: By<'a>,
        inside: &'a Inside,
    ) -> Making<'a>;

    /// Whether a form may be sent to this path.
    fn takes(&self, path: &str) -> bool;

    /// Takes a form, in the encoding of pages without files, and answers with a page. Runs to its end, even if whoever sent it
    /// leaves. Whether somebody may have it done is the pages' business.
    fn take<'a>(
        &'a self,
        path: &'a str,
        form: &'a [u8],
        by: By<'a>,
        inside: &'a Inside,
    ) -> Making<'a>;

    /// The gateway stops, and no more is asked: what is to be kept is written.
    fn stop(&self);
}
