//! How a tool ends that could not do what was asked.

use client::ClientError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// What was typed makes no sense; the usage is worth showing.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work, or a file or property is wrong.
    #[error("{0}")]
    Failed(String),
    /// The cluster cannot be reached, or says no.
    #[error("{0}")]
    Client(#[from] ClientError),
}

impl ToolError {
    /// An error in what was typed.
    pub fn usage(text: impl Into<String>) -> ToolError {
        ToolError::Usage(text.into())
    }

    /// Something that did not work.
    pub fn failed(text: impl Into<String>) -> ToolError {
        ToolError::Failed(text.into())
    }
}
