//! The codec against bytes that others wrote, and against bytes that nobody would write.

mod golden;
mod hot;
mod oracle;
